"""Entropy and smoothness on graphs with known values, and compared with their definitions."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

from edgemask.enrich import measures
from edgemask.enrich.measures import adjacency_of, enrichment_measures, smoothness, spectral_entropy
from edgemask.errors import InputError
from edgemask.graph import Graph


def graph_of(pairs, n: int):
    return adjacency_of(np.array(list(pairs)).reshape(-1, 2).T, n)


def complete(n: int):
    return graph_of([(i, j) for i in range(n) for j in range(i)], n)


def ring(n: int):
    i = np.arange(n)
    return adjacency_of(np.stack([i, (i + 1) % n]), n)


def star(n: int):
    return adjacency_of(np.stack([np.zeros(n - 1, dtype=int), np.arange(1, n)]), n)


def disjoint_edges(m: int):
    return adjacency_of(np.arange(2 * m).reshape(m, 2).T, 2 * m)


def random_graph(n: int, degree: float, seed: int = 0):
    r = np.random.default_rng(seed)
    pairs = (n * r.random((2, int(n * degree / 2))) ** 1.5).astype(int)  # some nodes with many edges, some with none
    return adjacency_of(pairs[:, pairs[0] != pairs[1]], n)


def eigenvalues(a):
    """Eigenvalues of the normalised Laplacian, with a zero for each isolated node."""
    dense = a.toarray()
    d = dense.sum(1)
    root = np.divide(1, np.sqrt(d), where=d > 0, out=np.zeros(len(d)))
    return scipy.linalg.eigvalsh(np.diag((d > 0).astype(float)) - root[:, None] * dense * root)


def entropy_of(values):
    share = values / values.sum()
    return float(-sum(s * math.log(s) for s in share if s > 1e-12))


# ---- entropy ---------------------------------------------------------------------------------------------

KNOWN = {
    "complete": (complete, lambda n: math.log(n - 1)),
    "ring": (ring, lambda n: entropy_of(1 - np.cos(2 * np.pi * np.arange(n) / n))),
    "star": (star, lambda n: math.log(n) - 2 / n * math.log(2)),
    "disjoint edges": (lambda n: disjoint_edges(n // 2), lambda n: math.log(n // 2)),
}


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("n", [3, 4, 7, 60])
def test_the_entropy_of_known_graphs(name, n):
    make, answer = KNOWN[name]
    assert spectral_entropy(make(n)) == pytest.approx(answer(n), abs=1e-12)


@pytest.mark.parametrize("name", ["ring", "star", "disjoint edges"])
def test_the_estimate_of_known_graphs(name):
    make, answer = KNOWN[name]
    assert spectral_entropy(make(10_000)) == pytest.approx(answer(10_000), abs=1e-3)


def test_the_estimate_of_a_complete_graph_ends_with_its_two_eigenvalues(monkeypatch):
    monkeypatch.setattr(measures, "EXACT_UP_TO", 0)
    assert spectral_entropy(complete(300)) == pytest.approx(math.log(299), abs=1e-3)


def test_the_entropy_of_a_long_ring_is_near_its_limit():
    assert spectral_entropy(ring(1999)) == pytest.approx(math.log(1999) - 1 + math.log(2), abs=1e-4)


def test_a_graph_without_edges_has_no_entropy():
    assert spectral_entropy(graph_of([], 5)) == 0
    assert spectral_entropy(graph_of([], 0)) == 0


def test_the_entropy_is_that_of_the_definition():
    for seed, degree in enumerate((0.5, 1.5, 4, 30)):
        a = random_graph(120, degree, seed)
        assert spectral_entropy(a) == pytest.approx(entropy_of(eigenvalues(a)), abs=1e-9)


def test_isolated_nodes_and_the_order_of_nodes_change_nothing():
    a = random_graph(150, 5)
    entropy = spectral_entropy(a)
    order = np.random.default_rng(0).permutation(150)
    assert spectral_entropy(a[order][:, order]) == pytest.approx(entropy, abs=1e-10)
    assert spectral_entropy(sp.block_array([[a, None], [None, sp.csr_array((40, 40))]])) == pytest.approx(entropy)


def test_disjoint_copies_add_their_logarithm():
    a = random_graph(100, 5)
    for copies in (2, 5):
        assert spectral_entropy(sp.block_diag([a] * copies)) == pytest.approx(spectral_entropy(a) + math.log(copies))


@pytest.mark.slow
@pytest.mark.parametrize("degree", [2, 4, 20])
def test_the_estimate_on_10_000_nodes_is_within_5_thousandths(degree):
    """The graph consists of blocks of 500 nodes, whose eigenvalues are all computed."""
    blocks = [random_graph(500, degree, seed) for seed in range(20)]
    a = sp.block_diag(blocks, format="csr")
    exact = entropy_of(np.concatenate([eigenvalues(b) for b in blocks]))
    for seed in range(3):
        assert spectral_entropy(a, seed=seed) == pytest.approx(exact, abs=2e-3)
    assert spectral_entropy(a, probes=64) == pytest.approx(exact, abs=1e-3)


def test_a_larger_graph_is_estimated_as_well_from_fewer_vectors(monkeypatch):
    calls = []
    monkeypatch.setattr(measures, "quadrature", lambda p, *_, real=measures.quadrature: calls.append(1) or real(p, *_))
    for n, count in ((2500, 64), (40_000, 4), (200_000, 1)):
        a = sp.block_diag([random_graph(500, 4)] * (n // 500), format="csr")
        n = int((a.sum(1) > 0).sum())
        calls.clear()
        exact = spectral_entropy(random_graph(500, 4)) + math.log(a.shape[0] / 500)
        assert spectral_entropy(a) == pytest.approx(exact, abs=2e-3)
        assert len(calls) == math.ceil(160_000 / n) >= count


def test_the_estimate_is_decided_by_its_seed():
    a = random_graph(3000, 6)
    assert spectral_entropy(a) == spectral_entropy(a) != spectral_entropy(a, seed=1)


def test_exact_and_estimate_agree_where_one_takes_over(monkeypatch):
    a = random_graph(1900, 6)
    exact = spectral_entropy(a)
    monkeypatch.setattr(measures, "EXACT_UP_TO", 100)
    assert spectral_entropy(a) != exact
    assert spectral_entropy(a) == pytest.approx(exact, abs=3e-3)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (sp.csr_array((2, 3)), "must be square"),
        (sp.csr_array([[0, 1], [0, 0]]), "symmetric: nodes 0 and 1 are connected in one direction"),
        (sp.csr_array([[0, 1], [1, 1]]), "no self-loops, got one on node 1"),
        (sp.csr_array([[0, 2], [2, 0]]), "only 0 and 1, got 2"),
        (sp.csr_array([[0, np.nan], [np.nan, 0]]), "only 0 and 1, got nan"),
    ],
)
def test_only_undirected_simple_graphs_are_accepted(bad, message):
    for measure in (spectral_entropy, lambda a: smoothness(np.ones((a.shape[0], 1)), a)):
        with pytest.raises(ValueError, match=message):
            measure(bad)
    with pytest.raises(TypeError, match="SciPy sparse matrix, got ndarray") as raised:
        spectral_entropy(np.zeros((2, 2)))
    assert isinstance(raised.value, InputError)


def test_an_estimate_without_probes_is_refused():
    with pytest.raises(ValueError, match=r"probes must be an integer in \[1, inf\) or None, got 0"):
        spectral_entropy(ring(5), probes=0)
    with pytest.raises(ValueError, match=r"steps must be an integer in \[1, inf\), got 0"):
        spectral_entropy(ring(5), steps=0)


# ---- smoothness ------------------------------------------------------------------------------------------


def forms(x):
    return np.asarray(x, dtype=float), sp.csr_array(np.asarray(x, dtype=float)), np.asarray(x, dtype=np.float32)


@pytest.mark.parametrize("a", [complete(9), ring(10), sp.block_diag([ring(5), ring(7)])])
def test_a_constant_on_a_regular_graph_is_smooth(a):
    for x in forms(np.full((a.shape[0], 3), 2.5)):
        assert smoothness(x, a) == 0


def test_alternating_features_on_a_bipartite_regular_graph_give_2():
    cube = graph_of([(i, i ^ bit) for i in range(8) for bit in (1, 2, 4)], 8)
    signs = np.array([[(-1) ** i.bit_count()] for i in range(8)])
    for a, x in ((ring(12), np.resize([[1], [-1]], (12, 1))), (cube, signs)):
        assert [smoothness(form, a) for form in forms(x)] == pytest.approx([2, 2, 2])


def test_orthogonal_features_are_1():
    for x in forms(np.eye(9)):
        assert smoothness(x, ring(9)) == pytest.approx(1)
    assert smoothness(sp.eye_array(20_000), ring(20_000)) == pytest.approx(1)  # nothing N × N


def test_an_eigenvector_has_its_eigenvalue():
    a = random_graph(60, 8)
    root = np.sqrt(np.maximum(a.sum(1), 1e-300))
    values, vectors = scipy.linalg.eigh(np.eye(60) * (root > 1e-9) - a.toarray() / root[:, None] / root)
    for i in (0, 10, 59):
        assert smoothness(vectors[:, [i]], a) == pytest.approx(values[i], abs=1e-9)


def test_smoothness_is_that_of_the_definition_whatever_the_block(monkeypatch):
    a, r = random_graph(80, 4), np.random.default_rng(1)
    x = r.normal(size=(80, 7)) * (r.random((80, 7)) < 0.4)
    d = a.toarray().sum(1)
    root = np.divide(1, np.sqrt(d), where=d > 0, out=np.zeros(80))
    assert (d == 0).any()
    laplacian = np.diag((d > 0).astype(float)) - root[:, None] * a.toarray() * root
    expected = np.trace(x.T @ laplacian @ x) / np.trace(x.T @ x)
    for block in (1, 50, 1 << 22):
        monkeypatch.setattr(measures, "BLOCK", block)
        assert [smoothness(form, a) for form in forms(x)] == pytest.approx([expected] * 3, rel=1e-6)


def test_smoothness_does_not_depend_on_the_scale():
    a, x = random_graph(50, 6), np.random.default_rng(0).normal(size=(50, 4))
    assert smoothness(1e6 * x, a) == pytest.approx(smoothness(x, a)) == pytest.approx(smoothness(-1e-6 * x, a))


def test_a_graph_without_edges_is_smooth():
    assert smoothness(np.ones((4, 2)), graph_of([], 4)) == 0


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones((4, 2)), "a row for each of the 5 nodes, got shape"),
        (np.ones(5), "a row for each of the 5 nodes"),
        (np.zeros((5, 2)), "finite and above 0, got 0.0"),
        (np.full((5, 2), np.nan), "finite and above 0, got nan"),
    ],
)
def test_features_that_do_not_fit_are_refused(x, message):
    for form in (x, sp.csr_array(x)):
        with pytest.raises(ValueError, match=message):
            smoothness(form, ring(5))


# ---- enrichment ------------------------------------------------------------------------------------------

SQUARE = Graph("square", np.array([[1.0], [1], [-1], [-1]]), np.array([[0, 1, 2, 3], [1, 2, 3, 0]]), undirected=True)


def test_what_enrichment_adds_is_counted_in_undirected_edges():
    both = np.concatenate([SQUARE.edges, [[0, 2], [2, 0]]], axis=1)
    found = enrichment_measures(SQUARE, both)
    assert found["edge increase %"] == pytest.approx(25)
    assert found["avg degree gain"] == pytest.approx(0.5)
    once = np.concatenate([SQUARE.edges, [[0], [2]]], axis=1)
    assert enrichment_measures(SQUARE, once) == found


def test_gains_are_after_minus_before_and_for_smoothness_before_minus_after():
    found = enrichment_measures(SQUARE, np.array([(i, j) for i in range(4) for j in range(4) if i != j]).T)
    assert found["spectral entropy before"] == pytest.approx(entropy_of(np.array([0, 1, 1, 2])))
    assert found["spectral entropy after"] == pytest.approx(math.log(3))
    assert found["spectral entropy"] == pytest.approx(math.log(3) - entropy_of(np.array([0, 1, 1, 2])))
    assert found["feature Laplacian smoothness before"] == pytest.approx(1)
    assert found["feature Laplacian smoothness after"] == pytest.approx(4 / 3)
    assert found["feature Laplacian smoothness"] == pytest.approx(-1 / 3)


def test_without_added_edges_all_gains_are_zero():
    found = enrichment_measures(SQUARE, SQUARE.edges)
    assert {v for k, v in found.items() if not k.endswith(("before", "after"))} == {0}


def test_directed_graphs_are_measured_without_their_directions():
    one_way = Graph("square", SQUARE.x, np.array([[0, 1, 2, 3], [1, 2, 3, 0]]))
    both = np.concatenate([SQUARE.edges, [[0, 2], [2, 0]]], axis=1)
    assert enrichment_measures(one_way, both) == enrichment_measures(SQUARE, both)


def test_an_enriched_graph_without_some_of_the_graphs_edges_is_refused():
    with pytest.raises(ValueError, match="graph 'square': 1 of its edges are not among"):
        enrichment_measures(SQUARE, np.array([[0, 1, 2, 0], [1, 2, 3, 2]]))
    with pytest.raises(ValueError, match="graph 'bare' has no edges"):
        enrichment_measures(Graph("bare", np.ones((3, 1)), np.empty((2, 0), dtype=int)), SQUARE.edges[:, :1])


def test_a_graph_of_acms_size_takes_seconds():
    r, n = np.random.default_rng(0), 9360
    own, more = r.integers(n, size=(2, 15_000)), r.integers(n, size=(2, 135_000))
    x = sp.random_array((n, 6775), density=0.005, format="csr", rng=r)
    graph = Graph("acm", x, own, undirected=True, self_loops="drop", duplicates="merge")
    start = time.process_time()
    enrichment_measures(graph, np.concatenate([graph.edges, more], axis=1))
    assert time.process_time() - start < 6  # on one core about 1
