"""Weighted sums over incoming edges, with gradients for the values and for the edge weights."""

from __future__ import annotations

import torch
from torch import Tensor

from edgemask.nn.backend import backend
from edgemask.nn.tensors import Edges


def aggregate(edges: Edges, weight: Tensor, h: Tensor) -> Tensor:
    """Compute out[v] = Σ_{e: u→v} weight_e · h[u] without forming an edges × d tensor.

    Args:
        edges: Edges of the graph.
        weight: One value per edge, self-loops included.
        h: Values of the nodes (N × d).

    Returns:
        The sums (N × d).
    """
    out: Tensor = backend(h).aggregate(edges, weight, h)
    return out


def gcn_weights(edges: Edges, s: Tensor | None = None) -> Tensor:
    """Return the symmetric normalisation d_u^{-1/2} s_uv w_uv d_v^{-1/2} of the masked graph (Kipf & Welling).

    Degrees are those of the masked, weighted graph with self-loops, so a mask or a weight of 0 is the same as removing
    the edge.

    Args:
        edges: Edges of the graph, with their weights w.
        s: Mask, one value per real edge. None means ones.

    Returns:
        One weight per edge, self-loops included.
    """
    like = torch.empty(0, device=edges.src.device) if s is None else s
    out: Tensor = backend(like).gcn_weights(edges, s)
    return out
