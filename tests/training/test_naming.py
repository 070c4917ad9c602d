"""Canonical names, order and features of graphs: what a user reads has the user's names."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from edgemask import EdgeMaskClassifier, Graph, compare
from edgemask.data.synthetic import demo_family
from edgemask.errors import DivergenceError, EnrichWarning, GraphError
from edgemask.training.naming import Canonical

SMALL = [graph.replace(name=name) for name, graph in zip(("oslo", "source-0"), demo_family(80).values(), strict=False)]


def names() -> Canonical:
    return Canonical([Graph(name, [[float(i)]] * 2, [(0, 1)]) for i, name in enumerate(("source-1", "oslo"))])


def test_warnings_and_errors_have_the_users_names() -> None:
    canonical = names()
    texts = {user: f"graph {name!r}, loss {name}: 'source-10'" for name, user in canonical.given.items()}
    for user, text in texts.items():
        with pytest.warns(EnrichWarning) as caught, canonical.shown():
            warnings.warn(text, EnrichWarning, stacklevel=1)
        assert str(caught[0].message) == f"graph {user!r}, loss {user}: 'source-10'"
        with pytest.raises(GraphError, match=f"graph '{user}', loss {user}: 'source-10'"), canonical.shown():
            raise GraphError(text)
    with pytest.warns(UserWarning, match="source-0"), canonical.shown():
        warnings.warn("source-0", UserWarning, stacklevel=1)  # not ours


def test_a_fit_warns_of_the_users_graphs() -> None:
    with pytest.warns(EnrichWarning) as caught:
        EdgeMaskClassifier("erm-gcn-enriched", epochs=1, device="cpu").fit(SMALL)
    assert {str(w.message).split(":")[0] for w in caught} == {"graph 'oslo'", "graph 'source-0'"}


def test_a_fit_that_diverges_names_the_users_graph() -> None:
    model = EdgeMaskClassifier("erm-gcn", epochs=50, lr=1e30, clip=None, device="cpu")
    with pytest.raises(DivergenceError, match="the loss oslo is"):
        model.fit(SMALL[:1])


def test_a_comparison_names_the_users_graphs() -> None:
    with pytest.warns(EnrichWarning) as caught:
        compare(SMALL, ["erm-gcn-enriched"], seeds=1, settings={"epochs": 1}, references=False, device="cpu")
    shown = {str(w.message).split(":")[0] for w in caught if w.category is EnrichWarning}
    assert shown == {"graph 'oslo'", "graph 'source-0'"}


# ---- features that are nearly all zero ------------------------------------------------------------


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
