"""Sampling of an epoch's edges on a GPU without reading values on the host.

All sizes are fixed, so that the draw can be captured once. The distribution is that of `Sampler.sample`, but the random
numbers come from another stream: the device's default generator.
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

LOOP = 3  # marks self-loops, in place of an origin


class Draw:
    """A callable that draws samples of an enriched graph as padded edges.

    Args:
        sampler: Sampler of the enriched graph.
        ratios: Ratios and budget of the recipe, as keyword arguments of the sampler.
        device: The GPU to draw on.

    Attributes:
        length: Number of entries of the padded edges, self-loops included.
    """

    def __init__(self, sampler: Sampler, ratios: Mapping[str, Any], device: torch.device):
        self.sampler, self.device = sampler, device
        self.near, self.far = sampler.counts(**ratios)
        self.length = len(sampler.original) + 2 * (self.near + self.far) + sampler.num_nodes
        self.graph: torch.cuda.CUDAGraph | None = None
        self.edges: Edges | None = None

    def __call__(self) -> Edges:
        """Return a sample, which depends on the state of the device's default generator.

        Every call writes to the same tensors and returns the same object.
        """
        if self.edges is None:
            current, side = torch.cuda.current_stream(), capture_stream(self.device)
            side.wait_stream(current)
            with torch.cuda.stream(side):
                self.draw()
            current.wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=side):
                self.edges = self.draw()
        assert self.graph is not None
        self.graph.replay()
        return self.edges

    def draw(self) -> Edges:
        """Draw a sample without a capture, and return it as new padded edges."""
        sampler, n = self.sampler, self.sampler.num_nodes
        nodes = torch.arange(n, device=self.device)
        i, j = sampler.knn_pairs[:, choose(sampler.num_knn_pairs, self.near, self.device)]
        a, b = sampler.spectral_pairs(choose(sampler.num_spectral_pairs, self.far, self.device))
        near, far = Origin.KNN, Origin.SPECTRAL
        added = sampler.keys(i, j, near), sampler.keys(j, i, near), sampler.keys(a, b, far), sampler.keys(b, a, far)
        edges = padded_edges(torch.cat([sampler.original, *added, sampler.keys(nodes, nodes, LOOP)]), n)
        return edges.with_weight(sampler.sample_weights(edges.origin))


def padded_edges(key: Tensor, n: int) -> Edges:
    """Return padded edges from the keys of directed edges and of all self-loops.

    Among equal edges the one with the smallest origin stays, and the others become padding.
    """
    end = (n * n) << 2
    key = key.sort().values
    duplicate = torch.zeros_like(key, dtype=torch.bool)
    torch.eq(key[1:] >> 2, key[:-1] >> 2, out=duplicate[1:])
    key = key.masked_fill(duplicate, end).sort().values
    edge, padding, nodes = key >> 2, key >= end, torch.arange(n + 1, device=key.device)
    row = edge // n  # n for padding
    dst, src = row.clamp_max(n - 1), torch.where(padding, n - 1, edge - row * n)
    loop = ((key & 3) == LOOP) & ~padding
    # The positions of edges other than self-loops, in order. Self-loops are written to an extra entry at the end.
    real = key.new_empty(len(key) - n + 1)
    real.scatter_(0, torch.where(loop, len(key) - n, (~loop).cumsum(0) - 1), torch.arange(len(key), device=key.device))
    real = real[:-1]
    origin = torch.where(padding, 255, key & 3)[real].to(torch.uint8)
    edges = Edges(n, src, dst, real, origin, count=(~padding).sum().reshape(1) - n)
    sender, order = torch.where(padding, n, src).sort(stable=True)
    edges.preset(
        indptr=torch.searchsorted(row, nodes),
        by_source=(order, torch.searchsorted(sender, nodes)),
        dst_by_source=dst[order],
    )
    return edges


def choose(total: int, count: int, device: torch.device) -> Tensor:
    """Return `count` numbers out of 0 … total - 1, with every subset equally likely.

    They are distinct, except that with a probability far below 1/1000 some number occurs twice.

    Args:
        total: How many numbers there are.
        count: How many are chosen, at most `total`.
        device: Where to draw and return them.
    """
    if count == total:
        return torch.arange(total, device=device)
    if 2 * count > total:
        return torch.rand(total, device=device).argsort()[:count]
    # The first term gives `count` distinct numbers on average; the margin makes it almost always enough.
    draws = int(-total * math.log1p(-count / total) + 4 * math.sqrt(count)) + 8
    numbers = torch.randint(total, (draws,), device=device).sort().values
    duplicate = torch.zeros_like(numbers, dtype=torch.bool)
    torch.eq(numbers[1:], numbers[:-1], out=duplicate[1:])
    priority = torch.rand(draws, device=device).masked_fill(duplicate, 2)
    return numbers[priority.argsort()[:count]]
