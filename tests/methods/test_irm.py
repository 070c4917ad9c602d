"""IRMv1: the penalty is 0 only if the scale of the logits is right in every source."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.methods.erm import ERM
from edgemask.methods.irm import IRM
from edgemask.methods.penalties import irm
from edgemask.methods.sources import Source
from edgemask.nn.tensors import GraphTensors

CPU = torch.device("cpu")
TINY = Recipe(backbone="gcn", hidden=8, dropout=0.0, mask=False, k=0, clusters=0, lr=0.01)
A, B, _ = demo_family(80).values()
SOURCES = [Source(GraphTensors.of(g), torch.arange(80), None) for g in (A, B)]


def environment(counts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return samples of several kinds, given a count of each label for each kind."""
    kinds = [(kind, label) for kind, row in enumerate(counts) for label, n in enumerate(row) for _ in range(n)]
    return tuple(torch.tensor(kinds).unbind(1))


def test_an_invariant_predictor_has_no_penalty():
    # The distribution of the label given the kind is the same in both sources; the frequency of each kind is not.
    law = torch.tensor([[0.7, 0.2, 0.1], [0.25, 0.25, 0.5]], dtype=torch.float64)
    for counts in ([[7, 2, 1], [10, 10, 20]], [[35, 10, 5], [1, 1, 2]]):
        kind, label = environment(counts)
        invariant = law[kind].log()
        assert irm(invariant, label).item() == pytest.approx(0, abs=1e-20)
        assert irm(2 * invariant, label) > 1e-3
        assert irm(invariant / 2, label) > 1e-3


def test_a_predictor_that_relies_on_what_changes_has_a_penalty():
    # It is calibrated on average over the sources, but overconfident in one and underconfident in the other.
    law = torch.tensor([[0.7, 0.3], [0.3, 0.7]], dtype=torch.float64)
    for counts in ([[9, 1], [1, 9]], [[5, 5], [5, 5]]):
        kind, label = environment(counts)
        assert irm(law[kind].log(), label) > 1e-3


def test_an_epoch_is_one_step_on_risk_and_penalty():
    hyper = (("anneal", 0), ("weight", 7.0))
    method, by_hand = (IRM(TINY.replace(hyper=hyper), 64, 5, 0, CPU) for _ in range(2))
    seen = [(by_hand.networks["task"](s.domain.x, s.domain.edges), s.domain.y) for s in SOURCES]
    penalty = sum(irm(*pair) for pair in seen) / 2
    (sum(F.cross_entropy(*pair) for pair in seen) / 2 + 7 * penalty).backward()
    by_hand.optimisers["task"].step()
    assert method.update(SOURCES, 0)["penalty"] == pytest.approx(penalty.item())
    for mine, theirs in zip(method.networks.parameters(), by_hand.networks.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_training_lowers_the_penalty_below_that_of_risk_minimisation():
    plain, method = ERM(TINY, 64, 5, 0, CPU), IRM(TINY.replace(hyper=(("anneal", 5), ("weight", 1e3))), 64, 5, 0, CPU)
    for epoch in range(60):
        plain.update(SOURCES, epoch)
        method.update(SOURCES, epoch)

    def penalty(trained):
        return sum(irm(trained.logits(s.domain, s.domain.edges), s.domain.y).item() for s in SOURCES)

    assert penalty(method) < 0.1 * penalty(plain)
