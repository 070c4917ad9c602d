"""Tests of CSV and Parquet files with columns of any names."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from pyarrow import parquet

from edgemask import EdgeMaskClassifier, load_model
from edgemask.data.files import read_graph, write_graph
from edgemask.data.parquet import write_parquet
from edgemask.errors import GraphError, GraphWarning, InputError, LimitError, MissingFileError
from edgemask.graph import Graph

READ: dict[str, Any] = {
    "id": "person",
    "label": "grade",
    "features": ["age", "city", "member", "zip"],
    "text": "zip",
    "source": "giver",
    "destination": "taker",
    "weight": "amount",
}


def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    nodes = pd.DataFrame(
        {
            "person": ["ann", "bob", "eve", "007"],
            "age": [31, 45.5, 28, 60],
            "city": ["Oslo", "Rome", "Oslo", ""],
            "member": [True, False, False, True],
            "zip": ["0150", "00100", "0150", "0150"],
            "grade": ["good", "bad", "", "good"],
            "notes": ["a, b", "c", 'say "d"', ""],
            "train_mask": [1, 1, 0, 0],
            "val_mask": [False, False, True, True],
        }
    )
    edges = pd.DataFrame({"giver": ["ann", "bob", "007"], "taker": ["bob", "eve", "ann"], "amount": [2, 0.5, 0]})
    return nodes, edges


def written(folder: Path, suffix: str, nodes: pd.DataFrame, edges: pd.DataFrame) -> str:
    """Write two tables as any other program would, and return the path of the pair."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{name}{suffix}" for name in ("nodes", "edges")]
    for path, table in zip(paths, (nodes, edges), strict=True):
        table.to_csv(path, index=False) if suffix == ".csv" else table.to_parquet(path, index=False)
    return ",".join(map(str, paths))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files_are_read_as_the_tables(tmp_path: Path, suffix: str) -> None:
    pair = written(tmp_path / "club", suffix, *tables())
    graph = read_graph(tmp_path / "club", **READ)
    assert graph == Graph.from_pandas(*tables(), name="club", **READ)
    assert read_graph(pair, **READ) == graph
    assert graph.feature_names == ("age", "city=Oslo", "city=Rome", "member", "zip=00100", "zip=0150")
    assert graph.x.tolist()[1] == [45.5, 0, 1, 0, 1, 0]
    assert graph.node_ids.tolist() == ["ann", "bob", "eve", "007"]
    assert (graph.classes, graph.y.tolist()) == (("bad", "good"), [1, 0, -1, 1])
    assert {name: mask.tolist() for name, mask in graph.masks.items()} == {
        "train": [True, True, False, False],
        "val": [False, False, True, True],
    }
    weights = {tuple(edge): float(w) for edge, w in zip(graph.edges.T.tolist(), graph.weights, strict=True)}
    assert weights == {(0, 1): 2, (1, 2): 0.5, (3, 0): 0}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_options_in_graph_json(tmp_path: Path, suffix: str) -> None:
    written(tmp_path / "club", suffix, *tables())
    info = READ | {"name": "chess", "undirected": True, "classes": ["good", "bad", "fair"]}
    (tmp_path / "club" / "graph.json").write_text(json.dumps(info))
    graph = read_graph(tmp_path / "club")
    assert graph == Graph.from_pandas(*tables(), **info)
    assert read_graph(tmp_path / "club", features=["age"], text=(), name="g").feature_names == ("age",)


def test_the_name_of_a_pair_is_that_of_its_files(tmp_path: Path) -> None:
    nodes, edges = tables()
    nodes.to_csv(tmp_path / "may_nodes.csv", index=False)
    edges.to_csv(tmp_path / "may_edges.csv", index=False)
    assert read_graph(f"{tmp_path}/may_nodes.csv, {tmp_path}/may_edges.csv", **READ).name == "may"


def test_derived_features(tmp_path: Path) -> None:
    written(tmp_path / "club", ".csv", *tables())
    graph = read_graph(tmp_path / "club", **READ | {"features": ["age", "log-degree"], "text": None})
    assert graph.feature_names == ("age", "log-degree")


def test_the_layout_of_edgemask_may_have_masks_and_weights(tmp_path: Path) -> None:
    nodes = pd.DataFrame({"id": ["a", "b"], "label": ["u", "v"], "x0": [1, 2], "test_mask": [0, 1]})
    edges = pd.DataFrame({"source": ["a"], "destination": ["b"], "weight": [0.5]})
    written(tmp_path / "g", ".csv", nodes, edges)
    graph = read_graph(tmp_path / "g")
    assert graph.feature_names == ()
    assert graph.masks["test"].tolist() == [False, True]
    assert graph.weights.tolist() == [0.5]


def changed(row: int, column: str, value: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    nodes, edges = (table.astype(object) for table in tables())
    (nodes if column in nodes else edges).loc[row, column] = value
    return nodes, edges


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (changed(1, "age", ""), r"nodes\.csv, row 3: column 'age' of node 'bob' is missing; .*text='age'"),
        (changed(2, "age", "1e300"), r"nodes\.csv, row 4: column 'age' of node 'eve' is 1e\+300"),
        (changed(2, "person", "ann"), r"nodes\.csv, row 4: id 'ann' occurs twice"),
        (changed(1, "train_mask", "maybe"), r"nodes\.csv, row 3: train_mask: 'maybe' is not one of 1, 0, true"),
        (changed(1, "giver", "zoe"), r"edges\.csv, row 3: source 'zoe' is not an id of nodes\.csv"),
        (changed(2, "amount", "-1"), r"edges\.csv, row 4: the weight of '007' → 'ann' \(column 'amount'\) is '-1'"),
        (changed(0, "taker", "ann"), r"edges\.csv, row 2: 'ann' → 'ann' is a self-loop"),
    ],
)
def test_errors_name_the_row_of_the_file(tmp_path: Path, content: Any, message: str) -> None:
    written(tmp_path / "g", ".csv", *content)
    with pytest.raises(GraphError, match=message):
        read_graph(tmp_path / "g", **READ)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"features": ["agee"]}, "nodes{}: no column 'agee' for features; .*did you mean 'age'"),
        ({"id": "persn"}, "nodes{}: no column 'persn' .*did you mean 'person'"),
        ({"weight": "sum"}, "edges{}: no column 'sum' .*giver, taker, amount"),
    ],
)
def test_errors_name_the_columns(tmp_path: Path, suffix: str, option: dict[str, Any], message: str) -> None:
    written(tmp_path / "g", suffix, *tables())
    with pytest.raises(GraphError, match=message.format(rf"\{suffix}")):
        read_graph(tmp_path / "g", **READ | {"text": None} | option)


def test_both_ends_must_be_named(tmp_path: Path) -> None:
    written(tmp_path / "g", ".csv", *tables())
    with pytest.raises(InputError, match=r"edges\.csv: source is given, but not destination"):
        read_graph(tmp_path / "g", **READ | {"destination": None})


def test_damaged_parquet(tmp_path: Path) -> None:
    written(tmp_path / "g", ".parquet", *tables())
    (tmp_path / "g" / "edges.parquet").write_bytes(b"PAR1")
    with pytest.raises(GraphError, match=r"edges\.parquet: not a readable Parquet file"):
        read_graph(tmp_path / "g", **READ)


def test_a_folder_with_both_formats_is_ambiguous(tmp_path: Path) -> None:
    written(tmp_path / "g", ".csv", *tables())
    pair = written(tmp_path / "g", ".parquet", *tables())
    with pytest.raises(GraphError, match=r"nodes\.csv and nodes\.parquet; give both files of one of them"):
        read_graph(tmp_path / "g", **READ)
    assert read_graph(pair, **READ).num_nodes == 4


def test_a_graph_with_names_is_read_as_it_was_written(tmp_path: Path) -> None:
    graph = Graph.from_pandas(*tables(), name="club", **READ)
    for where, form in (("a", "csv"), ("b", "parquet"), ("c.npz", "csv")):
        write_graph(graph, tmp_path / where, format=form)  # type: ignore[arg-type]
        assert read_graph(tmp_path / where) == graph


def export(seed: int, n: int = 40) -> tuple[pd.DataFrame, pd.DataFrame]:
    """People whose job decides their grade. Each export has a town of its own."""
    rng = np.random.default_rng(seed)
    good = rng.integers(0, 2, n)
    nodes = pd.DataFrame(
        {
            "person": [f"p{i}" for i in range(n)],
            "job": np.where(good, "nurse", "clerk"),
            "city": rng.choice(["Oslo", f"town {seed}"], n),
            "grade": np.where(good, "good", "bad"),
        }
    )
    ends = rng.integers(0, n, (2, n))
    edges = pd.DataFrame({"giver": [f"p{i}" for i in ends[0]], "taker": [f"p{i}" for i in ends[1]]})
    return nodes, edges[edges["giver"] != edges["taker"]].drop_duplicates()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.slow
def test_exports_share_the_words_of_the_sources(tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / name for name in ("may", "june", "july")]
    for seed, path in enumerate(paths):
        nodes, edges = export(seed)
        columns = nodes.columns[::-1] if seed == 1 else nodes.columns  # matched by name
        written(path, suffix, nodes[columns], edges)
    read = {"id": "person", "label": "grade"}
    model = EdgeMaskClassifier("erm-mlp", epochs=60, alpha=0.0, read=read).fit(paths[:2])
    words = {"job=clerk", "job=nurse", "city=Oslo", "city=town 0", "city=town 1"}
    assert set(model.contract_.feature_names) == words
    nodes, _ = export(2)
    unseen = int((nodes["city"] == "town 2").sum())
    with pytest.warns(GraphWarning, match=rf"column 'city': {unseen} of 40 nodes have values that no source has"):
        predicted = model.predict(paths[2])
    assert (predicted == nodes["grade"].to_numpy()).mean() > 0.95
    model.save(tmp_path / "m.safetensors")
    with pytest.warns(GraphWarning, match="no source has"):
        assert (load_model(tmp_path / "m.safetensors").predict(paths[2]) == predicted).all()


def test_a_word_in_a_column_of_numbers_is_named(tmp_path: Path) -> None:
    nodes = pd.DataFrame({"id": range(20), "age": [str(20 + i) for i in range(20)], "floor": list("12G1") * 5})
    edges = pd.DataFrame({"source": [0], "target": [1]})
    nodes.loc[3, "age"] = "2,5"
    pair = written(tmp_path / "g", ".csv", nodes, edges)
    with pytest.warns(
        GraphWarning, match=r"nodes\.csv, row 5: '2,5' is not a number, so column 'age' is read as text"
    ) as w:
        read_graph(pair)
    assert len(w) == 1  # a quarter of the floors are words
    with pytest.warns(GraphWarning, match="graph 'graph', nodes, row 3: '2,5' is not a number"):
        Graph.from_pandas(nodes, edges)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_graph(pair, text="age")


def test_two_files_have_the_same_format(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"a\.csv,b\.parquet: expected two files of the same format"):
        read_graph("a.csv,b.parquet")
    with pytest.raises(MissingFileError, match=r"a\.csv: no such file; a graph is "):
        read_graph("a.csv,b.csv")


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_tables_of_other_backends_are_the_same_graph(tmp_path: Path, backend: Any) -> None:
    if backend == "pyarrow":
        pytest.importorskip("pyarrow")
    pair = written(tmp_path / "g", ".csv", *tables())
    nodes, edges = (pd.read_csv(path, dtype={"zip": str}, dtype_backend=backend) for path in pair.split(","))
    assert Graph.from_pandas(nodes, edges, name="g", **READ) == read_graph(tmp_path / "g", **READ)


def test_ignored_columns_of_edges_are_named() -> None:
    nodes, edges = tables()
    with pytest.warns(
        GraphWarning, match=r"edges: the columns amount are ignored; weight='amount' .* reads one as wei"
    ):
        Graph.from_pandas(nodes, edges, **{k: v for k, v in READ.items() if k != "weight"})
    with pytest.warns(GraphWarning, match="the columns day are ignored; an edge has two ends and a weight"):
        Graph.from_pandas(nodes, edges.assign(day=1), **READ)


NODES, EDGES = "id,age,city,label\nann,31,Oslo,x\nbob,45,Rome,y\n", "source,target\nann,bob\n"


def by_hand(folder: Path, nodes: str = NODES, edges: str = EDGES) -> Path:
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    (folder / "edges.csv").write_text(edges, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("nodes", "edges", "read", "message"),
    [
        (NODES.replace(",", ";"), EDGES, {}, r"nodes\.csv: columns must be separated by commas, but .* ';'; .*sep=';'"),
        (NODES, EDGES.replace(",", "\t"), {}, r"edges\.csv: columns must be separated by commas, .* '\\t'; convert"),
        (NODES.replace("bob", ""), EDGES, {}, r"nodes\.csv, row 3: the id is missing"),
        (NODES, EDGES.replace("bob", "Bob "), {}, r"edges\.csv, row 2: destination 'Bob ' is not .* mean 'bob'\?"),
        (NODES, EDGES, {"features": "age,label"}, "column 'label' holds the labels, so it cannot be a feature"),
        (NODES, EDGES, {"source": "target", "destination": "target"}, "must be two columns, got 'target' for both"),
    ],
)
def test_mistakes_in_files_are_named(tmp_path: Path, nodes: str, edges: str, read: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        read_graph(by_hand(tmp_path, nodes, edges), **read)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([""] * 30, r"nodes\.csv: column 'a' has no values, so it gives no feature$"),
        (["1,5", "2,5"] * 15, r"column 'a' is read as text, because its numbers have commas \('1,5'\): .*text='a'"),
        ([f"2020-01-{i:02}" for i in range(1, 31)], "column 'a' has 30 distinct texts in 30 rows, and .*text='a'"),
    ],
)
def test_text_columns_that_are_probably_mistakes_are_named(tmp_path: Path, cells: list[str], message: str) -> None:
    nodes, edges = pd.DataFrame({"id": range(30), "a": cells, "b": 1.0}), pd.DataFrame({"u": [0], "v": [1]})
    pair = written(tmp_path / "g", ".csv", nodes, edges)
    with pytest.warns(GraphWarning, match=message) as w:
        read_graph(pair)
    assert len(w) == 1
    if any(cells):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            read_graph(pair, text="a")


def test_numbers_with_commas_are_not_taken_for_identifiers(tmp_path: Path) -> None:
    nodes, edges = pd.DataFrame({"a": [f"{i},5" for i in range(2000)]}), pd.DataFrame({"u": [0], "v": [1]})
    with pytest.raises(GraphError, match="column 'a': its numbers have commas"):
        Graph.from_pandas(nodes, edges)


def test_an_index_that_pandas_wrote_is_no_feature(tmp_path: Path) -> None:
    nodes = pd.DataFrame({"id": ["ann", "bob"], "age": [31, 45]})
    edges = pd.DataFrame({"source": ["ann"], "target": ["bob"]})
    nodes.to_csv(tmp_path / "nodes.csv")
    edges.to_csv(tmp_path / "edges.csv", index=False)
    with pytest.warns(GraphWarning, match="columns without a name are ignored: ''"):
        assert read_graph(tmp_path).feature_names == ("age",)
    with pytest.warns(GraphWarning, match="columns without a name are ignored: 'Unnamed: 0'"):
        assert Graph.from_pandas(pd.read_csv(tmp_path / "nodes.csv"), edges).feature_names == ("age",)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = Graph.from_pandas(pd.read_csv(tmp_path / "nodes.csv"), edges, features=["Unnamed: 0"])
    assert chosen.feature_names == ("Unnamed: 0",)


def test_rows_of_a_table_with_a_repeated_index_are_counted() -> None:
    nodes = pd.DataFrame({"id": ["ann", "bob"], "age": [31, 45]})
    edges = pd.DataFrame({"source": ["ann"], "target": ["bob"]})
    with pytest.raises(GraphError, match=r"edges, row 1 \(counted from 0\): 'ann' → 'bob' is a duplicate of row 0 "):
        Graph.from_pandas(nodes, pd.concat([edges, edges]))


# ---- damaged descriptions in Parquet files -------------------------------------------------------------------


def described(folder: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """Write a graph with sparse features, and change the description of its table."""
    sparse = Graph("g", sp.csr_array(np.eye(3)), [(0, 1)], [0, 1, 0], masks={"train": np.ones(3, bool)})
    write_parquet(sparse, folder)
    table = parquet.read_table(folder / "nodes.parquet")
    metadata = json.loads(table.schema.metadata[b"pandas"])
    change(metadata["attributes"]["edgemask"])
    changed = table.replace_schema_metadata({b"pandas": json.dumps(metadata)})
    parquet.write_table(changed, folder / "nodes.parquet")
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(columns=5), "columns: expected an array, got 5"),
        (lambda d: d.update(masks={"other": "train"}), "its columns, masks and labels contradict each other"),
        (lambda d: d.update(label=None), "it has other columns than edgemask wrote"),
        (lambda d: d.update(packed=["feature indices", "x"]), "it has other columns than edgemask wrote"),
        (lambda d: d.update(columns=d["columns"][:-1]), "indices must be < 2"),
        (lambda d: d.pop("name"), "'name' is missing"),
    ],
    ids=["type", "masks", "label", "packed", "width", "name"],
)
def test_a_damaged_description_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    with pytest.raises(GraphError, match=rf"nodes\.parquet: .*{message}"):
        read_graph(described(tmp_path, change))


def test_a_changed_page_is_noticed(tmp_path: Path) -> None:
    graph = Graph("g", np.random.default_rng(0).random((300, 1)), [])
    write_parquet(graph, tmp_path)
    path = tmp_path / "nodes.parquet"
    data, messages = path.read_bytes(), set()
    for at in range(200, 1200, 10):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(GraphError, match=r"nodes\.parquet: not a readable Parquet file") as caught:
            read_graph(tmp_path)
        messages.add("CRC" in str(caught.value))
    assert messages == {True}


def test_parquet_files_expand_only_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(Graph("g", np.zeros((100_000, 2)), []), tmp_path)
    monkeypatch.setenv("EDGEMASK_MAX_BYTES", "1M")
    with pytest.raises(LimitError, match=r"nodes\.parquet: the table would take 3\.1 MiB"):
        read_graph(tmp_path)
