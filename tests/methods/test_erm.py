"""Risk minimisation: one step per epoch on the mean risk of the sources."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.enrich import Sampler, enrich
from edgemask.methods.erm import ERM
from edgemask.methods.sources import Source
from edgemask.nn.tensors import GraphTensors

CPU = torch.device("cpu")
TINY = Recipe(backbone="gcn", hidden=8, dropout=0.0, k=3, clusters=5, lr=0.01, knn_ratio=0.5, spectral_ratio=0.1)
A, B, _ = demo_family(80).values()


def erm(recipe: Recipe = TINY) -> ERM:
    return ERM(recipe, 64, 5, 0, CPU)


def source(graph, nodes=80, *, enriched=False) -> Source:
    sampler = Sampler(enrich(graph, k=3, clusters=5), CPU) if enriched else None
    return Source(GraphTensors.of(graph), torch.arange(nodes), sampler)


def test_an_epoch_is_one_step_on_the_mean_risk_of_the_sources():
    method, by_hand, sources = erm(), erm(), [source(A), source(B)]
    task = by_hand.networks["task"]
    losses = [F.cross_entropy(task(s.domain.x, s.domain.edges), s.domain.y) for s in sources]
    (sum(losses) / 2).backward()
    by_hand.optimisers["task"].step()
    record = method.update(sources, 0)
    assert record == {"loss alpha": pytest.approx(losses[0].item()), "loss beta": pytest.approx(losses[1].item())}
    for mine, theirs in zip(method.networks.parameters(), by_hand.networks.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_only_the_training_nodes_labels_are_learnt_from():
    y = np.array(A.y)
    y[40:] = (y[40:] + 1) % 5
    one, other = erm(), erm()
    for epoch in range(3):
        one.update([source(A, 40)], epoch)
        other.update([source(A.replace(y=y), 40)], epoch)
    for mine, theirs in zip(one.networks.parameters(), other.networks.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("enriched", [False, True])
def test_the_risk_falls(enriched):
    method, sources = erm(), [source(A, enriched=enriched), source(B, enriched=enriched)]
    losses = [sum(method.update(sources, epoch).values()) for epoch in range(60)]
    assert losses[-1] < 0.7 * losses[0]


def test_the_sampled_edges_are_another_draw_each_epoch_and_the_same_for_the_same_epoch():
    method, enriched = erm(), source(A, enriched=True)
    first, again, later = (method.sample(enriched, epoch) for epoch in (0, 0, 1))
    assert torch.equal(first.src, again.src)
    assert not (len(first.src) == len(later.src) and torch.equal(first.src, later.src))
    assert first.num_real > A.num_edges


def test_there_is_no_adversary():
    assert list(erm().networks) == ["task"]
