"""`edgemask predict`: formats, several graphs, chunks, and cells that a spreadsheet does not execute."""

from __future__ import annotations

import importlib
import io
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from edgemask import EdgeMaskClassifier
from edgemask.cli import app, main, tables
from edgemask.cli.tables import Predictions, write_csv
from edgemask.data import write_graph
from edgemask.data.synthetic import demo_family
from edgemask.errors import FileError, InputError, MissingDependencyError
from edgemask.runtime.safe_text import guarded

CLASSES = ("=ant", "bee", "-1", "@dog", "eel\x1b[2J")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Write three graphs, whose classes have odd names, and a trained model."""
    folder = tmp_path_factory.mktemp("models")
    graphs = [g.replace(classes=CLASSES) for g in demo_family(80).values()]
    for graph in graphs:
        write_graph(graph, folder / f"{graph.name}.npz")
    EdgeMaskClassifier("erm-mlp", epochs=3, hidden=8, device="cpu").fit(graphs[:2]).save(folder / "model")
    return folder


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch):
    monkeypatch.chdir(folder)


def predict(*arguments: str):
    result = CliRunner().invoke(app, ["predict", "model", *arguments, "--device", "cpu"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def test_every_format_holds_the_same_predictions(tmp_path: Path):
    predict("gamma.npz", "-o", str(tmp_path / "p.csv"))
    predict("gamma.npz", "-o", str(tmp_path / "p.npz"))
    frame, arrays = pd.read_csv(tmp_path / "p.csv"), np.load(tmp_path / "p.npz", allow_pickle=False)
    assert set(arrays.files) == {"node", "class", "p", "classes"}
    assert tuple(arrays["classes"]) == CLASSES
    np.testing.assert_array_equal(arrays["node"], frame["node"])
    np.testing.assert_allclose(arrays["p"], frame.filter(like="p:"), rtol=1e-12)
    assert (arrays["class"] == arrays["classes"][arrays["p"].argmax(1)]).all()
    assert frame["class"].astype(str).tolist() == [guarded(str(c)) for c in arrays["class"]]


@pytest.mark.parametrize("command", ["predict", "evaluate", "explain"])
def test_features_that_overflow_are_an_error(command: str, tmp_path: Path, monkeypatch, capsys):
    graph = demo_family(80)["gamma"].replace(classes=CLASSES)
    write_graph(graph.replace(x=np.full(graph.x.shape, 3e38, np.float32)), tmp_path / "huge.npz")
    monkeypatch.setattr(sys, "argv", ["edgemask", command, "model", str(tmp_path / "huge.npz"), "--device", "cpu"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert (
        "error: graph 'gamma', x: the largest feature is 0 of node 0, 3e+38; a feature must be"
        in capsys.readouterr().err
    )


def test_a_parquet_file_has_the_columns_of_the_csv_file(tmp_path: Path):
    pytest.importorskip("pyarrow")
    predict("gamma.npz", "-o", str(tmp_path / "p.parquet"))
    predict("gamma.npz", "-o", str(tmp_path / "p.csv"))
    frame, text = pd.read_parquet(tmp_path / "p.parquet"), pd.read_csv(tmp_path / "p.csv")
    assert list(frame.columns) == list(text.columns)
    assert set(frame["class"]) <= set(CLASSES)  # no apostrophes
    np.testing.assert_allclose(frame.filter(like="p:"), text.filter(like="p:"), rtol=1e-12)


def test_parquet_without_pyarrow_names_the_extra_before_any_work(monkeypatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr("edgemask.cli.predict.load", lambda *_: pytest.fail("the model was loaded"))
    with pytest.raises(MissingDependencyError, match=r"edgemask\[parquet\]"):
        predict("gamma.npz", "-o", str(tmp_path / "p.parquet"))


def test_several_graphs_are_written_to_a_folder(tmp_path: Path):
    result = predict("gamma.npz", "beta.npz", "-o", str(tmp_path / "new"))
    assert result.stdout.split() == [str(tmp_path / "new" / f"{name}.csv") for name in ("gamma", "beta")]
    assert (tmp_path / "new" / "gamma.csv").read_bytes() == predict("gamma.npz").stdout_bytes


@pytest.mark.parametrize(
    ("arguments", "error", "why"),
    [
        (("gamma.npz", "beta.npz"), InputError, "2 graphs need a folder"),
        (("gamma.npz", "beta.npz", "-o", "p.csv"), InputError, "must be a folder for several graphs, got p.csv"),
        (("gamma.npz", "gamma.npz", "-o", "many"), InputError, "would be written to many/gamma.csv"),
        (("gamma.npz", "-o", "p.xls"), InputError, "with the suffix .csv or .parquet or .npz"),
        (("gamma.npz", "-o", "beta.npz/p.csv"), FileError, "beta.npz/p.csv cannot be written"),
        (("gamma.npz", "beta.npz", "-o", "model/x"), FileError, "folder model/x"),
        (("gamma.npz", "nowhere.npz", "-o", "many"), FileError, "nowhere.npz: no such file or folder"),
        (("gamma.npz", "--read", "undirected=2"), InputError, "must be true or false"),
        (("gamma.npz", "--device", "tpu0"), InputError, "device must be auto, cpu or cuda"),
    ],
)
def test_problems_are_found_before_the_model_is_loaded(monkeypatch, arguments, error, why):
    monkeypatch.setattr("edgemask.cli.predict.load", lambda *_: pytest.fail("the model was loaded"))
    device = [] if "--device" in arguments else ["--device", "cpu"]
    with pytest.raises(error, match=why):
        CliRunner().invoke(app, ["predict", "model", *arguments, *device], catch_exceptions=False)


def test_predictions_are_written_in_chunks(monkeypatch, tmp_path: Path):
    p = np.random.default_rng(0).random((25, 2))
    found = Predictions(np.arange(25), np.array(["a", "b"]), p)
    write_csv(found, tmp_path / "whole.csv")
    monkeypatch.setattr(tables, "CHUNK", 10)
    assert [len(frame) for frame in found.frames(guarded)] == [10, 10, 5]
    write_csv(found, tmp_path / "parts.csv")
    assert (tmp_path / "parts.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    frame = pd.read_csv(tmp_path / "whole.csv")
    assert frame["class"].tolist() == np.array(["a", "b"])[p.argmax(1)].tolist()
    empty = Predictions(np.arange(0), np.array(["a", "b"]), np.zeros((0, 2)))
    write_csv(empty, tmp_path / "empty.csv")
    assert (tmp_path / "empty.csv").read_text() == "node,class,p:a,p:b\n"


@pytest.mark.parametrize("text", ["=1+1", "+a", "-a", "@x", "\tx", "\rx", "-", "-1+2", "+1e5|cmd"])
def test_a_formula_is_not_executed(text):
    assert guarded(text) == f"'{text}"


@pytest.mark.parametrize("value", ["ant", "", "-1", "+2.5", -1, "a=b", "1-2"])
def test_other_cells_stay(value):
    assert guarded(value) == value


def test_control_characters_are_escaped_on_a_terminal_only(monkeypatch):
    class Terminal(io.TextIOWrapper):
        terminal = True

        def isatty(self) -> bool:
            return self.terminal

    found = Predictions(np.array(["a\x9b"]), np.array(["x\x1b[2J"]), np.ones((1, 1)))
    for terminal, expected in ((True, "a\\x9b,x\\x1b[2J,1.0"), (False, "a\x9b,x\x1b[2J,1.0")):
        stream = Terminal(io.BytesIO(), "ascii")
        stream.terminal = terminal
        monkeypatch.setattr(sys, "stdout", stream)
        tables.print_csv(found)
        assert stream.buffer.getvalue().decode("utf-8").splitlines()[1] == expected


def test_the_modules_of_predict_do_not_import_training_code_themselves():
    for name in ("common", "json_output", "completion", "tables", "predict"):
        module = importlib.import_module(f"edgemask.cli.{name}")
        text = Path(module.__file__ or "").read_text("utf-8")
        assert "edgemask.training" not in text
        assert "edgemask.estimator" not in text  # only cli/loading.py loads models
