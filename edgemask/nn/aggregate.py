"""Weighted sums over incoming edges, with gradients to the values and to the edge weights."""

from __future__ import annotations

import torch
from torch import Tensor

from edgemask.nn.backend import backend
from edgemask.nn.tensors import Edges


def aggregate(edges: Edges, weight: Tensor, h: Tensor) -> Tensor:
    """out[v] = Σ_{e: u→v} weight_e · h[u].

    `weight` has one value per edge (self-loops included), `h` is N × d. No edges × d tensor is formed.
    """
    out: Tensor = backend(h).aggregate(edges, weight, h)
    return out


def gcn_weights(edges: Edges, s: Tensor | None = None) -> Tensor:
    """Symmetric normalisation d_u^{-1/2} s_uv d_v^{-1/2} of the masked graph with self-loops (Kipf & Welling);
    degrees are those of the masked graph, so a mask of 0 equals the graph without the edge."""
    like = torch.empty(0, device=edges.src.device) if s is None else s
    out: Tensor = backend(like).gcn_weights(edges, s)
    return out
