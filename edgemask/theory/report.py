"""A report of all checks of `edgemask.theory` for one trained game and one labelled graph."""

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

# The default λ of the duality table, in units of m · mean |gradient|, which is where λ begins to have an effect.
MULTIPLES = (0.0, 0.3, 1.0, 3.0)


@dataclass(frozen=True)
class Mask:
    """The results for one mask.

    Attributes:
        mean: Mean of the mask.
        loss: Its loss ℓ.
        kkt: Its KKT residuals. None if the mask is not in S_ρ.
    """

    mean: float
    loss: float
    kkt: KKT | None


@dataclass(frozen=True)
class TheoryReport:
    """The results of all checks for one trained game and one graph.

    Attributes:
        graph: Name of the graph.
        edges: Number of edges m.
        rho: The budget ρ.
        lam: The game's λ. A game with `bound = 'budget'` has none; for it, this is m times the multiplier that fits the
            learned mask best.
        masks: Loss and KKT residuals of the learned mask and of masks to compare it with.
        agreement: Agreement of the learned mask with each surrogate.
        surrogate_primal: ℓ(0) + max c·s over S_ρ.
        surrogate_dual: The same value, computed from the dual (strong duality).
        duality: Weak duality for each λ.
        gradients: Checks of the gradient formulas.
    """

    graph: str
    edges: int
    rho: float
    lam: float
    masks: dict[str, Mask]
    agreement: dict[str, Agreement]
    surrogate_primal: float
    surrogate_dual: float
    duality: list[Bound]
    gradients: Gradients

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return asdict(self)

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Return the tables to print by title. A table is a list of rows, and a row maps column names to values."""
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
    """Run all checks of `edgemask.theory` on a trained game and a labelled graph.

    Args:
        game: A trained game with a MaskNet.
        domain: A labelled graph.
        edges: The edges that the mask weights.
        seed: Seed of the random masks. They are the learned mask and its 0/1 version with their values shuffled among
            the edges.
        rho: The budget ρ. By default the mean of the learned mask, so that the learned mask spends it exactly.
        lambdas: The λ ≥ 0 of the duality table. By default 0 and multiples of m times the mean |gradient|.
        steps: Steps of every ascent. A step is a forward and a backward pass, and all ascents together take
            (3 + 2 · number of λ) · `steps` of them.

    Raises:
        InputError: The game has no MaskNet, the graph has no labels or no edges, or ρ or a λ is out of range.
    """
    if not isinstance(game, Game) or "mask" not in game.networks:
        raise InputError("the game has no MaskNet (it was trained with mask = False), so no adversary can be checked")
    loss, learned, m = loss_of(game, domain, edges), game.mask_of(domain, edges).double(), edges.num_real
    rho = float(learned.mean()) if rho is None else rho
    if not 0 < rho <= 1:
        raise InputError(f"graph {domain.name!r}: the budget ρ must lie in (0, 1], got {rho}")
    lam = float(game.lam)
    if game.recipe.bound == "budget":
        lam = m * kkt(mask_gradient(game, domain, edges, learned), learned, float(learned.mean())).tau
    zeros, ones = torch.zeros_like(learned), torch.ones_like(learned)
    base, c = value_and_gradient(loss, zeros)
    shuffle = torch.randperm(m, generator=torch_stream(seed, "theory")).to(learned.device)
    rounded, best = budget_mask(learned, rho), budget_mask(c, rho)
    surrogates = {"surrogate, λ": surrogate_mask(c, lam / m), "surrogate, ρ": best}
    starts = [ascend(loss, start, rho, steps) for start in (learned, best, zeros)]
    worst = max(starts, key=lambda s: value_and_gradient(loss, s)[0])
    masks = {"learned": learned, "learned, 0/1": rounded, "random": learned[shuffle], "random, 0/1": rounded[shuffle]}
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
