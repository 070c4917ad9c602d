"""Sums for the budget's threshold b, with mean σ(logit + b) = ρ, on the CPU.

σ and its slope are summed over all logits in one pass, in double precision, and in parts that do not depend on the
number of threads.
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
    compiled,
    empty,
    exp,
    helper,
    require_one_precision,
)
from edgemask.runtime.threads import shared_threads

RUN = 1024  # logits that are summed in their own precision before the sum is added in double precision


def moments(logits: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean σ(logit + b) and mean σ'(logit + b)."""
    require_one_precision(logits=logits, b=b)
    parts = np.zeros((BLOCKS, 2))
    with shared_threads():
        _moments(*arrays(logits), b.numpy()[()], parts)
    value, slope = logits.new_tensor(parts.sum(0) / len(logits))
    return value, slope


def root(logits: Tensor, rho: float, iterations: int = 100) -> Tensor:
    """Return the same result as `edgemask.nn.budget.bracketed_newton`, to the bit.

    The steps between two sums are plain numbers, which are faster than tensors of one number.
    """
    require_one_precision(logits=logits)
    target = torch.logit(logits.new_tensor(rho))
    low, high, b = (t.numpy()[()] for t in (target - logits.max(), target - logits.min(), target - logits.mean()))
    (values,), number, parts = arrays(logits), b.dtype.type, np.empty((BLOCKS, 2))
    enough, two, rho = 4 * torch.finfo(logits.dtype).eps, number(2), number(rho)
    with shared_threads(), np.errstate(all="ignore"):
        for _ in range(iterations):
            parts[:] = 0
            _moments(values, b, parts)
            mean, slope = (parts.sum(0) / len(values)).astype(number)
            error = mean - rho
            low, high = (low, b) if error > 0 else (b, high)
            middle = (low + high) / two
            if abs(error) <= enough or middle in (low, high):
                break
            newton = b - error / slope  # infinite or NaN if every slope is 0
            b = newton if low < newton < high else middle
    return logits.new_tensor(b)


def implicit(logits: Tensor, b: Tensor, count: int) -> Tensor:
    """Return b with the gradient ∂b/∂logit_e = -σ'_e / Σ σ' over the first `count` logits."""
    out: Tensor = _Implicit.apply(logits, b, count)  # type: ignore[no-untyped-call]
    return out


class _Implicit(torch.autograd.Function):
    """The identity of b, with the gradient of the implicit function b(logits)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, b: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(logits, b)
        ctx.count = count
        return b.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (logits, b), count = ctx.saved_tensors, ctx.count
        _, slope = moments(logits[:count], b)
        factor, out = -grad / (count * slope.clamp_min(torch.finfo(slope.dtype).tiny)), empty(logits, len(logits))
        out[count:] = 0
        with shared_threads():
            _slopes(*arrays(logits[:count]), b.numpy()[()], factor.numpy()[()], *arrays(out))
        return out, None, None


@helper
def _sigmoid(x: float, one: float) -> Any:
    """Return σ(x) and σ'(x). `one` is 1 in the precision of x."""
    z = exp(-abs(x))
    share = one / (one + z)
    return (share if x > 0 else z * share), z * share * share


@compiled
def _moments(logits: Array, b: float, parts: Array) -> None:
    """Add up σ and σ' in each block."""
    entries, zero, one = len(logits), logits.dtype.type(0), logits.dtype.type(1)
    for block in numba.prange(BLOCKS):
        past = entries * (block + 1) // BLOCKS
        for first in range(entries * block // BLOCKS, past, RUN):
            value, slope = zero, zero
            for i in range(first, min(first + RUN, past)):
                s, t = _sigmoid(logits[i] + b, one)
                value += s
                slope += t
            parts[block, 0] += value
            parts[block, 1] += slope


@compiled
def _slopes(logits: Array, b: float, factor: float, out: Array) -> None:
    """Fill `out` with factor · σ'(logit + b)."""
    entries, one = len(logits), logits.dtype.type(1)
    for block in numba.prange(BLOCKS):
        for i in range(entries * block // BLOCKS, entries * (block + 1) // BLOCKS):
            _, slope = _sigmoid(logits[i] + b, one)
            out[i] = factor * slope
