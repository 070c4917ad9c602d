"""The MaskNet's edge scores Σ_j w_j ReLU(a_u + b_v + x_e) on the CPU: nothing of size edges × hidden is formed."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from edgemask.enrich.knn import shared_threads
from edgemask.nn.kernels.cpu.common import (
    BLOCKS,
    Array,
    arrays,
    blocks,
    compiled,
    empty,
    helper,
    longest,
    require_one_precision,
)
from edgemask.nn.tensors import Edges


def edge_mlp(edges: Edges, at_src: Tensor, at_dst: Tensor, extra: Tensor | None, w: Tensor) -> Tensor:
    """As `edgemask.nn.edge_mlp.edge_mlp`."""
    require_one_precision(at_src=at_src, at_dst=at_dst, extra=extra, w=w)
    out: Tensor = _EdgeMLP.apply(at_src, at_dst, extra, w, edges)  # type: ignore[no-untyped-call]
    return out


class _EdgeMLP(torch.autograd.Function):
    """With active = ∂out_e where the hidden value is positive, else 0: ∂a_u = w Σ active over the edges out of u,
    ∂b_v the same over those into v, ∂x_e = w · active, ∂w = Σ active · hidden."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, x: Tensor | None, w: Tensor, edges: Edges) -> Tensor:
        out = a.new_zeros(edges.num_real)
        number = torch.full_like(edges.src, -1)  # among the real edges; self-loops have none
        number[edges.real] = torch.arange(edges.num_real)
        with shared_threads():
            _scores(blocks(edges.indptr), *arrays(edges.indptr, edges.src, number, a, b, x, w, out))
        ctx.save_for_backward(a, b, x, w, number)
        ctx.edges = edges
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (a, b, x, w, number), edges = ctx.saved_tensors, ctx.edges
        wants_a, wants_b, wants_x, wants_w, _ = ctx.needs_input_grad
        grad_a = grad_b = grad_x = grad_w = None
        if wants_b or wants_x or wants_w:
            grad_b, parts = empty(b, *b.shape), w.new_empty(BLOCKS, len(w))
            grad_x = x.new_zeros(x.shape) if wants_x else None
            with shared_threads():
                _sums(
                    blocks(edges.indptr),
                    *arrays(edges.indptr, edges.src, None, number, b, a, x, w, grad, grad_b, parts, grad_x),
                )
            grad_w = parts.sum(0)
        if wants_a:
            (order, starts), grad_a = edges.by_source, empty(a, *a.shape)
            with shared_threads():
                _sums(
                    blocks(starts),
                    *arrays(starts, edges.dst_by_source, order, number, a, b, x, w, grad, grad_a, None, None),
                )
        return grad_a, grad_b if wants_b else None, grad_x, grad_w if wants_w else None, None


@helper
def _listed(
    begin: int, end: int, at: Array, order: Array, number: Array, grad: Array, where: Array, edge: Array, g: Array
) -> int:
    """Lists a node's real edges: their other ends, their numbers and their gradients, and how many there are; then
    filling without gradient up to whole groups of four."""
    count = 0
    for q in range(begin, end):
        e = number[q if order is None else order[q]]
        if e >= 0:
            where[count], edge[count], g[count] = at[q], e, grad[e]
            count += 1
    for m in range(count, count + -count % 4):
        where[m], edge[m], g[m] = where[count - 1], edge[count - 1], 0
    return count


@helper
def _hidden(own: Array, i: int, other: Array, u: int, x: Array | None, e: int, j: int) -> Any:
    h = own[i, j] + other[u, j]
    return h if x is None else h + x[e, j]


@compiled
def _scores(
    blocks: Array, indptr: Array, src: Array, number: Array, a: Array, b: Array, x: Array, w: Array, out: Array
) -> None:
    width, zero = len(w), w.dtype.type(0)
    for block in numba.prange(BLOCKS):
        for v in range(blocks[block], blocks[block + 1]):
            for p in range(indptr[v], indptr[v + 1]):
                u, e, total = src[p], number[p], zero
                if e >= 0:
                    for j in range(width):
                        total += w[j] * max(_hidden(b, v, a, u, x, e, j), zero)
                    out[e] = total


@compiled
def _sums(
    blocks: Array, indptr: Array, at: Array, order: Array, number: Array, own: Array, other: Array, x: Array, w: Array,
    grad: Array, grad_own: Array, grad_w: Array, grad_x: Array,
) -> None:  # fmt: skip
    """Fills the gradient of what the nodes themselves give to their entries, and on demand that of x, and that of w in
    parts, one per block."""
    width, zero = len(w), w.dtype.type(0)
    for block in numba.prange(BLOCKS):
        room = longest(indptr, blocks[block], blocks[block + 1]) + 3
        where, edge, g = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, w.dtype)
        total, part = np.empty(width, w.dtype), np.zeros(width, w.dtype)
        for i in range(blocks[block], blocks[block + 1]):
            total[:] = 0
            count = _listed(indptr[i], indptr[i + 1], at, order, number, grad, where, edge, g)
            for m in range(0, count, 4):
                u0, u1, u2, u3 = where[m], where[m + 1], where[m + 2], where[m + 3]
                e0, e1, e2, e3 = edge[m], edge[m + 1], edge[m + 2], edge[m + 3]
                g0, g1, g2, g3 = g[m], g[m + 1], g[m + 2], g[m + 3]
                for j in range(width):
                    h0, h1 = _hidden(own, i, other, u0, x, e0, j), _hidden(own, i, other, u1, x, e1, j)
                    h2, h3 = _hidden(own, i, other, u2, x, e2, j), _hidden(own, i, other, u3, x, e3, j)
                    a0, a1 = g0 if h0 > 0 else zero, g1 if h1 > 0 else zero
                    a2, a3 = g2 if h2 > 0 else zero, g3 if h3 > 0 else zero
                    total[j] += a0 + a1 + a2 + a3
                    if grad_w is not None:
                        part[j] += a0 * h0 + a1 * h1 + a2 * h2 + a3 * h3
            for j in range(width):
                grad_own[i, j] = total[j] * w[j]
            if grad_x is not None:
                for m in range(count):
                    for j in range(width):
                        active = _hidden(own, i, other, where[m], x, edge[m], j) > 0
                        grad_x[edge[m], j] = g[m] * w[j] if active else zero
        if grad_w is not None:
            for j in range(width):
                grad_w[block, j] = part[j]
