"""LiSA: subgraphs keep the label, differ from each other, and are used as environments."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Bernoulli, kl_divergence

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.methods.execution import seeded
from edgemask.methods.lisa import LiSA, divergence, energy_distance, relaxed
from edgemask.methods.sources import Source
from edgemask.nn.tensors import GraphTensors

CPU = torch.device("cpu")
TINY = Recipe(backbone="gcn", hidden=8, dropout=0.0, mask=False, k=0, clusters=0, lr=0.01)
A, B, _ = demo_family(80).values()


def lisa(**hyper) -> LiSA:
    return LiSA(TINY.replace(hyper=tuple(sorted(hyper.items()))), 64, 5, 0, CPU)


def pair(graph):
    domain = GraphTensors.of(graph)
    return Source(domain, torch.arange(80), None), domain.edges


def trained(steps=15, classifier=20, **hyper) -> LiSA:
    """Train the classifier for a few steps, then only the generators."""
    method, (source, edges) = lisa(subgraph_lr=0.02, **hyper), pair(A)
    with seeded(0, CPU):
        for _ in range(classifier):
            method.step("task", method.risk(source, edges))
        for _ in range(steps):
            method.generator_step([(source, edges)])
    return method


def subgraph_risks(method, repeats=5):
    source, edges = pair(A)
    with seeded(1, CPU), torch.no_grad():
        draws = [relaxed(method.networks["subgraphs"](source.domain.x, edges)) for _ in range(repeats)]
        return torch.tensor([[method.risk(source, edges, s) for s in masks] for masks in draws])


def weights(method, name):
    return [p.detach().clone() for p in method.networks[name].parameters()]


def test_the_divergence_is_zero_at_the_prior_and_that_of_bernoulli_variables_elsewhere():
    assert bool((divergence(torch.zeros(5)).abs() < 1e-7).all())
    logits = 4 * torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    half = Bernoulli(probs=torch.tensor(0.5, dtype=torch.float64))
    torch.testing.assert_close(divergence(logits), kl_divergence(Bernoulli(logits=logits), half))
    assert bool(divergence(torch.tensor([-80.0, 80.0])).isfinite().all())


def test_an_edge_is_rather_in_than_out_with_its_probability():
    logits = torch.tensor([-2.0, 0.0, 1.0])
    with seeded(0, CPU):
        s = torch.stack([relaxed(logits) for _ in range(4000)])
    assert 0 < float(s.min()) <= float(s.max()) < 1
    torch.testing.assert_close((s > 0.5).float().mean(0), logits.sigmoid(), atol=0.03, rtol=0)


def test_the_energy_distance_is_over_all_pairs_of_subgraphs():
    risks = torch.rand(4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    roots = [r**0.5 for r in risks.tolist()]
    pairs = [(roots[i] - roots[j]) ** 2 / 2 for i in range(4) for j in range(i)]
    assert float(energy_distance(risks)) == pytest.approx(sum(pairs) / len(pairs))
    assert float(energy_distance(torch.full((3,), 0.7))) == pytest.approx(0, abs=1e-12)


def test_the_generators_subgraphs_differ_and_more_so_for_the_distance():
    near, far = trained(distance=0.0), trained(distance=100.0)
    source, edges = pair(A)
    for method in (near, far):
        q = method.networks["subgraphs"](source.domain.x, edges).sigmoid().detach()
        assert float((q[0] - q[1]).abs().mean()) > 0.05
    apart = [float(torch.stack([energy_distance(r) for r in subgraph_risks(m)]).mean()) for m in (near, far)]
    assert apart[1] > 2 * apart[0]


def test_the_generators_lower_the_risk_of_their_subgraphs():
    assert float(subgraph_risks(trained()).mean()) < 0.9 * float(subgraph_risks(trained(steps=0)).mean())


def test_a_heavy_divergence_keeps_the_generators_at_the_prior():
    source, edges = pair(A)
    free, held = (trained(kl=kl).networks["subgraphs"](source.domain.x, edges) for kl in (0.0, 100.0))
    assert divergence(held).mean().item() < 0.1 * divergence(free).mean().item()


def test_each_step_moves_its_own_network_alone():
    method, pairs = lisa(), [pair(A), pair(B)]
    task, subgraphs = weights(method, "task"), weights(method, "subgraphs")
    method.generator_step(pairs)
    assert all(torch.equal(a, b) for a, b in zip(task, weights(method, "task"), strict=True))
    moved = weights(method, "subgraphs")
    assert not any(torch.equal(a, b) for a, b in zip(subgraphs, moved, strict=True))
    method.classifier_step(pairs)
    assert all(torch.equal(a, b) for a, b in zip(moved, weights(method, "subgraphs"), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(task, weights(method, "task"), strict=True))


def test_the_classifier_learns_on_the_source_and_its_subgraphs():
    method, by_hand, (source, edges) = lisa(variance=2.0), lisa(variance=2.0), pair(A)
    with seeded(0, CPU):
        record = method.classifier_step([(source, edges)])
    with seeded(0, CPU), torch.no_grad():
        masks = [None, *relaxed(by_hand.networks["subgraphs"](source.domain.x, edges))]
    task = by_hand.networks["task"]
    risks = torch.stack([F.cross_entropy(task(source.domain.x, edges, mask=s), source.domain.y) for s in masks])
    by_hand.step("task", risks.mean() + 2 * risks.var())
    assert record["loss alpha"].item() == pytest.approx(risks.mean().item())
    for mine, theirs in zip(weights(method, "task"), weights(by_hand, "task"), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_what_it_cannot_do_is_refused():
    with pytest.raises(ValueError, match="'mlp' ignores"):
        LiSA(TINY.replace(backbone="mlp"), 64, 5, 0, CPU)
    two = TINY.replace(batch_size=8, shards=2, hyper=(("subgraph_steps", 2),))
    with pytest.raises(ValueError, match="subgraph_steps must be 1 with shards, got 2"):
        LiSA(two, 64, 5, 0, CPU)
