"""Tests of what is accepted as a graph: objects of other libraries, alone and in lists, and their round trips."""

from __future__ import annotations

import warnings
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData
from torch_geometric.datasets import KarateClub

from edgemask.errors import GraphError, GraphWarning, InputError, InputTypeError, MissingDependencyError
from edgemask.graph import Graph, applicable, as_graph, as_graphs


def random_graph(seed: int, *, sparse: bool = False) -> Graph:
    """A graph with every field set."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 8)), int(rng.integers(1, 5))
    x = rng.normal(size=(n, d)).astype(np.float32) * (rng.random((n, d)) < 0.5)
    edges = np.array([(i, j) for i in range(n) for j in range(n) if i != j and rng.random() < 0.4]).reshape(-1, 2)
    return Graph(
        "random",
        sp.csr_array(x) if sparse else x,
        edges.T,
        y=rng.integers(-1, 3, n),
        classes=("a", "b", "c"),
        masks={"train": rng.random(n) < 0.5, "eval": rng.random(n) < 0.5},
        weights=rng.random(len(edges)),
        feature_names=[f"f{i}" for i in range(d)],
        node_ids=[f"n{i}" for i in rng.permutation(n)],
    )


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_pyg_round_trips_are_exact(seed: int, sparse: bool) -> None:
    graph = random_graph(seed, sparse=sparse)
    assert Graph.from_pyg(graph.to_pyg(), "random") == graph


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_adjacency_round_trips_are_exact(seed: int, sparse: bool) -> None:
    graph = random_graph(seed, sparse=sparse)
    x, adjacency = graph.to_adjacency()
    rest = {f: getattr(graph, f) for f in ("classes", "masks", "feature_names", "node_ids", "weights", "edges")}
    assert Graph.from_adjacency(x, adjacency, graph.y, "random", **rest) == graph
    again = Graph.from_adjacency(x, adjacency, graph.y, "random", classes=graph.classes)
    weights = graph.weights if (graph.weights != 1).any() else None
    assert again.hash == graph.replace(masks={}, weights=weights).hash


def test_masks_and_weights_of_pyg_are_respected() -> None:
    data = Data(
        x=torch.ones(3, 2),
        edge_index=torch.tensor([[2, 0], [0, 1]]),
        edge_weight=torch.tensor([0.5, 2.0]),
        y=torch.tensor([[0], [1], [1]]),
        train_mask=torch.tensor([True, True, False]),
    )
    graph = as_graph(data)
    assert graph.edges.tolist() == [[2, 0], [0, 1]]
    assert graph.weights.tolist() == [0.5, 2.0]
    assert graph.masks["train"].tolist() == [True, True, False]
    assert graph.y.tolist() == [0, 1, 1]


def test_pyg_without_features_needs_structural_ones() -> None:
    data = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=3)
    with pytest.raises(GraphError, match="graph 'graph', x: the graph has no features; features='degree'"):
        as_graph(data)
    graph = as_graph(data, options={"features": "log-degree"})
    assert (graph.num_nodes, graph.feature_names) == (3, ("log-degree",))


def test_self_loops_and_duplicates_of_graph_libraries_are_removed_with_a_warning() -> None:
    edge_index = torch.tensor([[0, 0, 0, 1], [0, 1, 1, 2]])
    data = Data(x=torch.ones(3, 1), edge_index=edge_index, edge_weight=torch.tensor([1.0, 2.0, 3.0, 4.0]))
    network = nx.MultiDiGraph(edge_index.T.tolist())
    nx.set_node_attributes(network, 1.0, "a")
    message = r"graph 'g': self-loops removed: 1 \(the models add their own\); duplicate edges merged: 1; no warning "
    message += "with self_loops='drop' and duplicates='merge'"
    for value in (data, network):
        with pytest.warns(GraphWarning, match=f"^{message}$"):
            graph = as_graph(value, "g")
        assert graph.edges.tolist() == [[0, 1], [1, 2]]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert as_graph(value, "g", {"self_loops": "drop", "duplicates": "merge"}) == graph
        with pytest.raises(GraphError, match="is a self-loop"):
            as_graph(value, "g", {"self_loops": "error"})
    assert Graph.from_pyg(data, self_loops="drop", duplicates="merge").weights.tolist() == [5, 4]
    with pytest.warns(GraphWarning, match=r"graph 'g': self-loops removed: 3 \(the models add their own\); no warning"):
        assert as_graph((np.eye(3), np.eye(3)), "g").num_edges == 0


def test_entries_of_a_sparse_adjacency_that_occur_twice_are_added_as_in_scipy() -> None:
    adjacency = sp.coo_array(([1.0, 1.0], ([0, 0], [1, 1])), shape=(2, 2))
    assert as_graph((np.eye(2), adjacency)).weights.tolist() == [2]
    assert adjacency.nnz == 2  # the argument is not changed


def test_a_dataset_of_pyg_is_a_sequence_of_graphs() -> None:
    assert [graph.num_nodes for graph in as_graphs(KarateClub())] == [34]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (lambda: torch.ones(2, 1, device="meta"), "a tensor on the device meta holds no values"),
        (lambda: torch.quantize_per_tensor(torch.ones(2, 1), 1, 0, torch.qint8), "a tensor is quantized"),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_tensors_without_plain_numbers_are_refused(x: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        as_graph(Data(x=x(), edge_index=torch.tensor([[0], [1]])))


def test_masks_of_0_and_1_are_masks() -> None:
    data = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]), train_mask=torch.tensor([0, 1]).byte())
    assert as_graph(data).masks["train"].tolist() == [False, True]
    data.train_mask = torch.tensor([0, 2])
    with pytest.raises(GraphError, match=r"masks\['train'\]: must be 2 booleans"):
        as_graph(data)


def test_ignored_fields_of_pyg_are_named() -> None:
    data = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]), edge_attr=torch.ones(1, 3))
    with pytest.warns(GraphWarning, match="a Graph cannot store edge_attr"):
        as_graph(data)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, sp.csr_matrix, sp.coo_array])
def test_features_and_adjacency(convert: Any) -> None:
    adjacency = convert(np.array([[0, 2.0, 0], [0, 0, 1], [0, 0, 0]]))
    graph = as_graph((np.eye(3), adjacency, ["a", "b", None]))
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.weights.tolist() == [2, 1]
    assert graph.classes == ("a", "b")
    assert as_graph((np.eye(3), convert(np.eye(3, k=1)))).weights is None
    assert as_graph((None, convert(np.eye(3, k=1))), options={"features": "degree"}).num_nodes == 3


@pytest.mark.parametrize(
    ("adjacency", "message"),
    [
        (np.ones((2, 3)), r"adjacency: expected 3 × 3 for the 3 rows of x, got shape \(2, 3\)"),
        (np.ones(3), r"adjacency: expected an N × N matrix of numbers, got float64 of shape \(3,\)"),
        (np.array([["a"]]), "adjacency: expected an N × N matrix of numbers, got <U1"),
    ],
)
def test_a_wrong_adjacency_matrix_is_named(adjacency: Any, message: str) -> None:
    with pytest.raises(GraphError, match=f"graph 'graph', {message}"):
        as_graph((np.eye(3), adjacency))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "NoneType"),
        ("nope", "str 'nope'; read_graph reads files"),
        (3, "int 3"),
        (np.eye(3), "ndarray"),
        ((np.eye(3),), "a tuple of ndarray"),
        ((), "an empty tuple"),
        ({}, "dict"),
        (pd.DataFrame(), "DataFrame; two DataFrames in a list are two graphs: use a tuple"),
    ],
)
def test_other_objects_are_refused(value: Any, shown: str) -> None:
    with pytest.raises(InputTypeError, match=rf"^expected a Graph, .* got {shown}$"):
        as_graph(value)


def test_lists_of_graphs_get_names() -> None:
    pair = (np.eye(2), np.eye(2, k=1))
    named = Graph("mine", np.eye(2), [(0, 1)])
    assert [g.name for g in as_graphs([pair, named, pair])] == ["graph-0", "mine", "graph-2"]
    assert [g.name for g in as_graphs(pair)] == ["graph-0"]
    assert [g.name for g in as_graphs((named, named))] == ["mine", "mine"]
    assert as_graphs([]) == []
    array = np.empty(2, dtype=object)
    array[:] = [named, named]
    assert len(as_graphs(array)) == 2


def test_dgl_round_trip() -> None:
    pytest.importorskip("dgl")
    graph = random_graph(3)
    again = as_graph(graph.to_dgl(), "random", {"classes": graph.classes})
    assert again.hash == graph.hash


def test_without_dgl_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "dgl", None)
    with pytest.raises(MissingDependencyError, match="to_dgl needs DGL, which cannot be imported; no extra"):
        random_graph(1).to_dgl()


def test_without_networkx_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "networkx", None)
    with pytest.raises(MissingDependencyError, match=r"install edgemask\[networkx\]"):
        random_graph(1).to_networkx()


TABLE = pd.DataFrame({"a": [1.0, 2.0]})
PAIRS: dict[str, Any] = {"edge_index": torch.tensor([[0], [1]]), "num_nodes": 2}


@pytest.mark.parametrize(
    ("convert", "message"),
    [
        (lambda: Graph.from_pyg(5), "data must be a PyTorch Geometric Data object, got int 5"),
        (lambda: Graph.from_networkx("a"), "graph must be a networkx graph, got str 'a'"),
        (lambda: Graph.from_dgl(nx.Graph()), "graph must be a DGL graph, got Graph"),
        (lambda: Graph.from_pandas([1], TABLE), "nodes must be a DataFrame, got a list of int"),
        (lambda: Graph.from_pandas(TABLE, None), "edges must be a DataFrame, got NoneType"),
    ],
)
def test_a_conversion_says_what_it_expects(convert: Any, message: str) -> None:
    with pytest.raises(InputTypeError, match=f"^{message}$"):
        convert()


def test_an_option_that_does_not_exist_is_refused() -> None:
    for convert in (
        lambda: Graph.from_pyg(Data(**PAIRS), undirectd=True),
        lambda: Graph.from_adjacency(np.eye(2), np.eye(2, k=1), undirectd=True),
        lambda: as_graph(nx.path_graph(2), options={"undirectd": True}),
    ):
        with pytest.raises(InputError, match="no option 'undirectd' for reading a graph"):
            convert()


def test_a_value_that_an_option_does_not_have_is_refused_first() -> None:
    nodes, edges = pd.DataFrame({"id": [1], "a": [1.0]}), pd.DataFrame({"source": [1, 1], "target": [1, 1]})
    with pytest.raises(
        GraphError, match="self_loops: must be one of error, drop, warn, got 'dorp'; did you mean 'drop'"
    ):
        as_graph((nodes, edges), options={"self_loops": "dorp"})


def test_the_option_name_names_every_form() -> None:
    for value in (Data(x=torch.ones(2, 1), **PAIRS), (TABLE, TABLE[:0].assign(b=0)), (np.eye(2), np.eye(2, k=1))):
        assert as_graph(value, options={"name": "mine"}).name == "mine"


def test_columns_of_tables_do_not_apply_to_other_forms() -> None:
    data, options = Data(x=torch.ones(2, 1), **PAIRS), {"label": "grade", "features": "age", "undirected": True}
    with pytest.warns(GraphWarning, match="graph 'g' is not a table, so these options are not used: label"):
        as_graph(data, "g", {"label": "grade"})
    assert applicable(data, options) == {"undirected": True}
    assert applicable(data, {"features": ["degree", "clustering"]}) == {"features": ["degree", "clustering"]}
    for table in ((TABLE, TABLE), nx.Graph()):
        assert applicable(table, options | {"labels": "all"}) == options
    network = nx.Graph([("ann", "bob")])
    assert applicable(network, {"id": "person", "label": "grade"}) == {"label": "grade"}
    nx.set_node_attributes(network, {"ann": 1, "bob": 2}, "person")
    assert applicable(network, {"id": "person"}) == {"id": "person"}
    copy = random_graph(1)
    for table in (copy.to_pandas(), copy.to_networkx()):
        assert applicable(table, options) == {"undirected": True}


def test_data_that_is_not_homogeneous_or_has_no_edge_index_is_refused() -> None:
    with pytest.raises(GraphError, match=r"expected a PyTorch Geometric Data object, got HeteroData; .*to_homogeneous"):
        as_graph(HeteroData())
    with pytest.raises(
        GraphError, match=r"edge_index: the field is missing .*adj_t\); ToSparseTensor\(remove_edge_inde"
    ):
        as_graph(Data(x=torch.ones(2, 1), adj_t=torch.eye(2)))


@pytest.mark.parametrize(
    ("graph", "hint"),
    [
        (lambda: Graph("g", np.eye(2), [(0.0, 1.0)]), r"edges\.astype\(int\) converts them"),
        (lambda: Graph("g", np.eye(2), [("a", "b")]), "from_pandas takes edges between ids"),
        (lambda: Graph("g", [["a"], ["b"]], [(0, 1)]), r"Graph\.from_pandas\(nodes, edges\) encodes columns of text"),
        (lambda: Graph("g", np.eye(2), [(0, 1)], masks={"train": np.ones(2)}), r"mask\.astype\(bool\) converts it"),
        (
            lambda: as_graph((np.eye(3), np.array([[0, 1], [1, 2]]))),
            r"Graph\(name, x, edges, y\) takes a list of edges",
        ),
    ],
)
def test_messages_say_how_to_convert(graph: Any, hint: str) -> None:
    with pytest.raises(GraphError, match=f"; {hint}$"):
        graph()


def test_messages_show_ids_as_the_user_wrote_them() -> None:
    nodes, edges = pd.DataFrame({"id": [10, 20], "a": [1.0, 2.0]}), pd.DataFrame({"source": [10], "target": [20]})
    wrong = {
        "id 10 occurs twice": (nodes.assign(id=10), edges),
        "destination 7 is not an id": (nodes, edges.assign(target=7)),
        "10 → 10 is a self-loop": (nodes, edges.assign(target=10)),
        "self-loop .*; there are also 1 duplicates: duplicates='merge'": (
            nodes,
            pd.DataFrame({"source": [10, 10, 10], "target": [10, 20, 20]}),
        ),
        "column 'a' of node 20 is missing": (nodes.assign(a=[1, None]), edges),
        r"the weight of 10 → 20 \(column 'weight'\) is -1\.0": (nodes, edges.assign(weight=-1.0)),
        "the nodes are 0 … 1: id='…'": (nodes[["a"]], edges),
    }
    for message, tables in wrong.items():
        with pytest.raises(GraphError, match=message):
            as_graph(tables)


def test_tensors_are_matrices() -> None:
    x, y = torch.rand(3, 2), torch.tensor([0, 1, 0])
    adjacency = torch.tensor([[0, 1, 0], [0, 0, 2], [0, 0, 0]])
    expected = Graph.from_adjacency(x.numpy(), adjacency.numpy(), y.numpy())
    assert as_graph((x, adjacency, y)) == expected
    assert as_graph((x, adjacency.to_sparse(), y)) == expected


def test_masked_values_are_not_dropped() -> None:
    x = np.ma.masked_array(np.ones((2, 2)), [[True, False], [False, False]])
    with pytest.raises(GraphError, match=r"'graph', x: is a masked array with masked values"):
        as_graph((x, np.zeros((2, 2))))
    assert as_graph((np.ma.masked_array(np.ones((2, 2))), np.zeros((2, 2)))).x.sum() == 4


@pytest.mark.parametrize("matrix", [np.array, sp.csr_array])
def test_values_of_an_adjacency_that_are_no_weights_are_named_by_their_place(matrix: Any) -> None:
    for value in (-1.0, np.nan, np.inf):
        with pytest.raises(GraphError, match=rf"'graph', adjacency\[1, 0\]: expected a finite .*, got {value}"):
            as_graph((np.ones((2, 1)), matrix([[0.0, 1.0], [value, 0.0]])))


def test_vectors_of_networkx_become_columns() -> None:
    g = nx.path_graph(3)
    for node in g:
        g.nodes[node].update(x=[node, 1.0], age=node)
    graph = Graph.from_networkx(g)
    assert dict(zip(graph.feature_names, graph.x.T.tolist(), strict=True)) == {
        "age": [0, 1, 2],
        "x0": [0, 1, 2],
        "x1": [1, 1, 1],
    }
    g.nodes[1]["x"] = [1.0]
    with pytest.raises(GraphError, match="column 'x' holds values of type list"):
        Graph.from_networkx(g)


def test_a_series_is_no_table() -> None:
    with pytest.raises(InputTypeError, match="nodes must be a DataFrame, got Series"):
        Graph.from_pandas(pd.Series([1.0]), pd.DataFrame())


def test_bytes_and_an_empty_path_are_no_graphs() -> None:
    with pytest.raises(InputTypeError, match="got bytes"):
        as_graphs(b"abc")
