"""A two-layer perceptron on every edge. Its first layer is a sum of one term per end and one of the edge itself."""

from __future__ import annotations

from torch import Tensor

from edgemask.nn.backend import backend
from edgemask.nn.tensors import Edges


def edge_mlp(edges: Edges, at_src: Tensor, at_dst: Tensor, extra: Tensor | None, w: Tensor) -> Tensor:
    """Compute Σ_j w_j · ReLU(at_src[u, j] + at_dst[v, j] + extra[e, j]) for every real edge e = u → v.

    No edges × hidden tensor is formed besides `extra` and its gradient.

    Args:
        edges: Edges of the graph.
        at_src: Term of each node as source (N × hidden).
        at_dst: Term of each node as destination (N × hidden).
        extra: Term of each real edge (real edges × hidden). None means zeros.
        w: Weights of the second layer (hidden).

    Returns:
        One value per real edge.
    """
    out: Tensor = backend(at_src).edge_mlp(edges, at_src, at_dst, extra, w)
    return out
