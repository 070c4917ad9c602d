"""The masked attention operator on a GPU: one kernel forward, and one heavy and two light kernels backward.

With β = exp(e) / Σ over the edges into v, gate factor f (1 for "attention", s for the others) and dropout factor m
(0 or 1 / (1 - p), from a counter-based stream), an edge's coefficient is a = β f m and

    _forward   per (v, head)  out_v = Σ_{e: u→v} a z_u; only the scale and the sum of the softmax are stored
    _inner     per v          T = ⟨∂out_v, out_v⟩ = Σ β f t with t = m ⟨∂out_v, z_u⟩, without a pass over the edges
    _messages  per (u, head)  in one pass over ∂out_v: ∂z_u = Σ_{e: u→v} a ∂out_v and, through the softmax, the
                              gradient ∂r of each logit before the LeakyReLU, and ∂logit_src_u = Σ ∂r
    _incoming  per v          ∂logit_dst_v = Σ ∂r, and each node's share of ∂c = Σ s ∂r
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from edgemask.config import GATES, Gate
from edgemask.nn.kernels import LARGEST as _LARGEST
from edgemask.nn.kernels import SLOPE as _SLOPE
from edgemask.nn.kernels.gpu.common import accumulator
from edgemask.nn.tensors import Edges

TILE, WARPS = 32, 1  # edges that a program reads at once, and its number of warps
MESSAGE, ATTENTION, SOFTMAX = (tl.constexpr(GATES.index(g)) for g in ("message", "attention", "softmax"))
LARGEST, SLOPE = tl.constexpr(_LARGEST), tl.constexpr(_SLOPE)


def attend(
    edges: Edges,
    z: Tensor,
    logit_src: Tensor,
    logit_dst: Tensor,
    s: Tensor | None,
    c: Tensor,
    *,
    gate: Gate,
    dropout: float = 0.0,
) -> Tensor:
    """Implement `edgemask.nn.attention.attend`.

    With dropout, each call draws one number from the device's default generator.
    """
    if gate == "softmax":
        c = torch.zeros_like(c)  # this gate has no logit term
    logit_src, logit_dst = (t.to(c.dtype) for t in (logit_src, logit_dst))  # they may be bfloat16 if z is
    weight = edges.spread(s).to(logit_dst.dtype)
    out: Tensor = _Attend.apply(z, logit_src, logit_dst, weight, c, edges, GATES.index(gate), dropout)
    return out


class _Attend(torch.autograd.Function):
    """Masked attention; the top of this module has the equations."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, logit_src: Tensor, logit_dst: Tensor, weight: Tensor, c: Tensor,
        edges: Edges, gate: int, dropout: float,
    ) -> Tensor:  # fmt: skip
        nodes, heads, width = z.shape
        z, logit_src, logit_dst, weight, c = (t.contiguous() for t in (z, logit_src, logit_dst, weight, c))
        top, total, out = torch.empty_like(logit_dst), torch.empty_like(logit_dst), torch.empty_like(z)
        seed = torch.randint(2**31 - 1, (1,), device=z.device) if dropout else edges.indptr
        ctx.settings = {"GATE": gate, "DROP": dropout, "TILE": TILE, "num_warps": WARPS}
        ctx.settings |= {"WIDTH": width, "BLOCK": triton.next_power_of_2(width), "ACC": accumulator(weight)}
        if nodes:
            _forward[(nodes, heads)](
                edges.indptr, edges.src, z, logit_src, logit_dst, weight, c, seed, heads, top, total, out,
                **ctx.settings,
            )  # fmt: skip
        ctx.save_for_backward(z, logit_src, logit_dst, weight, c, top, total, out, seed)
        ctx.edges = edges
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, logit_src, logit_dst, weight, c, top, total, out, seed = ctx.saved_tensors
        edges, (order, starts), (nodes, heads, width) = ctx.edges, ctx.edges.by_source, z.shape
        wants_z, wants_src, wants_dst, wants_weight, wants_c = ctx.needs_input_grad[:5]
        grad = grad.contiguous()
        inner = torch.empty_like(logit_dst)
        slopes = weight.new_zeros(len(weight), heads)
        gated = wants_weight and ctx.settings["GATE"] != ATTENTION.value
        factors = torch.zeros_like(slopes) if gated else slopes
        grad_z = torch.empty_like(z) if wants_z else z
        grad_src, grad_dst, shares = (
            torch.empty_like(logit_src),
            torch.empty_like(logit_dst),
            torch.empty_like(logit_dst),
        )
        if nodes:
            shape = {"WIDTH": triton.next_power_of_2(width), "HEADS": triton.next_power_of_2(heads)}
            _inner[(nodes,)](grad, out, inner, heads, width, ACC=accumulator(weight), num_warps=1, **shape)
            _messages[(nodes, heads)](
                starts, order, edges.dst_by_source, z, logit_src, logit_dst, weight, c, seed, heads, top, total, grad,
                inner, slopes, factors, grad_z, grad_src, WANTS_Z=wants_z, GATED=gated, **ctx.settings,
            )  # fmt: skip
            _incoming[(nodes,)](
                edges.indptr, weight, slopes, grad_dst, shares, heads,
                TILE=TILE, ACC=accumulator(weight), HEADS=triton.next_power_of_2(heads), num_warps=1,
            )  # fmt: skip
        grad_weight = None
        if wants_weight:  # through the logit (c is 0 for the gate "softmax") and through the gate's factor
            grad_weight = slopes @ c
            if gated:
                grad_weight = grad_weight + factors.sum(1)
        return (
            grad_z if wants_z else None,
            grad_src if wants_src else None,
            grad_dst if wants_dst else None,
            grad_weight,
            shares.sum(0) if wants_c else None,
            None,
            None,
            None,
        )


@triton.jit
def _logit(a, b, c, s):
    """Return the logit and the slope of its LeakyReLU. The slope has the precision of the inputs."""
    r = a + b + c * s
    slope = tl.where(r > 0, tl.full([], 1, r.dtype), tl.full([], SLOPE, r.dtype))
    return slope * r, slope


@triton.jit
def _kept(seed, number, DROP: tl.constexpr):
    """Return the dropout factor, 0 or 1 / (1 - p), from draw `number` of the Philox stream of `seed`."""
    return tl.where(tl.rand(seed, number) >= DROP, 1.0 / (1.0 - DROP), 0.0)


@triton.jit
def _forward(
    indptr, src, z, logit_src, logit_dst, weight, c, seed, heads, top, total, out,
    GATE: tl.constexpr, DROP: tl.constexpr,
    TILE: tl.constexpr, ACC: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute out_v, and the scale and the sum of its softmax, for one head."""
    v, k = tl.program_id(0).to(tl.int64), tl.program_id(1)
    j = tl.arange(0, BLOCK)
    begin, end = tl.load(indptr + v), tl.load(indptr + v + 1)
    b, ck = tl.load(logit_dst + v * heads + k), tl.load(c + k)
    most = tl.full([TILE], -float("inf"), ACC)
    for start in range(begin, end, TILE):
        p = start + tl.arange(0, TILE)
        valid = p < end
        u = tl.load(src + p, mask=valid, other=0)
        s = tl.load(weight + p, mask=valid, other=0.0)
        e, _ = _logit(tl.load(logit_src + u * heads + k, mask=valid, other=0.0), b, ck, s)
        if GATE == SOFTMAX:  # an edge of weight 0 must not set the scale for the others
            valid = valid & (s != 0)
        most = tl.maximum(most, tl.where(valid, e, -float("inf")))
    scale = tl.max(most, 0)
    sums = tl.zeros([TILE], ACC)
    result = tl.zeros([BLOCK], ACC)
    if DROP > 0:
        stream = tl.load(seed)
    for start in range(begin, end, TILE):
        p = start + tl.arange(0, TILE)
        valid = p < end
        u = tl.load(src + p, mask=valid, other=0)
        s = tl.load(weight + p, mask=valid, other=0.0)
        e, _ = _logit(tl.load(logit_src + u * heads + k, mask=valid, other=0.0), b, ck, s)
        x = tl.where(valid, tl.exp(tl.minimum(e - scale, LARGEST)), 0.0)
        sums += x * s if GATE == SOFTMAX else x
        a = x if GATE == ATTENTION else x * s
        if DROP > 0:
            a *= _kept(stream, p * heads + k, DROP)
        row = tl.load(
            z + (u * heads + k)[:, None] * WIDTH + j[None, :], mask=(a != 0)[:, None] & (j < WIDTH)[None, :], other=0.0
        )
        result += tl.sum(a[:, None] * row.to(ACC), 0)
    whole = tl.sum(sums, 0)
    tl.store(top + v * heads + k, scale)
    tl.store(total + v * heads + k, whole)
    tl.store(out + (v * heads + k) * WIDTH + j, result / whole, mask=j < WIDTH)


@triton.jit
def _inner(grad, out, inner, heads, width, ACC: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr):
    """Compute ⟨grad, out⟩ for all heads of a node."""
    v, k, j = tl.program_id(0).to(tl.int64), tl.arange(0, HEADS), tl.arange(0, WIDTH)
    at, inside = (v * heads + k)[:, None] * width + j[None, :], (k < heads)[:, None] & (j < width)[None, :]
    product = tl.load(grad + at, mask=inside, other=0.0).to(ACC) * tl.load(out + at, mask=inside, other=0.0).to(ACC)
    tl.store(inner + v * heads + k, tl.sum(product, 1), mask=k < heads)


@triton.jit
def _messages(
    starts, order, dst, z, logit_src, logit_dst, weight, c, seed, heads, top, total, grad, inner,
    slopes, factors, grad_z, grad_src, WANTS_Z: tl.constexpr, GATED: tl.constexpr,
    GATE: tl.constexpr, DROP: tl.constexpr,
    TILE: tl.constexpr, ACC: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of z_u, of logit_src_u and of the logits of all edges out of u, for one head."""
    u, k = tl.program_id(0).to(tl.int64), tl.program_id(1)
    j = tl.arange(0, BLOCK)
    begin, end = tl.load(starts + u), tl.load(starts + u + 1)
    a_src, ck = tl.load(logit_src + u * heads + k), tl.load(c + k)
    own = tl.load(z + (u * heads + k) * WIDTH + j, mask=j < WIDTH, other=0.0).to(ACC)
    result, outgoing = tl.zeros([BLOCK], ACC), tl.zeros([TILE], ACC)
    if DROP > 0:
        stream = tl.load(seed)
    for start in range(begin, end, TILE):
        q = start + tl.arange(0, TILE)
        valid = q < end
        p = tl.load(order + q, mask=valid, other=0)
        at = tl.load(dst + q, mask=valid, other=0) * heads + k
        s = tl.load(weight + p, mask=valid, other=0.0)
        e, leak = _logit(a_src, tl.load(logit_dst + at, mask=valid, other=0.0), ck, s)
        scale = tl.load(top + at, mask=valid, other=0.0)
        beta = tl.exp(tl.minimum(e - scale, LARGEST)) / tl.load(total + at, mask=valid, other=1.0)
        beta = tl.where(valid, beta, 0.0)
        f = 1.0 if GATE == ATTENTION else s
        kept = valid
        m = 1.0
        if DROP > 0:
            m = _kept(stream, p * heads + k, DROP)
            kept = valid & (m != 0)
        row = tl.load(grad + at[:, None] * WIDTH + j[None, :], mask=kept[:, None] & (j < WIDTH)[None, :], other=0.0)
        row = row.to(ACC)
        t = m * tl.sum(row * own[None, :], 1)
        if WANTS_Z:
            result += tl.sum((beta * f * m)[:, None] * row, 0)
        mean = tl.load(inner + at, mask=valid, other=0.0)
        inward = s * (t - mean) if GATE == SOFTMAX else f * t - mean
        slope = beta * inward * leak
        outgoing += tl.where(valid, slope, 0.0)
        tl.store(slopes + p * heads + k, slope, mask=valid)
        if GATED:
            factor = beta * (t - mean) if GATE == SOFTMAX else beta * t
            tl.store(factors + p * heads + k, factor, mask=valid)
    tl.store(grad_src + u * heads + k, tl.sum(outgoing, 0))
    if WANTS_Z:
        tl.store(grad_z + (u * heads + k) * WIDTH + j, result, mask=j < WIDTH)


@triton.jit
def _incoming(
    indptr, weight, slopes, grad_dst, shares, heads, TILE: tl.constexpr, ACC: tl.constexpr, HEADS: tl.constexpr
):  # fmt: skip
    """Compute the gradient of logit_dst_v, and the share of v in the gradient of c, for all heads."""
    v = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, HEADS)
    begin, end = tl.load(indptr + v), tl.load(indptr + v + 1)
    plain, weighted = tl.zeros([HEADS], ACC), tl.zeros([HEADS], ACC)
    for start in range(begin, end, TILE):
        p = start + tl.arange(0, TILE)
        valid = p < end
        slope = tl.load(slopes + p[:, None] * heads + k[None, :], mask=valid[:, None] & (k < heads)[None, :], other=0.0)
        plain += tl.sum(slope, 0)
        weighted += tl.sum(slope * tl.load(weight + p, mask=valid, other=0.0)[:, None], 0)
    tl.store(grad_dst + v * heads + k, plain, mask=k < heads)
    tl.store(shares + v * heads + k, weighted, mask=k < heads)
