"""Checks of the paper's theory (Section 4.5 and its appendices) on a trained TaskNet and MaskNet and a labelled graph.

Notation: ℓ(s) is the mean cross-entropy of the labelled nodes under the mask s, with the TaskNet frozen and in
evaluation mode. The weights of a weighted graph are part of ℓ: the TaskNet uses s·w, and no statement depends on how ℓ
uses s. The graph has m edges, ρ is the budget, S_ρ = {s ∈ [0,1]^m : mean(s) ≤ ρ} is the set of feasible masks, and
τ = λ/m is the threshold.

Masks are float64, so that budgets hold up to rounding. The networks compute in their own precision. ℓ is not concave,
so every maximum that is found here is only a lower bound of the true maximum.
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

Loss = Callable[[Tensor], Tensor]  # a differentiable function of a mask
# Mask values of at least 1 - EPS count as 1, and values of at most EPS · ρ count as 0. The factor ρ makes sure that a
# collapsed mask, whose values are all close to 0, does not count as all zeros.
EPS = 0.01
TOL = 0.05  # a KKT condition holds if its residual is below this share of the mean |gradient|
SLACK = 1e-6  # a budget counts as spent if less than this share of it is left
STEP = 1e-3  # step of parameters relative to their norm: small enough for first order, large enough for float32
NUDGE = 1e-2  # step of mask values
TINY = 1e-30  # replaces a divisor of zero


def loss_of(game: Game, domain: GraphTensors, edges: Edges, parameters: dict[str, Tensor] | None = None) -> Loss:
    """Return ℓ(f_θ, ·), the loss of the labelled nodes as a function of the mask.

    Args:
        game: The trained game.
        domain: A labelled graph.
        edges: The edges that the mask weights.
        parameters: θ by parameter name. By default the parameters of the trained TaskNet.

    Raises:
        InputError: The graph has no labels or no edges.
    """
    labels, task = domain.labels()[domain.labelled], game.networks["task"].eval()
    if not len(labels) or not edges.num_real:
        raise InputError(
            f"graph {domain.name!r}: the theory checks need labels and edges, got {len(labels)} labelled nodes "
            f"and {edges.num_real} edges"
        )
    theta = parameters or dict(task.named_parameters())
    dtype = next(iter(theta.values())).dtype

    def loss(s: Tensor) -> Tensor:
        logits = functional_call(task, theta, (domain.x, edges), {"mask": s.to(dtype)})
        return F.cross_entropy(logits[domain.labelled].double(), labels)

    return loss


def value_and_gradient(loss: Loss, s: Tensor) -> tuple[float, Tensor]:
    """Return ℓ(s), and ∂ℓ/∂s_e for every edge.

    Raises:
        InputError: The loss does not depend on the mask.
    """
    s = s.detach().requires_grad_()
    value = loss(s)
    (gradient,) = torch.autograd.grad(value, s, allow_unused=True)
    if gradient is None:
        raise InputError("the loss does not depend on the mask: a TaskNet that ignores edges (an MLP) has no adversary")
    return float(value.detach()), gradient


def mask_gradient(game: Game, domain: GraphTensors, edges: Edges, s: Tensor) -> Tensor:
    """Return ∂ℓ/∂s_e of the frozen TaskNet for every real edge.

    Args:
        game: The trained game.
        domain: A labelled graph.
        edges: The edges that the mask weights.
        s: The mask at which the gradient is taken, with one value per real edge.

    Raises:
        InputError: The mask does not have one value per edge, there are no labels or edges, or the loss does not depend
            on the mask.
    """
    if s.shape != (edges.num_real,):
        raise InputError(f"graph {domain.name!r}: mask has shape {tuple(s.shape)}, expected ({edges.num_real},)")
    return value_and_gradient(loss_of(game, domain, edges), s)[1]


# ---- the constrained problem P(θ) = max over S_ρ of ℓ (Eq. P_main) -----------------------------------------


def feasible(s: Tensor, rho: float) -> bool:
    """Tell whether a mask with values in [0, 1] lies in S_ρ, up to rounding."""
    return float(s.mean()) <= rho + 1e-12


def project(v: Tensor, rho: float) -> Tensor:
    """Return the point of S_ρ nearest to v.

    It is clamp(v - t, 0, 1), where t = 0 if that is within the budget, and otherwise the t that spends the budget
    exactly. Bisection finds t. The upper end of its last interval is used, so that mean(s) ≤ ρ.
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
    """Maximise ℓ over S_ρ by projected gradient ascent.

    The step size doubles after a step that increases ℓ; any other step is rejected, and the step size halves. The
    result is therefore never worse than the projected start. A fixed point satisfies the KKT conditions.

    Args:
        loss: The function ℓ.
        start: First mask. It is projected onto S_ρ.
        rho: The budget ρ. 1 is the whole box [0, 1]^m.
        steps: Largest number of steps.
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
    """Return the argmax of c·s over S_ρ: it keeps at most ρm edges, those with the largest positive c_e.

    If ρm is not an integer, the last of these edges is kept in part. The appendix's formula 1[c_e > λ*/m] cannot meet
    the budget exactly in that case.
    """
    order = c.argsort(descending=True, stable=True)
    room = (rho * len(c) - torch.arange(len(c), dtype=torch.float64, device=c.device)).clamp(0, 1)
    return torch.zeros_like(room).index_copy(0, order, room * (c[order] > 0))


# ---- KKT conditions (Lemma kkt_main, Appendix kkt_analysis) ------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One case of the lemma.

    Attributes:
        share: Share of the edges that belong to the case.
        mean: Mean of their residuals; 0 if there are none.
        max: Largest of their residuals; 0 if there are none.
    """

    share: float
    mean: float
    max: float


@dataclass(frozen=True)
class KKT:
    """The distance of a mask from satisfying Lemma kkt_main.

    Residuals are in units of `scale`.

    Attributes:
        tau: The multiplier λ_L/m.
        scale: Mean |∂ℓ/∂s_e| at the mask.
        interior: Case (a), 0 < s_e < 1, with residual |g_e - τ|.
        zero: Case (b), s_e = 0, with residual max(0, g_e - τ).
        one: Case (c), s_e = 1, with residual max(0, τ - g_e).
        residual: Mean residual of all edges.
        holds: Share of edges whose residual is below TOL.
        gap: Largest first-order gain of a move inside S_ρ, scaled to be 0 at a KKT point and 1 at the worst mask of
            S_ρ. Use it to compare masks, because under a small ρ almost any 0/1 mask satisfies (b) almost everywhere.
    """

    tau: float
    scale: float
    interior: Case
    zero: Case
    one: Case
    residual: float
    holds: float
    gap: float


def kkt(g: Tensor, s: Tensor, rho: float, tau: float | None = None) -> KKT:
    """Return the KKT residuals of a feasible mask.

    Args:
        g: Gradient of ℓ at the mask.
        s: The mask.
        rho: The budget ρ.
        tau: The multiplier λ_L/m. By default it is 0 if the budget is not spent (complementary slackness), and
            otherwise the τ ≥ 0 with the smallest sum of residuals. This sum is convex and piecewise linear in τ with
            kinks at the g_e, so the best τ is one of the g_e, or 0.

    Raises:
        InputError: The mask is over the budget.
    """
    if not feasible(s, rho):
        raise InputError(f"the mask's mean {float(s.mean()):.6g} is over the budget ρ = {rho:.6g}")
    zero, one = s <= EPS * rho, s >= 1 - EPS
    interior = ~(zero | one)
    if tau is None and float(s.mean()) < rho * (1 - SLACK):
        tau = 0.0
    elif tau is None:
        kinks, order = g.sort()
        slope = (1 + interior[order].long()).cumsum(0) - (~one).sum()  # slope of the sum right of each kink
        tau = max(0.0, float(kinks[int((slope < 0).sum())]))
    scale = float(g.abs().mean().clamp_min(TINY))
    residual = torch.where(interior, (g - tau).abs(), torch.where(zero, g - tau, tau - g).clamp_min(0)) / scale

    def case(members: Tensor) -> Case:
        if not members.any():
            return Case(0.0, 0.0, 0.0)
        return Case(float(members.double().mean()), float(residual[members].mean()), float(residual[members].max()))

    best, worst = (float((g * mask).sum()) for mask in (budget_mask(g, rho), budget_mask(-g, rho)))
    gap = (best - float((g * s).sum())) / (best - worst) if best > worst else 0.0
    holds = float((residual < TOL).double().mean())
    return KKT(tau, scale, case(interior), case(zero), case(one), float(residual.mean()), holds, gap)


# ---- the affine surrogate at s = 0 (Appendix concave_surrogate) --------------------------------------------


def surrogate_mask(c: Tensor, tau: float) -> Tensor:
    """Return 1[c_e > τ], the maximiser of ℓ(0) + c·s - τ Σ s over the box (Proposition surrogate_mask).

    `c` is ∂ℓ/∂s at s = 0.
    """
    return (c > tau).double()


def surrogate_dual(c: Tensor, rho: float, lam: float) -> float:
    """Return Eq. dual_surrogate without its constant ℓ(0): λρ + Σ max(0, c_e - λ/m).

    Its minimum over λ ≥ 0 is the maximum of c·s over S_ρ.
    """
    return lam * rho + float((c - lam / len(c)).clamp_min(0).sum())


def surrogate_multiplier(c: Tensor, rho: float) -> float:
    """Return the λ* ≥ 0 that minimises `surrogate_dual`: m times the c_e at which the budget runs out."""
    last = int(rho * len(c))
    return 0.0 if last >= len(c) else len(c) * max(0.0, float(c.sort(descending=True).values[last]))


@dataclass(frozen=True)
class Agreement:
    """Agreement of the learned mask's decisions with those of a surrogate.

    The learned mask is turned into decisions in two ways: with the threshold 1/2, and with the budget ρ, which keeps
    the largest values.

    Attributes:
        kept: Share of the edges that the surrogate keeps.
        half: Share of equal decisions with the threshold 1/2.
        half_kappa: Cohen's κ of the same decisions. None if chance agreement is perfect, so that κ is not defined.
        quantile: Share of equal decisions with the budget ρ.
        quantile_kappa: Cohen's κ of the same decisions, or None.
        auc: How well the learned values rank the edges that the surrogate keeps (ROC AUC). None if the surrogate keeps
            all edges or none.
    """

    kept: float
    half: float
    half_kappa: float | None
    quantile: float
    quantile_kappa: float | None
    auc: float | None


def agreement(learned: Tensor, surrogate: Tensor, rho: float) -> Agreement:
    """Compare the decisions of the learned mask with those of a surrogate for the same edges.

    Args:
        learned: Values of the learned mask, in [0, 1].
        surrogate: Decisions of the surrogate, 0 or 1.
        rho: The budget ρ.
    """
    keeps = surrogate > 0.5
    kept = float(keeps.double().mean())

    def compare(decisions: Tensor) -> tuple[float, float | None]:
        equal, share = float((decisions == keeps).double().mean()), float(decisions.double().mean())
        chance = share * kept + (1 - share) * (1 - kept)
        return equal, (equal - chance) / (1 - chance) if chance < 1 else None

    scores = torch.stack([1 - learned, learned], 1).cpu().numpy()
    auc = roc_auc(keeps.long().cpu().numpy(), scores) if 0 < kept < 1 else None
    return Agreement(kept, *compare(learned > 0.5), *compare(budget_mask(learned, rho) > 0.5), auc)


# ---- weak duality (Lemma dual_robust, with the sign corrected) ------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """Weak duality for one λ ≥ 0.

    Attributes:
        lam: The multiplier λ.
        primal: The maximum P that was found.
        dual: The maximum D(λ) that was found.
        gap: D(λ) - P.
        printed: The maximum that was found with the sign as printed in the paper.
    """

    lam: float
    primal: float
    dual: float
    gap: float
    printed: float


def duality(loss: Loss, s: Tensor, rho: float, lambdas: Sequence[float], steps: int = 50) -> list[Bound]:
    """Check weak duality, P ≤ D(λ) = max over the box of ℓ(s) - λ(mean(s) - ρ).

    For s in S_ρ and λ ≥ 0, ℓ(s) ≤ ℓ(s) - λ(mean(s) - ρ), and ascent from s never decreases the objective. The D(λ) that
    is found is therefore always at least the P that is found. This is what the check verifies; it does not certify
    that either value is the true maximum.

    The lemma as printed has + λ(mean(s) - ρ) instead. At a maximiser that does not spend the budget, this is below P
    and hence not an upper bound. `Bound.printed` is the maximum of the printed form that ascent finds from the same
    mask. A value below P is evidence against the printed form, and a proof only if ℓ is concave.

    Args:
        loss: The function ℓ.
        s: A mask of S_ρ. P is ℓ(s).
        rho: The budget ρ.
        lambdas: The values of λ to check.
        steps: Steps of every ascent.

    Returns:
        One bound for each λ.

    Raises:
        InputError: The mask is over the budget, or a λ is negative.
    """
    if not feasible(s, rho):
        raise InputError(f"the mask's mean {float(s.mean()):.6g} is over the budget ρ = {rho:.6g}")
    for lam in lambdas:
        if lam < 0:
            raise InputError(f"weak duality needs λ ≥ 0, got {lam}")

    def maximum(weight: float) -> float:
        def objective(s: Tensor) -> Tensor:
            return loss(s) - weight * (s.mean() - rho)

        return value_and_gradient(objective, ascend(objective, s, steps=steps))[0]

    primal = value_and_gradient(loss, s)[0]
    duals = [maximum(lam) for lam in lambdas]
    return [Bound(lam, primal, d, d - primal, maximum(-lam)) for lam, d in zip(lambdas, duals, strict=True)]


# ---- gradients of the game (Appendix gradient_analysis) ----------------------------------------------------


@dataclass(frozen=True)
class Gradients:
    """Checks of the appendix's two gradient formulas and of its two statements about the MaskNet's effect on an edge.

    The two statements contradict each other; `rule_gain` and `reversed_gain` show which one holds. All gains are
    changes of the adversary's objective ℓ - λ mean(s).

    Attributes:
        lam: The sparsity weight λ.
        task_difference: Eq. grad_task: relative difference between |g_θ| and a central difference of ℓ along g_θ, with
            s constant.
        mask_difference: Eq. grad_mask, (-∇ℓ + λ/m 1ᵀ) ∂s/∂p: the same difference for -ℓ + λ mean(s) along this
            gradient. It is about 1 for a straight-through mask, whose gradient is not the gradient of its function.
        mask_autograd: Largest difference between Eq. grad_mask and autograd on -ℓ + λ mean(s), divided by the largest
            entry.
        rule_gain: Gain if s_e rises where ∂ℓ/∂s_e > λ/m and falls elsewhere. This is the statement that holds.
        reversed_gain: Gain if s_e falls where ∂ℓ/∂s_e > 0 and rises elsewhere. This is the appendix's other statement.
        network_gain: Gain of one small step of the MaskNet's parameters down Eq. grad_mask.
        network_share: Share of the edges moved by that step that move as the rule says; None if it moves no edge. The
            rule is about single edges: parameters that edges share only have to satisfy Σ Q_e Δs_e < 0.
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
    """Check Eqs. grad_task and grad_mask at the trained parameters.

    Args:
        game: The trained game.
        domain: A labelled graph.
        edges: The edges that the mask weights.
        lam: The sparsity weight λ.
    """
    facts, network, loss = game.edge_facts(domain, edges), game.networks["mask"].eval(), loss_of(game, domain, edges)
    phi: dict[str, Tensor] = {name: p for name, p in network.named_parameters() if p.requires_grad}
    theta: dict[str, Tensor] = dict(game.networks["task"].named_parameters())

    def mask(p: dict[str, Tensor]) -> Tensor:
        return game.mask(functional_call(network, p, (domain.x, edges, facts)), edges).double()

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
    """Return the relative difference between |g| and a central difference.

    `rise` is the increase of the objective from a STEP against g to a STEP along g.
    """
    return abs(rise / (2 * STEP * _norm(parameters.values())) / max(_norm(g), TINY) - 1)


def _norm(tensors: Iterable[Tensor]) -> float:
    return float(torch.stack([t.detach().double().norm() for t in tensors]).norm())


def _moved(parameters: dict[str, Tensor], direction: Sequence[Tensor], step: float) -> dict[str, Tensor]:
    """Return the parameters moved along a direction by `step` times their own norm."""
    rate = step * _norm(parameters.values()) / max(_norm(direction), TINY)
    return {name: p + rate * d for (name, p), d in zip(parameters.items(), direction, strict=True)}
