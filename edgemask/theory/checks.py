"""The paper's theory (Section 4.5 and its appendices), checked on a trained TaskNet and MaskNet and a labelled graph.

ℓ(s) is the mean cross-entropy of the labelled nodes under the mask s, TaskNet frozen and in evaluation mode; m edges,
budget ρ, S_ρ = {s ∈ [0,1]^m : mean(s) ≤ ρ}, threshold τ = λ/m. Masks are float64 so that budgets hold to rounding;
the networks see their own precision. ℓ is not concave, so every maximum found here is a lower bound of the true one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from edgemask.errors import InputError
from edgemask.methods.edgemask import Game
from edgemask.metrics import roc_auc
from edgemask.nn.tensors import Edges, GraphTensors

Loss = Callable[[Tensor], Tensor]  # of a mask, differentiable
EPS = 0.01  # a mask value within EPS of 1 counts as 1, within EPS · ρ of 0 as 0 (a collapsed mask is not all zeros)
TOL = 0.05  # a KKT condition holds when it is missed by less than this share of the mean |gradient|
SLACK = 1e-6  # a budget with less than this share of it left is spent
STEP = 1e-3  # of parameters, relative to their norm: small enough for first order, large enough for float32
NUDGE = 1e-2  # of mask values
TINY = 1e-30  # in place of a zero divisor


def loss_of(game: Game, domain: GraphTensors, edges: Edges, parameters: dict[str, Tensor] | None = None) -> Loss:
    """ℓ(f_θ, ·) on the labelled nodes of a graph; θ is the trained TaskNet's unless `parameters` replace it."""
    labels, task = domain.labels()[domain.labelled], game.networks["task"].eval()
    if not len(labels) or not edges.num_real:
        raise InputError(
            f"graph {domain.name!r}: the theory needs labels and edges, got {len(labels)} labelled nodes "
            f"and {edges.num_real} edges"
        )
    theta = parameters or dict(task.named_parameters())
    dtype = next(iter(theta.values())).dtype

    def loss(s: Tensor) -> Tensor:
        logits = functional_call(task, theta, (domain.x, edges, s.to(dtype)))
        return F.cross_entropy(logits[domain.labelled].double(), labels)

    return loss


def value_and_gradient(loss: Loss, s: Tensor) -> tuple[float, Tensor]:
    """ℓ(s) and ∂ℓ/∂s_e for every edge."""
    s = s.detach().requires_grad_()
    value = loss(s)
    (gradient,) = torch.autograd.grad(value, s, allow_unused=True)
    if gradient is None:
        raise InputError("the loss does not depend on the mask: a TaskNet without edges (an MLP) has no adversary")
    return float(value.detach()), gradient


def mask_gradient(game: Game, domain: GraphTensors, edges: Edges, s: Tensor) -> Tensor:
    """∂ℓ/∂s_e for every real edge at the mask `s`, through the frozen TaskNet."""
    if s.shape != (edges.num_real,):
        raise InputError(f"graph {domain.name!r}: mask has shape {tuple(s.shape)}, expected ({edges.num_real},)")
    return value_and_gradient(loss_of(game, domain, edges), s)[1]


# ---- the constrained problem P(θ) = max over S_ρ of ℓ (Eq. P_main) -----------------------------------------


def feasible(s: Tensor, rho: float) -> bool:
    """Whether a mask of the box lies in S_ρ, to rounding."""
    return float(s.mean()) <= rho + 1e-12


def project(v: Tensor, rho: float) -> Tensor:
    """The point of S_ρ nearest to v: clamp(v - t, 0, 1), t = 0 if that is within budget, else the t that spends it.

    t is found by bisection; its upper end is taken, so that mean(s) ≤ ρ.
    """
    if float(v.clamp(0, 1).mean()) <= rho:
        return v.clamp(0, 1)
    low, high = v.new_zeros(()), v.max()
    for _ in range(100):
        t = (low + high) / 2
        over = (v - t).clamp(0, 1).mean() > rho
        low, high = torch.where(over, t, low), torch.where(over, high, t)
    return (v - high).clamp(0, 1)


def ascend(loss: Loss, start: Tensor, rho: float = 1.0, steps: int = 50) -> Tensor:
    """Projected gradient ascent on ℓ over S_ρ (ρ = 1 is the box) that never goes down from the projected start.

    The step size doubles after a step that rises and halves after one that does not; a fixed point satisfies KKT.
    """
    s = project(start, rho)
    value, g = value_and_gradient(loss, s)
    rate = 1 / g.abs().max().clamp_min(TINY)
    for _ in range(steps):
        trial = project(s + rate * g, rho)
        if float((trial - s).abs().max()) < 1e-12:
            break
        new, new_g = value_and_gradient(loss, trial)
        if new > value:
            s, value, g, rate = trial, new, new_g, rate * 2
        else:
            rate = rate / 2
    return s


def budget_mask(c: Tensor, rho: float) -> Tensor:
    """argmax of c·s over S_ρ: the ρm largest c_e, none of them negative, in order until the budget is spent.

    Where ρm is no whole number the last edge is kept in part; the appendix's 1[c_e > λ*/m] cannot meet the budget then.
    """
    order = c.argsort(descending=True, stable=True)
    room = (rho * len(c) - torch.arange(len(c), dtype=torch.float64, device=c.device)).clamp(0, 1)
    return torch.zeros_like(room).index_copy(0, order, room * (c[order] > 0))


# ---- KKT conditions (Lemma kkt_main, Appendix kkt_analysis) ------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One of the lemma's cases: the share of edges in it and their residuals (0 where there are none)."""

    share: float
    mean: float
    max: float


@dataclass(frozen=True)
class KKT:
    """How far a mask is from Lemma kkt_main. Residuals are in units of `scale`, the mean |∂ℓ/∂s_e| at the mask.

    `tau`    λ_L/m          `holds`  share of edges whose residual is below TOL
    `gap`    the gain that moving inside S_ρ promises to first order, 0 at a KKT point, 1 at the worst mask of S_ρ
             (compare masks by it: under a small ρ nearly any 0/1 mask satisfies (b) nearly everywhere)
    """

    tau: float
    scale: float
    interior: Case  # (a) 0 < s_e < 1: |g_e - τ|
    zero: Case  # (b) s_e = 0: max(0, g_e - τ)
    one: Case  # (c) s_e = 1: max(0, τ - g_e)
    residual: float
    holds: float
    gap: float


def kkt(g: Tensor, s: Tensor, rho: float, tau: float | None = None) -> KKT:
    """The KKT residuals of a feasible mask `s` with loss gradient `g`, for λ_L/m = `tau`.

    Without one, `tau` is 0 where the budget is not spent (complementary slackness) and else the τ ≥ 0 with the least
    sum of residuals. That sum is convex and piecewise linear in τ with kinks at the g_e, so the best τ is one of them.
    """
    if not feasible(s, rho):
        raise InputError(f"the mask's mean {float(s.mean()):.6g} is over the budget ρ = {rho:.6g}")
    zero, one = s <= EPS * rho, s >= 1 - EPS
    interior = ~(zero | one)
    if tau is None and float(s.mean()) < rho * (1 - SLACK):
        tau = 0.0
    elif tau is None:
        kinks, order = g.sort()
        slope = (1 + interior[order].long()).cumsum(0) - (~one).sum()  # of the sum, to the right of each kink
        tau = max(0.0, float(kinks[int((slope < 0).sum())]))
    scale = float(g.abs().mean().clamp_min(TINY))
    residual = torch.where(interior, (g - tau).abs(), torch.where(zero, g - tau, tau - g).clamp_min(0)) / scale

    def case(held: Tensor) -> Case:
        if not held.any():
            return Case(0.0, 0.0, 0.0)
        return Case(float(held.double().mean()), float(residual[held].mean()), float(residual[held].max()))

    best, worst = (float((g * mask).sum()) for mask in (budget_mask(g, rho), budget_mask(-g, rho)))
    gap = (best - float((g * s).sum())) / (best - worst) if best > worst else 0.0
    holds = float((residual < TOL).double().mean())
    return KKT(tau, scale, case(interior), case(zero), case(one), float(residual.mean()), holds, gap)


# ---- the affine surrogate at s = 0 (Appendix concave_surrogate) --------------------------------------------


def surrogate_mask(c: Tensor, tau: float) -> Tensor:
    """Proposition surrogate_mask: 1[c_e > τ], the maximiser of ℓ(0) + c·s - τ Σ s over the box; c = ∂ℓ/∂s at s = 0."""
    return (c > tau).double()


def surrogate_dual(c: Tensor, rho: float, lam: float) -> float:
    """Eq. dual_surrogate less ℓ(0): λρ + Σ max(0, c_e - λ/m). Its least value over λ ≥ 0 is max c·s over S_ρ."""
    return lam * rho + float((c - lam / len(c)).clamp_min(0).sum())


def surrogate_multiplier(c: Tensor, rho: float) -> float:
    """The λ* ≥ 0 at which `surrogate_dual` is least: m times the c_e at which the budget runs out."""
    last = int(rho * len(c))
    return 0.0 if last >= len(c) else len(c) * max(0.0, float(c.sort(descending=True).values[last]))


@dataclass(frozen=True)
class Agreement:
    """A surrogate's decisions against the learned mask's, cut at 1/2 and at the learned mask's own ρ-quantile.

    Shares of equal decisions and Cohen's κ; `auc`, how well the learned values rank what the surrogate keeps.
    None where it is not defined (nobody disagrees by chance; the surrogate keeps all or nothing).
    """

    kept: float
    half: float
    half_kappa: float | None
    quantile: float
    quantile_kappa: float | None
    auc: float | None


def agreement(learned: Tensor, surrogate: Tensor, rho: float) -> Agreement:
    """How far the learned mask decides as a surrogate of the same edges does."""
    keeps = surrogate > 0.5
    kept = float(keeps.double().mean())

    def cut(mine: Tensor) -> tuple[float, float | None]:
        equal, share = float((mine == keeps).double().mean()), float(mine.double().mean())
        chance = share * kept + (1 - share) * (1 - kept)
        return equal, (equal - chance) / (1 - chance) if chance < 1 else None

    scores = torch.stack([1 - learned, learned], 1).cpu().numpy()
    auc = roc_auc(keeps.long().cpu().numpy(), scores) if 0 < kept < 1 else None
    return Agreement(kept, *cut(learned > 0.5), *cut(budget_mask(learned, rho) > 0.5), auc)


# ---- weak duality (Lemma dual_robust, sign corrected) ------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """One λ ≥ 0: `dual` = D(λ) found, `gap` = D(λ) - P, `printed` = what the sign in print gives instead."""

    lam: float
    primal: float
    dual: float
    gap: float
    printed: float


def duality(loss: Loss, s: Tensor, rho: float, lambdas: Sequence[float], steps: int = 50) -> list[Bound]:
    """Weak duality P ≤ D(λ) = max over the box of ℓ(s) - λ(mean(s) - ρ), from a mask `s` of S_ρ with ℓ(s) = P found.

    For s in S_ρ and λ ≥ 0, ℓ(s) ≤ ℓ(s) - λ(mean(s) - ρ), and ascent from there only rises: D found ≥ P found always,
    and this is what is verified; neither is certified to be the true maximum. The lemma in print has + λ(mean(s) - ρ):
    at a maximiser with budget to spare that is below P, so no upper bound. `printed` is that maximum as ascent finds
    it from the same mask; below P it is evidence, and a proof only where ℓ is concave.
    """
    if not feasible(s, rho):
        raise InputError(f"the mask's mean {float(s.mean()):.6g} is over the budget ρ = {rho:.6g}")
    for lam in lambdas:
        if lam < 0:
            raise InputError(f"weak duality needs λ ≥ 0, got {lam}")

    def found(weight: float) -> float:
        def objective(s: Tensor) -> Tensor:
            return loss(s) - weight * (s.mean() - rho)

        return value_and_gradient(objective, ascend(objective, s, steps=steps))[0]

    primal = value_and_gradient(loss, s)[0]
    duals = [found(lam) for lam in lambdas]
    return [Bound(lam, primal, d, d - primal, found(-lam)) for lam, d in zip(lambdas, duals, strict=True)]


# ---- gradients of the game (Appendix gradient_analysis) ----------------------------------------------------


@dataclass(frozen=True)
class Gradients:
    """The appendix's two formulas, and its two contradicting sentences on what the MaskNet does to an edge.

    `task_difference`  Eq. grad_task: relative difference of |g_θ| from a central difference of ℓ along g_θ, s constant
    `mask_difference`  Eq. grad_mask, (-∇ℓ + λ/m 1ᵀ) ∂s/∂p: the same, for -ℓ + λ mean(s) along it. About 1 for a
                       straight-through mask, whose gradient is not its function's
    `mask_autograd`    … and its largest difference from autograd on -ℓ + λ mean(s), over the largest entry
    `rule_gain`        change of the adversary's ℓ - λ mean(s) when s_e rises iff ∂ℓ/∂s_e > λ/m: the form that holds
    `reversed_gain`    … when s_e falls where ∂ℓ/∂s_e > 0 and rises elsewhere, the appendix's other sentence
    `network_gain`     … after one small step of the MaskNet's parameters down Eq. grad_mask
    `network_share`    share of the edges which that step moves that move as the rule says; None when it moves none.
                       The rule is each edge's own: parameters shared by edges need only satisfy Σ Q_e Δs_e < 0.
    """

    lam: float
    task_difference: float
    mask_difference: float
    mask_autograd: float
    rule_gain: float
    reversed_gain: float
    network_gain: float
    network_share: float | None


def gradient_formulas(game: Game, domain: GraphTensors, edges: Edges, lam: float) -> Gradients:
    """Eqs. grad_task and grad_mask at the trained parameters, with sparsity weight λ = `lam`."""
    facts, network, loss = game.edge_facts(domain, edges), game.networks["mask"].eval(), loss_of(game, domain, edges)
    phi: dict[str, Tensor] = {name: p for name, p in network.named_parameters() if p.requires_grad}
    theta: dict[str, Tensor] = dict(game.networks["task"].named_parameters())

    def mask(p: dict[str, Tensor]) -> Tensor:
        return game.mask(functional_call(network, p, (domain, edges, facts)), edges).double()

    def objective(s: Tensor) -> float:
        return float(loss(s) - lam * s.mean())

    s = mask(phi)
    value = loss(s)
    (g,) = torch.autograd.grad(value, s, retain_graph=True)
    q = lam / len(g) - g
    direct = torch.autograd.grad(lam * s.mean() - value, list(phi.values()), retain_graph=True)
    formula = torch.autograd.grad(s, list(phi.values()), q)
    worst = max(float((a - b).abs().max()) for a, b in zip(direct, formula, strict=True))
    largest = max(float(a.abs().max()) for a in direct)

    s = s.detach()
    g_task = torch.autograd.grad(loss(s), list(theta.values()), materialize_grads=True)
    with torch.no_grad():
        up, down = (_moved(phi, formula, by) for by in (STEP, -STEP))
        step = mask(down) - s
        agrees = (step * q < 0)[step != 0]
        rise, fall = (objective(mask(p)) for p in (up, down))
        ends = [float(loss_of(game, domain, edges, _moved(theta, g_task, by))(s)) for by in (STEP, -STEP)]
        now, rule, reverse = (objective((s + d).clamp(0, 1)) for d in (0 * q, -NUDGE * q.sign(), -NUDGE * g.sign()))
    return Gradients(
        lam=lam,
        task_difference=_difference(ends[0] - ends[1], theta, g_task),
        mask_difference=_difference(fall - rise, phi, formula),
        mask_autograd=worst / max(largest, TINY),
        rule_gain=rule - now,
        reversed_gain=reverse - now,
        network_gain=fall - now,
        network_share=float(agrees.double().mean()) if len(agrees) else None,
    )


def _difference(rise: float, parameters: dict[str, Tensor], g: Sequence[Tensor]) -> float:
    """Of |g| from the slope of an objective that rises by `rise` between a STEP against g and one along it."""
    return abs(rise / (2 * STEP * _norm(parameters.values())) / max(_norm(g), TINY) - 1)


def _norm(tensors: Iterable[Tensor]) -> float:
    return float(torch.stack([t.detach().double().norm() for t in tensors]).norm())


def _moved(parameters: dict[str, Tensor], direction: Sequence[Tensor], step: float) -> dict[str, Tensor]:
    """Parameters moved along a direction by `step` times their own norm."""
    rate = step * _norm(parameters.values()) / max(_norm(direction), TINY)
    return {name: p + rate * d for (name, p), d in zip(parameters.items(), direction, strict=True)}
