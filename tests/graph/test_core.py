"""Tests of `Graph`: validation and error messages, immutability, the content hash and `collect`."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgemask.errors import GraphError
from edgemask.graph import Graph, collect

NAN, INF = float("nan"), float("inf")


def small(**changes: Any) -> Graph:
    """A path 0 → 1 → 2 with three features, two classes and a missing label."""
    fields: dict[str, Any] = {"name": "small", "x": np.eye(3), "edges": [[0, 1], [1, 2]], "y": [0, 1, -1], **changes}
    return Graph(**fields)


# ---- errors name the graph, the field and the value ----------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": np.ones(3)}, r"x: must have 2 dimensions \(nodes × features\), got shape \(3,\)"),
        ({"x": [["a"]] * 3}, "x: must be numeric, got dtype <U1"),
        ({"x": np.ones((3, 1), dtype=complex)}, "x: must be numeric, got dtype complex128"),
        ({"x": [[1], [1, 2], [1]]}, "x: cannot be converted to an array: .*inhomogeneous"),
        ({"x": np.ones((0, 2))}, "x: has no rows: the graph needs at least one node"),
        ({"x": np.ones((3, 0))}, "x: has no columns: the graph needs at least one feature"),
        ({"x": [[0, 0], [0, NAN], [INF, 0]]}, "x: feature 1 of node 1 must be finite, got nan"),
        ({"x": sp.csr_array(np.array([[0, 0], [0, -INF], [1, 0]]))}, "x: feature 1 of node 1 must be finite, got -inf"),
        ({"x": [[1.0], [1e39], [1.0]]}, "x: feature 0 of node 1 must be finite, got inf as float32"),
        (
            {"x": sp.coo_array(([3e38, 3e38], ([2, 2], [0, 0])), shape=(3, 1))},
            "x: feature 0 of node 2 must be finite, got inf",
        ),
        ({"edges": [[0, 1, 2]]}, r"edges: must have shape \(2, M\) or \(M, 2\), got \(1, 3\)"),
        ({"edges": [[0, 1], [1]]}, "edges: cannot be converted to an array"),
        ({"edges": [[0.0], [1.0]]}, "edges: must be integers, got dtype float64"),
        ({"edges": [[0, 1], [1, 3]]}, r"edges: edge 1 is \(1, 3\), but nodes are numbered 0 … 2"),
        ({"edges": [[-1], [1]]}, r"edges: edge 0 is \(-1, 1\), but nodes are numbered"),
        ({"edges": [[0, 1, 2], [1, 1, 2]]}, r"edges: edge 1 is a self-loop on node 1 \(self-loops in total: 2\)"),
        ({"edges": [[0, 1, 0, 0], [1, 2, 1, 1]]}, r"edges: edge \(0, 1\) is a duplicate \(duplicates in total: 2\)"),
        ({"edges": [[0], [1]], "isolated": "error"}, r"edges: node 2 is isolated \(isolated nodes in total: 1\)"),
        ({"y": [0, 1]}, r"y: must have shape \(3,\) or \(3, classes\), got \(2,\)"),
        ({"y": np.ones((3, 0))}, r"y: must have shape \(3,\) or \(3, classes\), got \(3, 0\)"),
        ({"y": [0, 1, NAN]}, "y: label of node 2 is nan; use -1 for a missing label"),
        ({"y": [0, INF, 1]}, "y: label of node 1 is inf; use -1 for a missing label"),
        ({"y": [0, 1.5, 1]}, "y: labels must be integers, got 1.5"),
        ({"y": np.array([1j, 0, 0])}, "y: labels must be integers or names, got dtype complex128"),
        ({"y": ["a", "b", "c"], "classes": ("a", "b")}, r"y: label 'c' of node 2 is not one of the classes"),
        ({"y": [0, -2, 1]}, r"y: label of node 1 must be -1 \(missing\) or 0 … 1, got -2"),
        ({"y": [0, 1, 2], "classes": ("a", "b")}, r"y: label of node 2 must be -1 \(missing\) or 0 … 1, got 2"),
        ({"y": [[0, 2], [1, 1], [0, 0]]}, r"y: label of node 0 must be -1 \(missing\) or 0 … 1, got 2"),
        ({"y": [[0, 1], [-1, 1], [0, 0]]}, "y: row 1 is partly missing"),
        ({"y": [[0, 1], [1, 1], [0, 0]], "classes": "abc"}, "classes: must be a sequence of names, got .* 'abc'"),
        ({"y": [[0, 1], [1, 1], [0, 0]], "classes": ("a",)}, "y: must have one column per class: expected 1, got 2"),
        ({"classes": ("a", "a")}, r"classes: names must be distinct, got \('a', 'a'\)"),
        ({"masks": {"train": np.ones(2, dtype=bool)}}, r"masks\['train'\]: must be 3 booleans, got bool of .* \(2,\)"),
        ({"masks": {"train": np.ones(3)}}, r"masks\['train'\]: must be 3 booleans, got float64 of shape \(3,\)"),
        ({"masks": {1: np.ones(3, dtype=bool)}}, "masks: names must be strings, got 1"),
        ({"duplicates": "drop"}, "duplicates: must be one of error, merge, warn, got 'drop'"),
        ({"self_loops": "keep"}, "self_loops: must be one of error, drop, warn, got 'keep'"),
        ({"isolated": "drop"}, "isolated: must be one of allow, error, got 'drop'"),
    ],
)
def test_invalid_fields_are_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=f"^graph 'small', {message}"):
        small(**changes)


@pytest.mark.parametrize("name", ["", None, 3])
def test_name_must_be_a_non_empty_string(name: Any) -> None:
    with pytest.raises(GraphError, match=f"name must be a non-empty string, got {name!r}"):
        small(name=name)


@pytest.mark.parametrize("layout", [sp.csr_array, sp.csc_array])
def test_sparse_matrix_with_index_out_of_bounds_is_rejected(layout: Any) -> None:
    x = layout(np.eye(3))
    x.indices[1] = 10**6
    with pytest.raises(GraphError, match=f"'small', x: is not a valid {x.format} matrix"):
        small(x=x)


# ---- normalised fields -------------------------------------------------------------------------------


def test_edges_are_sorted_by_destination_then_source() -> None:
    assert small(edges=[[2, 0, 1], [1, 2, 0]]).edges.tolist() == [[1, 2, 0], [0, 1, 2]]


def test_undirected_adds_the_missing_directions_only() -> None:
    graph = small(edges=[[0, 1, 1], [1, 0, 2]], undirected=True)
    assert graph.edges.tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
    assert graph.is_undirected
    assert not small().is_undirected


def test_self_loops_are_dropped_and_duplicates_merged_on_request() -> None:
    graph = small(edges=[[0, 0, 1, 1], [1, 1, 1, 2]], self_loops="drop", duplicates="merge")
    assert graph.edges.tolist() == [[0, 1], [1, 2]]


def test_no_edges_and_isolated_nodes_are_legal() -> None:
    graph = small(edges=[])
    assert (graph.edges.shape, graph.degrees.tolist()) == ((2, 0), [0, 0, 0])
    assert graph.edges.dtype == np.int64


def test_degrees_are_in_degrees() -> None:
    assert small(edges=[[0, 1], [2, 2]]).degrees.tolist() == [0, 0, 2]


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.float16, np.float64])
def test_any_numeric_features_become_float32(dtype: Any) -> None:
    assert small(x=np.eye(3).astype(dtype)).x.dtype == np.float32
    sparse = small(x=sp.csr_array(np.eye(3).astype(np.int64 if dtype is np.float16 else dtype))).x
    assert (sparse.dtype, type(sparse)) == (np.float32, sp.csr_array)


@pytest.mark.parametrize(
    "layout", [sp.csr_array, sp.csc_matrix, sp.coo_array, sp.lil_matrix, sp.bsr_array, sp.dok_array]
)
def test_sparse_stays_csr(layout: Any) -> None:
    graph = small(x=layout(np.eye(3)))
    assert graph.is_sparse
    assert isinstance(graph.x, sp.csr_array)
    assert graph.x.toarray().tolist() == np.eye(3).tolist()
    assert not small().is_sparse


def test_labels() -> None:
    assert small().labelled.tolist() == [True, True, False]
    assert small().classes == ("0", "1")
    assert not small(y=None).labelled.any()
    several = small(y=[[0, 1, 1], [-1, -1, -1], [0, 0, 0]])
    assert (several.is_multilabel, several.num_classes) == (True, 3)
    assert several.labelled.tolist() == [True, False, True]


def test_classes_are_empty_if_all_labels_are_missing() -> None:
    assert small(y=[-1, -1, -1]).classes == ()


def test_repr() -> None:
    assert repr(small()) == "Graph('small', 3 nodes, 2 edges, 3 dense features, 2 classes, 2 labelled)"
    assert "3 sparse features, 0 classes, no labels" in repr(small(x=sp.eye_array(3), y=None))


# ---- immutable ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["name", "x", "edges", "y", "classes", "masks"])
def test_fields_cannot_be_assigned(field: str) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(small(), field, None)


@pytest.mark.parametrize("sparse", [False, True])
def test_arrays_cannot_be_written(sparse: bool) -> None:
    graph = small(x=sp.eye_array(3) if sparse else np.eye(3), masks={"m": np.ones(3, dtype=bool)})
    x = (graph.x.data, graph.x.indices, graph.x.indptr) if sparse else (graph.x,)
    for array in (*x, graph.edges, graph.y, graph.masks["m"], graph.labelled, graph.degrees):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


@pytest.mark.filterwarnings("ignore::scipy.sparse.SparseEfficiencyWarning")
@pytest.mark.parametrize("column", [0, 1])  # a stored entry, and one that is not stored
def test_a_sparse_entry_cannot_be_set(column: int) -> None:
    graph = small(x=sp.eye_array(3))
    with pytest.raises(ValueError, match="read-only"):
        graph.x[0, column] = 5


def test_masks_cannot_be_added() -> None:
    with pytest.raises(TypeError):
        small().masks["new"] = np.ones(3, dtype=bool)  # type: ignore[index]


def test_arrays_of_the_caller_are_copied() -> None:
    x, edges, y, mask = np.eye(3, dtype=np.float32), np.array([[0, 1], [1, 2]]), np.array([0, 1, -1]), np.ones(3, bool)
    sparse = sp.csr_array(x)
    graph, other = small(x=x, edges=edges, y=y, masks={"m": mask}), small(x=sparse)
    before = graph.hash, other.hash
    for array in (x, edges, y, mask, sparse.data):
        array[...] = 0  # still writable, and not shared with the graph
    assert (graph.replace().hash, other.replace().hash) == before


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
def test_copies_are_equal_and_immutable_too(duplicate: Any) -> None:
    graph = small(x=sp.eye_array(3), masks={"m": np.ones(3, dtype=bool)})
    twin = duplicate(graph)
    assert twin == graph
    with pytest.raises(ValueError, match="read-only"):
        twin.x.data[0] = 5


def test_replace_validates_the_copy() -> None:
    assert small().replace(name="other").name == "other"
    with pytest.raises(GraphError, match=r"'small', edges: edge 0 is \(0, 9\)"):
        small().replace(edges=[[0], [9]])


def test_without_labels_keeps_no_reference_to_the_labels() -> None:
    labels = np.array([0, 1, -1])
    graph = small(y=labels, masks={"eval": np.ones(3, dtype=bool)})
    assert graph.labelled.any()  # the property is now cached; the copy must not contain it
    bare = graph.without_labels()
    assert bare.y is None
    assert not bare.labelled.any()
    assert (bare.name, bare.classes) == ("small", ("0", "1"))
    reachable: dict[int, Any] = {}
    queue: list[Any] = [bare]
    while queue:
        item = queue.pop()
        if id(item) not in reachable and not isinstance(item, type):
            reachable[id(item)] = item
            queue.extend(gc.get_referents(item))
    arrays = [item for item in reachable.values() if isinstance(item, np.ndarray)]
    assert not [array for array in arrays if array.dtype == np.int64 and array.shape == labels.shape]
    assert not {id(graph), id(graph.y), id(graph.labelled)} & reachable.keys()


# ---- hash and equality -------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(range(6)))
def test_hash_does_not_depend_on_the_order_of_edges(order: list[int]) -> None:
    edges = np.array([[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]])
    assert small(edges=edges[:, order]).hash == small(edges=edges).hash


def test_hash_does_not_depend_on_the_sparse_format() -> None:
    dense = np.array([[0, 2.5, 0], [1, 0, 3], [0, 0, 0]])
    with_zero = sp.coo_array(([2.5, 1, 2, 1, 0], ([0, 1, 1, 1, 2], [1, 0, 2, 2, 0])), shape=(3, 3))
    unsorted = sp.csr_array((np.array([2.5, 3, 1]), np.array([1, 2, 0]), np.array([0, 1, 3, 3])), shape=(3, 3))
    formats = [sp.csr_array(dense), sp.csc_array(dense), sp.lil_array(dense), with_zero, unsorted]
    assert len({small(x=x).hash for x in formats}) == 1


def test_hash_ignores_the_name_and_equality_does_not() -> None:
    assert small(name="other").hash == small().hash
    assert small(name="other") != small()
    assert small() == small()
    assert len({small(), small(), small(name="other")}) == 2
    assert small() != "small"


def test_hash_ignores_the_order_of_masks() -> None:
    a, b = np.array([True, False, True]), np.array([False, False, True])
    assert small(masks={"a": a, "b": b}).hash == small(masks={"b": b, "a": a}).hash


@pytest.mark.parametrize(
    "changes",
    [
        {"x": np.eye(3) * 2},
        {"x": sp.eye_array(3)},
        {"x": np.eye(3, 4)},
        {"edges": [[1, 1], [0, 2]]},
        {"y": [1, 0, -1]},
        {"y": None},
        {"y": [[1, 0], [0, 1], [-1, -1]]},
        {"classes": ("a", "b")},
        {"masks": {"m": np.ones(3, dtype=bool)}},
    ],
)
def test_hash_depends_on_all_other_fields(changes: dict[str, Any]) -> None:
    assert small(**changes).hash != small().hash


def test_hash_has_a_fixed_value() -> None:
    """Records and caches use the hash as a key, so changing it would invalidate them."""
    assert small().hash == "0a4e9336e8b8f68b88877ab5c8718704a89957f46d186d0c5e961e0c88acebc6"


# ---- collect -----------------------------------------------------------------------------------------


def test_collect_accepts_compatible_graphs() -> None:
    domains = [small(), small(name="bare").without_labels(), small(name="unnamed", y=None, classes=())]
    assert collect(domains) == tuple(domains)


@pytest.mark.parametrize(
    ("domains", "message"),
    [
        ([], "at least one domain is needed, got none"),
        ([small(), "small"], "expected Graph objects, got str"),
        ([small(), small(y=None)], "two domains are named 'small'"),
        ([small(), small(name="b", x=np.eye(3, 5))], "graph 'b', x: 5 features, but graph 'small' has 3"),
        (
            [small(y=None), small(name="b"), small(name="c", classes=("p", "q"))],
            r"graph 'c', classes: \('p', 'q'\), but graph 'b' has \('0', '1'\)",
        ),
    ],
)
def test_collect_rejects_incompatible_graphs(domains: list[Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        collect(domains)


@pytest.mark.parametrize("label", [1e19, 99_999_999])
def test_very_large_label_is_rejected(label):
    with pytest.raises(GraphError, match=r"graph 'g', y: label of node 3 must be -1 \(missing\) or 0 … 100000, got "):
        Graph("g", np.ones((4, 3)), [[0, 1], [1, 2]], [0, 1, 2, label])


def test_first_labels_has_one_class_per_node():
    several = np.array([[0, 1, 1], [0, 0, 0], [-1, -1, -1], [1, 0, 0]])
    graph = Graph("g", np.ones((4, 3)), [[0, 1], [1, 2]], several)
    assert graph.first_labels.tolist() == [1, -1, -1, 0]
    assert graph.replace(y=[2, -1, 0, 1]).first_labels.tolist() == [2, -1, 0, 1]
    assert graph.without_labels().first_labels.tolist() == [-1] * 4


# ---- reordered nodes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_reordered_graph_is_isomorphic(sparse, several):
    rng, n = np.random.default_rng(0), 40
    x, edges = rng.random((n, 5)).round(), rng.integers(0, n, (2, 200))
    y = rng.integers(0, 2, (n, 3)) if several else rng.integers(-1, 3, n)
    g = Graph(
        "g", sp.csr_array(x) if sparse else x, edges, y, masks={"eval": rng.random(n) < 0.5},
        duplicates="merge", self_loops="drop",
    )  # fmt: skip
    order = rng.permutation(n)
    moved = g.reordered(order)
    assert (moved.name, moved.classes, moved.is_sparse) == ("g", g.classes, sparse)
    assert {(order[a], order[b]) for a, b in moved.edges.T} == {tuple(edge) for edge in g.edges.T}
    assert np.array_equal(moved.degrees, g.degrees[order])
    assert np.array_equal(moved.edges, moved.replace().edges)  # sorted as by the constructor
    assert np.array_equal(moved.y, g.y[order])
    assert np.array_equal(moved.masks["eval"], g.masks["eval"][order])
    dense = moved.x.toarray() if sparse else moved.x
    assert np.array_equal(dense, x[order].astype(np.float32))
    assert moved != g
    assert moved.reordered(np.argsort(order)) == g


def test_a_graph_without_labels_can_be_reordered():
    assert small(y=None).reordered(np.array([2, 0, 1])).edges.T.tolist() == [[2, 0], [1, 2]]


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [1, 2, 3], [0, 1, 2, 3], [-1, 0, 1]])
def test_order_must_be_a_permutation(order):
    with pytest.raises(GraphError, match="'small', order: must contain each of the nodes 0 … 2 exactly once"):
        small().reordered(np.array(order))


def half(dtype: str) -> sp.csr_array:
    """Return a matrix with a type of numbers that SciPy does not have."""
    matrix = sp.csr_array(np.eye(2, dtype=np.float32))
    matrix.data = matrix.data.astype(dtype)
    return matrix


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x": torch.zeros(2, 2, dtype=torch.bfloat16)}, r"x: cannot be .*BFloat16; tensor\.detach\(\)\.float\(\)"),
        ({"x": torch.zeros(2, 2, requires_grad=True)}, r"x: cannot be converted to an array: .*requires grad"),
        ({"x": torch.zeros(2, 2, device="meta")}, "x: cannot be converted to an array: .*meta"),
        ({"x": torch.eye(2).to_sparse()}, "x: cannot be converted to an array: .*Sparse"),
        ({"x": half("float16")}, "x: is not a valid csr matrix: scipy.sparse does not support dtype float16$"),
        ({"x": half(">f4")}, "x: is not a valid csr matrix: scipy.sparse does not support dtype >f4$"),
        ({"y": torch.zeros(2, dtype=torch.bfloat16)}, "y: cannot be converted to an array"),
        ({"weights": torch.ones(1, requires_grad=True)}, "weights: cannot be converted to an array"),
        ({"classes": None, "y": [0, 1]}, "classes: must be a sequence of names, got None"),
        ({"feature_names": None}, "feature_names: must be a sequence of names, got None"),
        ({"masks": None}, "masks: must be a dictionary of masks by name, got None"),
    ],
)
def test_objects_that_are_no_arrays_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph("g", **{"x": [[1.0], [2.0]], "edges": [(0, 1)], **fields})
