"""GraphAug: drops the lightest edges, adds pairs inside feature clusters, and otherwise minimises risk."""

from __future__ import annotations

import pytest
import torch

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.enrich import Origin, Sampler, enrich
from edgemask.methods.erm import ERM
from edgemask.methods.graph_aug import GraphAug, heavy
from edgemask.methods.sources import Source
from edgemask.nn.tensors import Edges, GraphTensors

CPU = torch.device("cpu")
TINY = Recipe(backbone="gcn", mask=False, k=0, clusters=0, hidden=8, dropout=0.0, lr=0.01)
A, B, _ = demo_family(80).values()
SOURCES = [Source(GraphTensors.of(g), torch.arange(80), None) for g in (A, B)]


def graph_aug(recipe: Recipe = TINY, **hyper: float) -> GraphAug:
    hyper = {"groups": 8} | hyper
    return GraphAug(recipe.replace(hyper=tuple(sorted(hyper.items()))), 64, 5, 0, CPU)


def pairs(edges: Edges) -> set[tuple[int, int]]:
    return set(zip(edges.src[edges.real].tolist(), edges.dst[edges.real].tolist(), strict=True))


@pytest.mark.parametrize("drop", [0.0, 0.1, 0.35])
def test_the_edges_dropped_are_those_of_least_weight(drop):
    edges = SOURCES[0].domain.edges
    kept = heavy(edges, drop, torch.Generator().manual_seed(0))
    src, dst = edges.src[edges.real], edges.dst[edges.real]
    adjacency = torch.zeros(80, 80).index_put((src, dst), torch.tensor(1.0))
    root = adjacency.sum(1).clamp_min(1).rsqrt()
    weight = (root[:, None] * adjacency * root)[src, dst]
    assert weight[kept].min() >= weight[~kept].max() - 1e-6 if drop else kept.all()
    assert (~kept).sum() == 2 * round(drop * len(src) / 2)
    still = set(zip(src[kept].tolist(), dst[kept].tolist(), strict=True))
    assert {(v, u) for u, v in still} == still


def test_in_a_weighted_graph_the_entries_of_the_weighted_matrix_decide():
    at_nodes = torch.rand(80, generator=torch.Generator().manual_seed(0))
    edges = SOURCES[0].domain.edges
    src, dst = edges.edge_index
    edges = edges.with_weight(at_nodes[src] + at_nodes[dst])
    kept = heavy(edges, 0.3, torch.Generator().manual_seed(0))
    adjacency = torch.zeros(80, 80).index_put((dst, src), edges.weight)
    root = adjacency.sum(1).rsqrt()
    entry = (root[:, None] * adjacency * root)[dst, src]
    assert entry[kept].min() > entry[~kept].max() - 1e-6
    stream = torch.Generator().manual_seed
    ones = edges.with_weight(torch.ones(edges.num_real))
    assert torch.equal(heavy(ones, 0.3, stream(0)), heavy(edges.with_weight(None), 0.3, stream(0)))


def test_kept_edges_keep_their_weights_and_added_ones_have_weight_1():
    graph = A.replace(weights=torch.rand(A.num_edges, generator=torch.Generator().manual_seed(0)).numpy() + 2)
    after = graph_aug(drop=0.3, add=0.5).sample(Source(GraphTensors.of(graph), torch.arange(80), None), 0)
    own = {(u, v): w for u, v, w in zip(*graph.edges.tolist(), graph.weights.tolist(), strict=True)}
    expected = [own.get((u, v), 1.0) for u, v in after.edge_index.T.tolist()]
    assert after.weight.tolist() == expected
    assert 1.0 in expected


def test_added_pairs_lie_inside_clusters_and_are_new():
    before, method = pairs(SOURCES[0].domain.edges), graph_aug(drop=0.0, add=0.5)
    after = method.sample(SOURCES[0], 0)
    added = pairs(after) - before
    clusters = enrich(A, k=0, clusters=8).clusters
    assert before <= pairs(after)
    assert all(clusters[u] == clusters[v] for u, v in added)
    assert {(v, u) for u, v in added} == added
    drawn = round(0.5 * len(before) / 2)  # some of them already exist
    assert 0.5 * drawn < len(added) / 2 <= drawn
    assert int((after.origin == int(Origin.SPECTRAL)).sum()) == len(added)


def test_edges_stay_sorted_and_single_and_dropped_ones_do_not_come_back():
    edges = graph_aug(drop=0.3, add=1.0).sample(SOURCES[0], 0)
    key = edges.dst * 80 + edges.src
    real = key[edges.real]
    assert (real.diff() > 0).all()
    assert len(torch.unique(key)) == len(key)
    original = SOURCES[0].domain.edges.num_real
    assert int((edges.origin == int(Origin.ORIGINAL)).sum()) == original - 2 * round(0.3 * original / 2)


def test_a_draw_belongs_to_its_epoch():
    method = graph_aug()
    first, again, later = (method.sample(SOURCES[0], epoch) for epoch in (0, 0, 1))
    assert torch.equal(first.src, again.src)
    assert pairs(first) != pairs(later)


def test_it_augments_the_enriched_graph_too():
    sampler = Sampler(enrich(A, k=3, clusters=5), CPU)
    recipe = TINY.replace(k=3, clusters=5, knn_ratio=1.0)
    source = Source(SOURCES[0].domain, torch.arange(80), sampler)
    plain, mine = ERM(recipe, 64, 5, 0, CPU).sample(source, 0), graph_aug(recipe, drop=0.0).sample(source, 0)
    assert pairs(plain) < pairs(mine)


@pytest.mark.parametrize("backbone", ["gcn", "gin"])
def test_at_rates_of_0_it_is_risk_minimisation_and_else_it_is_not(backbone):
    recipe = TINY.replace(backbone=backbone)
    none, some, erm = graph_aug(recipe, drop=0.0, add=0.0), graph_aug(recipe), ERM(recipe, 64, 5, 0, CPU)
    records = [method.update(SOURCES, 0) for method in (none, some, erm)]
    assert records[0] == records[2]
    assert records[1] != records[2]
    for p, q in zip(none.networks.parameters(), erm.networks.parameters(), strict=True):
        assert torch.equal(p, q)


def test_the_risk_falls():
    method = graph_aug()
    losses = [sum(method.update(SOURCES, epoch).values()) for epoch in range(40)]
    assert losses[-1] < 0.8 * losses[0]


def test_a_graph_without_edges_stays_without():
    bare = A.replace(edges=A.edges[:, :0])
    assert graph_aug().sample(Source(GraphTensors.of(bare), torch.arange(80), None), 0).num_real == 0
