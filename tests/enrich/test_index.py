"""Approximate neighbours: few are missed, those found are true and in order, and the recall is what it says."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from edgemask.enrich import Cache, EnrichWarning, approximate_knn, enrich, knn, recall
from edgemask.graph import Graph
from edgemask.seeds import numpy_stream

pytest.importorskip("faiss")
NODES = 1500


def clustered(kind: str):
    """Rows around 60 centres: dense, or non-negative with few entries a row."""
    stream = numpy_stream(0, "index", kind)
    centres = stream.standard_normal((60, 40))
    rows = centres[stream.integers(60, size=NODES)] + 0.4 * stream.standard_normal((NODES, 40))
    if kind == "dense":
        return rows
    return sp.csr_array(np.where(rows > 0.8, rows, 0))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_few_neighbours_are_missed_and_the_recall_says_how_many(kind):
    x = clustered(kind)
    found, exact = approximate_knn(x, 10, seed=0), knn(x, 10)
    said = recall(x, found, seed=0)
    same = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), exact.tolist(), strict=True)])
    assert said > 0.95
    assert said == pytest.approx(same, abs=0.03)
    assert recall(x, exact, seed=0) == 1
    shuffled = numpy_stream(1).permutation(exact)
    assert recall(x, shuffled, seed=0) < 0.3


def test_lists_are_in_the_order_of_the_exact_search():
    x = clustered("dense")
    found = approximate_knn(x, 5, seed=0)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    similarity = np.take_along_axis(unit @ unit.T, found, axis=1)
    assert (np.diff(similarity, axis=1) <= 1e-7).all()
    assert (found != np.arange(NODES)[:, None]).all()
    assert all(len(set(row)) == 5 for row in found.tolist())


def test_the_same_seed_gives_the_same_lists():
    x = clustered("sparse")
    np.testing.assert_array_equal(approximate_knn(x, 6, seed=3), approximate_knn(x, 6, seed=3))


def test_a_large_graph_says_its_recall_and_a_small_one_is_exact(tmp_path):
    graph = Graph(name="g", x=clustered("dense"), edges=np.array([[0], [1]]))
    with pytest.warns(
        EnrichWarning, match=r"1,500 nodes are more than knn_exact_up_to = 1,000; .* recall of 0\.9|1\.0"
    ):
        rough = enrich(graph, k=5, clusters=0, knn_exact_up_to=1000, cache=Cache(tmp_path))
    exact = enrich(graph, k=5, clusters=0, knn_exact_up_to=2000, cache=Cache(tmp_path))
    assert exact.knn_recall == 1
    assert 0.9 < rough.knn_recall <= 1
    with pytest.raises(ValueError, match="knn_exact_up_to must be at least 1,000"):
        enrich(graph, k=5, clusters=0, knn_exact_up_to=10)
