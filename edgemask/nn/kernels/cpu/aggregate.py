"""Weighted sums over incoming edges, sparse products, and the normalisation of a GCN, on the CPU."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from edgemask.nn.compiled import BLOCKS, Array, arrays, blocks, compiled, empty, require_one_precision
from edgemask.nn.kernels.cpu.rows import products, sums
from edgemask.nn.tensors import Edges
from edgemask.runtime.threads import shared_threads

NARROW = 16  # columns; up to this width, reading the rows twice is faster than writing to the edges out of order


def aggregate(edges: Edges, weight: Tensor, h: Tensor) -> Tensor:
    """Implement `edgemask.nn.aggregate.aggregate`."""
    require_one_precision(weight=weight, h=h)
    out: Tensor = _Aggregate.apply(weight, h, edges)  # type: ignore[no-untyped-call]
    return out


def gcn_weights(edges: Edges, s: Tensor | None = None) -> Tensor:
    """Implement `edgemask.nn.aggregate.gcn_weights`. The weights without a mask are kept with the edges."""
    require_one_precision(s=torch.empty(0) if s is None else s)
    kept = _kept(edges) if s is None else None
    if kept is not None and "weight" in kept:
        return kept["weight"]
    out: Tensor = _GCNWeights.apply(edges.weighted(s), edges)  # type: ignore[no-untyped-call]
    if kept is not None and not out.requires_grad:
        kept["weight"] = out
    return out


def _kept(edges: Edges) -> dict[str, Tensor] | None:
    """Return the weights without a mask that are kept with the edges, in either order.

    None if the edges may change in place.
    """
    if edges.count is not None:
        return None
    kept: dict[str, Tensor] = edges.derived.setdefault(("gcn weights", torch.get_default_dtype()), {})
    return kept


def _by_source(edges: Edges, weight: Tensor) -> Tensor:
    """Return edge weights in the order of `by_source`. Those without a mask are sorted once."""
    kept = _kept(edges)
    if kept is None or weight is not kept.get("weight"):
        return edges.source_order(weight)
    if "by source" not in kept:
        kept["by source"] = edges.source_order(weight)
    return kept["by source"]


def product(indptr: Tensor, columns: Tensor, values: Tensor, w: Tensor) -> Tensor:
    """Return the product of the CSR matrix (indptr, columns, values) and w."""
    require_one_precision(values=values, w=w)
    return sums((indptr, columns, None), values, None, w.unsqueeze(1)).squeeze(1)


class _Aggregate(torch.autograd.Function):
    """The product of the weighted adjacency matrix and h, with gradients for the weights and h."""

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
            grad_weight, _ = products((edges.indptr, edges.src, None), weight, None, grad, own, with_sums=False)
            return grad_weight.squeeze(1), None, None
        order, starts = edges.by_source
        if wants_weight and h.shape[1] > NARROW:
            by_source = starts, edges.dst_by_source, order
            grad_weight, grad_h = products(by_source, weight, None, own, grad, with_sums=True)
            return grad_weight.squeeze(1), None if grad_h is None else grad_h.squeeze(1), None
        grad_h = sums((starts, edges.dst_by_source, None), _by_source(edges, weight), None, grad).squeeze(1)
        if not wants_weight:
            return None, grad_h, None
        grad_weight, _ = products((edges.indptr, edges.src, None), weight, None, grad, own, with_sums=False)
        return grad_weight.squeeze(1), grad_h, None


class _GCNWeights(torch.autograd.Function):
    """The weights w_e = i_u s_e i_v with i = degree^{-1/2} and s = 1 on self-loops.

    The gradient is ∂s_e = ∂w_e i_u i_v - ½ i_v³ I_v with I_x = Σ_{e at x} ∂w_e s_e i_{other end}.
    """

    @staticmethod
    def forward(ctx: Any, s: Tensor | None, edges: Edges) -> Tensor:
        like = torch.empty(0) if s is None else s
        inverse, weight = like.new_empty(edges.num_nodes), empty(like, len(edges.src))
        weight[int(edges.indptr[-1]) :] = 0  # padding entries
        with shared_threads():
            _normalise(*_rows(edges), *arrays(s, inverse, weight))
        ctx.save_for_backward(s, inverse)
        ctx.edges = edges
        return weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (s, inverse), edges, starts = ctx.saved_tensors, ctx.edges, ctx.edges.by_source[1]
        terms, total, grad_s = empty(grad, len(grad)), torch.empty_like(inverse), empty(s, len(s))
        grad_s[int(edges.real_indptr[-1]) :] = 0
        with shared_threads():
            _incoming(*_rows(edges), *arrays(s, inverse, grad, terms, total))
            _outgoing(blocks(starts), *arrays(starts, edges.source_order(terms), total))
            _through_degrees(*_rows(edges), *arrays(inverse, grad, total, grad_s))
        return grad_s, None


def _rows(edges: Edges) -> list[Any]:
    """Return the arguments of a loop over the edges into each node."""
    return [blocks(edges.indptr), *arrays(edges.indptr, edges.real_indptr, edges.src)]


@compiled
def _normalise(
    blocks: Array, indptr: Array, real_indptr: Array, src: Array, s: Array, inverse: Array, weight: Array
) -> None:
    """Fill i = degree^{-1/2}, then w."""
    one = inverse.dtype.type(1)
    for block in numba.prange(BLOCKS):
        for v in range(blocks[block], blocks[block + 1]):
            real, past = real_indptr[v], real_indptr[v + 1]
            degree = inverse.dtype.type(indptr[v + 1] - indptr[v] - (past - real))  # number of self-loops
            for e in range(real, past):
                degree += one if s is None else s[e]
            inverse[v] = one / np.sqrt(degree)
    for block in numba.prange(BLOCKS):
        for v in range(blocks[block], blocks[block + 1]):
            e = real_indptr[v]
            for p in range(indptr[v], indptr[v + 1]):
                weight[p] = inverse[src[p]] * inverse[v]
                if src[p] != v:
                    weight[p] *= one if s is None else s[e]
                    e += 1


@compiled
def _incoming(
    blocks: Array, indptr: Array, real_indptr: Array, src: Array,
    s: Array, inverse: Array, grad: Array, terms: Array, total: Array,
) -> None:  # fmt: skip
    """Fill `terms` with ∂w_e s_e i_v, the term of edge u → v in I_u.

    Also fill `total` with the terms of the incoming edges in I_v.
    """
    for block in numba.prange(BLOCKS):
        for v in range(blocks[block], blocks[block + 1]):
            e, own, added = real_indptr[v], inverse[v], inverse.dtype.type(0)
            for p in range(indptr[v], indptr[v + 1]):
                term = grad[p]
                if src[p] != v:
                    term *= s[e]
                    e += 1
                terms[p] = term * own
                added += term * inverse[src[p]]
            total[v] = added


@compiled
def _outgoing(blocks: Array, starts: Array, terms: Array, total: Array) -> None:
    """Add the terms of the edges out of u to I_u."""
    for block in numba.prange(BLOCKS):
        for u in range(blocks[block], blocks[block + 1]):
            added = terms.dtype.type(0)
            for q in range(starts[u], starts[u + 1]):
                added += terms[q]
            total[u] += added


@compiled
def _through_degrees(
    blocks: Array, indptr: Array, real_indptr: Array, src: Array,
    inverse: Array, grad: Array, total: Array, grad_s: Array,
) -> None:  # fmt: skip
    """Fill ∂s_e = ∂w_e i_u i_v - ½ i_v³ I_v."""
    half = inverse.dtype.type(0.5)
    for block in numba.prange(BLOCKS):
        for v in range(blocks[block], blocks[block + 1]):
            e, own = real_indptr[v], inverse[v]
            through = half * own * own * own * total[v]
            for p in range(indptr[v], indptr[v + 1]):
                if src[p] != v:
                    grad_s[e] = grad[p] * own * inverse[src[p]] - through
                    e += 1
