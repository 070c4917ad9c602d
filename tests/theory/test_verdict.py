"""The verdict of a report of the theory: one constructed report for every branch."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from edgemask.theory.checks import KKT, Agreement, Bound, Case, Gradients
from edgemask.theory.report import Mask, TheoryReport

NONE = Case(0.0, 0.0, 0.0)


def mask(loss: float, gap: float | None) -> Mask:
    kkt = None if gap is None else KKT(0.1, 1.0, NONE, NONE, NONE, 0.2, 0.5, gap)
    return Mask(0.904, loss, kkt)


def constructed(
    *,
    learned: float = 1.5,
    chance: float = 1.0,
    best: float = 1.6,
    gap: float | None = 0.05,
    auc: float | None = 0.75,
    duality: float = 0.25,
    **gradients: Any,
) -> TheoryReport:
    """A report in which the theory describes the model, with any value changed."""
    values = {"task_difference": 0.012, "mask_difference": 0.034, "mask_autograd": 0.0} | gradients
    return TheoryReport(
        graph="g",
        edges=100,
        rho=0.9,
        lam=0.0,
        masks={"learned": mask(learned, gap), "random": mask(chance, 0.5), "ascent, best": mask(best, 0.0)},
        agreement={"surrogate, ρ": Agreement(0.5, 0.5, 0.0, 0.5, 0.0, auc)},
        surrogate_primal=1.0,
        surrogate_dual=1.0,
        duality=[Bound(1.0, best, best + d, d, best) for d in (duality, 2.0)],
        gradients=Gradients(lam=0.0, rule_gain=0.1, reversed_gain=-0.1, network_gain=0.1, network_share=None, **values),
    )


def sentences(report: TheoryReport) -> list[str]:
    return re.split(r"(?<=\.) (?=[A-Z])", report.verdict())


def test_the_whole_verdict() -> None:
    assert sentences(constructed()) == [
        "On graph 'g' the learned mask is harder for the TaskNet than the same values assigned to the edges at random: "
        "the loss is 1.5 instead of 1, which is 50 % higher.",
        "Direct ascent finds a mask within the budget with a loss of 1.6; the learned mask achieves 83 % of this "
        "increase over the random mask, and its KKT gap is 0.05, where 0 is a stationary point and 1 the easiest mask.",
        "The closed-form surrogate agrees with the learned mask: the learned values rank the edges that it keeps with "
        "an AUC of 0.75, where 0.5 is chance.",
        "Weak duality and both gradient formulas hold: the smallest duality gap is 0.25 and must not be negative "
        "(tolerance 0.000001); the TaskNet's formula differs from a finite difference by 1.2 % (tolerance 10 %); the "
        "MaskNet's formula differs from automatic differentiation by 0 % (tolerance 0.1 %) and from a finite "
        "difference, which kinks of the mask disturb, by 3.4 %.",
        "The theory describes this model and graph: the adversary found masks close to the worst case, so the loss of "
        "1.5 is a fair estimate of the highest loss under masks within the budget.",
    ]


@pytest.mark.parametrize(
    ("learned", "expected"),
    [
        (1.2, "is harder for the TaskNet .* 1.2 instead of 1, which is 20 % higher"),
        (1.009, "is not noticeably harder .* 1.009 instead of 1"),
        (0.995, r"is not noticeably harder .* 0\.995 instead of 1"),
        (0.8, r"is easier for the TaskNet .* 0\.8 instead of 1, which is 20 % lower"),
    ],
)
def test_the_learned_mask_against_a_random_one(learned: float, expected: str) -> None:
    assert re.search(expected, sentences(constructed(learned=learned))[0])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"learned": 1.12, "best": 3.0, "gap": 0.37}, r"loss of 3; .* achieves 6.0 % .* KKT gap is 0\.37"),
        ({"learned": 0.9, "best": 3.0}, "achieves 0 % of this increase"),
        ({"learned": 1.0, "best": 1.005}, r"finds no mask within the budget .* \(loss 1\.005\).* KKT gap is 0\.05"),
        ({"gap": None}, r"has a mean of 0\.904, which is over the budget ρ = 0\.9 "),
    ],
)
def test_the_learned_mask_against_the_best_one(values: dict[str, Any], expected: str) -> None:
    assert re.search(expected, sentences(constructed(**values))[1])


@pytest.mark.parametrize(
    ("auc", "expected"),
    [
        (0.7, "surrogate agrees with the learned mask"),
        (0.65, "surrogate agrees weakly with the learned mask"),
        (0.53, r"surrogate says little about the learned mask: .* AUC of 0\.53"),
        (0.2, "surrogate contradicts the learned mask"),
        (None, "surrogate treats all edges alike"),
    ],
)
def test_the_surrogate(auc: float | None, expected: str) -> None:
    assert re.search(expected, sentences(constructed(auc=auc))[2])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"duality": -1e-7}, "^Weak duality and both gradient formulas hold"),
        ({"mask_difference": 0.3}, "^Weak duality and both .* by 30 %"),  # only kinks can cause this
        ({"duality": -0.0213}, r"^Weak duality does not hold: the smallest duality gap is -0\.021 "),
        ({"task_difference": 0.2}, "^The TaskNet's gradient formula does not hold: .* difference by 20 %"),
        ({"mask_autograd": 0.02}, "^The MaskNet's gradient formula does not hold: .* differentiation by 2.0 %"),
        ({"duality": -1.0, "mask_autograd": 1.0}, "^Weak duality and the MaskNet's gradient formula do not hold"),
    ],
)
def test_weak_duality_and_the_gradient_formulas(values: dict[str, Any], expected: str) -> None:
    assert re.search(expected, sentences(constructed(**values))[3])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"duality": -1.0}, "does not describe this model and graph: look for a numerical problem"),
        ({"gap": None}, r"does not tell whether .* a budget of at least 0\.91"),
        ({"learned": 1.0, "best": 1.0}, "has no consequence"),
        ({"learned": 1.001, "best": 2.0}, "no more robustness than from training with random masks"),
        ({"learned": 1.4, "gap": 0.3}, r"only in part: .* its loss of 1\.4 is no bound; .* reaches 1\.6"),
        ({"learned": 1.2}, "only in part"),
        ({}, "describes this model and graph: the adversary found masks close to the worst case"),
    ],
)
def test_what_the_checks_mean(values: dict[str, Any], expected: str) -> None:
    assert re.search(expected, sentences(constructed(**values))[4])


def test_a_report_without_multipliers_says_nothing_about_duality() -> None:
    text = sentences(replace(constructed(), duality=[]))[3]
    assert text.startswith("Both gradient formulas hold: no λ was given to compute a duality gap for; the TaskNet's")


@pytest.mark.parametrize("loss", [0.0, 1e-12])
def test_a_loss_of_zero_has_a_verdict(loss: float) -> None:
    report = constructed(learned=loss, chance=loss, best=loss)
    assert len(sentences(report)) == 5


def test_the_verdict_is_deterministic() -> None:
    assert constructed().verdict() == replace(constructed()).verdict()
