"""The masked attention operator on the CPU: multi-threaded loops over the edges, two heavy and two light ones.

With β = exp(e) / Σ over the edges into v, gate factor f (1 for "attention", s for the others) and dropout factor m
(0 or 1 / (1 - p)), an edge's coefficient is a = β f m and

    _forward    out_v = Σ_{e: u→v} a z_u
    _messages   by source, from one reading of g_v = ∂out_v:  t = m ⟨g_v, z_u⟩ and ∂z_u = Σ_{e: u→v} a g_v
    _logits     by destination, through the softmax with T = Σ β f t:  ∂r of the logit before the LeakyReLU,
                β (f t - T) LeakyReLU'(r), or under "softmax" s β (t - T) LeakyReLU'(r); then ∂logit_dst, ∂s and ∂c
    _sums       by source:  ∂logit_src_u = Σ_{e: u→v} ∂r

Only the heavy loops read rows of z and g, and not for dropped edges. Every sum is taken by one thread, in the order of
the edges: no atomics, and the same bits for any number of threads.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from edgemask.enrich.knn import shared_threads
from edgemask.nn.kernels import GATES, LARGEST, SLOPE, Gate
from edgemask.nn.tensors import Edges

Array = npt.NDArray[Any]

MESSAGE, ATTENTION, SOFTMAX = (GATES.index(g) for g in ("message", "attention", "softmax"))
BLOCKS = 64  # of nodes, with about equally many edges: what threads share out, whatever their number
# Sums may be vectorised (by the compiler, the same way every time); NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz"}


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
    """As `edgemask.nn.attention.attend`. Dropout takes one number from torch's default generator per call."""
    kinds = {"z": z.dtype, "logit_src": logit_src.dtype, "logit_dst": logit_dst.dtype, "c": c.dtype}
    if z.dtype not in (torch.float32, torch.float64) or len(set(kinds.values())) > 1:
        raise TypeError(f"z, logit_src, logit_dst and c must all be float32 or all float64, got {kinds}")
    if gate == "softmax":
        c = torch.zeros_like(c)  # no logit term
    weight = edges.spread(s).to(z.dtype)
    out: Tensor = _Attend.apply(z, logit_src, logit_dst, weight, c, edges, GATES.index(gate), dropout)  # type: ignore[no-untyped-call]
    return out


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, logit_src: Tensor, logit_dst: Tensor, weight: Tensor, c: Tensor,
        edges: Edges, gate: int, dropout: float,
    ) -> Tensor:  # fmt: skip
        indptr, src, logits = edges.indptr, edges.src, (logit_src, logit_dst, weight, c)
        beta, out = z.new_empty(len(src), len(c)), z.new_empty(z.shape)
        scale = z.new_tensor(1 / (1 - dropout)).numpy()[()]  # a scalar of z's precision
        seed = int(torch.randint(2**63 - 1, ())) if dropout else 0
        ctx.dropout = scale, np.uint64(dropout * 2**64), np.uint64(seed)
        with shared_threads():
            _forward(
                _blocks(indptr), *_arrays(indptr, src, z, *logits), gate, *ctx.dropout, *_arrays(beta, out)
            )  # fmt: skip
        ctx.save_for_backward(z, *logits, beta)
        ctx.edges, ctx.gate = edges, gate
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, *logits, beta = ctx.saved_tensors
        logit_src, logit_dst, weight, c = logits
        edges, (order, starts) = ctx.edges, ctx.edges.by_source
        by_source = _blocks(starts), *_arrays(starts, order)
        slopes, grad_z, grad_src = torch.empty_like(beta), z.new_empty(z.shape), z.new_empty(logit_src.shape)
        grad_dst, grad_weight = z.new_empty(logit_dst.shape), torch.empty_like(weight)
        grad_c = z.new_zeros(BLOCKS, len(c))
        with shared_threads():
            _messages(
                *by_source, *_arrays(edges.dst_by_source, z, weight, beta, grad),
                ctx.gate, *ctx.dropout, *_arrays(slopes, grad_z),
            )  # fmt: skip
            _logits(
                _blocks(edges.indptr), *_arrays(edges.indptr, edges.src, *logits, beta),
                ctx.gate, *_arrays(slopes, grad_dst, grad_weight, grad_c),
            )  # fmt: skip
            _sums(*by_source, *_arrays(slopes, grad_src))
        grads = grad_z, grad_src, grad_dst, grad_weight, grad_c.sum(0)
        return *(g if n else None for g, n in zip(grads, ctx.needs_input_grad, strict=False)), None, None, None


def _arrays(*tensors: Tensor) -> list[Array]:
    return [t.detach().contiguous().numpy() for t in tensors]


def _blocks(indptr: Tensor) -> Array:
    """Where each block's nodes begin: as many edges to each as whole nodes allow."""
    starts = indptr.numpy()
    blocks: Array = np.searchsorted(starts, np.arange(BLOCKS + 1) * starts[-1] // BLOCKS)
    return blocks


def _compiled(loop: Any) -> Any:
    return numba.njit(parallel=True, cache=True, nogil=True, fastmath=FAST)(loop)


@numba.njit(inline="always")
def _kept(seed: int, number: int, threshold: int) -> bool:
    """Whether dropout keeps this coefficient: draw `number` of the stream SplitMix64(seed) against p · 2⁶⁴."""
    if threshold == 0:
        return True
    x = seed + np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bool(x ^ (x >> np.uint64(31)) >= threshold)


@_compiled
def _forward(
    blocks: Array, indptr: Array, src: Array, z: Array,
    logit_src: Array, logit_dst: Array, weight: Array, c: Array,
    gate: int, scale: float, threshold: int, seed: int, beta: Array, out: Array,
) -> None:  # fmt: skip
    """Fills `beta` (M × H) and `out`."""
    _, heads, width = z.shape
    one, slope, largest = z.dtype.type(1), z.dtype.type(SLOPE), z.dtype.type(LARGEST)
    for block in numba.prange(BLOCKS):
        top, total = np.empty(heads, z.dtype), np.empty(heads, z.dtype)
        for v in range(blocks[block], blocks[block + 1]):
            for k in range(heads):
                top[k], total[k] = -np.inf, 0
                for j in range(width):
                    out[v, k, j] = 0
            for p in range(indptr[v], indptr[v + 1]):
                u, s = src[p], weight[p]
                for k in range(heads):
                    r = logit_src[u, k] + logit_dst[v, k] + c[k] * s
                    beta[p, k] = max(r, slope * r)
                if gate != SOFTMAX or s != 0:  # an absent edge must not set the scale for the others
                    for k in range(heads):
                        top[k] = max(top[k], beta[p, k])
            for p in range(indptr[v], indptr[v + 1]):
                prior = weight[p] if gate == SOFTMAX else one
                for k in range(heads):
                    beta[p, k] = np.exp(min(beta[p, k] - top[k], largest))
                    total[k] += prior * beta[p, k]
            for p in range(indptr[v], indptr[v + 1]):
                u, f = src[p], scale if gate == ATTENTION else scale * weight[p]
                for k in range(heads):
                    beta[p, k] /= total[k]
                    a = f * beta[p, k]
                    if a != 0 and _kept(seed, p * heads + k, threshold):
                        for j in range(width):
                            out[v, k, j] += a * z[u, k, j]


@_compiled
def _messages(
    blocks: Array, indptr: Array, order: Array, dst: Array, z: Array, weight: Array, beta: Array, grad: Array,
    gate: int, scale: float, threshold: int, seed: int, products: Array, grad_z: Array,
) -> None:  # fmt: skip
    """Fills `products` (t, M × H) and the gradient of z; edge order[q], to dst[q], is the q-th by source."""
    _, heads, width = z.shape
    for block in numba.prange(BLOCKS):
        for u in range(blocks[block], blocks[block + 1]):
            for k in range(heads):
                for j in range(width):
                    grad_z[u, k, j] = 0
            for q in range(indptr[u], indptr[u + 1]):
                p, v = order[q], dst[q]
                f = scale if gate == ATTENTION else scale * weight[p]
                for k in range(heads):
                    t = z.dtype.type(0)
                    if _kept(seed, p * heads + k, threshold):
                        a = f * beta[p, k]
                        for j in range(width):
                            t += grad[v, k, j] * z[u, k, j]
                            grad_z[u, k, j] += a * grad[v, k, j]
                    products[p, k] = scale * t


@_compiled
def _logits(
    blocks: Array, indptr: Array, src: Array,
    logit_src: Array, logit_dst: Array, weight: Array, c: Array, beta: Array,
    gate: int, slopes: Array, grad_dst: Array, grad_weight: Array, grad_c: Array,
) -> None:  # fmt: skip
    """Turns `slopes` (M × H) from t into ∂r; fills the gradients of logit_dst and of the weight, and that of c in
    parts, one per block."""
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
                    total[k] += f * beta[p, k] * slopes[p, k]
            for p in range(indptr[v], indptr[v + 1]):
                u, s, grad_s = src[p], weight[p], zero
                for k in range(heads):
                    b, t = beta[p, k], slopes[p, k]
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


@_compiled
def _sums(blocks: Array, indptr: Array, order: Array, slopes: Array, grad_src: Array) -> None:
    """Fills the gradient of logit_src: the sums of ∂r (M × H) by source."""
    heads = slopes.shape[1]
    for block in numba.prange(BLOCKS):
        for u in range(blocks[block], blocks[block + 1]):
            for k in range(heads):
                grad_src[u, k] = 0
            for q in range(indptr[u], indptr[u + 1]):
                for k in range(heads):
                    grad_src[u, k] += slopes[order[q], k]
