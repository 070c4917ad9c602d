"""MMD: the discrepancy of the sources' representations is measured, and falls."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.methods.erm import ERM
from edgemask.methods.mmd import MMD
from edgemask.methods.penalties import mmd
from edgemask.methods.sources import Source
from edgemask.nn.tensors import GraphTensors

CPU = torch.device("cpu")
TINY = Recipe(backbone="gcn", hidden=8, dropout=0.0, mask=False, k=0, clusters=0, lr=0.01)
A, B, _ = demo_family(80).values()
SHIFTED = B.replace(x=B.x + 1)


def sources(*graphs) -> list[Source]:
    return [Source(GraphTensors.of(g), torch.arange(80), None) for g in graphs]


def mmd_method(**hyper) -> MMD:
    return MMD(TINY.replace(hyper=tuple(sorted(hyper.items()))), 64, 5, 0, CPU)


def test_an_epoch_is_one_step_on_risk_and_discrepancy():
    method, by_hand, pair = mmd_method(weight=2.0), mmd_method(weight=2.0), sources(A, SHIFTED)
    task = by_hand.networks["task"]
    h = [task.embed(s.domain.x, s.domain.edges) for s in pair]
    risks = [F.cross_entropy(task(s.domain.x, s.domain.edges), s.domain.y) for s in pair]
    (sum(risks) / 2 + 2 * mmd(*h)).backward()
    by_hand.optimisers["task"].step()
    assert method.update(pair, 0)["penalty"] == pytest.approx(mmd(*h).item())
    for mine, theirs in zip(method.networks.parameters(), by_hand.networks.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_identical_sources_have_no_discrepancy_and_shifted_ones_have():
    assert mmd_method().update(sources(A, A.replace(name="twin")), 0)["penalty"] == pytest.approx(0, abs=1e-6)
    assert mmd_method().update(sources(A, SHIFTED), 0)["penalty"] > 0.01


def test_training_lowers_the_discrepancy_below_that_of_risk_minimisation():
    method, plain, pair = mmd_method(weight=10.0), ERM(TINY, 64, 5, 0, CPU), sources(A, SHIFTED)
    for epoch in range(40):
        method.update(pair, epoch)
        plain.update(pair, epoch)

    def discrepancy(trained):
        return mmd(*(trained.networks["task"].eval().embed(s.domain.x, s.domain.edges) for s in pair)).item()

    assert discrepancy(method) < 0.3 * discrepancy(plain)


def test_the_nodes_compared_are_a_seeded_sample_without_repetition():
    method, h = mmd_method(nodes=30), torch.arange(80.0)[:, None].expand(80, 3)
    torch.manual_seed(0)
    first, second = method.drawn(h)[:, 0], method.drawn(h)[:, 0]
    torch.manual_seed(0)
    assert torch.equal(first, method.drawn(h)[:, 0])
    assert not torch.equal(first, second)
    assert len(first.unique()) == 30
    assert mmd_method(nodes=80).drawn(h) is h
