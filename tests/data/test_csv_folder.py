"""Tests of folders of CSV files, written by hand or by `write_csv`. Errors name the file, the row and the value."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from edgemask.data.csv_folder import read_csv, write_csv
from edgemask.errors import GraphError
from edgemask.graph import Graph

NODES = "id,label,x0,x1\nann,red,1,2\nbob,,0.5,-1e3\neve,blue,0,0\n"
EDGES = "source,destination\nann,bob\neve,ann\n"


def assert_same(back: Graph, graph: Graph) -> None:
    assert back == graph
    assert (back.name, back.hash, back.classes) == (graph.name, graph.hash, graph.classes)
    assert (back.is_sparse, back.x.dtype, list(back.masks)) == (graph.is_sparse, graph.x.dtype, list(graph.masks))
    assert (back.y is None) == (graph.y is None)
    if back.y is not None and graph.y is not None:
        assert (back.y.dtype, back.y.shape) == (graph.y.dtype, graph.y.shape)


def make(*fields: Any) -> Graph:
    """Create a graph from plain lists."""
    return Graph(*fields)


def small(**changes: Any) -> Graph:
    fields: dict[str, Any] = {"name": "small", "x": np.eye(3), "edges": [[0, 1], [1, 2]], "y": [0, 1, -1], **changes}
    return Graph(**fields)


def by_hand(folder: Path, nodes: str = NODES, edges: str = EDGES, info: Any = None) -> Path:
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    (folder / "edges.csv").write_text(edges, encoding="utf-8")
    if info is not None:
        (folder / "graph.json").write_text(info if isinstance(info, str) else json.dumps(info))
    return folder


def test_csv_by_hand(tmp_path: Path) -> None:
    graph = read_csv(by_hand(tmp_path))
    x, edges = np.array([[1, 2], [0.5, -1000], [0, 0]]), [[0, 2], [1, 0]]
    assert graph == make(tmp_path.name, x, edges, [1, -1, 0], ("blue", "red")).replace(node_ids=["ann", "bob", "eve"])


def test_csv_by_hand_sparse_several_labels_and_masks(tmp_path: Path) -> None:
    nodes = "mask:eval,features,id,label:b,label:a\ntrue,3:1 0:2.5,n1,1,0\n0,,n2,,\n"
    graph = read_csv(by_hand(tmp_path, nodes, "destination,source\nn1,n2\n\n", {"features": 6}))
    x, mask = sp.csr_array(np.array([[2.5, 0, 0, 1, 0, 0], [0] * 6])), np.array([True, False])
    expected = make(tmp_path.name, x, [[1], [0]], [[1, 0], [-1, -1]], ("b", "a"), {"eval": mask})
    assert_same(graph, expected.replace(node_ids=["n1", "n2"]))


def test_csv_default_width_is_the_highest_index_plus_one(tmp_path: Path) -> None:
    assert read_csv(by_hand(tmp_path, "id,features\na,4:1\n", "source,destination\n")).x.shape == (1, 5)


def test_csv_by_hand_from_a_spreadsheet(tmp_path: Path) -> None:
    graph = read_csv(by_hand(tmp_path, "\ufeff" + NODES.replace("\n", "\r\n"), EDGES), name="g")
    assert graph.classes == ("blue", "red")


def test_csv_info_sets_name_classes_and_direction(tmp_path: Path) -> None:
    info = {"name": "given", "classes": ["red", "green", "blue"], "undirected": True}
    graph = read_csv(by_hand(tmp_path, info=info))
    assert (graph.name, graph.classes, graph.num_edges) == ("given", ("red", "green", "blue"), 4)
    assert graph.y is not None
    assert graph.y.tolist() == [0, -1, 2]


def test_csv_writes_an_undirected_edge_once(tmp_path: Path) -> None:
    write_csv(small(undirected=True), tmp_path)
    assert (tmp_path / "edges.csv").read_text().split() == ["source,destination", "0,1", "1,2"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"edges": EDGES + "bob,zoe\n"}, r"edges\.csv, row 4: destination 'zoe' is not an id of nodes\.csv"),
        ({"edges": "from,until,to_whom\n"}, r"edges\.csv: expected the columns source and destination"),
        ({"edges": "source,destination\nann\n"}, r"edges\.csv, row 2: expected 2 cells, got 1"),
        ({"edges": EDGES + "ann,bob\n"}, r"edges\.csv, row 4: 'ann' → 'bob' is a duplicate of row 2"),
        ({"nodes": NODES + "ann,red,1,2\n"}, r"nodes\.csv, row 5: id 'ann' occurs twice"),
        ({"nodes": NODES.replace("0.5", "half")}, r"nodes\.csv, row 3, x0: 'half' is not a finite number"),
        ({"nodes": NODES.replace("0.5", "nan")}, r"nodes\.csv, row 3, x0: 'nan' is not a finite number"),
        ({"nodes": NODES.replace("0.5", "")}, r"nodes\.csv, row 3, x0: '' is not a finite number"),
        ({"nodes": NODES.replace("0.5", "1e300")}, r"nodes\.csv, row 3, x0: '1e300' is not a finite number as float32"),
        ({"nodes": NODES.replace("id,", "name,")}, r"nodes\.csv: no column 'id' \(id='id'\); .*name, label, x0, x1"),
        ({"nodes": NODES.replace("x1", "x2")}, r"missing columns \['x1'\], unknown columns \['x2'\]"),
        ({"nodes": "id,label\na,b\n"}, r"nodes\.csv: no feature column"),
        ({"nodes": NODES.replace("x1", "features")}, r"unknown columns \['features'\]"),
        ({"nodes": NODES.replace("x1", "x0")}, r"nodes\.csv: the header must name each column once"),
        ({"nodes": ""}, r"nodes\.csv: the header must name each column once, got \[\]"),
        ({"nodes": "id,x0\n"}, r"nodes\.csv: the file must have at least one node"),
        ({"nodes": NODES + 'zoe,"red'}, r"nodes\.csv, row 5: not valid CSV"),
        ({"nodes": "id,features\na,1:1 x:2\n"}, r"row 2, features: 'x' is not a feature index \(0, 1, …\)"),
        ({"nodes": "id,features\na,3:1\n", "info": {"features": 3}}, r"'3' is not a feature index \(0 … 2\)"),
        ({"nodes": f"id,features\na,{10**30}:1\n"}, r"row 2, features: '10{30}' is not a feature index"),
        ({"nodes": "id,features\na,1\n"}, r"row 2, features: '' is not a finite number"),
        ({"nodes": "id,features\na,1:1 1:2\n"}, r"row 2, features: an index occurs twice in '1:1 1:2'"),
        ({"nodes": "id,x0,mask:m\na,1,yes\n"}, r"row 2, mask:m: 'yes' is not one of 1, 0, true, false"),
        ({"nodes": "id,x0,label:p,label:q\na,1,1,\n"}, r"row 2, label:q: '' is not one of 1, 0, true, false"),
        (
            {"nodes": "id,x0,label:p\na,1,1\n", "info": {"classes": ["q"]}},
            r"label:p do not match the classes of graph.json, \['q'\]",
        ),
        ({"info": {"classes": ["red"]}}, r"row 4: label 'blue' is not one of the classes \['red'\]"),
        ({"info": {"features": 3}}, r"nodes\.csv: expected 3 feature columns as in graph\.json, got 2"),
        ({"info": {"nodes": 3}}, r"graph\.json: unknown key 'nodes' \(known keys: name, classes"),
        ({"info": {"undirected": 1}}, r"graph\.json, undirected: expected bool, got 1"),
        ({"info": {"classes": [1]}}, r"graph\.json, classes: expected list of str, got \[1\]"),
        ({"info": "[]"}, r"graph\.json: expected an object, got"),
    ],
)
def test_csv_errors_name_the_location(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        read_csv(by_hand(tmp_path, **content))


def test_csv_not_in_utf8(tmp_path: Path) -> None:
    by_hand(tmp_path)
    (tmp_path / "nodes.csv").write_bytes("id,x0\né,1\n".encode("latin-1"))
    with pytest.raises(GraphError, match=r"nodes\.csv, line 2: not UTF-8 \(.*\); save it as UTF-8"):
        read_csv(tmp_path)


def test_csv_cannot_store_an_empty_class_name(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"'small', classes: .* missing label"):
        write_csv(small(classes=("", "b")), tmp_path)
    assert not list(tmp_path.iterdir())


def test_csv_cannot_store_a_cell_above_the_size_limit(tmp_path: Path) -> None:
    wide = sp.csr_array(np.ones((1, csv.field_size_limit() // 4), dtype=np.float32))
    with pytest.raises(GraphError, match=r"'g', x: node 0 has too many features .* \.npz"):
        write_csv(make("g", wide, []), tmp_path)


def test_csv_round_trip_of_special_floats(tmp_path: Path) -> None:
    """The shortest text of 0x15ae43fd read as a float64 rounds to 0x15ae43fe."""
    bits = np.array([[0x15AE43FD, 0x00000001, 0x7F7FFFFF, 0x80000000, 0x3DCCCCCD]], dtype=np.uint32)
    graph = make("floats", bits.view(np.float32), [])
    write_csv(graph, tmp_path)
    assert (read_csv(tmp_path).x.view(np.uint32) == bits).all()
    assert (tmp_path / "nodes.csv").read_text().splitlines()[1].endswith(",-0,0.1")


@pytest.mark.parametrize("sparse", [False, True])
def test_csv_round_trip_of_random_floats(tmp_path: Path, sparse: bool) -> None:
    bits = np.random.default_rng(0).integers(2**32, size=(300, 20), dtype=np.uint32)
    x = np.nan_to_num(bits.view(np.float32), posinf=1, neginf=-1)
    graph = make("floats", sp.csr_array(x) if sparse else x, [])
    write_csv(graph, tmp_path)
    assert_same(read_csv(tmp_path), graph)


def hand_written(folder: Path, labels: list[str]) -> Path:
    """Write a folder as a person would: an id, a label and one feature per node, and one edge."""
    folder.mkdir()
    rows = [f"n{i},{label},{i}" for i, label in enumerate(labels)]
    (folder / "nodes.csv").write_text("\n".join(["id,label,x0", *rows]) + "\n")
    (folder / "edges.csv").write_text("source,destination\nn0,n1\n")
    return folder


def test_numeric_class_names_are_sorted_by_value(tmp_path: Path):
    assert read_csv(hand_written(tmp_path / "g", ["10", "2", "1"])).classes == ("1", "2", "10")
    assert read_csv(hand_written(tmp_path / "h", ["10", "b", "1"])).classes == ("1", "10", "b")


def test_option_classes_sets_the_classes(tmp_path: Path):
    graph = read_csv(hand_written(tmp_path / "g", ["go", "go", ""]), classes=("chess", "go"))
    assert graph.classes == ("chess", "go")
    assert graph.y.tolist() == [1, 1, -1]


@pytest.mark.parametrize("label", ["-1", "nan", "NaN"])
def test_missing_label_must_be_an_empty_cell(tmp_path: Path, label):
    folder = hand_written(tmp_path / "g", ["2", label])
    with pytest.raises(GraphError, match=rf"nodes.csv, row 3: label '{label}': leave the cell empty"):
        read_csv(folder)
    assert read_csv(folder, classes=("2", label)).y.tolist() == [0, 1]


def test_node_ids_are_in_the_order_of_the_graph(tmp_path: Path):
    assert read_csv(hand_written(tmp_path / "g", ["a", "b"])).node_ids.tolist() == ["n0", "n1"]
