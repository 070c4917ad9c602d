"""CaNet: the weights of the environments are a distribution at every node, with a penalty of 0 at the prior."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from edgemask import inference
from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.methods.canet import CaNet, MixtureNet, from_uniform
from edgemask.methods.execution import seeded
from edgemask.methods.sources import Source
from edgemask.nn.tensors import GraphTensors
from edgemask.training.fit import Fit

CPU = torch.device("cpu")
TINY = Recipe(mask=False, backbone="gcn", hidden=8, dropout=0.0, k=0, clusters=0, lr=0.01, epochs=20)
A, B, C = demo_family(80).values()
DOMAIN = GraphTensors.of(A)


@pytest.fixture(autouse=True)
def fixed_seed():
    with seeded(0, CPU):
        yield


def canet(recipe: Recipe = TINY, **hyper: float | str) -> CaNet:
    return CaNet(recipe.replace(hyper=tuple(sorted(hyper.items()))), 64, 5, 0, CPU)


def randomise_estimators(method: CaNet, scale: float) -> None:
    """Make the estimators give different weights to different nodes."""
    with seeded(0, CPU):
        for estimator in method.networks["task"].estimators:
            torch.nn.init.normal_(estimator.weight, std=scale)


@pytest.mark.parametrize("estimator", ["graph", "node"])
@pytest.mark.parametrize("training", [True, False])
def test_the_weights_of_the_environments_are_a_distribution_at_every_node(estimator, training):
    method = canet(estimator=estimator, environments=4)
    randomise_estimators(method, 1.0)
    task, both = method.networks["task"].train(training), torch.randn(80, 16)
    e = task.infer(0, both)
    assert e.shape == (80, 4)
    assert (e >= 0).all()
    torch.testing.assert_close(e.sum(1), torch.ones(80))
    assert e.std(0).min() > 0  # the weights differ between nodes
    assert torch.equal(e, task.infer(0, both)) is not training


@pytest.mark.parametrize("k", [1, 2, 3, 7])
def test_the_penalty_is_zero_at_the_prior_and_positive_elsewhere(k):
    assert from_uniform(torch.zeros(5, k).log_softmax(1)).item() == pytest.approx(0, abs=1e-6)
    if k > 1:
        assert from_uniform(torch.randn(5, k).log_softmax(1)) > 0.01


def test_the_penalty_is_the_mean_divergence_from_uniform():
    q = torch.randn(30, 4, dtype=torch.float64).softmax(1)
    by_hand = np.mean([sum(p * math.log(p * 4) for p in row) for row in q.tolist()])
    assert from_uniform(q.log()).item() == pytest.approx(by_hand, rel=1e-9)


def test_estimators_of_zero_are_at_the_prior_and_mix_all_networks_alike():
    method = canet()
    for p in method.networks["task"].estimators.parameters():
        torch.nn.init.zeros_(p)
    record = method.update([Source(DOMAIN, torch.arange(80), None)], 0)
    assert record["kl alpha"] == pytest.approx(0, abs=1e-6)


def test_the_logits_equal_the_definition():
    net = MixtureNet(64, 8, 5, layers=2, environments=3).eval()
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.5)
    a = torch.zeros(80, 80)
    a[DOMAIN.edges.dst, DOMAIN.edges.src] = 1
    a = a / (a.sum(1)[:, None] * a.sum(1)[None, :]).sqrt()
    h = F.relu(DOMAIN.x @ net.first.weight + net.first.bias)
    for estimator, experts in zip(net.estimators, net.experts, strict=True):
        both = torch.cat([a @ h, h], 1)
        e = (both @ estimator.weight.T + estimator.bias).softmax(1)
        outputs = [both @ experts.weight[k * 8 : (k + 1) * 8].T for k in range(3)]
        h = F.relu(h + sum(e[:, k : k + 1] * outputs[k] for k in range(3)))
    torch.testing.assert_close(net(DOMAIN.x, DOMAIN.edges), net.out(h), atol=1e-4, rtol=1e-4)


def test_a_low_temperature_chooses_one_environment():
    method = canet(tau=0.01)
    e = method.networks["task"].train().infer(0, torch.randn(80, 16))
    assert e.max(1).values.mean() > 0.97


@pytest.mark.parametrize(("weight", "pulled"), [(100.0, True), (0.0, False)])
def test_the_penalty_pulls_the_environments_to_the_prior(weight, pulled):
    method, sources = canet(weight=weight), [Source(DOMAIN, torch.arange(80), None)]
    randomise_estimators(method, 0.5)
    curve = [method.update(sources, epoch)["kl alpha"] for epoch in range(30)]
    assert (curve[-1] < 0.3 * curve[0]) is pulled


def test_a_run_is_decided_by_its_seed_and_reads_a_graph_in_blocks_as_a_whole():
    (one, _), (other, _) = (Fit(CaNet, TINY.replace(epochs=8, dropout=0.5), [A, B]).run() for _ in range(2))
    assert one.history == other.history
    whole = inference.probabilities(one.method, C, 0.0)
    one.method.recipe = TINY.replace(inference_batch=11)
    np.testing.assert_allclose(inference.probabilities(one.method, C, 0.0), whole, atol=1e-5)


def test_other_backbones_are_refused():
    with pytest.raises(ValueError, match="backbone must be gcn, got gat"):
        canet(TINY.replace(backbone="gat"))
