"""Weighted sums over the edges of each node, their gradients, and the normalisation of a GCN."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from edgemask.nn.kernels.gpu.common import accumulator
from edgemask.nn.tensors import Edges

TILE = 32  # edges that a program reads at once; one warp per program is the fastest for such rows


def aggregate(edges: Edges, weight: Tensor, h: Tensor) -> Tensor:
    """Implement `edgemask.nn.aggregate.aggregate`."""
    out: Tensor = _Aggregate.apply(weight, h, edges)
    return out


class _Aggregate(torch.autograd.Function):
    """The product of the weighted adjacency matrix and h, with gradients for the weights and h."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, h: Tensor, edges: Edges) -> Tensor:
        weight, h = weight.contiguous(), h.contiguous()
        ctx.save_for_backward(weight, h)
        ctx.edges = edges
        return product(edges.indptr, edges.src, weight, h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (weight, h), edges, grad = ctx.saved_tensors, ctx.edges, grad.contiguous()
        grad_weight = grad_h = None
        if ctx.needs_input_grad[0]:
            grad_weight = torch.zeros_like(weight)
            rows, columns = h.shape
            block = min(64, triton.next_power_of_2(columns))
            _dots[(rows,)](
                edges.indptr, edges.src, grad, h, grad_weight, columns,
                TILE=TILE, ACC=accumulator(weight), BLOCK=block, num_warps=1,
            )  # fmt: skip
        if ctx.needs_input_grad[1]:
            order, starts = edges.by_source
            grad_h = product(starts, edges.dst_by_source, weight, grad, order)
        return grad_weight, grad_h, None


def product(
    indptr: Tensor,
    columns: Tensor,
    values: Tensor,
    h: Tensor,
    order: Tensor | None = None,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the product of the CSR matrix (indptr, columns, values) and h.

    Args:
        indptr: Where the entries of each row begin.
        columns: Column of each entry.
        values: Value of each entry.
        h: The dense matrix.
        order: If given, entry q has the value values[order[q]].
        dtype: Type of the result. None means that of h.
    """
    rows, width = len(indptr) - 1, h.shape[1]
    out = h.new_empty(rows, width, dtype=dtype or h.dtype)
    if rows and width:
        block = min(64, triton.next_power_of_2(width))
        grid = (rows, triton.cdiv(width, block))
        _product[grid](
            indptr, columns, values, values if order is None else order, h, out, width,
            ORDERED=order is not None, TILE=TILE, ACC=accumulator(values), BLOCK=block, num_warps=1,
        )  # fmt: skip
    return out


@triton.jit
def _product(
    indptr, columns, values, order, h, out, width,
    ORDERED: tl.constexpr, TILE: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute out[row] = Σ_q values[q] · h[columns[q]] for one block of columns of h per program."""
    row = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    total = tl.zeros([BLOCK], ACC)
    for start in range(begin, end, TILE):
        q = start + tl.arange(0, TILE)
        valid = q < end
        u = tl.load(columns + q, mask=valid, other=0).to(tl.int64)
        if ORDERED:
            q = tl.load(order + q, mask=valid, other=0)
        a = tl.load(values + q, mask=valid, other=0.0)
        x = tl.load(h + u[:, None] * width + j[None, :], mask=valid[:, None] & (j < width)[None, :], other=0.0)
        total += tl.sum(a[:, None] * x.to(ACC), 0)
    tl.store(out + row * width + j, total, mask=j < width)


@triton.jit
def _dots(indptr, columns, g, h, out, width, TILE: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr):
    """Compute out[q] = ⟨g[row], h[columns[q]]⟩ for every entry q of the row."""
    row = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    for start in range(begin, end, TILE):
        q = start + tl.arange(0, TILE)
        valid = q < end
        u = tl.load(columns + q, mask=valid, other=0).to(tl.int64)
        total = tl.zeros([TILE], ACC)
        for block in range(0, width, BLOCK):
            j = block + tl.arange(0, BLOCK)
            x = tl.load(h + u[:, None] * width + j[None, :], mask=valid[:, None] & (j < width)[None, :], other=0.0)
            y = tl.load(g + row * width + j, mask=j < width, other=0.0)
            total += tl.sum(x.to(ACC) * y[None, :].to(ACC), 1)
        tl.store(out + q, total, mask=valid)


def gcn_weights(edges: Edges, s: Tensor | None = None) -> Tensor:
    """Implement `edgemask.nn.aggregate.gcn_weights`."""
    out: Tensor = _GCNWeights.apply(edges.spread(s), edges)
    return out


class _GCNWeights(torch.autograd.Function):
    """The weights w_e = i_u s_e i_v with i = degree^{-1/2}.

    The gradient is ∂s_e = ∂w_e i_u i_v - ½ i_v³ I_v with I_x = Σ_{e at x} ∂w_e s_e i_{other end}.
    """

    @staticmethod
    def forward(ctx: Any, s: Tensor, edges: Edges) -> Tensor:
        s = s.contiguous()
        inverse = s.new_empty(edges.num_nodes)
        weight = torch.zeros_like(s)
        grid = (edges.num_nodes,)
        if edges.num_nodes:
            _inverse_degree[grid](edges.indptr, s, inverse, TILE=32, ACC=accumulator(s), num_warps=1)
            _normalise[grid](edges.indptr, edges.src, s, inverse, weight, TILE=32, num_warps=1)
        ctx.save_for_backward(s, inverse)
        ctx.edges = edges
        return weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None]:
        (s, inverse), edges, grad = ctx.saved_tensors, ctx.edges, grad.contiguous()
        order, starts = edges.by_source
        outgoing, grad_s = torch.empty_like(inverse), torch.zeros_like(s)
        grid = (edges.num_nodes,)
        sums = {"TILE": 32, "ACC": accumulator(s), "num_warps": 1}
        _outgoing[grid](starts, edges.dst_by_source, order, grad, s, inverse, outgoing, **sums)
        _mask_gradient[grid](edges.indptr, edges.src, grad, s, inverse, outgoing, grad_s, **sums)
        return grad_s, None


@triton.jit
def _inverse_degree(indptr, s, inverse, TILE: tl.constexpr, ACC: tl.constexpr):
    """Compute i_v = degree^{-1/2}."""
    row = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    total = tl.zeros([TILE], ACC)
    for start in range(begin, end, TILE):
        q = start + tl.arange(0, TILE)
        total += tl.load(s + q, mask=q < end, other=0.0)
    tl.store(inverse + row, 1.0 / tl.sqrt(tl.sum(total, 0)))


@triton.jit
def _normalise(indptr, src, s, inverse, weight, TILE: tl.constexpr):
    """Compute w_e = i_u s_e i_v for the edges into a node."""
    row = tl.program_id(0).to(tl.int64)
    begin, end, own = tl.load(indptr + row), tl.load(indptr + row + 1), tl.load(inverse + row)
    for start in range(begin, end, TILE):
        q = start + tl.arange(0, TILE)
        valid = q < end
        other = tl.load(inverse + tl.load(src + q, mask=valid, other=0), mask=valid, other=0.0)
        tl.store(weight + q, own * other * tl.load(s + q, mask=valid, other=0.0), mask=valid)


@triton.jit
def _outgoing(starts, dst, order, grad, s, inverse, out, TILE: tl.constexpr, ACC: tl.constexpr):
    """Compute out[u] = Σ_{e: u→v} ∂w_e s_e i_v."""
    row = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(starts + row), tl.load(starts + row + 1)
    total = tl.zeros([TILE], ACC)
    for start in range(begin, end, TILE):
        q = start + tl.arange(0, TILE)
        valid = q < end
        p = tl.load(order + q, mask=valid, other=0)
        other = tl.load(inverse + tl.load(dst + q, mask=valid, other=0), mask=valid, other=0.0)
        total += tl.load(grad + p, mask=valid, other=0.0) * tl.load(s + p, mask=valid, other=0.0) * other
    tl.store(out + row, tl.sum(total, 0))


@triton.jit
def _mask_gradient(indptr, src, grad, s, inverse, outgoing, grad_s, TILE: tl.constexpr, ACC: tl.constexpr):
    """Compute ∂s_e = ∂w_e i_u i_v - ½ i_v³ I_v for the edges into a node."""
    row = tl.program_id(0).to(tl.int64)
    begin, end, own = tl.load(indptr + row), tl.load(indptr + row + 1), tl.load(inverse + row)
    total = tl.zeros([TILE], ACC)
    for start in range(begin, end, TILE):
        q = start + tl.arange(0, TILE)
        valid = q < end
        other = tl.load(inverse + tl.load(src + q, mask=valid, other=0), mask=valid, other=0.0)
        total += tl.load(grad + q, mask=valid, other=0.0) * tl.load(s + q, mask=valid, other=0.0) * other
    through_degree = -0.5 * own * own * own * (tl.sum(total, 0) + tl.load(outgoing + row))
    for start in range(begin, end, TILE):
        q = start + tl.arange(0, TILE)
        valid = q < end
        other = tl.load(inverse + tl.load(src + q, mask=valid, other=0), mask=valid, other=0.0)
        direct = tl.load(grad + q, mask=valid, other=0.0) * own * other
        tl.store(grad_s + q, direct + through_degree, mask=valid)
