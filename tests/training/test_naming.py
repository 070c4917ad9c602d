"""Canonical names, order and features of graphs."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from edgemask import EdgeMaskClassifier
from edgemask.graph import Graph
from edgemask.training.naming import Canonical


def words(seed: int, share: float = 0.03) -> Graph:
    """Return a graph with dense counts of words, nearly all of which are zero, and named columns."""
    rng = np.random.default_rng(seed)
    y = np.arange(60) % 3
    x = (rng.random((60, 120)) < share).astype(np.float32)
    x[np.arange(60), y] = 1
    edges = rng.integers(60, size=(2, 150))
    names = tuple(f"word {i}" for i in range(120))
    return Graph(f"g{seed}", x, edges, y, feature_names=names, duplicates="merge", self_loops="drop")


def test_dense_features_that_are_nearly_all_zero_become_sparse():
    few, many = words(0), words(1, share=0.5)
    both = Canonical([few, many])
    canonical = {both.given[g.name]: g for g in both.sources}
    assert canonical["g0"].is_sparse
    assert not canonical["g1"].is_sparse
    np.testing.assert_array_equal(canonical["g0"].x.toarray(), few.x)
    assert canonical["g0"].feature_names == few.feature_names
    np.testing.assert_array_equal(canonical["g1"].x, many.x)


def test_a_fit_does_not_depend_on_how_the_zeros_of_the_features_are_stored():
    dense = [words(0), words(1)]
    sparse = [g.replace(x=sp.csr_array(g.x)) for g in dense]
    settings = {"epochs": 10, "hidden": 8, "clusters": 5, "k": 3, "device": "cpu"}
    p, q = (
        EdgeMaskClassifier("erm-gcn-enriched", **settings).fit(graphs).predict_proba(sparse[0])
        for graphs in (dense, sparse)
    )
    np.testing.assert_array_equal(p, q)


def test_features_without_any_value_can_be_trained_on():
    graphs = [g.replace(x=np.zeros_like(g.x)) for g in (words(0), words(1))]
    model = EdgeMaskClassifier("erm-gcn-enriched", epochs=3, hidden=8, clusters=5, k=3, device="cpu").fit(graphs)
    assert np.isfinite(model.predict_proba(graphs[0])).all()
