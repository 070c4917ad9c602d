"""A two-layer perceptron on every edge whose first layer is a sum of what its two ends (and the edge itself) give."""

from __future__ import annotations

from torch import Tensor

from edgemask.nn.backend import backend
from edgemask.nn.tensors import Edges


def edge_mlp(edges: Edges, at_src: Tensor, at_dst: Tensor, extra: Tensor | None, w: Tensor) -> Tensor:
    """Σ_j w_j · ReLU(at_src[u, j] + at_dst[v, j] + extra[e, j]) for every real edge e = u → v.

    `at_src` and `at_dst` are N × hidden, `extra` is None or real edges × hidden. No other edges × hidden tensor is
    formed, forward or backward.
    """
    out: Tensor = backend(at_src).edge_mlp(edges, at_src, at_dst, extra, w)
    return out
