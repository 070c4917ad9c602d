"""Inference layer by layer in blocks of nodes.

The device holds one block of one layer at a time, and the host holds the rest. A block is a run of nodes with all their
incoming edges. Nothing is sampled, so the results differ from those of the whole graph only by rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from edgemask.graph import Graph
from edgemask.nn.backbone import Backbone
from edgemask.nn.masknet import EdgeFacts, MaskNet
from edgemask.nn.tensors import Edges, SparseMatrix, features


@dataclass(frozen=True)
class Block:
    """A run of a graph's nodes and the edges into them, as a smaller graph.

    Attributes:
        rows: The block's own nodes in the whole graph.
        ends: Nodes of the smaller graph: all nodes at either end of the block's edges, in ascending order. They include
            the block's own nodes, because every node has a self-loop.
        own: Positions of the block's own nodes in `ends`.
        edges: Edges of the smaller graph.
        span: The block's edges among all edges.
        real: The block's real edges among all real edges.
    """

    rows: slice
    ends: Tensor
    own: Tensor
    edges: Edges
    span: slice
    real: slice


def blocks(edges: Edges, size: int, device: torch.device) -> Iterator[Block]:
    """Yield a graph in blocks of `size` nodes. Each block is copied to the device when it is reached.

    Args:
        edges: Edges of the graph, on the host.
        size: Number of nodes of a block.
        device: Where blocks are copied to.
    """
    for start in range(0, edges.num_nodes, size):
        rows = slice(start, min(start + size, edges.num_nodes))
        first, past = edges.indptr[[rows.start, rows.stop]].tolist()
        low, high = torch.searchsorted(edges.real, torch.tensor([first, past])).tolist()
        src, dst = edges.src[first:past].to(device), edges.dst[first:past].to(device)
        ends = torch.unique(src)
        block_edges = Edges(
            num_nodes=len(ends),
            src=torch.searchsorted(ends, src),
            dst=torch.searchsorted(ends, dst),
            real=(edges.real[low:high] - first).to(device),
            origin=edges.origin[low:high].to(device),
            weight=None if edges.weight is None else edges.weight[low:high].to(device),
        )
        own = torch.searchsorted(ends, torch.arange(rows.start, rows.stop, device=device))
        yield Block(rows, ends, own, block_edges, slice(first, past), slice(low, high))


def logits_in_blocks(network: Backbone, graph: Graph, edges: Edges, s: Tensor | None, size: int) -> Tensor:
    """Compute the logits of a network in blocks.

    Args:
        network: A network in evaluation mode. Its parameters determine the device and the precision.
        graph: The graph, whose features stay on the host.
        edges: The graph's edges, on the host.
        s: Mask, one value per real edge, on the host. None means ones.
        size: Number of nodes of a block.

    Returns:
        The logits (N × C), on the host.
    """
    like = next(network.parameters())
    weight = network.weigh(edges, s)
    per_edge = weight is not None and len(weight) == len(edges.src)  # otherwise one value per real edge

    def first_messages() -> Iterator[Tensor]:
        for start in range(0, edges.num_nodes, size):
            nodes = torch.arange(start, min(start + size, edges.num_nodes), device=like.device)
            yield network.at_nodes(0, _features(graph, nodes, like))

    def next_messages(i: int, z: Tensor) -> Iterator[Tensor]:
        for block in blocks(edges, size, like.device):
            part = None if weight is None else weight[block.span if per_edge else block.real].to(like.device)
            h = network.collect(i, block.edges, part, z[block.ends.cpu()].to(like.device))
            yield network.at_nodes(i + 1, h[block.own])

    z = _on_host(first_messages(), edges.num_nodes)
    for i in range(network.rounds):
        z = _on_host(next_messages(i, z), edges.num_nodes)
    return z


def mask_logits_in_blocks(network: MaskNet, graph: Graph, edges: Edges, facts: EdgeFacts | None, size: int) -> Tensor:
    """Compute the MaskNet's logit of every real edge in blocks.

    Args:
        network: A MaskNet in evaluation mode. Its parameters determine the device and the precision.
        graph: The graph, whose features stay on the host.
        edges: The graph's edges, on the host.
        facts: The network's inputs per edge, on the host. None if it takes none.
        size: Number of nodes of a block.

    Returns:
        One logit per real edge, on the host.
    """
    like = next(network.parameters())

    def block_logits() -> Iterator[Tensor]:
        for block in blocks(edges, size, like.device):
            x = _features(graph, block.ends, like)
            columns = {name: t[block.real].to(like) for name, t in facts.blocks.items()} if facts else {}
            yield network(x, block.edges, EdgeFacts(columns) if facts else None)

    return _on_host(block_logits(), edges.num_real)


def _features(graph: Graph, nodes: Tensor, like: Tensor) -> Tensor | SparseMatrix:
    """Return the features of the given nodes. Dense features are converted to the precision of `like`."""
    x = features(graph, nodes)
    return x if isinstance(x, SparseMatrix) else x.to(like.dtype)


def _on_host(parts: Iterable[Tensor], length: int) -> Tensor:
    """Join consecutive parts to one tensor of `length` rows on the host. One part is on the device at a time."""
    out, done = torch.empty(0), 0
    for part in parts:
        if done == 0:
            out = torch.empty(length, *part.shape[1:], dtype=part.dtype)
        out[done : done + len(part)] = part
        done += len(part)
    return out
