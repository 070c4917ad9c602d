"""TRACI: the adversary raises entropy and roughness within its radius, and mixup uses the prototypes of a class."""

from __future__ import annotations

import math

import pytest
import torch

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.methods.execution import seeded
from edgemask.methods.sources import Source
from edgemask.methods.traci import TRACI, contrast, dropped, entropy, gaussians, roughness
from edgemask.nn.tensors import GraphTensors

CPU = torch.device("cpu")
TINY = Recipe(backbone="gcn", mask=False, k=0, clusters=0, hidden=8, dropout=0.0, lr=0.01, epochs=20)
A, B, _ = demo_family(80).values()
SOURCES = [Source(GraphTensors.of(g), torch.arange(60), None) for g in (A, B)]
EDGES = SOURCES[0].domain.edges


def traci(recipe: Recipe = TINY, **hyper: float) -> TRACI:
    return TRACI(recipe.replace(hyper=tuple(sorted(hyper.items()))), 64, 5, 0, CPU)


def attack(method: TRACI, ascents: int) -> tuple[float, float, list[float]]:
    """Return entropy and roughness at the adversary's result, and its largest entries in units of the radius."""
    method.ascents, task = ascents, method.networks["task"].eval()
    with seeded(0, CPU):
        s = dropped(EDGES, 0.3).float()
        z = task.at_nodes(0, SOURCES[0].domain.x).detach()
        first, second = method.adversary(z, EDGES, s)
    with torch.no_grad():
        h, weight = method.halfway(z, EDGES, s)
        sizes = [float(d.abs().max() / t.square().mean().sqrt()) for d, t in ((first, z), (second, h))]
        moved, _ = method.halfway(z + first, EDGES, s)
        logits = method.finish(moved + second, EDGES, weight)
    return float(entropy(logits)), float(roughness(first, EDGES, s) + roughness(second, EDGES, s)), sizes


def test_the_adversary_raises_the_entropy_within_its_radius():
    method = traci(topology=0.0, radius=0.5)
    for epoch in range(10):
        method.update(SOURCES, epoch)
    before, after = attack(method, 0), attack(method, 5)
    assert after[0] > before[0] + 0.01
    assert max(after[2]) <= 0.5 + 1e-6
    assert before[2] != after[2]


def test_the_weight_of_the_topology_makes_the_perturbation_rougher():
    assert attack(traci(topology=100.0), 5)[1] > 1.5 * attack(traci(topology=0.0), 5)[1]


def test_roughness_is_that_of_the_dense_laplacian():
    d = torch.randn(80, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    s = dropped(EDGES, 0.3).double()
    a = torch.eye(80, dtype=torch.float64).index_put((EDGES.src[EDGES.real], EDGES.dst[EDGES.real]), s)
    root = a.sum(1).rsqrt()
    laplacian = torch.eye(80, dtype=torch.float64) - root[:, None] * a * root
    torch.testing.assert_close(roughness(d, EDGES, s), torch.trace(d.T @ laplacian @ d) / 80)


def test_the_entropy_is_that_of_the_predictions():
    logits = torch.randn(9, 4, dtype=torch.float64)
    plain = torch.distributions.Categorical(logits=logits).entropy().mean()
    torch.testing.assert_close(entropy(logits), plain)
    assert entropy(torch.zeros(3, 5)) == pytest.approx(math.log(5))


def test_both_directions_of_an_edge_are_dropped_together_and_about_the_asked_share():
    with seeded(0, CPU):
        masks = torch.stack([dropped(EDGES, 0.3) for _ in range(50)])
    assert float(masks.float().mean()) == pytest.approx(0.7, abs=0.03)
    assert masks.float().mean(0).min() > 0.3  # no edge is always dropped
    at = {
        pair: i
        for i, pair in enumerate(zip(EDGES.src[EDGES.real].tolist(), EDGES.dst[EDGES.real].tolist(), strict=True))
    }
    back = torch.tensor([at[v, u] for u, v in at])
    assert torch.equal(masks, masks[:, back])


def test_prototypes_are_the_mean_and_deviation_of_a_class_in_a_source():
    h = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
    mean, deviation, present = gaussians(h, SOURCES[0], 6)  # no node has class 5
    y = SOURCES[0].domain.y[:60]
    for c in range(5):
        torch.testing.assert_close(mean[c], h[:60][y == c].mean(0))
        torch.testing.assert_close(deviation[c], h[:60][y == c].std(0, correction=0))
    assert present.tolist() == [1, 1, 1, 1, 1, 0]


def test_mixup_draws_training_nodes_to_the_prototypes_of_their_class_and_leaves_the_others():
    torch.manual_seed(0)
    h = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
    y, own = SOURCES[0].domain.y[:60], torch.arange(5.0)[:, None].expand(5, 3)
    exact = [(own, torch.zeros(5, 3), torch.ones(5)), (own + 10, torch.zeros(5, 3), torch.ones(5))]
    mixed = traci(beta=0.01).mix(h, SOURCES[0], exact)  # the nodes' own shares are almost 0
    assert torch.equal(mixed[60:], h[60:])
    inside = (mixed[:60] - y[:, None]) / 10  # a mean of the two: the Dirichlet weight of the second
    assert (inside > -0.2).all()
    assert (inside < 1.2).all()
    assert inside.median(0).values.min() > 0.05
    torch.testing.assert_close(traci(beta=1e9).mix(h, SOURCES[0], exact), h)


def test_a_source_without_the_class_has_no_say_in_it():
    torch.manual_seed(0)
    h, y = torch.zeros(80, 3), SOURCES[0].domain.y[:60]
    ones, none = torch.ones(5, 3), torch.zeros(5, 3)
    parts = [(ones, none, torch.ones(5)), (9 * ones, none, torch.tensor([0.0, 1, 1, 1, 1]))]
    mixed = traci(beta=0.01).mix(h, SOURCES[0], parts)[:60]
    assert mixed[y == 0].max() <= 1
    assert mixed[y != 0].max() > 5


def test_the_contrast_is_that_of_loops():
    draw = torch.Generator().manual_seed(0)
    a, b = torch.randn(6, 3, generator=draw), torch.randn(6, 3, generator=draw)
    cosines = [[torch.cosine_similarity(p, q, 0).exp() for q in b] for p in a]
    plain = torch.stack([-torch.log(row[i] / sum(row)) for i, row in enumerate(cosines)]).mean()
    torch.testing.assert_close(contrast(a, b), plain)


def test_ascent_and_mixup_begin_after_the_warm_up_and_the_ascent_grows_to_its_full_number():
    method = traci(warm_up=0.5, ascents=3)
    assert [method.plan(e) for e in range(10)] == [(False, 0)] * 10
    ascents = [method.plan(e)[1] for e in range(10, 20)]
    assert ascents == sorted(ascents)
    assert (ascents[0], ascents[-1]) == (1, 3)
    assert traci(warm_up=1.0).plan(19) == (False, 0)
    assert traci(ascents=0).plan(19) == (True, 0)
    early, late = method.update(SOURCES, 0), method.update(SOURCES, 15)
    assert "mixed alpha" not in early
    assert {"loss alpha", "adversarial beta", "mixed beta", "contrast alpha"} <= set(late)


@pytest.mark.parametrize("backbone", ["gcn", "gin", "sgc"])
def test_the_risk_falls(backbone):
    method = traci(TINY.replace(backbone=backbone, epochs=30))
    with seeded(0, CPU):
        losses = [sum(v for k, v in method.update(SOURCES, e).items() if k.startswith("loss")) for e in range(30)]
    assert losses[-1] < 0.9 * losses[0]


def test_a_network_of_several_heads_is_perturbed_too():
    record = traci(TINY.replace(backbone="gat", heads=2)).update(SOURCES, 15)
    assert all(math.isfinite(v) for v in record.values())


def test_a_network_without_message_passing_is_refused():
    with pytest.raises(ValueError, match="backbone = 'mlp'"):
        traci(TINY.replace(backbone="mlp"))
