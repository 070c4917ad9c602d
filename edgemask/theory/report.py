"""A report of all checks of `edgemask.theory` for one trained game and one labelled graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from edgemask.errors import InputError
from edgemask.inference import check_finite
from edgemask.methods.base import Method
from edgemask.methods.edgemask import Game
from edgemask.methods.sources import check_magnitude
from edgemask.nn.tensors import Edges, GraphTensors
from edgemask.seeds import torch_stream
from edgemask.theory.checks import (
    KKT,
    TINY,
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

# Thresholds of `TheoryReport.verdict`.
NOTICEABLE = 0.01  # a loss is noticeably higher than another one if it is higher by more than this share
CLOSE_GAP, CLOSE_SHARE = (
    0.1,
    0.5,
)  # a mask is close to the worst one up to this KKT gap and from this share of its effect
AGREES, CHANCE = 0.7, 0.6  # an AUC from AGREES on is agreement; one between 1 - CHANCE and CHANCE is like chance
DUALITY_TOLERANCE = 1e-6  # a duality gap may be this far below 0
DIFFERENCE_TOLERANCE = 0.1  # relative difference between a gradient formula and a finite difference; ReLU has kinks
AUTOGRAD_TOLERANCE = 1e-3  # relative difference between a gradient formula and automatic differentiation


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

    def verdict(self) -> str:
        """Return what the checks found, in five sentences.

        The first four compare the learned mask with a random one, with the best mask that was found and with the
        surrogate, and say whether weak duality and the gradient formulas hold. The last one says whether the theory
        describes this model and graph, and what follows from this.
        """
        return " ".join(
            [self._against_chance(), self._against_best(), self._surrogate(), self._laws(), self._meaning()]
        )

    @property
    def _increase(self) -> float:
        """Increase of the loss from the random mask to the learned one, as a share of the loss of the random mask."""
        return _increase(self.masks["random"].loss, self.masks["learned"].loss)

    @property
    def _possible(self) -> float:
        """Increase of the loss from the random mask to the best one, as a share of the loss of the random mask."""
        return _increase(self.masks["random"].loss, self.masks["ascent, best"].loss)

    @property
    def _achieved(self) -> float:
        """Share of the possible increase that the learned mask achieves. Only defined if an increase is possible."""
        return max(0.0, self._increase / self._possible)

    @property
    def _broken(self) -> list[str]:
        """The statements of the theory that do not hold, although they must."""
        g = self.gradients
        laws = {
            "weak duality": all(bound.gap >= -DUALITY_TOLERANCE for bound in self.duality),
            "the TaskNet's gradient formula": g.task_difference <= DIFFERENCE_TOLERANCE,
            "the MaskNet's gradient formula": g.mask_autograd <= AUTOGRAD_TOLERANCE,
        }
        return [name for name, holds in laws.items() if not holds]

    def _against_chance(self) -> str:
        learned, chance = self.masks["learned"].loss, self.masks["random"].loss
        losses = f"{learned:.4g} instead of {chance:.4g}"
        if abs(self._increase) <= NOTICEABLE:
            return (
                f"On graph {self.graph!r} the learned mask is not noticeably harder for the TaskNet than the same "
                f"values assigned to the edges at random: the loss is {losses}."
            )
        direction, sign = ("harder", "higher") if self._increase > 0 else ("easier", "lower")
        return (
            f"On graph {self.graph!r} the learned mask is {direction} for the TaskNet than the same values assigned to "
            f"the edges at random: the loss is {losses}, which is {_percent(abs(self._increase))} {sign}."
        )

    def _against_best(self) -> str:
        learned, best = self.masks["learned"], self.masks["ascent, best"]
        if learned.kkt is None:
            return (
                f"It has a mean of {learned.mean:.4g}, which is over the budget ρ = {self.rho:.4g} of this report, so "
                "it cannot be compared with the worst mask within the budget."
            )
        gap = f"its KKT gap is {learned.kkt.gap:.2f}, where 0 is a stationary point and 1 the easiest mask"
        if self._possible <= NOTICEABLE:
            return (
                f"Direct ascent finds no mask within the budget that is noticeably harder than the random one (loss "
                f"{best.loss:.4g}), and for the learned mask {gap}."
            )
        return (
            f"Direct ascent finds a mask within the budget with a loss of {best.loss:.4g}; the learned mask achieves "
            f"{_percent(self._achieved)} of this increase over the random mask, and {gap}."
        )

    def _surrogate(self) -> str:
        auc = self.agreement["surrogate, ρ"].auc
        if auc is None:
            return "The closed-form surrogate treats all edges alike, so it cannot be compared with the learned mask."
        subject = "The closed-form surrogate"
        measured = f"the learned values rank the edges that it keeps with an AUC of {auc:.2f}, where 0.5 is chance"
        if auc >= AGREES:
            return f"{subject} agrees with the learned mask: {measured}."
        if auc > CHANCE:
            return f"{subject} agrees weakly with the learned mask: {measured}."
        if auc >= 1 - CHANCE:
            return f"{subject} says little about the learned mask: {measured}."
        return f"{subject} contradicts the learned mask: {measured}."

    def _laws(self) -> str:
        g, bounds = self.gradients, "no λ was given to compute a duality gap for"
        if self.duality:
            gap = _plain(min(bound.gap for bound in self.duality))
            bounds = (
                f"the smallest duality gap is {gap} and must not be negative (tolerance {_plain(DUALITY_TOLERANCE)})"
            )
        measured = (
            f"{bounds}; the TaskNet's formula differs from a finite difference by "
            f"{_percent(g.task_difference)} (tolerance {_percent(DIFFERENCE_TOLERANCE)}); the MaskNet's formula "
            f"differs from automatic differentiation by {_percent(g.mask_autograd)} (tolerance "
            f"{_percent(AUTOGRAD_TOLERANCE)}) and from a finite difference, which kinks of the mask disturb, by "
            f"{_percent(g.mask_difference)}"
        )
        if not self._broken:
            return f"{'Weak duality and both' if self.duality else 'Both'} gradient formulas hold: {measured}."
        names = " and ".join(self._broken)
        verb = "does" if len(self._broken) == 1 else "do"
        return f"{names[0].upper()}{names[1:]} {verb} not hold: {measured}."

    def _meaning(self) -> str:
        learned, best = self.masks["learned"], self.masks["ascent, best"]
        if self._broken:
            return (
                "The theory therefore does not describe this model and graph: look for a numerical problem, such as "
                "very large weights, before you rely on the mask."
            )
        if learned.kkt is None:
            return (
                "The report therefore does not tell whether the theory describes this model and graph: repeat it with "
                f"a budget of at least {math.ceil(100 * learned.mean) / 100:.2f}."
            )
        if self._possible <= NOTICEABLE:
            return (
                "The theory describes this model and graph but has no consequence: the loss hardly depends on which "
                "edges are masked, so the model needs no protection against such masks."
            )
        if self._increase <= NOTICEABLE:
            return (
                "The theory describes the loss of this model and graph but not its adversary, which found no worst "
                "case: expect no more robustness than from training with random masks."
            )
        if learned.kkt.gap <= CLOSE_GAP and self._achieved >= CLOSE_SHARE:
            return (
                "The theory describes this model and graph: the adversary found masks close to the worst case, so the "
                f"loss of {learned.loss:.4g} is a fair estimate of the highest loss under masks within the budget."
            )
        return (
            "The theory describes this model and graph only in part: the adversary is harder than chance but far from "
            f"the worst case, so its loss of {learned.loss:.4g} is no bound; another mask within the budget "
            f"reaches {best.loss:.4g}."
        )


def _increase(base: float, value: float) -> float:
    """Return the increase of a loss as a share of the loss that it starts from."""
    return (value - base) / max(base, TINY)


def _plain(number: float) -> str:
    """Format a number with two digits and without an exponent.

    >>> _plain(0.06237), _plain(-0.0000512), _plain(95.4), _plain(0.0)
    ('0.062', '-0.000051', '95', '0')
    """
    return np.format_float_positional(number, precision=2, fractional=False, trim="-")


def _percent(share: float) -> str:
    """Format a share in percent, with two digits below 10 %.

    >>> _percent(0.37), _percent(0.0132), _percent(0.00001), _percent(0.0)
    ('37 %', '1.3 %', 'less than 0.1 %', '0 %')
    """
    if share == 0:
        return "0 %"
    if share < 0.001:
        return "less than 0.1 %"
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


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
        GraphError: A feature is too large, or a logit is not finite.
    """
    if not isinstance(game, Game) or "mask" not in game.networks:
        raise InputError("the game has no MaskNet (it was trained with mask = False), so no adversary can be checked")
    check_magnitude(domain.graph)
    mask = game.mask_of(domain, edges)
    check_finite(game, domain.graph, game.logits(domain, edges, mask))
    loss, learned, m = loss_of(game, domain, edges), mask.double(), edges.num_real
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
