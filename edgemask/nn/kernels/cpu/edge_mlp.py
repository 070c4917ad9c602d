"""The MaskNet's edge scores Σ_j w_j ReLU(a_u + b_v + x_e) on the CPU, without an edges × hidden tensor.

The backward pass only needs to know which hidden values of an edge are positive. The forward pass stores this in one
bit per hidden unit. Rows are then gathered only once, and the backward pass reads one word for 32 hidden units instead
of 32 numbers.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from edgemask.nn.compiled import (
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
from edgemask.runtime.threads import shared_threads

WORD = 32  # bits
BITS = (1 << np.arange(WORD, dtype=np.uint32)).view(np.int32)  # words in which one bit is set


def edge_mlp(edges: Edges, at_src: Tensor, at_dst: Tensor, extra: Tensor | None, w: Tensor) -> Tensor:
    """Implement `edgemask.nn.edge_mlp.edge_mlp`."""
    require_one_precision(at_src=at_src, at_dst=at_dst, extra=extra, w=w)
    out: Tensor = _EdgeMLP.apply(at_src, at_dst, extra, w, edges, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
    return out


class _EdgeMLP(torch.autograd.Function):
    """The edge scores and their gradients.

    Let active be ∂out_e where the hidden value is positive and 0 elsewhere, A_u its sum over the edges out of u, and
    B_v its sum over the edges into v. Then ∂a_u = w A_u, ∂b_v = w B_v, ∂x_e = w · active, and
    ∂w = Σ_u a_u A_u + Σ_v b_v B_v + Σ_e x_e · active.
    """

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, x: Tensor | None, w: Tensor, edges: Edges, differentiable: bool
    ) -> Tensor:
        out, words = empty(a, edges.num_real), -(-len(w) // WORD)
        out[int(edges.real_indptr[-1]) :] = 0  # padding entries
        needs_bits = differentiable and any(ctx.needs_input_grad)
        bits = empty(torch.empty(0, dtype=torch.int32), len(edges.src), words) if needs_bits else None
        rows = blocks(edges.indptr), *arrays(edges.indptr, edges.real_indptr, edges.src)
        with shared_threads():
            _scores(*rows, *arrays(a, b, x, w, out, bits))
        ctx.save_for_backward(a, b, x, w, bits)
        ctx.edges = edges
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (a, b, x, w, bits), edges = ctx.saved_tensors, ctx.edges
        wants_a, wants_b, wants_x, wants_w, *_ = ctx.needs_input_grad
        grad_b, slopes = empty(b, *b.shape), empty(w, len(edges.src))
        grad_x = empty(w, *x.shape) if wants_x else None
        if grad_x is not None:
            grad_x[int(edges.real_indptr[-1]) :] = 0
        into, out_of = w.new_zeros(BLOCKS, len(w)), w.new_zeros(BLOCKS, len(w))
        rows = blocks(edges.indptr), *arrays(edges.indptr, edges.real_indptr, edges.src)
        with shared_threads():
            _incoming(*rows, *arrays(bits, grad, b, x, w, slopes, grad_b, into, grad_x))
        grad_a = None
        if wants_a or wants_w:
            starts, grad_a = edges.by_source[1], empty(a, *a.shape)
            bits, slopes = edges.source_order(bits), edges.source_order(slopes)
            with shared_threads():
                _outgoing(blocks(starts), *arrays(starts, bits, slopes, a, w, grad_a, out_of))
        grad_w = (into + out_of).sum(0) if wants_w else None
        return grad_a if wants_a else None, grad_b if wants_b else None, grad_x, grad_w, None, None


@helper
def _listed(v: int, begin: int, end: int, src: Array, edge: Array) -> int:
    """List the edges into v that are not self-loops in `edge`, and return their number.

    The last edge is repeated to complete a group of four.
    """
    count = 0
    for p in range(begin, end):
        if src[p] != v:
            edge[count] = p
            count += 1
    for m in range(count, count + -count % 4):
        edge[m] = edge[count - 1]
    return count


@helper
def _hidden(a: Array, u: int, b: Array, v: int, x: Array, e: int, j: int) -> Any:
    """Return hidden value j of edge e = u → v before the ReLU."""
    h = b[v, j] + a[u, j]
    return h if x is None else h + x[e, j]


@compiled
def _scores(
    blocks: Array, indptr: Array, real_indptr: Array, src: Array,
    a: Array, b: Array, x: Array, w: Array, out: Array, bits: Array,
) -> None:  # fmt: skip
    """Fill `out` with the scores and, unless it is None, `bits` with the signs of the hidden values.

    Rows are read four at a time, which is as many as the memory delivers to a core at once.
    """
    width, zero, none = len(w), w.dtype.type(0), np.int32(0)
    for block in numba.prange(BLOCKS):
        edge = np.empty(longest(indptr, blocks[block], blocks[block + 1]) + 3, np.int64)
        for v in range(blocks[block], blocks[block + 1]):
            count = _listed(v, indptr[v], indptr[v + 1], src, edge)
            last = real_indptr[v + 1] - 1
            for m in range(0, count, 4):
                p0, p1, p2, p3 = edge[m], edge[m + 1], edge[m + 2], edge[m + 3]
                u0, u1, u2, u3 = src[p0], src[p1], src[p2], src[p3]
                e0 = real_indptr[v] + m
                e1, e2, e3 = min(e0 + 1, last), min(e0 + 2, last), min(e0 + 3, last)
                t0, t1, t2, t3 = zero, zero, zero, zero
                for c in range((width + WORD - 1) // WORD):
                    c0, c1, c2, c3 = none, none, none, none
                    for i in range(min(WORD, width - c * WORD)):
                        j = c * WORD + i
                        h0, h1 = _hidden(a, u0, b, v, x, e0, j), _hidden(a, u1, b, v, x, e1, j)
                        h2, h3 = _hidden(a, u2, b, v, x, e2, j), _hidden(a, u3, b, v, x, e3, j)
                        t0 += w[j] * max(h0, zero)
                        t1 += w[j] * max(h1, zero)
                        t2 += w[j] * max(h2, zero)
                        t3 += w[j] * max(h3, zero)
                        if bits is not None:
                            c0 = np.int32(c0 | (BITS[i] if h0 > 0 else none))
                            c1 = np.int32(c1 | (BITS[i] if h1 > 0 else none))
                            c2 = np.int32(c2 | (BITS[i] if h2 > 0 else none))
                            c3 = np.int32(c3 | (BITS[i] if h3 > 0 else none))
                    if bits is not None:
                        bits[p0, c], bits[p1, c], bits[p2, c], bits[p3, c] = c0, c1, c2, c3
                out[e0], out[e1], out[e2], out[e3] = t0, t1, t2, t3


@helper
def _add(bits: Array, edge: Array, g: Array, count: int, total: Array) -> None:
    """Fill `total` with the sum, for each hidden unit, of the gradients g of the edges whose bit is set.

    The edges are read in complete groups of four.
    """
    width, zero = len(total), total.dtype.type(0)
    total[:] = 0
    for m in range(0, count, 4):
        p0, p1, p2, p3 = edge[m], edge[m + 1], edge[m + 2], edge[m + 3]
        g0, g1, g2, g3 = g[m], g[m + 1], g[m + 2], g[m + 3]
        for c in range(bits.shape[1]):
            c0, c1, c2, c3 = bits[p0, c], bits[p1, c], bits[p2, c], bits[p3, c]
            for i in range(min(WORD, width - c * WORD)):
                a0, a1 = g0 if c0 & BITS[i] else zero, g1 if c1 & BITS[i] else zero
                a2, a3 = g2 if c2 & BITS[i] else zero, g3 if c3 & BITS[i] else zero
                total[c * WORD + i] += (a0 + a1) + (a2 + a3)


@compiled
def _incoming(
    blocks: Array, indptr: Array, real_indptr: Array, src: Array, bits: Array, grad: Array, b: Array, x: Array,
    w: Array, slopes: Array, grad_b: Array, grad_w: Array, grad_x: Array,
) -> None:  # fmt: skip
    """Fill the gradients of each score (`slopes`, 0 at self-loops), of b and, unless `grad_x` is None, of x.

    Also add the terms of b and x to the gradient of w, in parts, one per block.
    """
    width, zero = len(w), w.dtype.type(0)
    for block in numba.prange(BLOCKS):
        room = longest(indptr, blocks[block], blocks[block + 1]) + 3
        edge, g = np.empty(room, np.int64), np.empty(room, w.dtype)
        total = np.empty(width, w.dtype)
        for v in range(blocks[block], blocks[block + 1]):
            count, e = _listed(v, indptr[v], indptr[v + 1], src, edge), real_indptr[v]
            slopes[indptr[v] : indptr[v + 1]] = 0
            for m in range(count):
                g[m] = slopes[edge[m]] = grad[e + m]
            g[count : count + -count % 4] = 0
            _add(bits, edge, g, count, total)
            for j in range(width):
                grad_b[v, j] = total[j] * w[j]
                grad_w[block, j] += total[j] * b[v, j]
            if x is not None:
                for m in range(count):
                    for j in range(width):
                        active = g[m] if bits[edge[m], j // WORD] & BITS[j % WORD] else zero
                        grad_w[block, j] += active * x[e + m, j]
                        if grad_x is not None:
                            grad_x[e + m, j] = active * w[j]


@compiled
def _outgoing(
    blocks: Array, starts: Array, bits: Array, slopes: Array, a: Array, w: Array, grad_a: Array, grad_w: Array
) -> None:
    """Fill the gradient of a, and add the terms of a to the gradient of w, in parts, one per block."""
    width = len(w)
    for block in numba.prange(BLOCKS):
        room = longest(starts, blocks[block], blocks[block + 1]) + 3
        edge, g = np.empty(room, np.int64), np.empty(room, w.dtype)
        total = np.empty(width, w.dtype)
        for u in range(blocks[block], blocks[block + 1]):
            count = 0
            for q in range(starts[u], starts[u + 1]):
                if slopes[q] != 0:
                    edge[count], g[count] = q, slopes[q]
                    count += 1
            for m in range(count, count + -count % 4):
                edge[m], g[m] = edge[count - 1], 0
            _add(bits, edge, g, count, total)
            for j in range(width):
                grad_a[u, j] = total[j] * w[j]
                grad_w[block, j] += total[j] * a[u, j]
