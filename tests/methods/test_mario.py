"""MARIO: contrast under the worst perturbation, minus the contrast within clusters, added to the labels' loss."""

from __future__ import annotations

import math

import pytest
import torch

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.methods.erm import ERM
from edgemask.methods.execution import seeded
from edgemask.methods.mario import MARIO, Scene, balanced, clustering, conditional, info_nce
from edgemask.methods.sources import Source
from edgemask.nn.tensors import GraphTensors

CPU = torch.device("cpu")
TINY = Recipe(backbone="gcn", hidden=8, dropout=0.0, mask=False, k=0, clusters=0, lr=0.01)
A, B, _ = demo_family(80).values()


def mario(**hyper) -> MARIO:
    return MARIO(TINY.replace(hyper=tuple(sorted({"prototypes": 10, **hyper}.items()))), 64, 5, 0, CPU)


def source(graph) -> Source:
    return Source(GraphTensors.of(graph), torch.arange(80), None)


def weights(network):
    return [p.detach().clone() for p in network.parameters()]


def unit(rows, columns, seed):
    x = torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(x, dim=1)


def scene(method, graph=A) -> Scene:
    one = source(graph)
    edges = one.domain.edges
    with seeded(0, CPU):
        return Scene(one, edges, method.view(one, edges), method.view(one, edges), method.nodes(one))


def test_the_contrast_is_with_all_other_nodes_of_both_views():
    u, v, tau = unit(6, 3, 0), unit(6, 3, 1), 0.3

    def one_way(a, b):
        total = 0.0
        for i in range(6):
            others = sum(math.exp(float(a[i] @ b[j]) / tau) for j in range(6))
            others += sum(math.exp(float(a[i] @ a[j]) / tau) for j in range(6) if j != i)
            total -= math.log(math.exp(float(a[i] @ b[i]) / tau) / others)
        return total / 6

    assert float(info_nce(u, v, tau)) == pytest.approx((one_way(u, v) + one_way(v, u)) / 2)


def test_the_conditional_contrast_is_among_nodes_of_the_same_cluster_where_both_views_agree():
    u, v = unit(7, 3, 0), unit(7, 3, 1)
    c, d = torch.tensor([0, 0, 1, 1, 2, 0, 1]), torch.tensor([0, 1, 1, 1, 2, 0, 0])
    total = 0.0
    for i in range(7):
        if c[i] == d[i]:
            among = sum(math.exp(float(u[i] @ v[j])) for j in range(7) if d[j] == c[i] or j == i)
            total -= math.log(math.exp(float(u[i] @ v[i])) / among)
    assert float(conditional(u, v, c, d)) == pytest.approx(total / 7)


def test_a_node_alone_in_its_cluster_shares_nothing():
    u, v, each = unit(5, 3, 0), unit(5, 3, 1), torch.arange(5)
    assert float(conditional(u, v, each, each)) == pytest.approx(0, abs=1e-12)


def test_balanced_assignments_use_prototypes_alike_that_all_nodes_prefer():
    scores = unit(60, 4, 0) @ unit(6, 4, 1).T
    preferred = scores + torch.tensor([2.0, 0, 0, 0, 0, 0])
    q = balanced(preferred)
    assert float((preferred / 0.1).softmax(1).sum(0)[0]) > 55
    torch.testing.assert_close(q, balanced(scores))
    torch.testing.assert_close(q.sum(1), torch.ones(60, dtype=torch.float64))
    assert 5 < float(q.sum(0).min()) <= float(q.sum(0).max()) < 20  # 10 each in the limit of many rounds


def test_clustering_predicts_each_views_assignment_from_the_other():
    a, b = unit(9, 4, 0) @ unit(3, 4, 2).T, unit(9, 4, 1) @ unit(3, 4, 2).T
    plain = 0.0
    for scores, other in ((a, b), (b, a)):
        q, p = balanced(scores), (other / 0.2).softmax(1)
        plain -= sum(float(q[i, k]) * math.log(float(p[i, k])) for i in range(9) for k in range(3)) / 9 / 2
    assert float(clustering(a, b, 0.2)) == pytest.approx(plain)


def test_the_perturbation_found_by_ascent_raises_the_contrast():
    # The largest perturbation is 0.3 for both.
    ascended, random = mario(ascent=5, perturbation=0.05), mario(ascent=0, perturbation=0.3)
    for method in (ascended, random):
        method.networks.requires_grad_(False)
    with seeded(1, CPU):
        worst = ascended.contrast(scene(ascended)).item()
    with seeded(1, CPU):
        others = [random.contrast(scene(random)).item() for _ in range(10)]
    assert worst > max(others)


def test_the_ascent_leaves_no_gradient_on_the_networks():
    method = mario()
    method.contrast(scene(method))
    assert all(p.grad is None for p in method.networks.parameters())


def test_without_contrast_it_is_risk_minimisation():
    method, plain, sources = mario(contrast=0.0), ERM(TINY, 64, 5, 0, CPU), [source(A), source(B)]
    for epoch in range(3):
        ours, theirs = method.update(sources, epoch), plain.update(sources, epoch)
        assert ours["loss alpha"] == pytest.approx(theirs["loss alpha"])
    for mine, other in zip(weights(method.networks["task"]), weights(plain.networks["task"]), strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_labels_reach_the_encoder_as_far_as_they_are_let(share):
    method, whole, one = mario(labels=share), mario(labels=1.0), source(A)
    for m in (method, whole):
        m.supervised(one, one.domain.edges).backward()
    first, last = method.networks["task"].linears
    full, same = whole.networks["task"].linears
    assert float(full.weight.grad.abs().sum()) > 0
    torch.testing.assert_close(first.weight.grad, share * full.weight.grad)
    torch.testing.assert_close(last.weight.grad, same.weight.grad)


def test_prototypes_learn_to_cluster_and_the_encoders_step_leaves_them():
    method, still = mario(prototype_lr=0.01), mario(prototype_lr=1e-30)
    before = weights(still.networks["prototypes"])
    for epoch in range(3):
        with seeded(epoch, CPU):
            still.update([source(A)], epoch)
    for old, new in zip(before, weights(still.networks["prototypes"]), strict=True):
        torch.testing.assert_close(old, new, rtol=0, atol=1e-20)

    at = scene(method)

    def loss():
        (_, a), (_, b) = (method.project(*view, at) for view in (at.first, at.second))
        return clustering(a, b, 0.2)

    with torch.no_grad():
        before = float(loss())
    for _ in range(20):
        method.step("prototypes", loss())
    with torch.no_grad():
        assert float(loss()) < before


def test_the_contrast_is_over_a_sample_of_the_training_nodes():
    method = mario(sample=12)
    one = Source(GraphTensors.of(A), torch.arange(20, 60), None)
    with seeded(0, CPU):
        first, second = method.nodes(one), method.nodes(one)
    assert len(set(first.tolist())) == 12
    assert set(first.tolist()) <= set(range(20, 60))
    assert set(first.tolist()) != set(second.tolist())
    assert sorted(mario(sample=1000).nodes(one).tolist()) == list(range(20, 60))
