"""GroupDRO: the weights of the sources grow with their risks, and the classifier uses the weights."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.methods.erm import ERM
from edgemask.methods.group_dro import GroupDRO
from edgemask.methods.sources import Source
from edgemask.nn.tensors import GraphTensors

CPU = torch.device("cpu")
TINY = Recipe(backbone="gcn", hidden=8, dropout=0.0, mask=False, k=0, clusters=0, lr=0.01)
A, B, _ = demo_family(80).values()
# B with a third of its labels drawn at random, which makes it a hard source.
HARD = B.replace(y=np.where(np.arange(80) % 3 == 0, (np.array(B.y) + np.arange(80)) % 5, np.array(B.y)))


def sources(*graphs) -> list[Source]:
    return [Source(GraphTensors.of(g), torch.arange(80), None) for g in graphs]


def group_dro(eta=0.1, **changes) -> GroupDRO:
    return GroupDRO(TINY.replace(hyper=(("eta", eta),), **changes), 64, 5, 0, CPU)


def test_the_weights_are_those_of_algorithm_1():
    method, pair = group_dro(0.5), sources(A, HARD)
    q = np.full(2, 0.5)
    for epoch in range(4):
        record = method.update(pair, epoch)
        q = q * np.exp(0.5 * np.array([record["loss alpha"], record["loss beta"]]))
        q /= q.sum()
        assert [record["weight alpha"], record["weight beta"]] == pytest.approx(q.tolist())


def test_a_step_is_on_the_risks_under_the_new_weights():
    method, by_hand, pair = group_dro(0.5), group_dro(0.5), sources(A, HARD)
    risks = torch.stack([by_hand.risk(s, s.domain.edges) for s in pair])
    (torch.softmax(0.5 * risks.detach(), 0) * risks).sum().backward()
    by_hand.optimisers["task"].step()
    method.update(pair, 0)
    for mine, theirs in zip(method.networks.parameters(), by_hand.networks.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_the_weights_move_toward_the_worst_source():
    method, pair = group_dro(0.1), sources(A, HARD)
    history = [method.update(pair, epoch) for epoch in range(60)]
    assert history[-1]["weight beta"] > 0.6
    for before, now in pairwise(history):
        worse = now["loss beta"] > now["loss alpha"]
        assert (now["weight beta"] > before["weight beta"]) == worse


def test_the_worst_source_does_better_than_under_risk_minimisation():
    robust, plain, pair = group_dro(1.0), ERM(TINY, 64, 5, 0, CPU), sources(A, HARD)
    for epoch in range(60):
        ends = [method.update(pair, epoch) for method in (robust, plain)]
    worst = [max(v for k, v in end.items() if k.startswith("loss")) for end in ends]
    assert worst[0] < worst[1]


def test_the_weights_are_in_the_state():
    method, pair = group_dro(), sources(A, HARD)
    method.update(pair, 0)
    copy = group_dro()
    copy.load_state(*method.state())
    assert torch.equal(copy.log_q, method.log_q)
    method.update(pair, 1)
    assert not torch.equal(copy.log_q, method.log_q)  # a copy, not the same tensor


def test_shards_move_the_weights_to_the_mean_of_where_each_would():
    method, pair = group_dro(0.5, batch_size=80, shards=2), sources(A, HARD)
    method.log_q = torch.full((2,), 0.5, dtype=torch.float64).log()
    moves = []
    for shard in range(2):
        half = [Source(s.domain, s.train[40 * shard : 40 * shard + 40], None) for s in pair]
        risks = torch.stack([method.risk(s, s.domain.edges) for s in half]).detach().double()
        moves.append((0.5 * risks).log_softmax(0))
        before = method.log_q.clone()
        with method.shard_context(shard, 0, 0):
            method.joint_step([(s, s.domain.edges) for s in half])
        assert torch.equal(before, method.log_q) == (shard == 0)
    torch.testing.assert_close(method.log_q, torch.stack(moves).mean(0).log_softmax(0))
