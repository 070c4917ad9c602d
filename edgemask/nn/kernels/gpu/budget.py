"""The budget's threshold b, with mean σ(logit + b) = ρ, found on a GPU without synchronising with the host."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

PROGRAMS, TILE = 128, 1024
ITERATIONS = 30  # enough to bisect a bracket as wide as the largest logit down to float32 precision


def budget_root(logits: Tensor, count: Tensor, rho: float) -> Tensor:
    """Return b for the first `count` logits, found as by `edgemask.nn.budget.bracketed_newton`.

    Each launch is one iteration. Every program computes the same step from the partial sums of the previous launch, and
    then sums its share of the logits at the new b.

    Args:
        logits: The logits, followed by padding entries.
        count: Number of logits without padding, as 1 value on the device.
        rho: The budget ρ in (0, 1).
    """
    state = logits.new_empty(ITERATIONS + 1, 4)  # low, high, b, and 1 if the search has converged
    partial = logits.new_empty(ITERATIONS + 1, 3 * PROGRAMS)
    numbers = rho, math.log(rho / (1 - rho)), 4 * torch.finfo(logits.dtype).eps
    sizes = {"PROGRAMS": PROGRAMS, "TILE": TILE, "num_warps": 4}
    _extent[(PROGRAMS,)](logits, count, partial[0], **sizes)
    for i in range(ITERATIONS):
        _iterate[(PROGRAMS,)](
            logits, count, state[i], partial[i], state[i + 1], partial[i + 1], *numbers, FIRST=i == 0, **sizes
        )
    return state[ITERATIONS, 2]


@triton.jit
def _extent(logits, count, partial, PROGRAMS: tl.constexpr, TILE: tl.constexpr):
    """Compute the minimum, the maximum and the sum of each program's share of the logits."""
    me, total = tl.program_id(0), tl.load(count)
    least, most = tl.full([TILE], float("inf"), tl.float32), tl.full([TILE], -float("inf"), tl.float32)
    sums = tl.zeros([TILE], tl.float32)
    for start in range(me * TILE, total, PROGRAMS * TILE):
        i = start + tl.arange(0, TILE)
        x = tl.load(logits + i, mask=i < total, other=0.0)
        least = tl.minimum(least, tl.where(i < total, x, float("inf")))
        most = tl.maximum(most, tl.where(i < total, x, -float("inf")))
        sums += x
    tl.store(partial + me, tl.min(least, 0))
    tl.store(partial + PROGRAMS + me, tl.max(most, 0))
    tl.store(partial + 2 * PROGRAMS + me, tl.sum(sums, 0))


@triton.jit
def _iterate(
    logits, count, state, partial, new_state, new_partial, rho, target, tolerance,
    FIRST: tl.constexpr, PROGRAMS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Update the bracket and b (bracketed Newton), and sum σ and σ' of each program's share of the logits."""
    me, total, p = tl.program_id(0), tl.load(count), tl.arange(0, PROGRAMS)
    one, two = tl.load(partial + p), tl.load(partial + PROGRAMS + p)
    if FIRST:
        low, high = target - tl.max(two, 0), target - tl.min(one, 0)
        b = target - tl.sum(tl.load(partial + 2 * PROGRAMS + p), 0) / total
        converged = 0.0
    else:
        low, high, b, converged = tl.load(state), tl.load(state + 1), tl.load(state + 2), tl.load(state + 3)
        error, slope = tl.sum(one, 0) / total - rho, tl.sum(two, 0) / total
        low, high = tl.where(error > 0, low, b), tl.where(error > 0, b, high)
        middle = (low + high) / 2
        done = (converged > 0) | (tl.abs(error) <= tolerance) | (middle == low) | (middle == high)
        newton = b - error / slope  # infinite or NaN if all slopes are 0
        b = tl.where(done, b, tl.where((low < newton) & (newton < high), newton, middle))
        converged = tl.where(done, 1.0, 0.0)
    if me == 0:
        tl.store(new_state, low)
        tl.store(new_state + 1, high)
        tl.store(new_state + 2, b)
        tl.store(new_state + 3, converged)
    if converged == 0:
        sums, slopes = tl.zeros([TILE], tl.float32), tl.zeros([TILE], tl.float32)
        for start in range(me * TILE, total, PROGRAMS * TILE):
            i = start + tl.arange(0, TILE)
            s = tl.sigmoid(tl.load(logits + i, mask=i < total, other=0.0) + b)
            s = tl.where(i < total, s, 0.0)
            sums += s
            slopes += s * (1 - s)
        tl.store(new_partial + me, tl.sum(sums, 0))
        tl.store(new_partial + PROGRAMS + me, tl.sum(slopes, 0))
    else:
        tl.store(new_partial + me, 0.0)
        tl.store(new_partial + PROGRAMS + me, 1.0)
