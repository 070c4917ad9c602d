"""Operators on single nodes on a GPU: bias, nonlinearity and dropout in one pass, attention logits in another."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from edgemask.nn.kernels import ACTIVATIONS, Activation
from edgemask.nn.kernels.gpu.common import accumulator

ROWS, COLUMNS = 16, 128  # size of a program's tile
NODES = 8  # nodes that a program handles one after another, to limit the number of partial sums of ∂a_src and ∂a_dst
NONE, RELU, ELU = (tl.constexpr(ACTIVATIONS.index(a)) for a in ("none", "relu", "elu"))


def head_mean(h: Tensor) -> Tensor:
    """Implement `edgemask.nn.nodes.head_mean`."""
    return h.mean(1)


def activate(h: Tensor, bias: Tensor | None, activation: Activation, dropout: float = 0.0) -> Tensor:
    """Implement `edgemask.nn.nodes.activate`.

    With dropout, each call draws one number from the device's default generator.
    """
    out: Tensor = _Activate.apply(h, bias, ACTIVATIONS.index(activation), dropout)
    return out


class _Activate(torch.autograd.Function):
    """Bias, activation and dropout."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, bias: Tensor | None, kind: int, dropout: float) -> Tensor:
        h = h.contiguous()
        flat, out = h.view(len(h), -1), torch.empty_like(h)
        seed = torch.randint(2**31 - 1, (1,), device=h.device) if dropout else h
        ctx.settings = {"KIND": kind, "DROP": dropout, "BIAS": bias is not None, "ACC": accumulator(h)}
        if h.numel():
            rows, columns = flat.shape
            grid = (triton.cdiv(rows, ROWS), triton.cdiv(columns, COLUMNS))
            _activate[grid](
                h, h if bias is None else bias.contiguous(), seed, out, rows, columns,
                ROWS=ROWS, COLUMNS=COLUMNS, num_warps=4, **ctx.settings,
            )  # fmt: skip
        ctx.save_for_backward(h, bias, seed)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, bias, seed = ctx.saved_tensors
        grad, rows = grad.contiguous(), len(h)
        columns = h[0].numel() if rows else 1
        grad_h, programs = torch.empty_like(h), triton.cdiv(rows, ROWS)
        sums = h.new_empty(programs, columns, dtype=torch.float32 if h.dtype == torch.bfloat16 else h.dtype)
        if h.numel():
            grid = (programs, triton.cdiv(columns, COLUMNS))
            _activate_backward[grid](
                h, h if bias is None else bias.contiguous(), seed, grad, grad_h, sums, rows, columns,
                ROWS=ROWS, COLUMNS=COLUMNS, num_warps=4, **ctx.settings,
            )  # fmt: skip
        return grad_h, None if bias is None else sums.sum(0).view_as(bias), None, None


@triton.jit
def _tile(h, bias, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BIAS: tl.constexpr, ACC: tl.constexpr):
    """Return the positions of a tile, which of them exist, its columns, and its values h + bias."""
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    at, inside = i[:, None] * columns + j[None, :], (i < rows)[:, None] & (j < columns)[None, :]
    x = tl.load(h + at, mask=inside, other=0.0).to(ACC)
    if BIAS:
        x += tl.load(bias + j, mask=j < columns, other=0.0)[None, :]
    return at, inside, j, x


@triton.jit
def _activate(
    h, bias, seed, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    KIND: tl.constexpr, DROP: tl.constexpr, BIAS: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute σ(h + bias) with dropout on a tile."""
    at, inside, _, x = _tile(h, bias, rows, columns, ROWS, COLUMNS, BIAS, ACC)
    if KIND == RELU:
        x = tl.maximum(x, 0.0)
    if KIND == ELU:
        x = tl.where(x > 0, x, tl.exp(tl.minimum(x, 0.0)) - 1.0)
    if DROP > 0:
        x = tl.where(tl.rand(tl.load(seed), at) >= DROP, x / (1.0 - DROP), 0.0)
    tl.store(out + at, x, mask=inside)


@triton.jit
def _activate_backward(
    h, bias, seed, grad, grad_h, sums, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    KIND: tl.constexpr, DROP: tl.constexpr, BIAS: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of h on a tile, and the tile's part of the gradient of the bias."""
    at, inside, j, x = _tile(h, bias, rows, columns, ROWS, COLUMNS, BIAS, ACC)
    g = tl.load(grad + at, mask=inside, other=0.0).to(ACC)
    if DROP > 0:
        g = tl.where(tl.rand(tl.load(seed), at) >= DROP, g / (1.0 - DROP), 0.0)
    if KIND == RELU:
        g = tl.where(x > 0, g, 0.0)
    if KIND == ELU:
        g = tl.where(x > 0, g, g * tl.exp(tl.minimum(x, 0.0)))
    tl.store(grad_h + at, g, mask=inside)
    if BIAS:
        tl.store(sums + tl.program_id(0) * columns + j, tl.sum(g, 0), mask=j < columns)


def head_logits(z: Tensor, a_src: Tensor, a_dst: Tensor) -> tuple[Tensor, Tensor]:
    """Implement `edgemask.nn.nodes.head_logits`."""
    at_src, at_dst = _HeadLogits.apply(z, a_src, a_dst)
    return at_src, at_dst


class _HeadLogits(torch.autograd.Function):
    """The products a_src·z and a_dst·z."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, a_src: Tensor, a_dst: Tensor) -> tuple[Tensor, Tensor]:
        z, a_src, a_dst = z.contiguous(), a_src.contiguous(), a_dst.contiguous()
        nodes, heads, width = z.shape
        at_src, at_dst = (a_src.new_empty(nodes, heads) for _ in range(2))
        ctx.settings = {"heads": heads, "width": width, "ACC": accumulator(a_src), "num_warps": 1}
        ctx.settings |= {"HEADS": triton.next_power_of_2(heads), "WIDTH": triton.next_power_of_2(width)}
        if nodes:
            _head_logits[(nodes,)](z, a_src, a_dst, at_src, at_dst, **ctx.settings)
        ctx.save_for_backward(z, a_src, a_dst)
        return at_src, at_dst

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, up_src: Tensor, up_dst: Tensor) -> tuple[Tensor | None, ...]:
        z, a_src, a_dst = ctx.saved_tensors
        grad_z, programs = torch.empty_like(z), triton.cdiv(len(z), NODES)
        shares_src, shares_dst = (a_src.new_empty(programs, *a_src.shape) for _ in range(2))
        if len(z):
            _head_logits_backward[(programs,)](
                z, a_src, a_dst, up_src.contiguous(), up_dst.contiguous(), grad_z, shares_src, shares_dst, len(z),
                NODES=NODES, **ctx.settings,
            )  # fmt: skip
        return grad_z, shares_src.sum(0), shares_dst.sum(0)


@triton.jit
def _head_logits(
    z, a_src, a_dst, at_src, at_dst, heads, width, ACC: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr
):
    """Compute a_src·z and a_dst·z of one node, for all heads."""
    v, k, j = tl.program_id(0).to(tl.int64), tl.arange(0, HEADS), tl.arange(0, WIDTH)
    at, inside = k[:, None] * width + j[None, :], (k < heads)[:, None] & (j < width)[None, :]
    x = tl.load(z + v * heads * width + at, mask=inside, other=0.0).to(ACC)
    src = tl.sum(x * tl.load(a_src + at, mask=inside, other=0.0), 1)
    dst = tl.sum(x * tl.load(a_dst + at, mask=inside, other=0.0), 1)
    tl.store(at_src + v * heads + k, src, mask=k < heads)
    tl.store(at_dst + v * heads + k, dst, mask=k < heads)


@triton.jit
def _head_logits_backward(
    z, a_src, a_dst, up_src, up_dst, grad_z, shares_src, shares_dst, nodes, heads, width,
    NODES: tl.constexpr, ACC: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of z for a run of nodes, and their part of the gradients of a_src and a_dst."""
    program, k, j = tl.program_id(0).to(tl.int64), tl.arange(0, HEADS), tl.arange(0, WIDTH)
    at, inside = k[:, None] * width + j[None, :], (k < heads)[:, None] & (j < width)[None, :]
    src, dst = tl.load(a_src + at, mask=inside, other=0.0), tl.load(a_dst + at, mask=inside, other=0.0)
    total_src, total_dst = tl.zeros([HEADS, WIDTH], ACC), tl.zeros([HEADS, WIDTH], ACC)
    for v in range(program * NODES, tl.minimum(program * NODES + NODES, nodes)):
        x = tl.load(z + v * heads * width + at, mask=inside, other=0.0).to(ACC)
        g_src = tl.load(up_src + v * heads + k, mask=k < heads, other=0.0)[:, None]
        g_dst = tl.load(up_dst + v * heads + k, mask=k < heads, other=0.0)[:, None]
        tl.store(grad_z + v * heads * width + at, g_src * src + g_dst * dst, mask=inside)
        total_src += g_src * x
        total_dst += g_dst * x
    tl.store(shares_src + program * heads * width + at, total_src, mask=inside)
    tl.store(shares_dst + program * heads * width + at, total_dst, mask=inside)
