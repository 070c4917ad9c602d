"""Enriched graphs: kNN pairs and clusters, exact or approximate, and their cache."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest
import torch

from edgemask.enrich import Cache, EnrichedGraph, Sampler, enrich, knn
from edgemask.enrich import enriched as module
from edgemask.errors import EnrichWarning
from edgemask.graph import Graph


@pytest.fixture
def graph():
    """30 nodes on a directed cycle, random features."""
    nodes = np.arange(30)
    x = np.random.default_rng(0).random((30, 6))
    return Graph("ring", x, np.stack([nodes, np.roll(nodes, -1)]))


@pytest.fixture
def enriched(graph):
    return enrich(graph, k=4, clusters=3)


def test_knn_pairs_are_the_symmetrised_lists(graph, enriched):
    lists = knn(graph.x, 4)
    expected = {tuple(sorted((i, int(j)))) for i in range(30) for j in lists[i]}
    assert [tuple(pair) for pair in enriched.knn_pairs.T.tolist()] == sorted(expected)


def test_absent_neighbours_make_no_pairs():
    x = np.array([[1.0, 0], [1, 1], [0, 0], [0, 0]])
    assert enrich(Graph("g", x, []), k=2, clusters=0).knn_pairs.T.tolist() == [[0, 1]]


def test_a_reordered_graph_has_the_same_pairs_and_clusters(enriched):
    order = np.random.default_rng(1).permutation(30)
    moved = enriched.reordered(order)
    assert moved.graph == enriched.graph.reordered(order)
    assert moved.knn_recall == enriched.knn_recall
    assert np.array_equal(moved.clusters, enriched.clusters[order])
    assert {frozenset(pair) for pair in order[moved.knn_pairs].T} == {frozenset(p) for p in enriched.knn_pairs.T}
    i, j = moved.knn_pairs
    assert (i < j).all()
    assert (np.diff(i * 30 + j) > 0).all()
    assert not any(a.flags.writeable for a in (moved.knn_pairs, moved.clusters))


def test_counts_of_pairs():
    graph = Graph("small", np.ones((6, 1)), [])
    enriched = EnrichedGraph(graph, np.array([(0, 1), (2, 5)]).T, np.array([0, 0, 0, 2, 2, -1]))
    assert enriched.cluster_sizes.tolist() == [3, 0, 2]
    assert (enriched.num_knn_pairs, enriched.num_spectral_pairs) == (2, 4)


def test_zero_means_none_of_that_kind(graph):
    plain = enrich(graph, k=0, clusters=0)
    assert (plain.num_knn_pairs, plain.num_spectral_pairs) == (0, 0)
    sample = Sampler(plain).sample(torch.Generator(), knn_ratio=1, spectral_ratio=1)
    assert torch.equal(torch.stack([sample.src, sample.dst]), torch.tensor(graph.edges))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": -1}, r"'ring': k must be at least 0, got -1"),
        ({"clusters": 1}, r"'ring': clusters must be 0 or at least 2, got 1"),
        ({"knn_exact_up_to": 999}, r"'ring': knn_exact_up_to must be at least 1,000 nodes, got 999"),
    ],
)
def test_settings_out_of_range_name_the_graph(graph, arguments, message):
    with pytest.raises(ValueError, match=message):
        enrich(graph, **{"k": 0, "clusters": 0, **arguments})


def test_a_graph_too_small_gets_fewer_and_a_warning(graph):
    with pytest.warns(
        EnrichWarning, match=r"'ring': k = 30 is too large for its nodes with features \(at most 29\); using 29 instead"
    ):
        assert enrich(graph, k=30, clusters=0).num_knn_pairs == 30 * 29 // 2
    with pytest.warns(EnrichWarning, match=r"'ring': clusters = 31 is too large .*at most 30.*; using 15 instead"):
        assert enrich(graph, k=0, clusters=31).clusters.max() < 15


def test_results_are_read_only(enriched):
    with pytest.raises(ValueError, match="read-only"):
        enriched.knn_pairs[0, 0] = 3
    with pytest.raises(ValueError, match="read-only"):
        enriched.clusters[0] = 3


def test_a_cached_result_is_the_same_and_is_not_computed(graph, enriched, tmp_path, monkeypatch):
    enrich(graph, k=4, clusters=3, cache=Cache(tmp_path))
    monkeypatch.delattr(module, "knn")
    monkeypatch.delattr(module, "spectral_clusters")
    again = enrich(graph.replace(name="renamed"), k=4, clusters=3, cache=Cache(tmp_path))
    assert np.array_equal(again.knn_pairs, enriched.knn_pairs)
    assert np.array_equal(again.clusters, enriched.clusters)


@pytest.mark.parametrize("change", [{"seed": 1}, {"clusters": 4}, {"affinity": "rbf"}])
def test_another_setting_is_not_read_from_the_cache(graph, tmp_path, change):
    cache, settings = Cache(tmp_path), {"k": 0, "clusters": 3}
    enrich(graph, **settings, cache=cache)
    enrich(graph, **{**settings, **change}, cache=cache)
    assert len(list(tmp_path.iterdir())) == 2


# ---- above the size of the exact search ----------------------------------------------------------------


@pytest.fixture
def large():
    """1,200 nodes in 20 blobs: one more than `knn_exact_up_to=1199` allows."""
    pytest.importorskip("faiss", reason="needs the extra edgemask[scale]")
    rng = np.random.default_rng(0)
    x = 2 * rng.standard_normal((20, 16))[np.arange(1200) % 20] + rng.standard_normal((1200, 16))
    return Graph("large", x, [])


def test_up_to_its_size_the_exact_search_is_used(large):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = enrich(large, k=3, clusters=0, knn_exact_up_to=1200)
    assert found.knn_recall == 1
    assert found.num_knn_pairs == enrich(large, k=3, clusters=0).num_knn_pairs


def test_above_it_neighbours_are_approximate_and_a_warning_gives_their_recall(large, monkeypatch):
    monkeypatch.delattr(module, "knn")
    with pytest.warns(EnrichWarning, match=r"'large': 1,200 nodes are more than knn_exact_up_to = 1,199; .*recall of"):
        found = enrich(large, k=3, clusters=0, knn_exact_up_to=1199)
    assert 0.9 < found.knn_recall <= 1


def test_only_nodes_with_features_count(large):
    x = np.array(large.x)
    x[0] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert enrich(large.replace(x=x), k=3, clusters=0, knn_exact_up_to=1199).knn_recall == 1


@pytest.mark.filterwarnings("ignore::edgemask.errors.EnrichWarning")
def test_approximate_neighbours_and_their_recall_are_cached(large, tmp_path, monkeypatch):
    settings = {"k": 3, "clusters": 0, "knn_exact_up_to": 1000, "cache": Cache(tmp_path)}
    first = enrich(large, **settings)
    monkeypatch.delattr(module, "approximate_knn")
    monkeypatch.delattr(module, "recall")
    again = enrich(large, **settings)
    assert np.array_equal(first.knn_pairs, again.knn_pairs)
    assert first.knn_recall == again.knn_recall


@pytest.mark.filterwarnings("ignore::edgemask.errors.EnrichWarning")
def test_exact_and_approximate_and_other_seeds_are_cached_apart(large, tmp_path):
    for limit, seed, files in ((1000, 0, 2), (1200, 0, 3), (1100, 0, 3), (1000, 1, 5), (1200, 1, 5)):
        enrich(large, k=3, clusters=0, knn_exact_up_to=limit, seed=seed, cache=Cache(tmp_path))
        assert len(list(tmp_path.iterdir())) == files


def test_without_faiss_it_is_an_error(large, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"edgemask\[scale\]"):
        enrich(large, k=3, clusters=0, knn_exact_up_to=1000)
