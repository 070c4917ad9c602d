"""The masked attention operator on the CPU.

With β = exp(e) / Σ over the edges into v, gate factor f (1 for "attention", s for the others) and dropout factor m
(0 or 1 / (1 - p)), an edge's coefficient is a = β f m and

    _shares     by destination:  β, negative where dropout removes the edge
    sums        out_v = Σ_{e: u→v} a z_u
    products    by source, in one pass over g_v = ∂out_v:  t = m ⟨g_v, z_u⟩ and ∂z_u = Σ_{e: u→v} a g_v
    _logits     by destination, through the softmax with T = Σ β f t:  ∂r of the logit before the LeakyReLU,
                β (f t - T) LeakyReLU'(r), or under "softmax" s β (t - T) LeakyReLU'(r); then ∂logit_dst, ∂s and ∂c
    _outgoing   by source:  ∂logit_src_u = Σ_{e: u→v} ∂r

Only `sums` and `products` read rows of z and g.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from edgemask.config import GATES, Gate
from edgemask.nn.compiled import (
    BLOCKS,
    Array,
    arrays,
    blocks,
    compiled,
    draw,
    dropped,
    empty,
    exp,
    require_one_precision,
    stream,
)
from edgemask.nn.kernels import LARGEST, SLOPE
from edgemask.nn.kernels.cpu.rows import products, sums
from edgemask.nn.tensors import Edges
from edgemask.runtime.threads import shared_threads

MESSAGE, ATTENTION, SOFTMAX = (GATES.index(g) for g in ("message", "attention", "softmax"))


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

    With dropout, each call draws one number from torch's default generator.
    """
    require_one_precision(z=z, logit_src=logit_src, logit_dst=logit_dst, c=c)
    if gate == "softmax":
        c = torch.zeros_like(c)  # this gate has no logit term
    weight = edges.spread(s).to(z.dtype)
    out: Tensor = _Attend.apply(z, logit_src, logit_dst, weight, c, edges, GATES.index(gate), dropout)  # type: ignore[no-untyped-call]
    return out


class _Attend(torch.autograd.Function):
    """Masked attention; the top of this module has the equations."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, logit_src: Tensor, logit_dst: Tensor, weight: Tensor, c: Tensor,
        edges: Edges, gate: int, dropout: float,
    ) -> Tensor:  # fmt: skip
        indptr, src, logits = edges.indptr, edges.src, (logit_src, logit_dst, weight, c)
        beta = empty(z, len(src), len(c))
        with shared_threads():
            _shares(blocks(indptr), *arrays(indptr, src, *logits), gate, *draw(dropout), *arrays(beta))
        ctx.save_for_backward(z, *logits, beta)
        ctx.edges, ctx.gate, ctx.scale = edges, gate, 1 / (1 - dropout)
        return sums((indptr, src, None), _factor(gate, weight), beta, z, ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, *logits, beta = ctx.saved_tensors
        logit_src, logit_dst, weight, c = logits
        edges, factor = ctx.edges, _factor(ctx.gate, weight)
        wants_z, wants_src, wants_dst, wants_weight, wants_c = ctx.needs_input_grad[:5]
        grad_z = grad_src = grad_dst = grad_weight = grad_c = None
        if not wants_z:
            slopes, _ = products((edges.indptr, edges.src, None), factor, beta, grad, z, ctx.scale, with_sums=False)
        else:
            order, starts = edges.by_source
            by_source = starts, edges.dst_by_source, order
            slopes, grad_z = products(by_source, factor, beta, z, grad, ctx.scale, with_sums=True)
        if wants_src or wants_dst or wants_weight or wants_c:
            grad_dst, grad_weight = z.new_empty(logit_dst.shape), torch.zeros_like(weight)
            parts = z.new_zeros(BLOCKS, len(c))
            with shared_threads():
                _logits(
                    blocks(edges.indptr), *arrays(edges.indptr, edges.src, *logits, beta),
                    ctx.gate, *arrays(slopes, grad_dst, grad_weight, parts),
                )  # fmt: skip
            grad_c = parts.sum(0)
        if wants_src:
            order, starts = edges.by_source
            grad_src = z.new_empty(logit_src.shape)
            with shared_threads():
                _outgoing(blocks(starts), *arrays(starts, order, slopes, grad_src))
        grads = grad_z, grad_src, grad_dst, grad_weight, grad_c
        return *(g if n else None for g, n in zip(grads, ctx.needs_input_grad, strict=False)), None, None, None


def _factor(gate: int, weight: Tensor) -> Tensor:
    """Return the gate factor f of each edge."""
    return torch.ones_like(weight) if gate == ATTENTION else weight


@compiled
def _shares(
    blocks: Array, indptr: Array, src: Array, logit_src: Array, logit_dst: Array, weight: Array, c: Array,
    gate: int, threshold: int, seed: int, beta: Array,
) -> None:  # fmt: skip
    """Fill `beta` (M × H) with the softmax over the edges into each node, negative where dropout removes the edge."""
    heads = len(c)
    one, slope, largest = beta.dtype.type(1), beta.dtype.type(SLOPE), beta.dtype.type(LARGEST)
    for block in numba.prange(BLOCKS):
        top, total = np.empty(heads, beta.dtype), np.empty(heads, beta.dtype)
        for v in range(blocks[block], blocks[block + 1]):
            for k in range(heads):
                top[k], total[k] = -np.inf, 0
            for p in range(indptr[v], indptr[v + 1]):
                u, s = src[p], weight[p]
                for k in range(heads):
                    r = logit_src[u, k] + logit_dst[v, k] + c[k] * s
                    beta[p, k] = max(r, slope * r)
                if gate != SOFTMAX or s != 0:  # an edge of weight 0 must not set the scale for the others
                    for k in range(heads):
                        top[k] = max(top[k], beta[p, k])
            for p in range(indptr[v], indptr[v + 1]):
                prior = weight[p] if gate == SOFTMAX else one
                for k in range(heads):
                    beta[p, k] = exp(min(beta[p, k] - top[k], largest))
                    total[k] += prior * beta[p, k]
            for p in range(indptr[v], indptr[v + 1]):
                row = stream(seed, p)
                for k in range(heads):
                    beta[p, k] /= -total[k] if dropped(row, k, threshold) else total[k]


@compiled
def _logits(
    blocks: Array, indptr: Array, src: Array,
    logit_src: Array, logit_dst: Array, weight: Array, c: Array, beta: Array,
    gate: int, slopes: Array, grad_dst: Array, grad_weight: Array, grad_c: Array,
) -> None:  # fmt: skip
    """Change `slopes` (M × H) from t to ∂r, and fill the gradients of logit_dst, of the weight and of c.

    The gradient of c comes in parts, one per block.
    """
    heads = len(c)
    zero, one, slope = beta.dtype.type(0), beta.dtype.type(1), beta.dtype.type(SLOPE)
    for block in numba.prange(BLOCKS):
        total = np.empty(heads, beta.dtype)
        for v in range(blocks[block], blocks[block + 1]):
            for k in range(heads):
                total[k] = grad_dst[v, k] = 0
            for p in range(indptr[v], indptr[v + 1]):
                f = one if gate == ATTENTION else weight[p]
                for k in range(heads):
                    slopes[p, k] = zero if beta[p, k] <= 0 else slopes[p, k]
                    total[k] += f * beta[p, k] * slopes[p, k]
            for p in range(indptr[v], indptr[v + 1]):
                u, s, grad_s = src[p], weight[p], zero
                for k in range(heads):
                    b, t = abs(beta[p, k]), slopes[p, k]
                    if gate == MESSAGE:
                        g = b * (s * t - total[k])
                        grad_s += b * t
                    elif gate == ATTENTION:
                        g = b * (t - total[k])
                    else:
                        g = b * (t - total[k])
                        grad_s += g
                        g *= s
                    r = logit_src[u, k] + logit_dst[v, k] + c[k] * s
                    g *= one if r > 0 else slope
                    slopes[p, k] = g
                    grad_dst[v, k] += g
                    grad_c[block, k] += s * g
                    grad_s += c[k] * g
                grad_weight[p] = grad_s


@compiled
def _outgoing(blocks: Array, indptr: Array, order: Array, slopes: Array, grad_src: Array) -> None:
    """Fill the gradient of logit_src, which is the sum of ∂r (M × H) by source."""
    heads = slopes.shape[1]
    for block in numba.prange(BLOCKS):
        for u in range(blocks[block], blocks[block + 1]):
            for k in range(heads):
                grad_src[u, k] = 0
            for q in range(indptr[u], indptr[u + 1]):
                for k in range(heads):
                    grad_src[u, k] += slopes[order[q], k]
