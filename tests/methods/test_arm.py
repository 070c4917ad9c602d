"""ARM: the prediction of a node uses the context of all nodes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from edgemask import inference
from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.graph import Graph
from edgemask.methods.arm import ARM
from edgemask.methods.erm import ERM
from edgemask.methods.execution import seeded
from edgemask.methods.sources import Source
from edgemask.nn.tensors import GraphTensors
from edgemask.training.fit import Fit

CPU = torch.device("cpu")
TINY = Recipe(mask=False, backbone="gcn", hidden=8, dropout=0.0, k=0, clusters=0, lr=0.01, epochs=30)
A, B, C = demo_family(80).values()


@pytest.fixture(autouse=True)
def fixed_seed():
    with seeded(0, CPU):
        yield


def without_edges(x: np.ndarray) -> GraphTensors:
    """Return nodes without edges."""
    return GraphTensors.of(Graph("bare", x, np.zeros((2, 0), dtype=np.int64)))


@pytest.mark.parametrize("backbone", ["gcn", "gin", "sgc", "egc", "mlp"])
def test_other_nodes_features_change_a_nodes_prediction_even_without_edges(backbone):
    recipe, one = TINY.replace(backbone=backbone), np.asarray(A.x)
    other = one.copy()
    other[1:] += 1
    first, second = without_edges(one), without_edges(other)
    arm, erm = ARM(recipe, 64, 5, 0, CPU), ERM(recipe, 64, 5, 0, CPU)
    mine = [arm.logits(d, d.edges)[0] for d in (first, second)]
    theirs = [erm.logits(d, d.edges)[0] for d in (first, second)]
    assert not torch.allclose(mine[0], mine[1], atol=1e-3)
    torch.testing.assert_close(theirs[0], theirs[1])


def test_the_context_is_the_mean_over_nodes_whatever_their_order_and_stands_beside_the_features():
    method, x = ARM(TINY.replace(backbone="mlp"), 64, 5, 0, CPU), torch.tensor(A.x)
    task = method.networks["task"]
    h = x
    for linear in task.context.linears[:-1]:
        h = F.relu(h @ linear.weight + linear.bias)
    context = (h @ task.context.linears[-1].weight + task.context.linears[-1].bias).mean(0)
    beside = torch.cat([x, context.expand(80, 64)], 1)
    domain = without_edges(np.asarray(A.x))
    torch.testing.assert_close(method.logits(domain, domain.edges), task.classifier(beside, domain.edges))
    shuffled = without_edges(np.asarray(A.x)[::-1].copy())
    torch.testing.assert_close(
        method.logits(shuffled, shuffled.edges).flip(0), method.logits(domain, domain.edges), atol=1e-5, rtol=1e-5
    )


def test_the_context_network_learns_from_the_loss():
    method = ARM(TINY, 64, 5, 0, CPU)
    before = [p.clone() for p in method.networks["task"].context.parameters()]
    losses = [method.update([Source(GraphTensors.of(g), torch.arange(80), None) for g in (A, B)], e) for e in range(30)]
    assert sum(losses[-1].values()) < 0.7 * sum(losses[0].values())
    after = method.networks["task"].context.parameters()
    assert all(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_graph_read_in_blocks_has_the_context_of_the_whole():
    trainer, _ = Fit(ARM, TINY.replace(epochs=3), [A, B]).run()
    whole = inference.probabilities(trainer.method, C, 0.0)
    trainer.method.recipe = TINY.replace(inference_batch=11)
    np.testing.assert_allclose(inference.probabilities(trainer.method, C, 0.0), whole, atol=1e-5)


def test_batches_bring_contexts_of_their_own():
    trainer, _ = Fit(ARM, TINY.replace(epochs=3, batch_size=20), [A, B]).run()
    assert np.isfinite([v for r in trainer.history for v in r.values()]).all()
