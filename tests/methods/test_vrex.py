"""V-REx: risks that are equal on every source."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.methods.erm import ERM
from edgemask.methods.sources import Source
from edgemask.methods.vrex import VREx
from edgemask.nn.tensors import GraphTensors

CPU = torch.device("cpu")
TINY = Recipe(backbone="gcn", hidden=8, dropout=0.0, mask=False, k=0, clusters=0, lr=0.01)
A, B, C = demo_family(80).values()


def sources(*graphs) -> list[Source]:
    return [Source(GraphTensors.of(g), torch.arange(80), None) for g in graphs]


def test_an_epoch_is_one_step_on_the_mean_and_the_variance_of_the_risks():
    method, by_hand = (VREx(TINY.replace(hyper=(("anneal", 0), ("weight", 3.0))), 64, 5, 0, CPU) for _ in range(2))
    risks = [by_hand.risk(s, s.domain.edges) for s in sources(A, B, C)]
    mean = sum(risks) / 3
    variance = sum((r - mean) ** 2 for r in risks) / 3
    (mean + 3 * variance).backward()
    by_hand.optimisers["task"].step()
    record = method.update(sources(A, B, C), 0)
    losses = [record[f"loss {name}"] for name in ("alpha", "beta", "gamma")]
    assert record["penalty"] == pytest.approx(np.var(losses)) == pytest.approx(variance.item())
    for mine, theirs in zip(method.networks.parameters(), by_hand.networks.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_equal_sources_have_no_penalty():
    twin = A.replace(name="twin")
    assert VREx(TINY, 64, 5, 0, CPU).update(sources(A, twin), 0)["penalty"] == 0


def test_training_brings_the_risks_together():
    hard = B.replace(y=np.where(np.arange(80) % 3 == 0, (np.array(B.y) + np.arange(80)) % 5, np.array(B.y)))
    pair, hyper = sources(A, hard), (("anneal", 5), ("weight", 100.0))
    method, plain = VREx(TINY.replace(hyper=hyper), 64, 5, 0, CPU), ERM(TINY, 64, 5, 0, CPU)
    for epoch in range(60):
        ends = [m.update(pair, epoch) for m in (method, plain)]
    gaps = [abs(end["loss alpha"] - end["loss beta"]) for end in ends]
    assert gaps[0] < 0.3 * gaps[1]
