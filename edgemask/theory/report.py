"""All checks of `edgemask.theory` on one trained pair and one labelled graph, as one report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from edgemask.errors import InputError
from edgemask.methods.base import Method
from edgemask.methods.edgemask import Game
from edgemask.nn.tensors import Edges, GraphTensors
from edgemask.seeds import torch_stream
from edgemask.theory.checks import (
    KKT,
    Agreement,
    Bound,
    Gradients,
    agreement,
    ascend,
    budget_mask,
    duality,
    feasible,
    gradient_formulas,
    kkt,
    loss_of,
    mask_gradient,
    surrogate_dual,
    surrogate_mask,
    surrogate_multiplier,
    value_and_gradient,
)

MULTIPLES = (0.0, 0.3, 1.0, 3.0)  # of m · mean |gradient|, where λ begins to matter: the default grid


@dataclass(frozen=True)
class Mask:
    """A mask's mean, its loss ℓ, and its KKT residuals where it lies in S_ρ."""

    mean: float
    loss: float
    kkt: KKT | None


@dataclass(frozen=True)
class TheoryReport:
    """What the theory says of one trained pair on one graph. `lam` is the game's λ, or, where its bound is a budget and
    there is none, m times the multiplier that fits the learned mask best."""

    graph: str
    edges: int
    rho: float
    lam: float
    masks: dict[str, Mask]
    agreement: dict[str, Agreement]
    surrogate_primal: float  # ℓ(0) + max c·s over S_ρ
    surrogate_dual: float  # the same by strong duality
    duality: list[Bound]
    gradients: Gradients

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Titled tables to print, each a list of rows by column name."""
        masks = []
        for name, mask in self.masks.items():
            row: dict[str, Any] = {"mask": name, "mean": mask.mean, "loss": mask.loss}
            if mask.kkt:
                shares = {f"share {k}": getattr(mask.kkt, k).share for k in ("interior", "zero", "one")}
                row |= shares | {key: getattr(mask.kkt, key) for key in ("tau", "residual", "holds", "gap")}
            masks.append(row)
        return {
            f"masks at ρ = {self.rho:.4g}: loss and KKT residuals, in units of the mean |gradient|": masks,
            "agreement of the learned mask with the surrogate": [
                {"surrogate": name} | asdict(row) for name, row in self.agreement.items()
            ],
            "weak duality, P ≤ D(λ)": [asdict(row) for row in self.duality],
            "gradient formulas": [asdict(self.gradients)],
        }


def report(
    game: Method,
    domain: GraphTensors,
    edges: Edges,
    *,
    seed: int = 0,
    rho: float | None = None,
    lambdas: Sequence[float] | None = None,
    steps: int = 50,
) -> TheoryReport:
    """Every check of `edgemask.theory` on a trained game and a labelled graph with the given edges.

    `rho`      the budget; by default the learned mask's mean, so that the learned mask spends it exactly.
    `lambdas`  the λ ≥ 0 of the duality table; by default 0 and multiples of m times the mean |gradient|.
    `steps`    of every ascent, each a forward and a backward pass: (3 + 2 · number of λ) · `steps` in all.
    Random masks are the learned one and its 0/1 version with their values dealt to other edges, by `seed`.
    """
    if not isinstance(game, Game) or "mask" not in game.networks:
        raise InputError("the game has no MaskNet (it was trained with mask = False): there is no adversary to check")
    loss, learned, m = loss_of(game, domain, edges), game.mask_of(domain, edges).double(), edges.num_real
    rho = float(learned.mean()) if rho is None else rho
    if not 0 < rho <= 1:
        raise InputError(f"graph {domain.name!r}: the budget ρ must lie in (0, 1], got {rho}")
    lam = float(game.lam)
    if game.recipe.bound == "budget":
        lam = m * kkt(mask_gradient(game, domain, edges, learned), learned, float(learned.mean())).tau
    zeros, ones = torch.zeros_like(learned), torch.ones_like(learned)
    base, c = value_and_gradient(loss, zeros)
    deal = torch.randperm(m, generator=torch_stream(seed, "theory")).to(learned.device)
    rounded, best = budget_mask(learned, rho), budget_mask(c, rho)
    surrogates = {"surrogate, λ": surrogate_mask(c, lam / m), "surrogate, ρ": best}
    starts = [ascend(loss, start, rho, steps) for start in (learned, best, zeros)]
    worst = max(starts, key=lambda s: value_and_gradient(loss, s)[0])
    masks = {"learned": learned, "learned, 0/1": rounded, "random": learned[deal], "random, 0/1": rounded[deal]}
    masks |= surrogates | {"ascent from learned": starts[0], "ascent, best": worst, "zeros": zeros, "ones": ones}
    rows = {}
    for name, s in masks.items():
        value, g = value_and_gradient(loss, s)
        rows[name] = Mask(float(s.mean()), value, kkt(g, s, rho) if feasible(s, rho) else None)
        if name == "learned" and feasible(s, rho) and game.recipe.bound != "budget":
            rows["learned, game's λ"] = Mask(float(s.mean()), value, kkt(g, s, rho, lam / m))
    if lambdas is None:
        scale = m * float(mask_gradient(game, domain, edges, worst).abs().mean())
        lambdas = [k * scale for k in MULTIPLES]
    return TheoryReport(
        graph=domain.name,
        edges=m,
        rho=rho,
        lam=lam,
        masks=rows,
        agreement={name: agreement(learned, s, rho) for name, s in surrogates.items()},
        surrogate_primal=base + float(c @ best),
        surrogate_dual=base + surrogate_dual(c, rho, surrogate_multiplier(c, rho)),
        duality=duality(loss, worst, rho, lambdas, steps),
        gradients=gradient_formulas(game, domain, edges, lam),
    )
