"""Inference layer by layer in blocks of nodes: the device holds one block of one layer at a time, the host the rest.

A block is a run of nodes with all their incoming edges: nothing is sampled, and nothing changes but rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from edgemask.graph import Graph
from edgemask.nn.backbone import Backbone
from edgemask.nn.masknet import EdgeFacts, MaskNet
from edgemask.nn.tensors import Edges, GraphTensors, SparseMatrix, features


@dataclass(frozen=True)
class Block:
    """A run of a graph's nodes, and the edges into them as a graph of the nodes at either end."""

    rows: slice  # the block's own nodes
    ends: Tensor  # the nodes at either end of its edges, in order; by their self-loops its own are among them
    own: Tensor  # where its own are
    edges: Edges
    span: slice  # its edges among all
    real: slice  # and its real edges among the real ones


def blocks(edges: Edges, size: int, device: torch.device) -> Iterator[Block]:
    """A graph in blocks of `size` nodes, each on the device when it is reached."""
    for start in range(0, edges.num_nodes, size):
        rows = slice(start, min(start + size, edges.num_nodes))
        first, past = edges.indptr[[rows.start, rows.stop]].tolist()
        low, high = torch.searchsorted(edges.real, torch.tensor([first, past])).tolist()
        src, dst = edges.src[first:past].to(device), edges.dst[first:past].to(device)
        ends = torch.unique(src)
        within = Edges(
            num_nodes=len(ends),
            src=torch.searchsorted(ends, src),
            dst=torch.searchsorted(ends, dst),
            real=(edges.real[low:high] - first).to(device),
            origin=edges.origin[low:high].to(device),
        )
        own = torch.searchsorted(ends, torch.arange(rows.start, rows.stop, device=device))
        yield Block(rows, ends, own, within, slice(first, past), slice(low, high))


def logits_in_blocks(network: Backbone, graph: Graph, edges: Edges, s: Tensor | None, size: int) -> Tensor:
    """N × C logits of a network in evaluation mode, on the host, where `edges` and `s` are too."""
    like = next(network.parameters())
    weight = network.weigh(edges, s)
    whole = weight is not None and len(weight) == len(edges.src)  # a value per edge; else per real edge

    def sent() -> Iterator[Tensor]:
        for start in range(0, edges.num_nodes, size):
            nodes = torch.arange(start, min(start + size, edges.num_nodes), device=like.device)
            yield network.at_nodes(0, _features(graph, nodes, like))

    def collected(i: int, z: Tensor) -> Iterator[Tensor]:
        for block in blocks(edges, size, like.device):
            part = None if weight is None else weight[block.span if whole else block.real].to(like.device)
            h = network.collect(i, block.edges, part, z[block.ends.cpu()].to(like.device))
            yield network.at_nodes(i + 1, h[block.own])

    z = _on_host(sent(), edges.num_nodes)
    for i in range(network.rounds):
        z = _on_host(collected(i, z), edges.num_nodes)
    return z


def mask_logits_in_blocks(network: MaskNet, graph: Graph, edges: Edges, facts: EdgeFacts | None, size: int) -> Tensor:
    """The MaskNet's logit of every real edge, on the host, where `edges` and `facts` are too."""
    like = next(network.parameters())

    def scored() -> Iterator[Tensor]:
        for block in blocks(edges, size, like.device):
            x = _features(graph, block.ends, like)
            domain = GraphTensors(graph.name, x, block.edges, None, block.own[:0], graph)
            held = {name: t[block.real].to(like) for name, t in facts.blocks.items()} if facts else {}
            yield network(domain, block.edges, EdgeFacts(held) if facts else None)

    return _on_host(scored(), edges.num_real)


def _features(graph: Graph, nodes: Tensor, like: Tensor) -> Tensor | SparseMatrix:
    x = features(graph, nodes)
    return x if isinstance(x, SparseMatrix) else x.to(like.dtype)


def _on_host(parts: Iterable[Tensor], length: int) -> Tensor:
    """Consecutive parts as one tensor of `length` rows on the host, one of them on the device at a time."""
    out, done = torch.empty(0), 0
    for part in parts:
        if done == 0:
            out = torch.empty(length, *part.shape[1:], dtype=part.dtype)
        out[done : done + len(part)] = part
        done += len(part)
    return out
