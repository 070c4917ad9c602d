"""Weighted sums over incoming edges, sparse products, and the normalisation of a GCN, on the CPU."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from edgemask.enrich.knn import shared_threads
from edgemask.nn.kernels.cpu.common import BLOCKS, Array, arrays, blocks, compiled, require_one_precision
from edgemask.nn.kernels.cpu.rows import products, sums
from edgemask.nn.tensors import Edges


def aggregate(edges: Edges, weight: Tensor, h: Tensor) -> Tensor:
    """As `edgemask.nn.aggregate.aggregate`."""
    require_one_precision(weight=weight, h=h)
    out: Tensor = _Aggregate.apply(weight, h, edges)  # type: ignore[no-untyped-call]
    return out


def gcn_weights(edges: Edges, s: Tensor | None = None) -> Tensor:
    """As `edgemask.nn.aggregate.gcn_weights`."""
    weight = edges.spread(s)
    require_one_precision(s=weight)
    out: Tensor = _GCNWeights.apply(weight, edges)  # type: ignore[no-untyped-call]
    return out


def product(indptr: Tensor, columns: Tensor, values: Tensor, w: Tensor) -> Tensor:
    """The CSR matrix (indptr, columns, values) times w."""
    require_one_precision(values=values, w=w)
    return sums((indptr, columns, None), values, None, w.unsqueeze(1)).squeeze(1)


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, h: Tensor, edges: Edges) -> Tensor:
        ctx.save_for_backward(weight, h)
        ctx.edges = edges
        return product(edges.indptr, edges.src, weight, h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (weight, h), edges = ctx.saved_tensors, ctx.edges
        wants_weight, wants_h, _ = ctx.needs_input_grad
        own, grad = h.unsqueeze(1), grad.unsqueeze(1)
        if not wants_h:
            found, _ = products((edges.indptr, edges.src, None), weight, None, grad, own, with_sums=False)
            return found.squeeze(1), None, None
        order, starts = edges.by_source
        by_source = starts, edges.dst_by_source, order
        if not wants_weight:
            return None, sums(by_source, weight, None, grad).squeeze(1), None
        found, grad_h = products(by_source, weight, None, own, grad, with_sums=True)
        return found.squeeze(1), None if grad_h is None else grad_h.squeeze(1), None


class _GCNWeights(torch.autograd.Function):
    """w_e = i_u s_e i_v with i = degree^{-1/2}; backward, with I_x = Σ_{e at x} ∂w_e s_e i_{other end}:
    ∂s_e = ∂w_e i_u i_v - ½ i_v³ I_v."""

    @staticmethod
    def forward(ctx: Any, s: Tensor, edges: Edges) -> Tensor:
        inverse, weight = s.new_empty(edges.num_nodes), torch.zeros_like(s)
        with shared_threads():
            _normalise(blocks(edges.indptr), *arrays(edges.indptr, edges.src, s, inverse, weight))
        ctx.save_for_backward(s, inverse)
        ctx.edges = edges
        return weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (s, inverse), edges, (order, starts) = ctx.saved_tensors, ctx.edges, ctx.edges.by_source
        outgoing, grad_s = torch.empty_like(inverse), torch.zeros_like(s)
        with shared_threads():
            _outgoing(blocks(starts), *arrays(starts, edges.dst_by_source, order, s, inverse, grad, outgoing))
            _through_degrees(blocks(edges.indptr), *arrays(edges.indptr, edges.src, s, inverse, grad, outgoing, grad_s))
        return grad_s, None


@compiled
def _normalise(blocks: Array, indptr: Array, src: Array, s: Array, inverse: Array, weight: Array) -> None:
    """Fills i = degree^{-1/2}, then w."""
    one = s.dtype.type(1)
    for block in numba.prange(BLOCKS):
        for v in range(blocks[block], blocks[block + 1]):
            degree = s.dtype.type(0)
            for p in range(indptr[v], indptr[v + 1]):
                degree += s[p]
            inverse[v] = one / np.sqrt(degree)
    for block in numba.prange(BLOCKS):
        for v in range(blocks[block], blocks[block + 1]):
            for p in range(indptr[v], indptr[v + 1]):
                weight[p] = inverse[src[p]] * s[p] * inverse[v]


@compiled
def _outgoing(
    blocks: Array, starts: Array, dst: Array, order: Array, s: Array, inverse: Array, grad: Array, outgoing: Array
) -> None:
    """outgoing[u] = Σ_{e: u→v} ∂w_e s_e i_v."""
    for block in numba.prange(BLOCKS):
        for u in range(blocks[block], blocks[block + 1]):
            total = s.dtype.type(0)
            for q in range(starts[u], starts[u + 1]):
                total += grad[order[q]] * s[order[q]] * inverse[dst[q]]
            outgoing[u] = total


@compiled
def _through_degrees(
    blocks: Array, indptr: Array, src: Array, s: Array, inverse: Array, grad: Array, outgoing: Array, grad_s: Array
) -> None:
    half = s.dtype.type(0.5)
    for block in numba.prange(BLOCKS):
        for v in range(blocks[block], blocks[block + 1]):
            total, own = outgoing[v], inverse[v]
            for p in range(indptr[v], indptr[v + 1]):
                total += grad[p] * s[p] * inverse[src[p]]
            for p in range(indptr[v], indptr[v + 1]):
                grad_s[p] = grad[p] * own * inverse[src[p]] - half * own * own * own * total
