"""FLOOD: risk extrapolation over augmented environments, a slow target encoder, and refinement on request."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.methods.erm import ERM
from edgemask.methods.execution import seeded
from edgemask.methods.flood import FLOOD, bootstrapped, disagreement
from edgemask.methods.sources import Source
from edgemask.nn.tensors import GraphTensors

CPU = torch.device("cpu")
TINY = Recipe(backbone="gcn", hidden=8, dropout=0.0, mask=False, k=0, clusters=0, lr=0.01)
A, B, C = demo_family(80).values()


def flood(recipe=TINY, **hyper) -> FLOOD:
    return FLOOD(recipe.replace(hyper=tuple(sorted(hyper.items()))), 64, 5, 0, CPU)


def source(graph) -> Source:
    return Source(GraphTensors.of(graph), torch.arange(80), None)


def weights(network):
    return [p.detach().clone() for p in network.parameters()]


def test_the_bootstrapped_loss_is_zero_when_both_agree():
    h = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    assert float(disagreement(3 * h, h)) == pytest.approx(0, abs=1e-6)
    assert float(disagreement(-h, h)) == pytest.approx(4)
    q = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
    plain = [2 - 2 * float(a @ b) / math.sqrt(float(a @ a) * float(b @ b)) for a, b in zip(q, h, strict=True)]
    assert float(disagreement(q, h)) == pytest.approx(sum(plain) / 20, rel=1e-5)


def test_two_networks_that_are_one_agree_on_views_that_are_one():
    method, domain = flood(), GraphTensors.of(A)
    task, views = method.networks["task"], [(domain.x, None)] * 3
    loss = bootstrapped(task, torch.nn.Identity(), method.bootstrap.target, views, domain.edges, torch.arange(80))
    nonzero = task.embed(domain.x, domain.edges).norm(dim=1) > 0  # the cosine of a zero vector is not defined
    assert loss.item() == pytest.approx(2 * float((~nonzero).float().mean()), abs=1e-5)
    assert bool(nonzero.any())


def test_each_view_predicts_the_next_one():
    method, domain = flood(), GraphTensors.of(A)
    with seeded(0, CPU):
        views = method.views(domain, domain.edges)
    task, target, nodes = method.networks["task"], method.bootstrap.target, torch.arange(0, 80, 2)
    with torch.no_grad():
        for p in target.parameters():
            p.add_(0.1)
        loss = bootstrapped(task, method.bootstrap, target, views, domain.edges, nodes)
        ring = [(0, 1), (1, 2), (2, 0)]
        h = [method.bootstrap(task.embed(x, domain.edges, s))[nodes] for x, s in views]
        targets = [target.embed(x, domain.edges, s)[nodes] for x, s in views]
    plain = [2 - 2 * F.cosine_similarity(h[a], targets[b]).mean() for a, b in ring]
    torch.testing.assert_close(loss, sum(plain) / 3)


def test_the_target_follows_by_momentum_and_never_has_a_gradient():
    method = flood(momentum=0.9)
    before = weights(method.bootstrap.target)
    assert all(torch.equal(a, b) for a, b in zip(before, weights(method.networks["task"]), strict=True))
    for epoch in range(2):
        method.update([source(A), source(B)], epoch)
        online, after = weights(method.networks["task"]), weights(method.bootstrap.target)
        for old, fast, slow in zip(before, online, after, strict=True):
            torch.testing.assert_close(slow, 0.9 * old + 0.1 * fast)
        before = after
    assert all(p.grad is None for p in method.bootstrap.target.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(online, after, strict=True))


def test_environments_are_the_source_and_ever_stronger_augmentations():
    method, domain = flood(views=4, drop_edges=0.6, mask_features=0.6), GraphTensors.of(A)
    with seeded(0, CPU):
        views = method.views(domain, domain.edges)
    assert views[0] == (domain.x, None)
    kept = [float(s.mean()) for _, s in views[1:]]
    columns = [float((x != 0).any(0).float().mean()) for x, _ in views[1:]]
    assert kept == pytest.approx([0.8, 0.6, 0.4], abs=0.1)
    assert columns == pytest.approx([0.8, 0.6, 0.4], abs=0.15)


def test_the_variance_is_over_all_environments_of_all_sources():
    method, by_hand, sources = flood(variance=3.0, bootstrap=0.0), flood(), [source(A), source(B)]
    with seeded(0, CPU):
        record = method.joint_step([(s, s.domain.edges) for s in sources])
    risks, task = [], by_hand.networks["task"]
    with seeded(0, CPU):
        for s in sources:
            views = by_hand.views(s.domain, s.domain.edges)
            risks += [F.cross_entropy(task(x, s.domain.edges, mask=kept), s.domain.y) for x, kept in views]
    risks = torch.stack(risks)
    by_hand.step("task", risks.mean() + 3 * risks.var())
    assert record["variance"].item() == pytest.approx(risks.var().item(), rel=1e-4)
    assert record["loss beta"].item() == pytest.approx(risks[3:].mean().item())
    for mine, theirs in zip(weights(method.networks["task"]), weights(task), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_without_augmentation_and_bootstrapping_one_source_is_plain_risk_minimisation():
    method, plain = flood(drop_edges=0.0, mask_features=0.0, bootstrap=0.0), ERM(TINY, 64, 5, 0, CPU)
    for epoch in range(3):
        ours, theirs = method.update([source(A)], epoch), plain.update([source(A)], epoch)
        assert ours["loss alpha"] == pytest.approx(theirs["loss alpha"])
    for mine, other in zip(weights(method.networks["task"]), weights(plain.networks["task"]), strict=True):
        torch.testing.assert_close(mine, other)


def test_refinement_fits_a_copy_to_an_unlabelled_graph_and_is_off_by_default():
    plain, refined = flood(), flood(refine=10, refine_lr=0.01)
    for method in (plain, refined):
        with seeded(0, CPU):
            for epoch in range(5):
                method.update([source(A), source(B)], epoch)
    target = GraphTensors.of(C.replace(y=None))
    before = weights(refined.networks)
    one, two, again = (m.logits(target, target.edges) for m in (plain, refined, refined))
    torch.testing.assert_close(one, plain.networks["task"].eval()(target.x, target.edges).detach())
    assert not torch.allclose(one, two)
    assert torch.equal(two, again)
    assert all(torch.equal(a, b) for a, b in zip(before, weights(refined.networks), strict=True))
    assert not two.requires_grad


def test_refinement_in_blocks_is_refused():
    domain = GraphTensors.of(A)
    with pytest.raises(ValueError, match="with refine = 3 set inference_batch=None"):
        flood(refine=3).logits_in_blocks(domain, domain.edges)
