"""GRM: a subgraph is generated for every node, its latents are bounded, and predictions are not random."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.methods.execution import seeded
from edgemask.methods.grm import GRM, divergence, domain_information
from edgemask.methods.sources import Source
from edgemask.nn.tensors import GraphTensors

CPU = torch.device("cpu")
TINY = Recipe(backbone="gcn", mask=False, k=0, clusters=0, hidden=8, dropout=0.0, lr=0.01)
A, B, C = demo_family(80).values()
SOURCES = [Source(GraphTensors.of(g), torch.arange(80), None) for g in (A, B)]
DOMAIN = SOURCES[0].domain


def grm(recipe: Recipe = TINY, **hyper: float) -> GRM:
    return GRM(recipe.replace(hyper=tuple(sorted(({"latent": 6} | hyper).items()))), 64, 5, 0, CPU)


def neighbours(v: int) -> set[int]:
    return set(DOMAIN.edges.src[DOMAIN.edges.real][DOMAIN.edges.dst[DOMAIN.edges.real] == v].tolist())


def test_a_neighbourhood_is_the_node_and_all_its_neighbours_where_they_fit():
    nodes, valid = grm(members=40).networks["task"].egos(torch.arange(80), DOMAIN.edges, None)
    for v in range(80):
        present = nodes[v][valid[v] > 0].tolist()
        assert present[0] == v
        assert len(present) == len(set(present))
        assert set(present[1:]) == neighbours(v)


@pytest.mark.parametrize("start", [None, 0.0, 0.37, 0.999])
def test_of_too_many_neighbours_different_ones_are_taken(start):
    at = None if start is None else torch.full((80,), start)
    nodes, valid = grm(members=4).networks["task"].egos(torch.arange(80), DOMAIN.edges, None, at)
    assert nodes.shape == (80, 5)
    for v in range(80):
        present = nodes[v][valid[v] > 0].tolist()
        assert len(present) == len(set(present))
        assert set(present[1:]) <= neighbours(v)
        assert len(present) - 1 >= min(len(neighbours(v)), 3)


def test_the_subgraph_is_generated_not_cut_out():
    task = grm(members=40).networks["task"]
    nodes, valid = task.egos(torch.arange(80), DOMAIN.edges, None)
    z = torch.randn(80, 6, generator=torch.Generator().manual_seed(0))[nodes]
    weight = task.subgraph(z, valid)
    assert torch.equal(weight, weight.mT)
    both = (valid[:, :, None] * valid[:, None, :]) > 0
    assert ((weight > 0) == both).all()
    assert (weight <= 1).all()
    v, i, j = next(
        (v, i, j)
        for v, i, j in both.nonzero().tolist()
        if i < j and int(nodes[v, j]) not in neighbours(int(nodes[v, i]))  # not an edge of the graph
    )
    assert weight[v, i, j] == pytest.approx(float(torch.sigmoid(z[v, i] @ z[v, j])))


def test_logits_are_those_of_a_plain_convolution_of_the_generated_subgraph():
    task = grm(members=40).networks["task"].eval()
    with torch.no_grad():
        mean, _ = task.latents(DOMAIN.x, DOMAIN.edges, None)
        logits = task(DOMAIN.x, DOMAIN.edges)
        for v in (0, 17, 79):
            z = mean[[v, *sorted(neighbours(v))]]
            a = torch.sigmoid(z @ z.T)
            a = torch.diag(a.sum(1).rsqrt()) @ a @ torch.diag(a.sum(1).rsqrt())
            h = a @ torch.relu(a @ z @ task.first.weight.T + task.first.bias) @ task.second.weight.T + task.second.bias
            torch.testing.assert_close(logits[v], h.mean(0))


def test_a_mask_of_0_is_the_graph_without_edges():
    bare = GraphTensors.of(A.replace(edges=A.edges[:, :0]))
    zeros = torch.zeros(DOMAIN.edges.num_real)
    torch.testing.assert_close(grm().logits(DOMAIN, DOMAIN.edges, zeros), grm().logits(bare, bare.edges))


def test_the_divergence_is_that_of_two_gaussians():
    draw = torch.Generator().manual_seed(0)
    m, s, p, t = (torch.randn(7, 4, dtype=torch.float64, generator=draw) for _ in range(4))
    plain = kl_divergence(Normal(m, s.exp()), Normal(p, t.exp())).sum(1)
    torch.testing.assert_close(divergence(m, s, p, t), plain)
    assert divergence(m, s, m, s).abs().max() == 0


def test_domain_information_is_that_of_loops_and_0_where_domains_agree():
    draw = torch.Generator().manual_seed(0)
    z = [torch.randn(n, 3, dtype=torch.float64, generator=draw) for n in (9, 12)]
    y = [torch.randint(3, (n,), generator=draw) for n in (9, 12)]  # 3 of the 4 classes occur
    total = 0.0
    for c in range(4):
        every = torch.cat([a[b == c] for a, b in zip(z, y, strict=True)])
        for a, b in zip(z, y, strict=True):
            if (b == c).any():
                total += float((b == c).sum() / 21 * (a[b == c].mean(0) - every.mean(0)).square().sum() / 2)
    assert domain_information(z, y, 4) == pytest.approx(total)
    assert domain_information(z[:1], y[:1], 4) == 0
    assert domain_information([z[0], z[0]], [y[0], y[0]], 4) == pytest.approx(0, abs=1e-12)
    assert domain_information([z[0], z[0] + 1], [y[0], y[0]], 4) == pytest.approx(3 / 8)


def test_the_bound_pulls_latents_to_their_class_and_the_domains_together():
    def after(**hyper: float) -> dict[str, float]:
        method = grm(**hyper)
        with seeded(0, CPU):
            return [method.update(SOURCES, epoch) for epoch in range(25)][-1]

    free, bound = after(beta=0.0, gamma=0.0), after(beta=1.0, gamma=1.0)
    for name in ("divergence alpha", "divergence beta", "domains"):
        assert bound[name] < 0.5 * free[name]


def test_training_draws_latents_and_prediction_does_not():
    task, nodes = grm().networks["task"], torch.arange(10)
    one, other = (task(DOMAIN.x, DOMAIN.edges, nodes=nodes)[0] for _ in range(2))
    assert not torch.allclose(one, other)
    method = grm()
    assert torch.equal(method.logits(DOMAIN, DOMAIN.edges), method.logits(DOMAIN, DOMAIN.edges))


@pytest.mark.parametrize("backbone", ["gcn", "gin", "sgc", "mlp"])
def test_the_risk_falls_and_a_graph_of_another_size_is_read(backbone):
    method = grm(TINY.replace(backbone=backbone))
    with seeded(0, CPU):
        losses = [sum(v for k, v in method.update(SOURCES, e).items() if k.startswith("loss")) for e in range(30)]
    assert losses[-1] < 0.9 * losses[0]
    larger = GraphTensors.of(demo_family(100)["gamma"])
    assert method.logits(larger, larger.edges).shape == (100, 5)


@pytest.mark.parametrize("name", ["batch_size", "inference_batch"])
def test_parts_of_graphs_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be None"):
        grm(TINY.replace(**{name: 10}))
