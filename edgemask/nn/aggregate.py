"""Weighted sums over incoming edges, with gradients to the values and to the edge weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgemask.nn.tensors import Edges, csr_tensor

CHUNK = 1 << 16  # edges whose endpoint rows are held at once in the gradient of the weights


def aggregate(edges: Edges, weight: Tensor, h: Tensor) -> Tensor:
    """out[v] = Σ_{e: u→v} weight_e · h[u].

    `weight` has one value per edge (self-loops included), `h` is N × d. No edges × d tensor is formed.
    """
    out: Tensor = _Aggregate.apply(weight, h, edges)  # type: ignore[no-untyped-call]
    return out


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, h: Tensor, edges: Edges) -> Tensor:
        ctx.save_for_backward(weight, h)
        ctx.edges = edges
        n = edges.num_nodes
        return csr_tensor(edges.indptr, edges.src, weight.detach(), (n, n), h.device) @ h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (weight, h), edges, n = ctx.saved_tensors, ctx.edges, ctx.edges.num_nodes
        grad = grad.contiguous()
        grad_weight = grad_h = None
        if ctx.needs_input_grad[0]:
            parts = [
                (grad[edges.dst[i : i + CHUNK]] * h[edges.src[i : i + CHUNK]]).sum(1)
                for i in range(0, len(edges.src), CHUNK)
            ]
            grad_weight = torch.cat(parts) if parts else torch.zeros_like(weight)
        if ctx.needs_input_grad[1]:
            order, indptr = edges.by_source
            grad_h = csr_tensor(indptr, edges.dst[order], weight[order], (n, n), h.device) @ grad
        return grad_weight, grad_h, None


def segment_sum(edges: Edges, values: Tensor) -> Tensor:
    """Sum of per-edge values at their destinations: (M,) → (N,), (M, H) → (N, H)."""
    return values.new_zeros(edges.num_nodes, *values.shape[1:]).index_add(0, edges.dst, values)


def gcn_weights(edges: Edges, s: Tensor | None = None) -> Tensor:
    """Symmetric normalisation d_u^{-1/2} s_uv d_v^{-1/2} of the masked graph with self-loops (Kipf & Welling);
    degrees are those of the masked graph, so a mask of 0 equals the graph without the edge."""
    weight = edges.spread(s)
    inverse = segment_sum(edges, weight).rsqrt()  # the self-loop keeps every degree at 1 or more
    return inverse[edges.src] * weight * inverse[edges.dst]
