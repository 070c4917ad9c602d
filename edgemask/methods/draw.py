"""An epoch's edges drawn on a GPU without a look from the host: all sizes fixed, so that the draw is captured once.

The same distribution as `Sampler.sample`, from another random stream: the device's default generator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from edgemask.enrich import Origin, Sampler
from edgemask.methods.capture import capture_stream
from edgemask.nn.tensors import Edges

LOOP = 3  # in the place of an origin


class Draw:
    """Samples of one enriched graph at a recipe's ratios and budgets, as padded edges that every call fills anew."""

    def __init__(self, sampler: Sampler, ratios: Mapping[str, Any], device: torch.device):
        self.sampler, self.device = sampler, device
        self.near, self.far = sampler.counts(**ratios)
        self.length = len(sampler.original) + 2 * (self.near + self.far) + sampler.num_nodes
        self.graph: torch.cuda.CUDAGraph | None = None
        self.edges: Edges | None = None

    def __call__(self) -> Edges:
        """This call's edges, decided by the state of the device's default generator. They are held in the same tensors
        as the last call's."""
        if self.edges is None:
            here, aside = torch.cuda.current_stream(), capture_stream(self.device)
            aside.wait_stream(here)
            with torch.cuda.stream(aside):
                self.draw()
            here.wait_stream(aside)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=aside):
                self.edges = self.draw()
        assert self.graph is not None
        self.graph.replay()
        return self.edges

    def draw(self) -> Edges:
        sampler, n = self.sampler, self.sampler.num_nodes
        nodes = torch.arange(n, device=self.device)
        i, j = sampler.knn_pairs[:, choose(sampler.num_knn_pairs, self.near, self.device)]
        a, b = sampler.spectral_pairs(choose(sampler.num_spectral_pairs, self.far, self.device))
        near, far = Origin.KNN, Origin.SPECTRAL
        added = sampler.keys(i, j, near), sampler.keys(j, i, near), sampler.keys(a, b, far), sampler.keys(b, a, far)
        return padded_edges(torch.cat([sampler.original, *added, sampler.keys(nodes, nodes, LOOP)]), n)


def padded_edges(key: Tensor, n: int) -> Edges:
    """Edges from the keys of directed edges and of all self-loops; of equal edges the smallest origin stays, and the
    others become filling."""
    end = (n * n) << 2
    key = key.sort().values
    again = torch.zeros_like(key, dtype=torch.bool)
    torch.eq(key[1:] >> 2, key[:-1] >> 2, out=again[1:])
    key = key.masked_fill(again, end).sort().values
    edge, gone, nodes = key >> 2, key >= end, torch.arange(n + 1, device=key.device)
    row = edge // n  # of filling: n
    dst, src = row.clamp_max(n - 1), torch.where(gone, n - 1, edge - row * n)
    loop = ((key & 3) == LOOP) & ~gone
    # The positions that are no self-loops, in order: each writes itself where it belongs, the loops past the end.
    real = key.new_empty(len(key) - n + 1)
    real.scatter_(0, torch.where(loop, len(key) - n, (~loop).cumsum(0) - 1), torch.arange(len(key), device=key.device))
    real = real[:-1]
    origin = torch.where(gone, 255, key & 3)[real].to(torch.uint8)
    edges = Edges(n, src, dst, real, origin, count=(~gone).sum().reshape(1) - n)
    sender, order = torch.where(gone, n, src).sort(stable=True)
    edges.__dict__["indptr"] = torch.searchsorted(row, nodes)
    edges.__dict__["by_source"] = order, torch.searchsorted(sender, nodes)
    edges.__dict__["dst_by_source"] = dst[order]
    return edges


def choose(total: int, count: int, device: torch.device) -> Tensor:
    """`count` numbers of 0 … total - 1, every subset equally likely: distinct, but for a chance far below one in a
    thousand that some are there twice."""
    if count == total:
        return torch.arange(total, device=device)
    if 2 * count > total:
        return torch.rand(total, device=device).argsort()[:count]
    # So many draws give `count` distinct numbers on average, and a margin nearly always enough of them.
    draws = int(-total * math.log1p(-count / total) + 4 * math.sqrt(count)) + 8
    numbers = torch.randint(total, (draws,), device=device).sort().values
    again = torch.zeros_like(numbers, dtype=torch.bool)
    torch.eq(numbers[1:], numbers[:-1], out=again[1:])
    priority = torch.rand(draws, device=device).masked_fill(again, 2)
    return numbers[priority.argsort()[:count]]
