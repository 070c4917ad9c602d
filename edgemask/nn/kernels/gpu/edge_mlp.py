"""The MaskNet's edge scores Σ_j w_j ReLU(a_u + b_v + x_e) on a GPU, without an edges × hidden tensor."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from edgemask.nn.kernels.gpu.common import accumulator
from edgemask.nn.tensors import Edges

TILE = 16  # edges that a program reads at once
ROWS = 8  # nodes that a program handles one after another, to limit the number of partial sums of ∂w


def edge_mlp(edges: Edges, at_src: Tensor, at_dst: Tensor, extra: Tensor | None, w: Tensor) -> Tensor:
    """Implement `edgemask.nn.edge_mlp.edge_mlp`."""
    out: Tensor = _EdgeMLP.apply(at_src, at_dst, extra, w, edges)
    return out


class _EdgeMLP(torch.autograd.Function):
    """The edge scores and their gradients."""

    @staticmethod
    def forward(ctx: Any, at_src: Tensor, at_dst: Tensor, extra: Tensor | None, w: Tensor, edges: Edges) -> Tensor:
        a, b, w = at_src.contiguous(), at_dst.contiguous(), w.contiguous()
        x = a if extra is None else extra.contiguous()
        out = a.new_empty(edges.num_real)
        ctx.settings = {"WIDTH": a.shape[1], "BLOCK": triton.next_power_of_2(a.shape[1]), "EXTRA": extra is not None}
        if edges.num_real:
            grid = (triton.cdiv(edges.num_real, TILE),)
            _scores[grid](
                edges.real, edges.src, edges.dst, a, b, x, w, out, edges.num_real,
                TILE=TILE, num_warps=1, **ctx.settings,
            )  # fmt: skip
        ctx.save_for_backward(a, b, x, w)
        ctx.edges = edges
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (a, b, x, w), edges = ctx.saved_tensors, ctx.edges
        spread = grad.new_zeros(len(edges.src)).index_copy(0, edges.real, grad)  # self-loops have no score
        order, starts = edges.by_source
        extra = ctx.settings["EXTRA"]
        number = edges.real  # placeholder; the position among the real edges is needed only with `extra`
        if extra:
            number = torch.zeros_like(edges.src).index_copy(
                0, edges.real, torch.arange(edges.num_real, device=a.device)
            )
        grad_a, grad_b = torch.empty_like(a), torch.empty_like(b)
        grad_x = torch.zeros_like(x) if extra else x
        programs = triton.cdiv(edges.num_nodes, ROWS)
        grad_w = a.new_empty(programs, len(w))
        if edges.num_nodes:
            _by_destination[(programs,)](
                edges.indptr, edges.src, number, spread, a, b, x, w, grad_b, grad_w, grad_x, edges.num_nodes,
                TILE=TILE, ACC=accumulator(a), ROWS=ROWS, num_warps=1, **ctx.settings,
            )  # fmt: skip
            _by_source[(edges.num_nodes,)](
                starts, edges.dst_by_source, order, number, spread, a, b, x, w, grad_a,
                TILE=TILE, ACC=accumulator(a), num_warps=1, **ctx.settings,
            )  # fmt: skip
        return grad_a, grad_b, grad_x if extra else None, grad_w.sum(0), None


@triton.jit
def _scores(
    real, src, dst, a, b, x, w, out, count,
    TILE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, EXTRA: tl.constexpr,
):  # fmt: skip
    """Compute the scores of a tile of real edges."""
    e = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    j = tl.arange(0, BLOCK)
    valid = e < count
    inside = valid[:, None] & (j < WIDTH)[None, :]
    p = tl.load(real + e, mask=valid, other=0)
    u, v = tl.load(src + p, mask=valid, other=0), tl.load(dst + p, mask=valid, other=0)
    h = tl.load(a + u[:, None] * WIDTH + j[None, :], mask=inside, other=0.0)
    h += tl.load(b + v[:, None] * WIDTH + j[None, :], mask=inside, other=0.0)
    if EXTRA:
        h += tl.load(x + e[:, None] * WIDTH + j[None, :], mask=inside, other=0.0)
    score = tl.sum(tl.maximum(h, 0.0) * tl.load(w + j, mask=j < WIDTH, other=0.0)[None, :], 1)
    tl.store(out + e, score, mask=valid)


@triton.jit
def _by_destination(
    indptr, src, number, grad, a, b, x, w, grad_b, grad_w, grad_x, nodes,
    TILE: tl.constexpr, ACC: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, EXTRA: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of b for a run of nodes, that of x for the edges into them, and a part of that of w."""
    program = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    columns = j < WIDTH
    weights = tl.load(w + j, mask=columns, other=0.0)
    share = tl.zeros([BLOCK], ACC)
    for v in range(program * ROWS, tl.minimum(program * ROWS + ROWS, nodes)):
        begin, end = tl.load(indptr + v), tl.load(indptr + v + 1)
        own = tl.load(b + v * WIDTH + j, mask=columns, other=0.0)
        total = tl.zeros([BLOCK], ACC)
        for start in range(begin, end, TILE):
            p = start + tl.arange(0, TILE)
            valid = p < end
            inside = valid[:, None] & columns[None, :]
            u = tl.load(src + p, mask=valid, other=0)
            g = tl.load(grad + p, mask=valid, other=0.0)
            h = own[None, :] + tl.load(a + u[:, None] * WIDTH + j[None, :], mask=inside, other=0.0)
            if EXTRA:  # a self-loop has no number and no gradient
                e = tl.load(number + p, mask=valid, other=0)
                inside = inside & (g != 0)[:, None]
                h += tl.load(x + e[:, None] * WIDTH + j[None, :], mask=inside, other=0.0)
            active = tl.where(h > 0, g[:, None], 0.0)
            total += tl.sum(active, 0)
            share += tl.sum(active * h, 0)
            if EXTRA:
                tl.store(grad_x + e[:, None] * WIDTH + j[None, :], active * weights[None, :], mask=inside)
        tl.store(grad_b + v * WIDTH + j, total * weights, mask=columns)
    tl.store(grad_w + program * WIDTH + j, share, mask=columns)


@triton.jit
def _by_source(
    starts, dst, order, number, grad, a, b, x, w, grad_a,
    TILE: tl.constexpr, ACC: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, EXTRA: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a for one node."""
    u = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    columns = j < WIDTH
    begin, end = tl.load(starts + u), tl.load(starts + u + 1)
    own = tl.load(a + u * WIDTH + j, mask=columns, other=0.0)
    total = tl.zeros([BLOCK], ACC)
    for start in range(begin, end, TILE):
        q = start + tl.arange(0, TILE)
        valid = q < end
        inside = valid[:, None] & columns[None, :]
        v = tl.load(dst + q, mask=valid, other=0)
        p = tl.load(order + q, mask=valid, other=0)
        g = tl.load(grad + p, mask=valid, other=0.0)
        h = own[None, :] + tl.load(b + v[:, None] * WIDTH + j[None, :], mask=inside, other=0.0)
        if EXTRA:
            e = tl.load(number + p, mask=valid, other=0)
            h += tl.load(x + e[:, None] * WIDTH + j[None, :], mask=inside & (g != 0)[:, None], other=0.0)
        total += tl.sum(tl.where(h > 0, g[:, None], 0.0), 0)
    tl.store(grad_a + u * WIDTH + j, total * tl.load(w + j, mask=columns, other=0.0), mask=columns)
