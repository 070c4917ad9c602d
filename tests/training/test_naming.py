"""Tests of canonical names: what a user reads has the user's names."""

from __future__ import annotations

import warnings

import pytest

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
