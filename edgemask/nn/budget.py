"""The budget of the adversary: the shift b of the mask logits with mean(σ(logits + b)) = ρ."""

from __future__ import annotations

import torch
from torch import Tensor

from edgemask.legal import Legal
from edgemask.nn.backend import backend
from edgemask.nn.kernels.cpu import budget as cpu

FUSED_UP_TO = 1 << 21  # logits that one GPU kernel solves for; more are solved step by step


def budget_mask(logits: Tensor, rho: float) -> Tensor:
    """Return the mask s = σ(logits + b) with mean(s) = ρ, with the gradient of both σ and b.

    Args:
        logits: Mask logits, one per edge, as a MaskNet returns them.
        rho: The budget ρ, the mean of the mask, in (0, 1]. 1 is a mask of ones.

    Returns:
        The mask, one value in [0, 1] per edge.

    Raises:
        InputError: ρ is not in (0, 1].

    Example:
        >>> budget_mask(torch.tensor([-1.0, 0.0, 1.0]), rho=0.5)
        tensor([0.2689, 0.5000, 0.7311])
    """
    Legal(0, 1, open_low=True).check("rho", rho)
    return (logits + budget_shift(logits, rho)).sigmoid() if len(logits) else logits.sigmoid()


def budget_shift(logits: Tensor, rho: float, count: Tensor | None = None) -> Tensor:
    """Return the scalar b with mean(σ(logits + b)) = ρ.

    b is the threshold τ* of the KKT lemma in explicit form. Its gradient is that of the implicit function,
    ∂b/∂logit_e = -σ'_e / Σ σ'.

    Args:
        logits: Mask logits, one per edge.
        rho: ρ, the mean mask to reach. From 1 on, the shift makes every mask 1.
        count: Number of real edges. If given, the mean is over the first `count` logits; the rest is padding.

    >>> logits = torch.tensor([-1.0, 0.0, 3.0], dtype=torch.float64)
    >>> round((logits + budget_shift(logits, 0.9)).sigmoid().mean().item(), 6)
    0.9
    """
    if rho >= 1:
        return 40 - logits.detach().min()  # σ(40) is 1 in float32 and in float64
    if logits.device.type == "cpu":
        size = len(logits) if count is None else int(count)
        return cpu.implicit(logits, cpu.root(logits.detach()[:size], rho), size)
    total = len(logits) if count is None else count.squeeze(0)
    is_real = None if count is None else torch.arange(len(logits), device=logits.device) < count

    def mean(values: Tensor) -> Tensor:
        return values.mean() if is_real is None else torch.where(is_real, values, 0).sum() / total

    with torch.no_grad():
        fused_root = getattr(backend(logits), "budget_root", None)  # only the GPU backend has it
        if fused_root is not None and logits.dtype == torch.float32 and len(logits) < FUSED_UP_TO:
            full_count = torch.full((1,), len(logits), device=logits.device)
            b: Tensor = fused_root(logits, full_count if count is None else count, rho)
        else:
            b = bracketed_newton(logits if count is None else logits[: int(count)], rho)
        s = (logits + b).sigmoid()
        slope = mean(s * (1 - s)).clamp_min(torch.finfo(s.dtype).tiny)
    current = mean((logits + b).sigmoid())
    return b - (current - current.detach()) / slope


def bracketed_newton(logits: Tensor, rho: float, iterations: int = 100) -> Tensor:
    """Return the root b of mean(σ(logits + b)) - ρ.

    The method is Newton's, kept inside a shrinking bracket by bisection.

    Args:
        logits: The logits.
        rho: The mean ρ, between 0 and 1.
        iterations: Largest number of iterations.

    Returns:
        b, as a tensor without dimensions.
    """
    target = torch.logit(logits.new_tensor(rho))
    low, high = target - logits.max(), target - logits.min()  # every σ is ≤ ρ at `low` and ≥ ρ at `high`
    b = target - logits.mean()  # exact if all logits are equal
    for _ in range(iterations):
        mean, slope = moments(logits, b)
        error = mean - rho
        low, high = torch.where(error > 0, low, b), torch.where(error > 0, b, high)
        middle = (low + high) / 2
        if error.abs() <= 4 * torch.finfo(b.dtype).eps or middle in (low, high):
            break
        newton = b - error / slope  # infinite or NaN if every slope is 0
        b = torch.where((low < newton) & (newton < high), newton, middle)
    return b


def moments(logits: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean σ(logits + b) and mean σ'(logits + b)."""
    if logits.device.type == "cpu":
        return cpu.moments(logits, b)
    s = (logits + b).sigmoid()
    return s.mean(), (s * (1 - s)).mean()
