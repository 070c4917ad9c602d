"""Tests of a fitted model: any graph goes in, the contract, masks, prediction without training code."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from edgemask import EdgeMaskClassifier, Graph, benchmark, load_model, write_graph
from edgemask.cli import app
from edgemask.errors import CheckpointError, CoverageWarning, GraphError, GraphWarning, InputError, InputTypeError
from edgemask.model import LARGE
from edgemask.runtime import checkpoint

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


# ---- damaged model files ---------------------------------------------------------------------------------


def at(value: Any, place: tuple[Any, ...], change: Any) -> Any:
    """Return a JSON value in which the part at a place is replaced."""
    if not place:
        return change
    copy = list(value) if isinstance(value, list) else dict(value)
    copy[place[0]] = at(copy[place[0]] if isinstance(value, list) else copy.get(place[0]), place[1:], change)
    return copy


RECIPE = ("members", 0, "recipe")
WRONG: list[tuple[tuple[Any, ...], Any, str]] = [
    ((), [], "metadata: expected an object"),
    (("members",), [], "members: expected at least 1 items"),
    (("members",), 5, "members: expected an array"),
    (("members", 0, "name"), "nothing", "nothing"),
    (("members", 0, "name"), ["erm-gcn"], "name: expected text"),
    (("members", 0, "propagation"), [0.5], "propagation: expected 2 items"),
    (("members", 0, "propagation"), [2.0, "logits"], "propagation[0]: expected a number in [0, 1)"),
    (("members", 0, "propagation"), [0.5, "labels"], "propagation[1]: expected one of"),
    (("members", 0, "temperature"), 0, "temperature: expected a number"),
    ((*RECIPE, "layers"), 200_000, "layers must be an integer in [1, 1000]"),
    ((*RECIPE, "layers"), 1000, "tensor"),
    ((*RECIPE, "steps"), 10**12, "steps must be"),
    ((*RECIPE, "hidden"), 10**9, "far larger than its tensors"),
    ((*RECIPE, "hidden"), 10**30, "far larger than its tensors"),
    ((*RECIPE, "backbone"), "gin", "tensor"),
    ((*RECIPE, "hyper"), {"weight": 1}, "weight"),
    (("num_features",), 3 * 10**7, "far larger than its tensors"),
    (("num_features",), 9, "tensor"),
    (("num_features",), 0, "num_features: expected an integer"),
    (("num_features",), 2**80, "num_features: expected an integer"),
    (("classes",), [], "classes: expected at least 1"),
    (("classes",), [*"abcdefg"], "tensor"),
    (("classes",), [*"abcdefg"] * 10**6, "far larger than its tensors"),
    (("contract", "num_features"), 5, "contradict"),
    (("contract", "scaled"), ["nothing"], "scaled: expected names of columns"),
    (("contract", "feature_names"), ["one"], "feature_names: expected"),
    (("summaries",), [5], "graph summary: expected an object"),
    (("summaries", 0, "width"), 3, "graph summary, "),
    (("leaderboard", 0, "score"), "high", "score: expected a number"),
    (("leaderboard", 0), {"name": "x"}, "is missing"),
    (("expected",), {"score": 1}, "is missing"),
    (("histories",), {"erm-gcn": 5}, "expected an array"),
    (("seed",), "x", "seed: expected an integer"),
    (("notes",), [5], "notes[0]: expected text"),
    (("read",), {"undirected": {}}, "expected an array"),
    (("colour",), "red", "unknown key 'colour'"),
]


@pytest.mark.parametrize(("place", "change", "message"), WRONG, ids=lambda part: str(part)[:40])
def test_metadata_that_do_not_fit_are_named_before_networks_are_built(
    fitted: EdgeMaskClassifier, tmp_path: Path, place: tuple[Any, ...], change: Any, message: str
) -> None:
    path = tmp_path / "m.model"
    fitted.save(path)
    tensors, meta = checkpoint.read(path, "model")
    checkpoint.write(path, "model", tensors, at(meta, place, change))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError) as caught:
        load_model(path)
    said = str(caught.value)
    assert said.startswith(f"{path} does not hold a usable model: ")
    assert message in said
    assert "\n" not in said
    assert len(said) < 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t | {"other": torch.ones(2)}, None),  # not of a member
        (lambda t: t | {"member-0/other": torch.ones(2)}, "tensor 'other' is unknown"),
        (lambda t: {n: v for n, v in t.items() if "biases.0" not in n}, "tensor 'task.biases.0' is missing"),
        (lambda t: {n: v.double() for n, v in t.items()}, "expected torch.float32 of shape"),
        (lambda t: {n: v[None] for n, v in t.items()}, "got torch.float32 of shape (1, "),
        (lambda t: {n: v[:0] for n, v in t.items()}, "got torch.float32 of shape (0"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    fitted: EdgeMaskClassifier, tmp_path: Path, change: Any, message: str | None
) -> None:
    path = tmp_path / "m.model"
    fitted.save(path)
    tensors, meta = checkpoint.read(path, "model")
    checkpoint.write(path, "model", change(tensors), meta)
    if message is None:
        np.testing.assert_array_equal(load_model(path).predict_proba(C), fitted.predict_proba(C))
    else:
        with pytest.raises(CheckpointError, match=re.escape(message)) as caught:
            load_model(path)
        assert str(caught.value).startswith(f"{path} does not hold a usable model: ")


@pytest.mark.parametrize(
    "params", [{"999": 1}, {"metric": "beauty"}, {"seed": "x"}, {"method": 5}, {"jobs": [1]}], ids=str
)
def test_parameters_that_do_not_fit_name_the_file(
    fitted: EdgeMaskClassifier, tmp_path: Path, params: dict[str, Any]
) -> None:
    path = tmp_path / "m.model"
    fitted.save(path)
    tensors, meta = checkpoint.read(path, "model")
    checkpoint.write(path, "model", tensors, at(meta, ("params",), meta["params"] | params))
    with pytest.raises(CheckpointError, match=f"{path} does not hold a usable model: "):
        EdgeMaskClassifier.load(path)


SAVE = """
import sys
from edgemask import EdgeMaskClassifier
EdgeMaskClassifier.load(sys.argv[1], device="cpu").save(sys.argv[2])
"""


def test_models_of_equal_content_have_equal_bytes(fitted: EdgeMaskClassifier, tmp_path: Path) -> None:
    one = tmp_path / "m.model"
    fitted.save(one)
    for i in range(6):  # the order of keys used to change from call to call
        fitted.save(tmp_path / f"{i}.model")
        assert (tmp_path / f"{i}.model").read_bytes() == one.read_bytes()
    subprocess.run([sys.executable, "-c", SAVE, one, tmp_path / "other.model"], check=True)
    assert (tmp_path / "other.model").read_bytes() == one.read_bytes()


def test_a_deeply_nested_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.model"
    for header in (
        "[" * 10**5 + "]" * 10**5,
        '{"format": 1, "kind": "model", "meta": ' + "[" * 10**5 + "]" * 10**5 + "}",
    ):
        save_file({"w": torch.ones(1)}, path, {"edgemask": header, "sha256": ""})
        with pytest.raises(CheckpointError, match=r"m\.model has a damaged edgemask header: .*nested too deeply"):
            load_model(path)
