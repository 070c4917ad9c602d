"""Tests of graph files: exact round trips, and errors that name the file, the field and the value."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from edgemask.data import csv_folder, files, read_graph
from edgemask.errors import GraphError, InputError, InputTypeError, LimitError, MissingDependencyError
from edgemask.graph import Graph

FEW = settings(max_examples=25, deadline=None)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)  # any valid text: ",", '"', NUL, "\r", "漢" …


@st.composite
def graphs(draw: st.DrawFn, *, mat: bool = False) -> Graph:
    """Draw small graphs: dense or sparse, directed or not, with one, several, some or no labels.

    With `mat`, draw only graphs that a `.mat` file can store.
    """
    text = TEXT.filter(lambda name: "\0" not in name) if mat else TEXT
    n, width, count = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    number = st.floats(allow_nan=False, allow_infinity=False, width=32) | st.just(0.0)
    x = np.array([[draw(number) for _ in range(width)] for _ in range(n)], dtype=np.float32)
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    several = st.lists(st.integers(0, 1), min_size=count, max_size=count)
    if mat:
        several = several.filter(any)
    label = draw(
        st.sampled_from(
            [st.integers(-1, count - 1), st.just(-1), several | st.just([-1] * count), None],
        )
    )
    names = draw(st.just([]) | st.lists(text.filter(bool), min_size=count, max_size=count, unique=True))
    bits = st.lists(st.booleans(), min_size=n, max_size=n).map(np.array)
    return Graph(
        draw(text.filter(bool)),
        sp.csr_array(x) if draw(st.booleans()) else x,
        np.array(edges, dtype=np.int64).reshape(-1, 2).T,
        None if label is None else np.array([draw(label) for _ in range(n)]),
        tuple(names),
        {} if mat else draw(st.dictionaries(text, bits, max_size=2)),
        undirected=draw(st.booleans()),
    )


@st.composite
def named_graphs(draw: st.DrawFn, *, mat: bool = False) -> Graph:
    """Draw graphs that may also have weights, names of features, text columns and ids of nodes."""
    graph = draw(graphs(mat=mat))
    text = TEXT.filter(lambda name: "\0" not in name)
    fields: dict[str, Any] = {}
    if draw(st.booleans()):
        fields["weights"] = np.array([draw(st.floats(0, 10, width=32)) for _ in range(graph.num_edges)])
    if draw(st.booleans()):
        names = [*draw(st.lists(text, min_size=3, max_size=3, unique=True)), "city=Oslo"]
        fields |= {"feature_names": tuple(names[-graph.num_features :]), "text_columns": ("city",)}
    ids = draw(st.sampled_from([None, text, st.integers(-(2**63), 2**63 - 1)]))
    if ids is not None:
        fields["node_ids"] = draw(st.lists(ids, min_size=graph.num_nodes, max_size=graph.num_nodes, unique=True))
    return graph.replace(**fields)


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


# ---- round trips -------------------------------------------------------------------------------------


@FEW
@given(graph=named_graphs())
def test_pyg_round_trip(graph: Graph) -> None:
    assert_same(Graph.from_pyg(graph.to_pyg(), graph.name), graph)


@FEW
@given(graph=named_graphs())
def test_npz_round_trip(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("npz") / "graph.npz"
    files.write_npz(graph, path)
    assert_same(files.read_npz(path), graph)


@FEW
@given(graph=named_graphs())
def test_csv_round_trip(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("csv") / "graph"
    files.write_csv(graph, folder)
    assert_same(files.read_csv(folder), graph)


@FEW
@given(graph=named_graphs())
def test_parquet_round_trip(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("parquet") / "graph"
    files.write_parquet(graph, folder)
    assert_same(files.read_graph(folder), graph)


@FEW
@given(graph=named_graphs(mat=True))
def test_mat_round_trip(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("mat") / "graph.mat"
    files.write_mat(graph, path)
    assert_same(files.read_mat(path), graph)


@pytest.mark.parametrize("where", ["graph.npz", "GRAPH.MAT", "folder"])
def test_suffix_determines_the_format(tmp_path: Path, where: str) -> None:
    files.write_graph(small(), tmp_path / where)
    assert_same(files.read_graph(tmp_path / where), small())


@pytest.mark.parametrize("where", ["a.npz", "a.mat", "a"])
def test_options_are_passed_to_the_graph(tmp_path: Path, where: str) -> None:
    files.write_graph(small(), tmp_path / where)
    graph = files.read_graph(tmp_path / where, name="other", undirected=True)
    assert graph == small(name="other", undirected=True)


@pytest.mark.parametrize("call", [files.read_graph, lambda path: files.write_graph(small(), path)])
def test_unknown_format_is_rejected_with_the_known_formats(call: Callable[[Path], Any]) -> None:
    with pytest.raises(GraphError, match=r"a\.pt.*'\.pt'.*\.npz.*\.mat.*folder.*nodes\.csv"):
        call(Path("a.pt"))


@pytest.mark.slow
@pytest.mark.parametrize("where", ["dblp.npz", "dblp.mat", "dblp"])
def test_round_trip_of_a_real_graph(data_root: Path, tmp_path: Path, where: str) -> None:
    graph = files.read_mat(data_root / "citation" / "dblpv7.mat", self_loops="drop")
    graph = graph.replace(x=sp.csr_array(graph.x))
    files.write_graph(graph, tmp_path / where)
    assert_same(files.read_graph(tmp_path / where), graph)


@pytest.mark.parametrize("where", ["graph.npz", "graph.mat", "nodes.csv"])
def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    target = tmp_path if where == "nodes.csv" else tmp_path / where
    files.write_graph(small(), target)
    before, listing = (tmp_path / where).read_bytes(), sorted(tmp_path.iterdir())

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    for module, name in ((np, "savez_compressed"), (scipy.io, "savemat"), (csv_folder, "_feature_cells")):
        monkeypatch.setattr(module, name, fail)
    with pytest.raises(OSError, match="disk full"):
        files.write_graph(small(name="new"), target)
    assert (tmp_path / where).read_bytes() == before
    assert sorted(tmp_path.iterdir()) == listing


# ---- .npz --------------------------------------------------------------------------------------------


def rewritten(path: Path, graph: Graph, **changes: Any) -> Path:
    """Write a graph's `.npz` file with some fields replaced, or omitted if the new value is None."""
    files.write_npz(graph, path)
    with np.load(path, allow_pickle=False) as archive:
        fields = {**archive, **changes}
    np.savez(path, **{key: value for key, value in fields.items() if value is not None})
    return path


def test_npz_needs_no_pickle_and_is_deterministic(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        files.write_npz(small(x=sp.eye_array(3)), tmp_path / name)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as archive:
        assert set(archive.files) == {"info", "x_data", "x_indices", "x_indptr", "x_shape", "edges", "masks", "y"}
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize("field", ["info", "x_indptr", "edges", "masks"])
def test_npz_missing_field(tmp_path: Path, field: str) -> None:
    path = rewritten(tmp_path / "a.npz", small(x=sp.eye_array(3)), **{field: None})
    with pytest.raises(GraphError, match=rf"a\.npz: field '{field}' is missing"):
        files.read_npz(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colours": np.ones(2)}, "unknown field 'colours'"),
        ({"info": "{"}, "info: not valid JSON"),
        ({"info": '{"name": "a", "classes": []}'}, "info: 'masks' is missing"),
        ({"info": '{"name": 1, "classes": [], "masks": []}'}, "info, name: expected text, got 1"),
        ({"info": "[" * 50_000}, r"info: not valid JSON \(it is nested too deeply\)"),
        ({"info": '{"name": "a", "classes": [], "masks": [], "x": 1}'}, "info: unknown key 'x'"),
        ({"masks": np.ones((1, 3), dtype=bool)}, r"masks: expected 0 rows, one per name in info, got shape \(1, 3\)"),
        ({"x_indices": np.array([0, 1, 9], dtype=np.int32)}, "are not a valid CSR matrix: indices must be"),
        ({"x_indices": np.array([0, 1, 0.5])}, "field 'x_indices': expected integers with 1 dimensions, got float64"),
        ({"x_indptr": np.array([0, 1], dtype=np.int32)}, "x_indptr and x_shape are not a valid CSR matrix"),
        ({"edges": np.array([[0], [3]])}, r"'small', edges: edge 0 is \(0, 3\)"),
        (
            {"y": np.array([{}, 1, 2], dtype=object)},
            "field 'y': expected integers or numbers or booleans or text .*, got object",
        ),
        ({"x_shape": np.array([3, -3])}, r"not a valid CSR matrix: a matrix of shape \(3, -3\)"),
        ({"x_shape": np.array([10**12, 3])}, r"not a valid CSR matrix: a matrix of shape \(1000000000000, 3\)"),
        ({"x_shape": np.array([3, 2**63], dtype=np.uint64)}, "not a valid CSR matrix"),
        ({"x_shape": np.array([3])}, "not a valid CSR matrix"),
        (
            {"edges": np.zeros(4, dtype=int)},
            r"field 'edges': expected integers with 2 dimensions, got int64 of shape \(4,\)",
        ),
        ({"weights": np.array([1j])}, r"field 'weights': expected .*, got complex128"),
        ({"node_ids": np.array(["a", "b", "\ud800"])}, "field 'node_ids': the text is not valid Unicode"),
    ],
)
def test_npz_wrong_field(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = rewritten(tmp_path / "a.npz", small(x=sp.eye_array(3)), **changes)
    with pytest.raises(GraphError, match=rf"a\.npz: .*{message}"):
        files.read_npz(path)


@pytest.mark.parametrize("suffix", [".npz", ".mat"])
def test_damaged_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    files.write_graph(small(), path)
    whole = path.read_bytes()
    for damaged in (b"", b"not a graph", *(whole[:cut] for cut in range(0, len(whole), 7))):
        path.write_bytes(damaged)
        with pytest.raises(GraphError, match=rf"a\{suffix}: (not a readable|field '\w+' is missing)"):
            files.read_graph(path)


def test_missing_file(tmp_path: Path) -> None:
    for where in ("a.npz", "a.mat", "a"):
        with pytest.raises(FileNotFoundError, match=where):
            files.read_graph(tmp_path / where)


# ---- .mat --------------------------------------------------------------------------------------------


def mat(path: Path, **changes: Any) -> Path:
    fields = {"network": np.eye(3, k=1), "attrb": np.eye(3), "group": np.array([[0, 1], [1, 1], [0, 0]]), **changes}
    scipy.io.savemat(path, {key: value for key, value in fields.items() if value is not None})
    return path


def test_mat_default_labels_and_name(tmp_path: Path) -> None:
    assert files.read_mat(mat(tmp_path / "g.mat")) == make("g", np.eye(3), [[0, 1], [1, 2]], [1, 0, -1], ("0", "1"))


def test_mat_all_labels(tmp_path: Path) -> None:
    graph = files.read_mat(mat(tmp_path / "g.mat"), labels="all")
    assert graph == make("g", np.eye(3), [[0, 1], [1, 2]], [[0, 1], [1, 1], [-1, -1]])


def test_mat_keeps_classes_without_nodes(tmp_path: Path) -> None:
    assert files.read_mat(mat(tmp_path / "g.mat", group=np.eye(3, 7))).num_classes == 7


def test_mat_layout(tmp_path: Path) -> None:
    files.write_mat(small(x=sp.eye_array(3), classes=("a", "bc")), tmp_path / "g.mat")
    fields = scipy.io.loadmat(tmp_path / "g.mat")
    assert fields["network"].toarray().tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert fields["group"].tolist() == [[1, 0], [0, 1], [0, 0]]
    assert [str(name[0]) for name in fields["classes"].ravel()] == ["a", "bc"]
    assert sp.issparse(fields["attrb"])


def test_mat_values_of_the_network_are_weights(tmp_path: Path) -> None:
    graph = files.read_mat(mat(tmp_path / "g.mat", network=2.5 * np.eye(3, k=1)))
    assert graph.weights.tolist() == [2.5, 2.5]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group": None}, "field 'group' is missing"),
        ({"network": None}, "field 'network' is missing"),
        ({"attrb": "words"}, "attrb: expected a numeric matrix, got <U5"),
        ({"network": np.eye(4)}, r"network: expected 3 × 3 for the 3 rows of attrb, got shape \(4, 4\)"),
        ({"group": np.eye(2)}, "group: expected 3 rows for the 3 rows of attrb, got 2"),
        ({"group": 2 * np.eye(3)}, "group: expected 0 and 1, got 2"),
        ({"classes": np.array(["a"], dtype=object)}, "classes: expected 2 names for the columns of group, got 1"),
        ({"classes": np.arange(2)}, "classes: expected text, got"),
        ({"network": np.eye(3)}, r"'g', edges: edge 0 is a self-loop on node 0 \(self-loops in total: 3\)"),
    ],
)
def test_mat_errors_name_the_field(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=rf"g\.mat: .*{message}"):
        files.read_mat(mat(tmp_path / "g.mat", **changes))


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (small(masks={"train": np.ones(3, dtype=bool)}), r"masks: a \.mat file cannot store masks, got train"),
        (small(y=[[0, 0], [1, 0], [-1, -1]]), "y: node 0 has none of the classes"),
        (small(classes=("a\0", "b")), "classes: .* the character NUL"),
    ],
)
def test_mat_rejects_graphs_that_it_cannot_store(tmp_path: Path, graph: Graph, message: str) -> None:
    with pytest.raises(GraphError, match=f"'small', .*{message}"):
        files.write_mat(graph, tmp_path / "g.mat")


def test_mat_unknown_choice_of_labels(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'first' or 'all', got 'last'"):
        files.read_mat(mat(tmp_path / "g.mat"), labels="last")  # type: ignore[arg-type]


@pytest.mark.slow
def test_mat_reads_the_citation_data(data_root: Path) -> None:
    path = data_root / "citation" / "dblpv7.mat"
    graph = files.read_mat(path, labels="all", self_loops="drop", isolated="error")
    assert (graph.name, graph.num_nodes, graph.num_edges) == ("dblpv7", 5484, 2 * (8130 - 13))
    assert graph.is_undirected
    assert graph.y is not None
    assert (graph.y.sum(1) == 2).sum() == 15


# ---- options -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "options", "message"),
    [
        (
            "g.npz",
            {"undirectd": True},
            r"no option 'undirectd' .*options: name, undirected.*did you mean 'undirected'\?",
        ),
        ("g.npz", {"label": "a"}, r"g\.npz: \.npz files have no option 'label' \(their options: name, undirected"),
        ("g.mat", {"text": "a"}, r"g\.mat: \.mat files of the citation layout have no option 'text'.*labels\)"),
        ("g", {"labels": "all"}, r"g: CSV files have no option 'labels' .*label.*weight"),
    ],
)
def test_options_that_a_format_does_not_have(tmp_path: Path, where: str, options: dict[str, Any], message: str) -> None:
    files.write_graph(small(), tmp_path / where)
    with pytest.raises(InputError, match=message):
        files.read_graph(tmp_path / where, **options)


def test_parquet_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for call in (lambda: files.write_parquet(small(), tmp_path), lambda: files.read_parquet(tmp_path)):
        with pytest.raises(MissingDependencyError, match=r"edgemask\[parquet\]"):
            call()


def test_read_graph_converts_objects(tmp_path: Path) -> None:
    graph = make("g", np.eye(3), [[0, 1], [1, 2]], [0, 1, -1], ("0", "1"))
    assert files.read_graph(graph) is graph
    assert files.read_graph(graph.to_pyg(), name="g") == graph
    assert files.read_graph((graph.x, graph.to_adjacency()[1], graph.y), name="g", classes=("0", "1")) == graph
    with pytest.raises(InputError, match="a Graph is not read, so it has no options; got undirected"):
        files.read_graph(graph, undirected=True)
    with pytest.raises(InputTypeError, match=r"^expected a Graph, .*; got int 5$"):
        files.read_graph(5)


def test_a_graph_that_is_too_wide_for_any_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,features\n0,999999999:1\n1,\n")
    (tmp_path / "edges.csv").write_text("source,destination\n0,1\n")
    with pytest.raises(LimitError, match=r"a model of its 1,000,000,000 features would take 59\.6 GiB"):
        read_graph(tmp_path)
    for width in (10**30, -5):
        (tmp_path / "graph.json").write_text(json.dumps({"features": width}))
        with pytest.raises(GraphError, match=rf"graph\.json, features: expected 1 … 2147483647 columns, got {width}"):
            read_graph(tmp_path)


def test_a_flag_in_cells_is_refused(tmp_path: Path) -> None:
    fields = {
        "network": np.eye(2, k=1),
        "attrb": np.eye(2),
        "group": np.eye(2),
        "multilabel": np.array([[], "x"], object),
    }
    scipy.io.savemat(tmp_path / "g.mat", fields)
    with pytest.raises(GraphError, match=r"g\.mat: multilabel: expected 0 or 1, got object of shape"):
        read_graph(tmp_path / "g.mat")
