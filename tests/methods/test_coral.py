"""CORAL: the covariances of the sources' representations become similar."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.methods.coral import CORAL
from edgemask.methods.erm import ERM
from edgemask.methods.sources import Source
from edgemask.nn.tensors import GraphTensors

CPU = torch.device("cpu")
TINY = Recipe(backbone="gcn", hidden=8, dropout=0.0, mask=False, k=0, clusters=0, lr=0.01)
A, B, C = demo_family(80).values()
WIDER = B.replace(x=2 * B.x)


def sources(*graphs) -> list[Source]:
    return [Source(GraphTensors.of(g), torch.arange(80), None) for g in graphs]


def coral(weight=0.1) -> CORAL:
    return CORAL(TINY.replace(hyper=(("weight", weight),)), 64, 5, 0, CPU)


def distance(task, pair) -> torch.Tensor:
    one, other = (torch.cov(task.embed(s.domain.x, s.domain.edges).T) for s in pair)
    return (one - other).square().sum() / (4 * 8**2)


def test_an_epoch_is_one_step_on_risk_and_distance_over_all_pairs():
    method, by_hand, three = coral(2.0), coral(2.0), sources(A, WIDER, C)
    task = by_hand.networks["task"]
    penalty = sum(distance(task, [three[i], three[j]]) for i, j in ((0, 1), (0, 2), (1, 2))) / 3
    risks = [F.cross_entropy(task(s.domain.x, s.domain.edges), s.domain.y) for s in three]
    (sum(risks) / 3 + 2 * penalty).backward()
    by_hand.optimisers["task"].step()
    assert method.update(three, 0)["penalty"] == pytest.approx(penalty.item(), rel=1e-5)
    for mine, theirs in zip(method.networks.parameters(), by_hand.networks.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_identical_sources_are_no_distance_apart_and_others_are():
    assert coral().update(sources(A, A.replace(name="twin")), 0)["penalty"] == 0
    assert coral().update(sources(A, WIDER), 0)["penalty"] > 1e-4


def test_training_brings_the_covariances_closer_than_risk_minimisation():
    method, plain, pair = coral(10.0), ERM(TINY, 64, 5, 0, CPU), sources(A, WIDER)
    for epoch in range(40):
        method.update(pair, epoch)
        plain.update(pair, epoch)
    ends = [distance(m.networks["task"].eval(), pair).item() for m in (method, plain)]
    assert ends[0] < 0.3 * ends[1]
