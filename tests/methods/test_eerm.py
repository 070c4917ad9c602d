"""EERM: generators edit edges to increase the variance of the risks, and the classifier decreases it."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from edgemask.config import Recipe
from edgemask.data.synthetic import WIRINGS, Family, make
from edgemask.enrich import Sampler, enrich
from edgemask.methods.eerm import EERM, Editor
from edgemask.methods.execution import seeded
from edgemask.methods.sources import Source
from edgemask.nn.tensors import GraphTensors
from edgemask.seeds import torch_stream
from edgemask.training.fit import Fit

CPU = torch.device("cpu")
TINY = Recipe(backbone="gcn", hidden=8, dropout=0.0, mask=False, k=0, clusters=0, lr=0.01, epochs=8)
A, B = make(Family(nodes=40), {name: WIRINGS[name] for name in ("alpha", "beta")}).values()


def eerm(**hyper) -> EERM:
    return EERM(TINY.replace(hyper=tuple(sorted(hyper.items()))), 64, 5, 0, CPU)


def source(graph) -> Source:
    return Source(GraphTensors.of(graph), torch.arange(40), None)


def editor(graph=A, views=3, candidates=4) -> Editor:
    made = Editor(GraphTensors.of(graph), views, candidates, torch_stream(0, "candidates"))
    made.optimiser = torch.optim.SGD(made.parameters(), 1.0)
    return made


def dense(edges):
    adjacency = torch.zeros(edges.num_nodes, edges.num_nodes)
    adjacency[edges.dst[edges.real], edges.src[edges.real]] = 1
    return adjacency


def log_likelihood(logits, made, counts):
    """Compute Σ log softmax of the draws in a plain loop over nodes."""
    total = logits.new_zeros(())
    nodes = made.keys // 40
    for k in range(len(logits)):
        for node in range(40):
            at = torch.nonzero(nodes == node).squeeze(1)
            total = total + (counts[k, at] * logits[k, at].log_softmax(0)).sum()
    return total


def test_kept_edges_keep_their_weights_and_added_ones_have_weight_1():
    graph = A.replace(weights=torch.rand(A.num_edges, generator=torch.Generator().manual_seed(0)).numpy() + 2)
    made, edges = editor(graph), GraphTensors.of(graph).edges
    flipped = torch.rand(len(made.keys), generator=torch.Generator().manual_seed(1)) < 0.3
    after = made.edited(edges, flipped)
    own = {(u, v): w for u, v, w in zip(*graph.edges.tolist(), graph.weights.tolist(), strict=True)}
    expected = [own.get((u, v), 1.0) for u, v in after.edge_index.T.tolist()]
    assert after.weight.tolist() == expected
    assert 0 < expected.count(1.0) < len(expected) < len(own) + expected.count(1.0)
    assert torch.equal(after.edge_index, made.edited(edges.with_weight(None), flipped).edge_index)


def test_learned_edits_raise_the_variance_of_risks_across_views():
    method, graph = eerm(edits=3, edit_lr=0.2), source(A)
    for _ in range(30):
        method.step("task", method.risk(graph, graph.domain.edges))

    def variance():
        held = method.editor(graph.domain)
        draws = (held.draw(3) for _ in range(10))
        risks = [[method.risk(graph, held.edited(graph.domain.edges, c > 0)) for c in counts] for counts in draws]
        return float(torch.tensor(risks).var(1).mean())

    with seeded(0, CPU), torch.no_grad():
        before = variance()
        for _ in range(80):
            method.explore(graph, graph.domain.edges)
        assert variance() > 2 * before


def test_edits_flip_entries_of_the_adjacency_matrix():
    made, edges = editor(), GraphTensors.of(A).edges
    flips = torch.zeros(40, 40)
    flipped = torch.rand(len(made.keys), generator=torch.Generator().manual_seed(0)) < 0.3
    flips.view(-1)[made.keys[flipped]] = 1
    expected = (dense(edges) - flips).abs()
    assert 0 < float((dense(edges) * flips).sum()) < float(flips.sum())  # some dropped, some added
    assert torch.equal(dense(made.edited(edges, flipped)), expected)


def test_feature_derived_edges_stay_as_they_are():
    method = EERM(TINY.replace(k=3, clusters=5, knn_ratio=1.0, spectral_ratio=0.5), 64, 5, 0, CPU)
    sampled = dataclasses.replace(source(A), sampler=Sampler(enrich(A, k=3, clusters=5), CPU))
    edges, made = method.sample(sampled, 0), editor()
    assert edges.num_real > A.num_edges
    extra = dense(edges) * (1 - dense(GraphTensors.of(A).edges))
    everything = made.edited(edges, torch.ones(len(made.keys), dtype=torch.bool))
    assert bool((dense(everything)[extra == 1] == 1).all())
    assert float((dense(everything) * dense(GraphTensors.of(A).edges)).sum()) == 0


def test_what_may_be_flipped_is_linear_in_edges_and_nodes():
    made, edges = editor(candidates=4), GraphTensors.of(A).edges
    assert edges.num_real + 2 * 40 < len(made.keys) <= edges.num_real + 4 * 40
    node, other = made.keys // 40, made.keys % 40
    assert bool((node != other).all())
    assert torch.equal(dense(edges)[node, other] == 1, made.present)
    assert made.logits.shape == (3, len(made.keys))


def test_each_node_draws_its_edits_by_the_softmax_of_its_logits():
    made = editor(views=2, candidates=2)
    with torch.no_grad():
        made.logits.normal_(generator=torch.Generator().manual_seed(0))
    nodes, expected = made.keys // 40, torch.empty_like(made.logits)
    for node in range(40):
        expected[:, nodes == node] = made.logits[:, nodes == node].detach().softmax(1)
    torch.testing.assert_close(made.probabilities().float(), expected)
    with seeded(0, CPU):
        counts = made.draw(4000)
    per_node = torch.zeros(2, 40).index_add_(1, nodes, counts)
    assert bool((per_node == 4000).all())
    torch.testing.assert_close(counts / 4000, expected, atol=0.04, rtol=0)


def test_the_step_of_a_generator_follows_the_gradient_of_the_likelihood():
    made = editor()
    with seeded(1, CPU), torch.no_grad():
        made.logits.normal_()
        counts = made.draw(3)
    logits = made.logits.detach().clone().requires_grad_()
    made.baseline.fill_(0.5)
    (-(2.0 - 0.5) * log_likelihood(logits, made, counts)).backward()
    made.reinforce(counts, torch.tensor(2.0))
    torch.testing.assert_close(made.logits.grad, logits.grad)
    assert float(made.baseline) == pytest.approx(0.5 + 0.1 * 1.5)


def test_the_first_reward_is_the_baseline_and_moves_nothing():
    made = editor()
    made.reinforce(made.draw(1), torch.tensor(2.0))
    assert float(made.baseline) == 2.0
    assert bool((made.logits == 0).all())


def test_the_classifier_takes_a_step_on_variance_and_mean_of_the_views_risks():
    method, by_hand, graphs = eerm(beta=0.7), eerm(beta=0.7), [source(A), source(B)]
    with seeded(3, CPU):
        record = method.joint_step([(g, g.domain.edges) for g in graphs])
    with seeded(3, CPU):
        risks = [by_hand.explore(g, g.domain.edges) for g in graphs]
        by_hand.step("task", sum(r.var() + 0.7 * r.mean() for r in risks) / 2)
    assert float(record["loss alpha"]) == pytest.approx(risks[0].mean().item())
    assert float(record["variance beta"]) == pytest.approx(risks[1].var().item())
    for mine, theirs in zip(method.networks.parameters(), by_hand.networks.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_more_edit_steps_move_the_generators_more_often_and_the_classifier_once():
    one, more = eerm(), eerm(edit_steps=3)
    for method in (one, more):
        with seeded(0, CPU):
            method.update([source(A)], 0)
    steps = [int(m.editors["alpha"].optimiser.state_dict()["state"][0]["step"]) for m in (one, more)]
    assert steps == [1, 3]
    for mine, theirs in zip(one.networks.parameters(), more.networks.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_resumed_fit_has_the_same_generators_to_the_bit(tmp_path):
    whole, _ = Fit(EERM, TINY, [A, B]).run()

    class Stop(Exception):
        pass

    def stop(trainer, _):
        if trainer.epoch == 5:
            raise Stop

    with pytest.raises(Stop):
        Fit(EERM, TINY, [A, B], checkpoint_path=tmp_path / "c", checkpoint_every=2, on_epoch=stop).run()
    again, _ = Fit(EERM, TINY, [A, B], checkpoint_path=tmp_path / "c", checkpoint_every=2).run()
    one, two = whole.method.state()[0], again.method.state()[0]
    assert any(name.startswith("editor-alpha/optimiser") for name in one)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_batches_and_a_backbone_without_edges_are_refused():
    with pytest.raises(ValueError, match="batch_size must be None, got 16"):
        EERM(TINY.replace(batch_size=16), 64, 5, 0, CPU)
    with pytest.raises(ValueError, match="'mlp' ignores"):
        EERM(TINY.replace(backbone="mlp"), 64, 5, 0, CPU)
