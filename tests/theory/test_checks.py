"""The checks of the theory, on losses with known maxima and on small trained games."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, minimize
from torch import Tensor

from edgemask.config import recipe
from edgemask.graph import Graph
from edgemask.methods.edgemask import Game
from edgemask.methods.execution import seeded
from edgemask.methods.sources import Source
from edgemask.nn.tensors import GraphTensors
from edgemask.theory import checks as theory
from edgemask.theory import report as theory_report

SETTINGS: dict[str, dict[str, Any]] = {
    "message, budget": {"backbone": "gat", "gate": "message", "bound": "budget", "rho": 0.5},
    "attention, penalty": {"backbone": "gat", "gate": "attention", "bound": "penalty", "lam": 0.01},
    "gcn, dual": {"backbone": "gcn", "bound": "dual", "rho": 0.6},
}
ALL = pytest.mark.parametrize("setting", SETTINGS)


@cache
def graph(labels: bool = True) -> Graph:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 40)
    near = rng.random((40, 40)) < np.where(y[:, None] == y, 0.15, 0.03)
    edges = np.stack(np.nonzero(np.triu(near, 1)))
    x = np.eye(3)[y] + rng.normal(size=(40, 3))
    return Graph("small", x, edges, y if labels else None, undirected=True)


def game(double: bool = False, epochs: int = 15, **settings: Any) -> tuple[Game, GraphTensors]:
    """A game trained a little on the small graph, in float64 when `double`."""
    small = {"hidden": 6, "heads": 2, "mask_projection": 8, "mask_hidden": 6, "lr": 0.02, "mask_lr": 0.02}
    g, domain = graph(), GraphTensors.of(graph())
    trained = Game(recipe("paper", **small, **settings), g.num_features, g.num_classes, 0, torch.device("cpu"))
    with seeded(0, torch.device("cpu")):
        for epoch in range(epochs):
            trained.update([Source(domain, domain.labelled, None)], epoch)
    if double:
        trained.networks.double()
        assert isinstance(domain.x, Tensor)
        domain = replace(domain, x=domain.x.double())
    return trained, domain


def uniform(size: int, seed: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    return torch.tensor(np.random.default_rng(seed).uniform(low, high, size))


# ---- graphs with edge weights ----


@ALL
def test_the_loss_of_a_weighted_graph_is_that_of_the_mask_times_the_weights(setting: str) -> None:
    trained, domain = game(double=True, **SETTINGS[setting])
    w, s = uniform(domain.edges.num_real, 3, 0.1, 2.0), uniform(domain.edges.num_real, 1, 0.1, 0.9)
    weighted = theory.loss_of(trained, domain, domain.edges.with_weight(w))
    plain = theory.loss_of(trained, domain, domain.edges)
    assert float(weighted(s)) == pytest.approx(float(plain(s * w)), rel=1e-12)
    gradient = theory.mask_gradient(trained, domain, domain.edges.with_weight(w), s)
    torch.testing.assert_close(gradient, w * theory.mask_gradient(trained, domain, domain.edges, s * w))


@ALL
def test_the_laws_hold_on_a_weighted_graph(setting: str) -> None:
    trained, domain = game(**SETTINGS[setting])
    edges = domain.edges.with_weight(uniform(domain.edges.num_real, 3, 0.1, 2.0).float())
    report = theory_report.report(trained, domain, edges, steps=10)
    assert report._broken == []
    assert report.surrogate_primal == pytest.approx(report.surrogate_dual, rel=1e-6)
    assert (
        report.masks["learned"].loss
        != theory_report.report(trained, domain, domain.edges, steps=1).masks["learned"].loss
    )


# ---- the mask's gradient ----


@ALL
def test_mask_gradient_is_the_slope_of_the_loss(setting: str) -> None:
    trained, domain = game(double=True, **SETTINGS[setting])
    loss, s = theory.loss_of(trained, domain, domain.edges), uniform(domain.edges.num_real, 1, 0.1, 0.9)
    g = theory.mask_gradient(trained, domain, domain.edges, s)
    for e in (0, 7, len(s) - 1):
        step = torch.zeros_like(s).index_fill(0, torch.tensor([e]), 1e-6)
        slope = (loss(s + step) - loss(s - step)).item() / 2e-6
        assert slope == pytest.approx(float(g[e]), rel=1e-4, abs=1e-9)


def test_mask_gradient_does_not_change_the_tasknet() -> None:
    trained, domain = game(**SETTINGS["message, budget"])
    trained.networks.zero_grad()
    before = [p.clone() for p in trained.networks["task"].parameters()]
    theory.mask_gradient(trained, domain, domain.edges, uniform(domain.edges.num_real, 0))
    for p, old in zip(trained.networks["task"].parameters(), before, strict=True):
        assert p.grad is None
        assert p.requires_grad
        assert torch.equal(p, old)


def test_mask_gradient_is_computed_without_dropout() -> None:
    trained, domain = game(**SETTINGS["message, budget"])
    s = uniform(domain.edges.num_real, 0)
    first, second = (theory.mask_gradient(trained, domain, domain.edges, s) for _ in range(2))
    assert torch.equal(first, second)


def test_a_mask_of_the_wrong_length_is_refused() -> None:
    trained, domain = game(epochs=0)
    with pytest.raises(ValueError, match=r"'small': mask has shape \(3,\)"):
        theory.mask_gradient(trained, domain, domain.edges, torch.ones(3))


def test_a_graph_without_labels_is_refused() -> None:
    trained, _ = game(epochs=0)
    domain = GraphTensors.of(graph(labels=False))
    with pytest.raises(ValueError, match="'small' has no labels"):
        theory_report.report(trained, domain, domain.edges)


def test_a_graph_without_edges_is_refused() -> None:
    trained, _ = game(epochs=0)
    domain = GraphTensors.of(graph().replace(edges=np.empty((2, 0), dtype=np.int64)))
    with pytest.raises(ValueError, match=r"'small': .* got 40 labelled nodes and 0 edges"):
        theory_report.report(trained, domain, domain.edges)


def test_a_tasknet_that_ignores_edges_is_refused() -> None:
    trained, domain = game(epochs=0, backbone="mlp", mask=False)
    with pytest.raises(ValueError, match="does not depend on the mask"):
        theory.mask_gradient(trained, domain, domain.edges, torch.ones(domain.edges.num_real))


def test_a_game_without_an_adversary_is_refused() -> None:
    trained, domain = game(epochs=0, mask=False)
    with pytest.raises(ValueError, match="no MaskNet"):
        theory_report.report(trained, domain, domain.edges)


# ---- projection, ascent, linear programme ----


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rho", [0.2, 0.5, 0.9])
def test_project_solves_the_quadratic_programme(seed: int, rho: float) -> None:
    v = uniform(8, seed, -1, 3)
    answer = minimize(
        lambda s: ((s - v.numpy()) ** 2).sum(),
        np.full(8, rho / 2),
        jac=lambda s: 2 * (s - v.numpy()),
        bounds=[(0, 1)] * 8,
        constraints={"type": "ineq", "fun": lambda s: rho - s.mean(), "jac": lambda s: np.full(8, -1 / 8)},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    projected = theory.project(v, rho)
    np.testing.assert_allclose(projected.numpy(), answer.x, atol=1e-5)
    assert float(projected.mean()) <= rho


def test_project_keeps_a_feasible_mask() -> None:
    s = uniform(20, 0, 0, 0.8)
    assert torch.equal(theory.project(s, 0.9), s)


def test_project_spends_the_budget_it_is_over() -> None:
    assert float(theory.project(uniform(50, 0, 0, 5), 0.3).mean()) == pytest.approx(0.3, abs=1e-14)


@pytest.mark.parametrize("rho", [0.15, 0.4, 0.77, 1.0])
def test_budget_mask_solves_the_linear_programme(rho: float) -> None:
    c = uniform(11, 3, -1, 1)
    answer = linprog(-c.numpy(), A_ub=np.full((1, 11), 1 / 11), b_ub=[rho], bounds=[(0, 1)] * 11)
    np.testing.assert_allclose(theory.budget_mask(c, rho).numpy(), answer.x, atol=1e-9)


def test_ascent_finds_the_maximum_of_a_linear_loss() -> None:
    c = uniform(30, 1, -1, 1)
    found = theory.ascend(lambda s: c @ s, torch.full((30,), 0.5, dtype=torch.float64), rho=0.3)
    torch.testing.assert_close(found, theory.budget_mask(c, 0.3), atol=1e-6, rtol=0)


def test_ascent_finds_a_planted_optimum() -> None:
    target, weight = uniform(30, 2, -0.5, 1.5), uniform(30, 3, 0.5, 2)
    found = theory.ascend(lambda s: -(weight * (s - target) ** 2).sum(), uniform(30, 4), rho=1.0, steps=200)
    torch.testing.assert_close(found, target.clamp(0, 1), atol=1e-6, rtol=0)


def test_ascent_never_falls_below_its_start() -> None:
    def wavy(s: Tensor) -> Tensor:
        return (20 * s).sin().sum() - s.sum()

    for seed in range(5):
        start = theory.project(uniform(10, seed), 0.4)
        assert float(wavy(theory.ascend(wavy, start, rho=0.4, steps=7))) >= float(wavy(start))


# ---- KKT ----


def test_kkt_holds_at_a_solved_optimum_with_the_true_multiplier() -> None:
    # max -½|s - t|² over S_ρ is the projection of t, and its gradient t - s is the shift wherever 0 < s < 1.
    target, rho = uniform(40, 5, -0.3, 1.8), 0.4
    s = theory.project(target, rho)
    g = target - s
    inside = (s > 0.02) & (s < 0.98)
    result = theory.kkt(g, s, rho)
    assert result.tau == pytest.approx(float(g[inside][0]), abs=1e-9)
    assert result.residual == pytest.approx(0, abs=1e-9)
    assert result.holds == 1
    assert result.gap == pytest.approx(0, abs=1e-9)
    assert min(result.interior.share, result.zero.share, result.one.share) > 0


def test_kkt_residuals_of_each_case_by_hand() -> None:
    s = torch.tensor([0.5, 0.5, 0.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    g = torch.tensor([3.0, 1.0, 5.0, -1.0, 0.0, 2.0], dtype=torch.float64)  # mean |g| = 2
    result = theory.kkt(g, s, 0.5, tau=2.0)
    assert result.scale == 2
    assert result.interior == theory.Case(1 / 3, 0.5, 0.5)
    assert result.zero == theory.Case(1 / 3, 0.75, 1.5)
    assert result.one == theory.Case(1 / 3, 0.5, 1.0)
    assert result.residual == pytest.approx(3.5 / 6)
    assert result.holds == pytest.approx(2 / 6)


@pytest.mark.parametrize("seed", range(5))
def test_kkt_fits_the_multiplier_with_the_least_residual(seed: int) -> None:
    s, g = uniform(25, seed, -0.5, 1.5).clamp(0, 1), uniform(25, seed + 100, -1, 2)
    rho = float(s.mean())
    fitted = theory.kkt(g, s, rho).residual
    grid = [theory.kkt(g, s, rho, tau=float(tau)).residual for tau in np.linspace(0, 2, 401)]
    assert fitted <= min(grid) + 1e-12


def test_kkt_multiplier_is_zero_if_the_budget_is_not_spent() -> None:
    s, g = torch.tensor([0.5, 0.0], dtype=torch.float64), torch.tensor([1.0, 1.0], dtype=torch.float64)
    assert theory.kkt(g, s, 0.5).tau == 0
    assert theory.kkt(g, s, 0.25).tau == 1


def test_kkt_multiplier_is_never_negative() -> None:
    assert theory.kkt(uniform(9, 0, -2, -1), torch.full((9,), 0.5, dtype=torch.float64), 0.5).tau == 0


def test_kkt_is_not_trivially_satisfied_by_a_collapsed_mask() -> None:
    s = uniform(50, 0, 5e-5, 2e-4)
    result = theory.kkt(uniform(50, 1, -1, 1), s, float(s.mean()))
    assert result.interior.share == 1
    assert result.holds < 0.5


def test_kkt_gap_is_one_at_the_worst_mask_and_half_between() -> None:
    g = uniform(20, 0, -1, 1)
    best, worst = theory.budget_mask(g, 0.3), theory.budget_mask(-g, 0.3)
    assert theory.kkt(g, worst, 0.3).gap == pytest.approx(1)
    assert theory.kkt(g, (best + worst) / 2, 0.3).gap == pytest.approx(0.5)


def test_kkt_refuses_a_mask_over_budget() -> None:
    with pytest.raises(ValueError, match=r"mean 1 is over the budget ρ = 0\.5"):
        theory.kkt(torch.ones(4), torch.ones(4), 0.5)


# ---- the surrogate ----


def test_surrogate_mask_is_the_best_of_all_masks() -> None:
    c, tau = uniform(8, 0, -1, 1), 0.2
    best = max(product((0.0, 1.0), repeat=8), key=lambda s: float((c - tau) @ torch.tensor(s, dtype=torch.float64)))
    assert theory.surrogate_mask(c, tau).tolist() == list(best)


@pytest.mark.parametrize("rho", [0.13, 0.5, 0.95, 1.0])
def test_surrogate_has_strong_duality(rho: float) -> None:
    c = uniform(17, 1, -1, 1)
    primal = float(c @ theory.budget_mask(c, rho))
    assert theory.surrogate_dual(c, rho, theory.surrogate_multiplier(c, rho)) == pytest.approx(primal)
    assert all(theory.surrogate_dual(c, rho, lam) >= primal - 1e-12 for lam in np.linspace(0, 30, 50))


def test_agreement_of_a_mask_with_itself_and_its_opposite() -> None:
    learned = uniform(40, 0)
    kept = theory.budget_mask(learned, 0.5)
    same, opposite = theory.agreement(learned, kept, 0.5), theory.agreement(learned, 1 - kept, 0.5)
    assert (same.quantile, same.quantile_kappa, same.auc) == (1, 1, 1)
    assert (opposite.quantile, opposite.quantile_kappa, opposite.auc) == (0, -1, 0)


def test_agreement_by_chance_has_no_kappa() -> None:
    learned = torch.tensor([0.9, 0.8, 0.2, 0.1], dtype=torch.float64)
    result = theory.agreement(learned, torch.tensor([1.0, 0.0, 1.0, 0.0]), 0.25)
    assert (result.half, result.half_kappa) == (0.5, 0)
    assert (result.quantile, result.quantile_kappa) == (0.75, 0.5)


def test_agreement_with_a_surrogate_that_keeps_nothing() -> None:
    result = theory.agreement(torch.tensor([0.3, 0.2]), torch.zeros(2), 0.5)
    assert (result.kept, result.half, result.half_kappa, result.auc) == (0, 1, None, None)


# ---- duality ----


def test_the_printed_sign_does_not_give_an_upper_bound() -> None:
    # ℓ = 1 - a·s with a > 0 has its maximum P = 1 at s = 0, under any budget. As long as λ/m < min a, the maximum of
    # ℓ + λ(mean(s) - ρ) over the box is at s = 0 too: 1 - λρ, below P. With the right sign it is 1 + λρ.
    a, rho, lam = uniform(12, 0, 0.5, 1), 0.4, 3.0
    (bound,) = theory.duality(lambda s: 1 - a @ s, torch.zeros(12, dtype=torch.float64), rho, [lam])
    assert bound.primal == pytest.approx(1)
    assert bound.dual == pytest.approx(1 + lam * rho)
    assert bound.printed == pytest.approx(1 - lam * rho)
    assert bound.printed < bound.primal <= bound.dual


def test_duality_of_a_linear_loss_in_closed_form() -> None:
    c, rho = uniform(12, 1, -1, 1), 0.3
    s = theory.budget_mask(c, rho)
    grid = [0.0, 2.0, theory.surrogate_multiplier(c, rho), 20.0]
    bounds = theory.duality(lambda s: c @ s, s, rho, grid)
    assert [b.dual for b in bounds] == pytest.approx([theory.surrogate_dual(c, rho, lam) for lam in grid])
    assert [b.printed for b in bounds] == pytest.approx(
        [float((c + lam / 12).clamp_min(0).sum()) - lam * rho for lam in grid]
    )
    assert min(b.gap for b in bounds) == pytest.approx(0, abs=1e-9)


@ALL
def test_weak_duality_on_a_trained_game(setting: str) -> None:
    trained, domain = game(**SETTINGS[setting])
    loss = theory.loss_of(trained, domain, domain.edges)
    s = theory.ascend(loss, trained.mask_of(domain, domain.edges).double(), rho=0.3, steps=5)
    assert all(b.gap >= -1e-9 for b in theory.duality(loss, s, 0.3, [0.0, 0.1, 1.0, 10.0], steps=5))


def test_duality_refuses_negative_multipliers_and_masks_over_the_budget() -> None:
    s = torch.full((3,), 0.5, dtype=torch.float64)
    with pytest.raises(ValueError, match="λ ≥ 0, got -1"):
        theory.duality(lambda s: s.sum(), s, 0.5, [0.0, -1])
    with pytest.raises(ValueError, match="over the budget"):
        theory.duality(lambda s: s.sum(), s, 0.4, [0.0])


# ---- gradient formulas ----


@ALL
def test_gradient_formulas_hold(setting: str) -> None:
    trained, domain = game(double=True, **SETTINGS[setting])
    result = theory.gradient_formulas(trained, domain, domain.edges, 0.05)
    assert result.task_difference < 1e-2
    assert result.mask_difference < 1e-2
    assert result.mask_autograd < 1e-9


@ALL
def test_the_adversary_gains_by_the_rule_and_loses_by_its_reverse(setting: str) -> None:
    trained, domain = game(double=True, **SETTINGS[setting])
    result = theory.gradient_formulas(trained, domain, domain.edges, 0.0)
    assert result.rule_gain > 0 > result.reversed_gain
    assert result.network_gain > 0


def test_a_sparsity_weight_above_every_gradient_turns_all_edges_down() -> None:
    trained, domain = game(double=True, **SETTINGS["attention, penalty"])
    fall = trained.mask_of(domain, domain.edges).clamp_max(theory.NUDGE).mean()  # no mask value falls below 0
    gain = theory.gradient_formulas(trained, domain, domain.edges, 1e3).rule_gain
    assert gain == pytest.approx(1e3 * float(fall), rel=0.01)


# ---- the report ----


@pytest.mark.slow
@ALL
def test_report_is_consistent(setting: str) -> None:
    trained, domain = game(**SETTINGS[setting])
    result = theory_report.report(trained, domain, domain.edges, steps=20)
    learned, ascent, chance = (result.masks[k] for k in ("learned", "ascent, best", "random, 0/1"))
    assert result.rho == pytest.approx(learned.mean)
    assert ascent.loss >= max(learned.loss, result.masks["surrogate, ρ"].loss, result.masks["zeros"].loss)
    assert learned.kkt
    assert ascent.kkt
    assert chance.kkt
    assert ascent.kkt.gap < 0.2 < chance.kkt.gap
    assert ascent.kkt.residual < 0.5 * chance.kkt.residual
    assert result.surrogate_primal == pytest.approx(result.surrogate_dual)
    assert all(b.primal == pytest.approx(ascent.loss) and b.gap >= -1e-9 for b in result.duality)
    assert ("learned, game's λ" in result.masks) == (trained.recipe.bound != "budget")
    assert [len(rows) for rows in result.tables().values()] == [len(result.masks), 2, 4, 1]


def test_report_of_a_masknet_that_sees_more_than_features() -> None:
    trained, domain = game(**SETTINGS["gcn, dual"], mask_inputs=("origin", "structure", "predictions"), epochs=3)
    result = theory_report.report(trained, domain, domain.edges, steps=2)
    assert result.masks["learned"].mean == pytest.approx(float(trained.mask_of(domain, domain.edges).mean()))
    assert result.gradients.mask_autograd < 1e-4


def test_report_is_deterministic_and_its_seed_deals_the_random_masks() -> None:
    trained, domain = game(**SETTINGS["gcn, dual"])
    first, again, other = (
        theory_report.report(trained, domain, domain.edges, seed=seed, steps=3).to_json() for seed in (0, 0, 1)
    )
    assert first == again
    assert first["masks"].pop("random") != other["masks"].pop("random")
    assert first["masks"].pop("random, 0/1") != other["masks"].pop("random, 0/1")
    assert first == other


def test_report_is_plain_json() -> None:
    trained, domain = game(**SETTINGS["message, budget"])
    values = theory_report.report(trained, domain, domain.edges, steps=2).to_json()
    assert json.loads(json.dumps(values, allow_nan=False)) == values


def test_report_under_a_given_budget_and_multipliers() -> None:
    trained, domain = game(**SETTINGS["message, budget"])
    result = theory_report.report(trained, domain, domain.edges, rho=0.2, lambdas=[0.5], steps=2)
    assert result.masks["learned"].kkt is None  # its mean, 0.5, is over this budget
    assert result.masks["ascent, best"].mean <= 0.2
    assert [b.lam for b in result.duality] == [0.5]


def test_report_refuses_an_impossible_budget() -> None:
    trained, domain = game(epochs=0)
    with pytest.raises(ValueError, match=r"ρ must lie in \(0, 1\], got 1\.5"):
        theory_report.report(trained, domain, domain.edges, rho=1.5)
