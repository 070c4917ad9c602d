"""Tests of `Contract` and `unify`: columns and classes of several graphs, matched by name."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from edgemask.errors import GraphError, GraphWarning
from edgemask.graph import Contract, Graph, unify


def table(name: str, columns: dict[str, list[float]], text: tuple[str, ...] = (), **more: Any) -> Graph:
    """A path of as many nodes as the columns have values."""
    x = np.array(list(columns.values()), dtype=float).T
    edges = [(i, i + 1) for i in range(len(x) - 1)]
    fields: dict[str, Any] = {"y": [i % 2 for i in range(len(x))], **more}
    return Graph(name, x, edges, feature_names=tuple(columns), text_columns=text, **fields)


A = table("a", {"age": [1, 2, 3], "city=Oslo": [1, 0, 0], "city=Rome": [0, 1, 1]}, ("city",))
B = table("b", {"city=Oslo": [0, 1, 0], "city=Lima": [1, 0, 0], "age": [4, 5, 6]}, ("city",))


def test_columns_are_matched_by_name_and_text_values_are_united() -> None:
    contract, (a, b) = unify([A, B], scale=False)
    assert contract.feature_names == ("age", "city=Lima", "city=Oslo", "city=Rome")
    assert contract.text_columns == ("city",)
    assert a.x.tolist() == [[1, 0, 1, 0], [2, 0, 0, 1], [3, 0, 0, 1]]
    assert b.x.tolist() == [[4, 1, 0, 0], [5, 0, 1, 0], [6, 0, 0, 0]]
    assert unify([B, A], scale=False)[0] == contract


def test_graphs_with_the_same_columns_stay_as_they_are() -> None:
    contract, (same,) = unify([A], scale=False)
    assert same == A
    assert contract == Contract(3, ("0", "1"), A.feature_names, ("city",))


@pytest.mark.parametrize("sparse", [False, True])
def test_numeric_columns_are_standardised_by_the_sources(sparse: bool) -> None:
    a, b = (g.replace(x=sp.csr_array(g.x)) if sparse else g for g in (A, B))
    contract, aligned = unify([a, b])
    assert contract.scaled == ("age",)
    ages = np.concatenate([g.x.toarray()[:, 0] if sparse else g.x[:, 0] for g in aligned])
    expected = np.arange(1, 7)
    np.testing.assert_allclose(ages, (expected - expected.mean()) / expected.std(), rtol=1e-5)
    new = contract.aligned(a, labels=False)
    np.testing.assert_allclose(
        new.x.toarray() if sparse else new.x, aligned[0].x.toarray() if sparse else aligned[0].x, rtol=1e-6
    )
    only_a, _ = unify([a, b], fitted=1)
    assert only_a.means == (2.0,)


def test_a_mostly_empty_sparse_column_is_scaled_but_not_centred() -> None:
    x = sp.csr_array(np.array([[0, 1.0], [0, 2.0], [0, 3.0], [8.0, 4.0]]))
    graph = Graph("g", x, [(0, 1)], feature_names=("rare", "full"))
    contract, (scaled,) = unify([graph])
    assert contract.means[0] == 0
    assert scaled.x.toarray()[:, 0].tolist() == [0, 0, 0, 2]
    np.testing.assert_allclose(scaled.x.toarray()[:, 1].mean(), 0, atol=1e-6)


def test_columns_of_zeros_and_ones_and_degrees_are_not_scaled() -> None:
    flags = Graph("g", [[0.0], [1.0], [1.0]], [(0, 1)], feature_names=("flag",))
    assert unify([flags])[0].scaled == ()
    degrees = Graph("g", None, [(0, 1), (1, 2)], features=["degree", "log-degree"])
    assert unify([degrees])[0].scaled == ("log-degree",)


def test_missing_columns_are_refused_and_new_ones_ignored_with_a_warning() -> None:
    contract, _ = unify([A, B], scale=False)
    with pytest.raises(GraphError, match=r"graph 'c', features: missing columns: 'city'; new columns: 'wage'; .*'age'"):
        contract.aligned(table("c", {"age": [1, 2], "wage": [1, 2]}), labels=False)
    extra = table("c", {"wage": [1, 2], "city=Oslo": [0, 1], "age": [1, 2]}, ("city",))
    with pytest.warns(GraphWarning, match="graph 'c': ignored columns that the model was not trained on: 'wage'"):
        aligned = contract.aligned(extra, labels=False)
    assert aligned.x.tolist() == [[1, 0, 0, 0], [2, 0, 1, 0]]


def test_unseen_values_are_counted() -> None:
    contract, _ = unify([A, B], scale=False)
    new = table("c", {"age": [1, 2, 3], "city=Paris": [1, 1, 0], "city=Oslo": [0, 0, 1]}, ("city",))
    with pytest.warns(GraphWarning, match=r"column 'city': 2 of 3 nodes have values that no source has \('Paris'\)"):
        contract.aligned(new, labels=False)


def test_another_order_is_aligned_without_a_word() -> None:
    contract, _ = unify([A, B], scale=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert contract.aligned(B, labels=False).x.tolist() == [[4, 1, 0, 0], [5, 0, 1, 0], [6, 0, 0, 0]]


def test_sources_with_other_columns_are_refused() -> None:
    with pytest.raises(GraphError, match=r"graph 'c', features: compared with graph 'a', missing columns: 'city'; new"):
        unify([A, table("c", {"age": [1, 2], "wage": [1, 2]})])
    with pytest.raises(GraphError, match=r"column 'city' is numeric, but it is text in graph 'a'; text='city'"):
        unify([A, table("c", {"age": [1, 2], "city": [1, 2]})])


@pytest.mark.parametrize("sparse", [False, True])
def test_text_in_a_column_of_numbers_is_shown_with_its_node(sparse: bool) -> None:
    columns = {"age=28": [1, 0, 0], "age=31y": [0, 1, 0], "age=x": [0, 0, 1], "city=Oslo": [0, 1, 1]}
    c = table("c", columns, ("age", "city"), node_ids=["ann", "bob", "eve"])
    c = c.replace(x=sp.csr_array(c.x)) if sparse else c
    word = r"graph 'c', features: column 'age' is text \(node 'bob' has '31y'\), but it is numeric in "
    with pytest.raises(GraphError, match=rf"{word}graph 'a'; text='age' .* in all graphs"):
        unify([A, c])
    contract, _ = unify([A, B])
    with pytest.raises(GraphError, match=rf"{word}the training graphs; correct the table"):
        contract.aligned(c, labels=False)
    number = table("c", {"age": [1, 2], "city": [1, 2]})
    with pytest.raises(GraphError, match=r"column 'city' is numeric, but it is text in the training graphs; text='cit"):
        contract.aligned(number, labels=False)


def test_columns_without_names_are_matched_by_position() -> None:
    contract, _ = unify([A, B], scale=False)
    plain = Graph("p", np.ones((2, 4)), [(0, 1)])
    with pytest.warns(GraphWarning, match="graph 'p': its columns have no names, so they are matched by position"):
        contract.aligned(plain, labels=False)
    with pytest.raises(GraphError, match=r"graph 'p', x: 3 features, but the model was trained on 4: 'age', "):
        contract.aligned(plain.replace(x=np.ones((2, 3))), labels=False)
    with pytest.raises(GraphError, match="graph 'q', x: 2 features, but graph 'p' has 4"):
        unify([plain, plain.replace(name="q", x=np.ones((2, 2)))])


# ---- classes -----------------------------------------------------------------------------------------


def test_classes_are_matched_by_name() -> None:
    a = table("a", {"age": [1, 2, 3]}, y=["go", "chess", "go"])
    b = table("b", {"age": [1, 2, 3]}, y=["hex", None, "go"])
    contract, (first, second) = unify([a, b])
    assert contract.classes == ("chess", "go", "hex")
    assert (first.y.tolist(), second.y.tolist()) == ([1, 0, 1], [2, -1, 1])
    several = table("c", {"age": [1, 2, 3]}, y=[[1, 1], [-1, -1], [0, 1]], classes=("hex", "go"))
    assert contract.aligned(several).y.tolist() == [[0, 1, 1], [-1, -1, -1], [0, 1, 0]]


def test_unnamed_classes_are_those_of_the_graph_with_most() -> None:
    a, b = (table(n, {"age": [1, 2, 3]}, y=y) for n, y in (("a", [0, 1, 0]), ("b", [0, 2, 1])))
    assert unify([a, b])[0].classes == ("0", "1", "2")


def test_unknown_classes_are_refused_only_if_labels_are_used() -> None:
    contract, _ = unify([table("a", {"age": [1, 2]}, y=["go", "chess"])])
    other = table("b", {"age": [1, 2]}, y=["go", "poker"])
    with pytest.raises(GraphError, match=r"graph 'b', classes: the model does not know 'poker'; it was trained on"):
        contract.aligned(other)
    assert contract.aligned(other, labels=False).y is None
    unused = table("b", {"age": [1, 2]}, y=["go", "go"], classes=("go", "poker"))
    assert contract.aligned(unused).y.tolist() == [1, 1]


def test_graphs_without_a_class_in_common_are_refused() -> None:
    a, b = (table(n, {"age": [1, 2]}, y=y) for n, y in (("a", ["x", "y"]), ("b", ["u", "v"])))
    with pytest.raises(
        GraphError, match="graph 'b', classes: 'u', 'v', but graph 'a' has 'x', 'y': no class in common"
    ):
        unify([a, b])


def test_a_contract_survives_json() -> None:
    contract, _ = unify([A, B])
    assert Contract.from_json(contract.to_json()) == contract
