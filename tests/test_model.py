"""Tests of a fitted model: any graph goes in, the contract, masks, prediction without training code."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from edgemask import EdgeMaskClassifier, Graph, benchmark, load_model, write_graph
from edgemask.cli import app
from edgemask.errors import CoverageWarning, GraphError, GraphWarning, InputError, InputTypeError
from edgemask.model import LARGE

A, B, C = benchmark("synthetic").load(nodes=80).values()
QUICK: dict[str, Any] = {"epochs": 3, "select": "last", "alpha": 0.0, "device": "cpu"}


@pytest.fixture(autouse=True)
def _no_coverage_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        yield


@pytest.fixture(scope="module")
def fitted() -> EdgeMaskClassifier:
    return EdgeMaskClassifier("erm-gcn", **QUICK).fit([A, B])


def forms(graph: Graph, folder: Path) -> dict[str, Any]:
    """The same graph in every form."""
    write_graph(graph, folder / "g.npz")
    x, adjacency = graph.to_adjacency()
    return {
        "pyg": graph.to_pyg(),
        "adjacency": (x, adjacency, graph.y),
        "dense": (x, adjacency.toarray(), graph.y),
        "pandas": graph.to_pandas(),
        "networkx": graph.to_networkx(),
        "path": folder / "g.npz",
        "text": str(folder / "g.npz"),
    }


def test_every_form_gives_the_same_prediction(fitted: EdgeMaskClassifier, tmp_path: Path) -> None:
    expected = fitted.predict_proba(C)
    for name, value in forms(C, tmp_path).items():
        np.testing.assert_array_equal(fitted.predict_proba(value), expected, err_msg=name)
        assert fitted.score(value) == fitted.score(C)
        assert len(fitted.explain(value, [0])) == len(fitted.explain(C, [0]))


def test_every_form_trains_the_same_model(fitted: EdgeMaskClassifier, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    a, b = forms(A, tmp_path / "a"), forms(B, tmp_path / "b")
    for name in a:
        model = EdgeMaskClassifier("erm-gcn", **QUICK)
        model.fit([a[name], b[name].replace(name="b") if isinstance(b[name], Graph) else b[name]])
        np.testing.assert_array_equal(model.predict_proba(C), fitted.predict_proba(C), err_msg=name)


def table(seed: int, n: int = 40) -> tuple[pd.DataFrame, pd.DataFrame]:
    """People with an age, an income, a city and a grade."""
    rng = np.random.default_rng(seed)
    grade = rng.integers(0, 2, n)
    nodes = pd.DataFrame(
        {
            "id": [f"p{i}" for i in range(n)],
            "age": 30 + 10 * grade + rng.normal(size=n),
            "income": 1e5 * rng.random(n),
            "city": rng.choice(["Oslo", "Rome", f"town {seed}"], n),
            "grade": np.where(grade, "good", "bad"),
        }
    )
    ends = rng.integers(0, n, (2, 2 * n))
    edges = pd.DataFrame({"from": nodes["id"].to_numpy()[ends[0]], "to": nodes["id"].to_numpy()[ends[1]]})
    return nodes, edges[edges["from"] != edges["to"]].drop_duplicates()


READ = {"label": "grade", "undirected": True}


def test_tables_are_scaled_and_matched_by_name(tmp_path: Path) -> None:
    model = EdgeMaskClassifier("erm-mlp", read=READ, **QUICK | {"epochs": 60}).fit([table(0), table(1)])
    assert model.contract_.scaled == ("age", "income")
    nodes, edges = table(2)
    with pytest.warns(GraphWarning, match=r"column 'city': \d+ of 40 nodes have values that no source has"):
        assert (model.predict((nodes, edges)) == nodes["grade"].to_numpy()).mean() > 0.9
    shuffled = nodes[["grade", "city", "income", "id", "age"]]
    with pytest.warns(GraphWarning, match="no source has"):
        np.testing.assert_array_equal(model.predict_proba((shuffled, edges)), model.predict_proba((nodes, edges)))
    with pytest.raises(GraphError, match="missing columns: 'income'"):
        model.predict((nodes.drop(columns="income"), edges))
    model.save(tmp_path / "m.safetensors")
    loaded = load_model(tmp_path / "m.safetensors")
    with pytest.warns(GraphWarning, match="no source has") as caught:
        again = loaded.predict_proba((nodes.drop(columns="grade"), edges))
    assert not any("no labels" in str(w.message) for w in caught)
    np.testing.assert_array_equal(again, model.predict_proba((nodes, edges)))
    shown = model.explain((nodes, edges), ["p3"])
    assert set(shown["node"]) == {"p3"}
    assert set(shown["class"]) <= {"bad", "good"}


def test_labels_outside_the_train_mask_do_not_matter() -> None:
    train = np.arange(80) < 40
    kept = A.replace(masks={"train": train})
    lied = kept.replace(y=np.where(train, A.y, (A.y + 1) % 5))
    fits = [EdgeMaskClassifier("erm-gcn", **QUICK).fit([g, B]) for g in (kept, lied, A)]
    p = [fit.predict_proba(C) for fit in fits]
    np.testing.assert_array_equal(p[0], p[1])
    assert not np.array_equal(p[0], p[2])


def test_the_test_mask_restricts_scores(fitted: EdgeMaskClassifier) -> None:
    inside = np.arange(80) < 20
    hits = fitted.predict(C) == C.y
    assert fitted.score(C.replace(masks={"test": inside})) == pytest.approx(hits[inside].mean())


def test_edge_weights_change_predictions(fitted: EdgeMaskClassifier) -> None:
    heavy = C.replace(weights=np.linspace(0, 3, C.num_edges))
    assert not np.allclose(fitted.predict_proba(heavy), fitted.predict_proba(C))
    np.testing.assert_allclose(
        fitted.predict_proba(C.replace(weights=np.ones(C.num_edges))), fitted.predict_proba(C), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("value", [None, 3, {}, np.eye(3), object()])
def test_other_objects_are_refused(fitted: EdgeMaskClassifier, value: Any) -> None:
    with pytest.raises(InputTypeError, match=r"^expected a Graph, .*; got "):
        fitted.predict(value)
    with pytest.raises(InputTypeError, match=r"^expected a Graph, .*; got "):
        EdgeMaskClassifier("erm-mlp", **QUICK).fit([A, value])


def test_a_path_that_does_not_exist_is_named(fitted: EdgeMaskClassifier) -> None:
    with pytest.raises(GraphError, match=r"^nowhere: no such file or folder$"):
        fitted.predict("nowhere")
    with pytest.raises(GraphError, match="no source graphs were given"):
        EdgeMaskClassifier("erm-mlp", **QUICK).fit([])
    with pytest.raises(InputError, match="no node 'nobody'"):
        fitted.explain(C.replace(node_ids=[f"n{i}" for i in range(80)]), ["nobody"])


def test_large_graphs_are_predicted_in_blocks(fitted: EdgeMaskClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fitted.predict_proba(C)
    monkeypatch.setattr("edgemask.model.LARGE", 10)
    monkeypatch.setattr("edgemask.model.BLOCK", 7)
    np.testing.assert_allclose(fitted.predict_proba(C), expected, rtol=1e-4, atol=1e-6)
    assert fitted.members_[0].method.recipe.inference_batch is None
    assert LARGE == 200_000


def test_small_graphs_use_one_thread_and_the_setting_is_restored(fitted: EdgeMaskClassifier) -> None:
    seen, before = [], torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        EdgeMaskClassifier("erm-mlp", **QUICK).fit([A, B], on_epoch=lambda *_: seen.append(torch.get_num_threads()))
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_progress_is_printed_only_if_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    EdgeMaskClassifier("erm-mlp", **QUICK).fit([A, B])
    assert capsys.readouterr().err == ""
    EdgeMaskClassifier("erm-mlp", verbose=1, **QUICK).fit([A, B])
    assert "fit, all sources: epoch 3 of 3  loss" in capsys.readouterr().err


def test_prediction_loads_no_training_code(fitted: EdgeMaskClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "m.safetensors")
    write_graph(C, tmp_path / "c.npz")
    code = (
        "import sys, edgemask; m = edgemask.load_model('m.safetensors'); m.predict('c.npz');"
        "bad = [n for n in sys.modules if n.startswith(('edgemask.training', 'edgemask.theory', 'edgemask.experiments',"
        " 'edgemask.estimator', 'sklearn', 'optuna', 'ray', 'torch_geometric'))];"
        "print(sorted(bad)); sys.exit(bool(bad))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def floors(values: str, folder: Path) -> Path:
    """A folder of CSV files with a column `storey` of the given values."""
    folder.mkdir()
    n = 40
    nodes = pd.DataFrame({"key": [f"n{i}" for i in range(n)], "storey": list(values) * (n // len(values))})
    nodes.assign(size=np.arange(n) % 7, grade=np.where(np.arange(n) % 2, "a", "b")).to_csv(folder / "nodes.csv")
    pd.DataFrame({"u": nodes["key"][:-1], "v": nodes["key"][1:].values}).to_csv(folder / "edges.csv", index=False)
    return folder


def test_a_text_column_stays_text_if_all_values_look_like_numbers(tmp_path: Path) -> None:
    read = {"id": "key", "label": "grade", "features": ["storey", "size"]}
    model = EdgeMaskClassifier("erm-gcn", **QUICK, read=read).fit([floors("12G1", tmp_path / "a")])
    new = floors("1221", tmp_path / "new")
    assert model.predict(new).shape == (40,)
    assert 0 <= model.score(new) <= 1
    model.save(tmp_path / "m")
    for command in ("predict", "evaluate", "explain"):
        result = CliRunner().invoke(app, [command, str(tmp_path / "m"), str(new)], catch_exceptions=False)
        assert result.exit_code == 0


def test_options_of_the_fit_do_not_stop_other_forms(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    read = {"id": "key", "label": "grade", "features": ["storey", "size"], "name": "source"}
    model = EdgeMaskClassifier("erm-gcn", **QUICK, read=read).fit(floors("12G1", tmp_path / "a"))
    graph = model.model_.read_graph(tmp_path / "a", labels=True)
    assert graph.name == "a"  # not the name of the source
    expected = model.predict_proba(graph)
    written = {}
    for format in ("csv", "parquet"):
        write_graph(graph, tmp_path / format, format)  # type: ignore[arg-type]
        written[format] = tmp_path / format
    for name, value in (forms(graph, tmp_path) | written).items():
        if name not in ("adjacency", "dense"):  # their columns have no names
            np.testing.assert_array_equal(model.predict_proba(value), expected, err_msg=name)
            assert model.score(value) == model.score(graph)
    model.save(tmp_path / "m")
    for command in ("predict", "evaluate"):
        arguments = [command, str(tmp_path / "m"), str(tmp_path / "g.npz")]
        assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    with pytest.raises(InputError, match=r"g\.npz: \.npz files have no option 'label'"):
        model.model_.read_graph(tmp_path / "g.npz", {"label": "grade"})


def test_a_fit_without_labels_says_how_to_name_them() -> None:
    nodes, edges = table(0)
    with pytest.raises(GraphError, match=r"training needs labels, but it has none; in a table, label='…'"):
        EdgeMaskClassifier("erm-gcn", **QUICK).fit((nodes, edges))
