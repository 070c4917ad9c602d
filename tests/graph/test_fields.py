"""Tests of the fields of `Graph` that users' graphs bring: weights, names, ids, labels as text, edges as rows."""

from __future__ import annotations

import copy
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from edgemask.errors import GraphError
from edgemask.graph import Graph
from edgemask.graph.structure import structural_features


def path(**changes: Any) -> Graph:
    """The path 0 → 1 → 2 → 3."""
    fields: dict[str, Any] = {"name": "path", "x": np.eye(4), "edges": [[0, 1, 2], [1, 2, 3]], **changes}
    return Graph(**fields)


# ---- edges -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edges",
    [
        [[0, 1], [1, 2], [2, 3]],
        [(0, 1), (1, 2), (2, 3)],
        np.array([[0, 1, 2], [1, 2, 3]]),
        np.array([[0, 1], [1, 2], [2, 3]]),
        ((0, 1), (1, 2), (2, 3)),
    ],
)
def test_edges_may_be_rows_or_columns(edges: Any) -> None:
    assert path(edges=edges) == path()


def test_a_list_of_two_tuples_is_two_edges() -> None:
    assert path(edges=[(0, 1), (2, 3)]).edges.tolist() == [[0, 2], [1, 3]]
    assert path(edges=[[0, 1], [2, 3]]).edges.tolist() == [[0, 1], [2, 3]]  # sources, destinations


# ---- weights -----------------------------------------------------------------------------------------


def test_weights_follow_their_edges_when_these_are_sorted() -> None:
    graph = path(edges=[[2, 0, 1], [3, 1, 2]], weights=[0.3, 0.1, 0.2])
    assert graph.edges.tolist() == [[0, 1, 2], [1, 2, 3]]
    np.testing.assert_allclose(graph.weights, [0.1, 0.2, 0.3], rtol=1e-6)
    assert graph.weights.dtype == np.float32
    assert not graph.weights.flags.writeable


@given(st.integers(0, 2**32 - 1))
def test_weights_are_those_of_a_sparse_matrix(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, 6, (2, 20))
    edges = edges[:, edges[0] != edges[1]]
    weights = rng.random(edges.shape[1]).astype(np.float32)
    graph = Graph("g", np.eye(6), edges, weights=weights, duplicates="merge")
    expected = sp.coo_array((weights.astype(np.float64), tuple(edges)), shape=(6, 6)).toarray()
    _, adjacency = graph.to_adjacency()
    np.testing.assert_allclose(adjacency.toarray(), expected, rtol=1e-6)


def test_the_missing_direction_gets_the_weight_of_the_other_one() -> None:
    graph = path(edges=[(0, 1), (1, 0), (1, 2)], weights=[1, 2, 3], undirected=True)
    _, adjacency = graph.to_adjacency()
    assert adjacency.toarray()[:3, :3].tolist() == [[0, 1, 0], [2, 0, 3], [0, 3, 0]]


def test_reordered_nodes_keep_the_weights_of_their_edges() -> None:
    graph = path(weights=[1, 2, 3], node_ids=list("abcd"))
    order = np.array([3, 1, 0, 2])
    moved = graph.reordered(order)
    _, before = graph.to_adjacency()
    _, after = moved.to_adjacency()
    assert (after.toarray() == before.toarray()[np.ix_(order, order)]).all()
    assert moved.node_ids.tolist() == ["d", "b", "a", "c"]


def test_weights_are_part_of_the_hash_only_if_there_are_any() -> None:
    assert path(weights=[1, 1, 1]).hash != path().hash
    assert path(weights=[1, 1, 2]).hash != path(weights=[1, 1, 1]).hash
    assert copy.deepcopy(path(weights=[1, 1, 2])) == path(weights=[1, 1, 2])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2], r"weights: expected one value for each of the 3 edges, got shape \(2,\)"),
        ([1, -1, 0], "weights: weight of edge 1 must be a finite number of at least 0, got -1.0"),
        ([1, 1, float("nan")], "weights: weight of edge 2 must be a finite number of at least 0, got nan"),
        (
            [1, 1e39, 1],
            "weights: weight of edge 1 must be a finite number of at least 0, got 1e.39, which is too large",
        ),
        (["a", "b", "c"], "weights: must be numeric, got dtype <U1"),
    ],
)
def test_invalid_weights_are_rejected(weights: Any, message: str) -> None:
    with pytest.raises(GraphError, match=f"^graph 'path', {message}"):
        path(weights=weights)


# ---- labels ------------------------------------------------------------------------------------------


def test_labels_may_be_names() -> None:
    graph = path(y=["go", None, "chess", ""])
    assert graph.classes == ("chess", "go")
    assert graph.y.tolist() == [1, -1, 0, -1]
    assert path(y=["go", float("nan"), "chess", "go"], classes=("go", "hex", "chess")).y.tolist() == [0, -1, 2, 0]


def test_names_that_are_integers_are_sorted_by_value() -> None:
    assert path(y=["10", "9", "2", "9"]).classes == ("2", "9", "10")


def test_labels_outside_a_mask_are_hidden() -> None:
    train = np.array([True, False, True, False])
    graph = path(y=[0, 1, 1, 0], masks={"train": train})
    assert graph.masked_labels("train").y.tolist() == [0, -1, 1, -1]
    assert graph.masked_labels("val") is graph
    several = path(y=np.eye(4, 2, dtype=int), masks={"train": train}).masked_labels("train")
    assert several.y.tolist() == [[1, 0], [-1, -1], [0, 0], [-1, -1]]


# ---- names and ids -----------------------------------------------------------------------------------


def test_names_and_ids_are_compared_but_not_hashed() -> None:
    named = path(feature_names=list("abcd"), node_ids=[7, 5, 3, 1])
    assert named.hash == path().hash
    assert named != path()
    assert named == copy.deepcopy(named)
    assert named.replace(node_ids=None) != named


def test_the_columns_of_a_data_frame_are_the_feature_names() -> None:
    frame = pd.DataFrame({"age": [1, 2, 3, 4], "income": [5.0, 6, 7, 8]})
    assert path(x=frame).feature_names == ("age", "income")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feature_names": ["a"]}, "feature_names: expected 4 names, one per column of x, got 1"),
        ({"feature_names": ["a", "b", "c", "a"]}, "feature_names: names must be distinct"),
        ({"text_columns": ["city"]}, "text_columns: needs feature_names"),
        ({"node_ids": [1, 2]}, "node_ids: expected 4 ids, one per row of x, got 2"),
        ({"node_ids": ["a", "b", "a", "c"]}, "node_ids: ids must be distinct, but 'a' occurs twice"),
        ({"edges": [(1, 1)], "node_ids": list("abcd")}, "edges: edge 0 is a self-loop on node 'b'"),
        ({"edges": [(0, 1)] * 3, "node_ids": list("abcd")}, r"edges: edge \('a', 'b'\) is a duplicate"),
        ({"x": None}, "x: the graph has no features; features='degree' derives them"),
        ({"x": None, "features": "pagerank"}, "features: no kind of features 'pagerank'"),
        ({"features": "degree"}, "features: derives features from the edges, but the graph has features x"),
    ],
)
def test_errors_name_the_field_and_the_node(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=f"^graph 'path', {message}"):
        path(**changes)


# ---- structural features -------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1))
def test_structural_features_are_those_of_networkx(seed: int) -> None:
    reference = nx.gnp_random_graph(12, 0.4, seed=seed, directed=False)
    edges = np.array(list(reference.edges), dtype=np.int64).reshape(-1, 2).T
    graph = Graph(
        "g", None, edges, node_ids=range(12), undirected=True, features=["degree", "log-degree", "clustering"]
    )
    degree = np.array([d for _, d in sorted(reference.degree)])
    x = graph.x.toarray()
    assert x[:, :256].argmax(1).tolist() == degree.tolist()
    np.testing.assert_allclose(x[:, 256], np.log1p(degree), rtol=1e-6)
    np.testing.assert_allclose(x[:, 257], [nx.clustering(reference, i) for i in range(12)], rtol=1e-6)
    assert graph.feature_names[-3:] == ("degree>=255", "log-degree", "clustering")


def test_clustering_in_several_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = nx.barabasi_albert_graph(60, 4, seed=1)
    edges = np.array(list(reference.edges)).T
    whole, _ = structural_features(edges, 60, ["clustering"])
    monkeypatch.setattr("edgemask.graph.structure.WORK", 50)
    blocks, _ = structural_features(edges, 60, ["clustering"])
    np.testing.assert_array_equal(whole, blocks)
    np.testing.assert_allclose(whole[:, 0], [nx.clustering(reference, i) for i in range(60)], rtol=1e-6)


def test_large_degrees_share_the_last_column() -> None:
    star = np.stack([np.arange(1, 301), np.zeros(300, dtype=int)])
    x, names = structural_features(star, 301, ["degree"])
    assert names[x[[0]].indices[0]] == "degree>=255"


def test_structural_features_can_be_added_to_others() -> None:
    graph = path().with_structure("log-degree")
    assert graph.feature_names == ("x0", "x1", "x2", "x3", "log-degree")
    assert graph.x[:, 4].tolist() == [0, *[np.float32(np.log(2))] * 3]
