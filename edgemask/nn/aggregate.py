"""Weighted sums over incoming edges, with gradients to the values and to the edge weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from edgemask.nn.tensors import Edges, csr_tensor


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
        return _matrix(edges.indptr, edges.src, weight.detach()) @ h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (weight, h), edges = ctx.saved_tensors, ctx.edges
        grad = grad.contiguous()
        grad_weight = grad_h = None
        if ctx.needs_input_grad[0]:  # grad[v] · h[u] on the edges u → v alone
            pattern = _matrix(edges.indptr, edges.src, torch.zeros_like(weight))
            grad_weight = torch.sparse.sampled_addmm(pattern, grad, h.t(), beta=0.0).values()
        if ctx.needs_input_grad[1]:
            order, indptr = edges.by_source
            grad_h = _matrix(indptr, edges.dst_by_source, weight[order]) @ grad
        return grad_weight, grad_h, None


def _matrix(indptr: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    return csr_tensor(indptr, columns, values, (len(indptr) - 1, len(indptr) - 1), values.device)


def segment_sum(edges: Edges, values: Tensor) -> Tensor:
    """Sum of per-edge values at their destinations: (M,) → (N,), (M, H) → (N, H)."""
    return torch.segment_reduce(values, "sum", offsets=edges.indptr, axis=0, unsafe=True)


def segment_max(edges: Edges, values: Tensor) -> Tensor:
    """Largest of the per-edge values at each destination; shapes as in `segment_sum`."""
    return torch.segment_reduce(values, "max", offsets=edges.indptr, axis=0, unsafe=True)


def gcn_weights(edges: Edges, s: Tensor | None = None) -> Tensor:
    """Symmetric normalisation d_u^{-1/2} s_uv d_v^{-1/2} of the masked graph with self-loops (Kipf & Welling);
    degrees are those of the masked graph, so a mask of 0 equals the graph without the edge."""
    weight = edges.spread(s)
    inverse = segment_sum(edges, weight).rsqrt()  # the self-loop keeps every degree at 1 or more
    return inverse[edges.src] * weight * inverse[edges.dst]
