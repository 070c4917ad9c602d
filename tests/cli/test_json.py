"""`--json`: every command prints one JSON document of its documented schema, and nothing else."""

from __future__ import annotations

import json
import math
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from edgemask import __version__
from edgemask.cli import app, main
from edgemask.cli.demo import run_demo
from edgemask.cli.json_output import json_value, output
from edgemask.data import BENCHMARKS, write_graph
from edgemask.data.synthetic import demo_family
from edgemask.errors import GraphWarning
from edgemask.methods.registry import METHODS

ROOT = Path(__file__).resolve().parents[2]
TINY = ("epochs=3", "clusters=5", "k=3", "hidden=8", "mask_projection=8", "mask_hidden=8", "alpha=0,0.5")
SETS = [part for setting in TINY for part in ("--set", setting)]
NULL = type(None)
TABLE = {"name": str, "title": str, "rows": list, "columns": list, "cells": list}
MODEL: dict[str, Any] = {
    "metric": str, "seed": int, "classes": list, "rule": str, "leaderboard": list, "members": list,
    "expected": (dict, NULL), "notes": list,
}  # fmt: skip
SCHEMAS: dict[str, dict[str, Any]] = {
    "fit": {"model": str, "method": str, **MODEL},
    "predict": {"model": str, "graphs": list},
    "evaluate": {
        "model": str, "graph": str, "name": str, "nodes": int, "scores": dict, "majority": dict, "metric": str,
        "expected": (dict, NULL), "rule": str,
    },
    "theory": {"model": str, "graph": str, "output": (str, NULL), "report": dict, "verdict": str},
    "methods": {"methods": list, "hyperparameters": (list, NULL)},
    "bench": {
        "benchmark": str, "results": str, "records": int, "table": (dict, NULL), "failures": dict,
        "missing_targets": list, "missing_files": dict,
    },
    "data.list": {"root": str, "benchmarks": list},
    "data.info": {"name": str, "card": dict, "protocols": list, "options": dict, "files": list},
    "data.verify": {"root": str, "files": list},
    "data.fetch": {"root": str, "files": list},
    "results.check": {"folder": str, "records": int, "rejected": list},
    "results.pack": {"folder": str, "records": int, "written": list, "bytes": int},
    "reproduce": {"suites": list, "report": (str, NULL)},
    "report": {"output": str, "records": int, "bytes": int},
    "slurm": {"output": str, "command": str, "runs": int},
    "demo": {**MODEL, "target": str, "scores": dict, "verdict": str, "picture": str},
    "version": {},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _private(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEMASK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EDGEMASK_DATA", str(tmp_path / "data"))


def document(schema: str, *arguments: object, status: int = 0) -> dict[str, Any]:
    """Run a command with `--json`, check its document against its schema, and return it."""
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == status, result.output
    assert result.stdout.isascii()
    found: dict[str, Any] = json.loads(result.stdout, parse_constant=pytest.fail)
    types = SCHEMAS.get(schema)
    assert found.pop("schema") == f"edgemask.{schema}/1"
    assert found.pop("version") == __version__
    assert isinstance(found.pop("warnings"), list)
    if types is not None:
        assert found.keys() == types.keys()
        for key, kind in types.items():
            assert isinstance(found[key], kind), key
    return found


def words(text: str) -> set[str]:
    return set(text.split())


def keys(rows: list[dict[str, Any]], expected: str) -> None:
    assert rows
    assert all(row.keys() == words(expected) for row in rows)


# ---- the mechanism ---------------------------------------------------------------------------------------


def test_values_that_json_does_not_have_are_converted():
    value = {"a": math.nan, 2: (math.inf, -math.inf, 1.5), "b": np.array([[1.0, np.nan]]), "c": np.int64(3)}
    assert json_value(value) == {"a": None, "2": [None, None, 1.5], "b": [[1.0, None]], "c": 3}
    assert json_value({"path": Path("x/y"), "t": True, "n": None, "s": "é"}) == {
        "path": "x/y", "t": True, "n": None, "s": "é",
    }  # fmt: skip


def test_warnings_are_collected_and_still_shown(capsys):
    def command() -> None:
        with output("version", True) as result:
            warnings.warn("an odd graph", GraphWarning, stacklevel=1)
            result.show({}, lambda: pytest.fail("printed as text"))

    with pytest.warns(GraphWarning, match="odd"):
        command()
    assert json.loads(capsys.readouterr().out)["warnings"] == ["an odd graph"]


def complaint(monkeypatch, capsys, *arguments: str) -> tuple[object, dict[str, Any], str]:
    monkeypatch.setattr(sys, "argv", ["edgemask", *arguments])
    with pytest.raises(SystemExit) as exit_:
        main()
    out, err = capsys.readouterr()
    return exit_.value.code, json.loads(out), err


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (("data", "info", "cake", "--json"), "InputError", "no benchmark 'cake'"),
        (("fit", "nowhere.npz", "-m", "m", "--json"), "FileError", "nowhere.npz: no such file or folder"),
        (("evaluate", "m", "g", "--metric", "f3", "--json"), "MetricError", "no metric 'f3'"),
        (("demo", "--json", "--sede", "3"), "NoSuchOption", "No such option: --sede; did you mean '--seed'?"),
        (("fit", "--json"), "MissingParameter", "Missing argument"),
        (("nope", "--json"), "UsageError", "No such command 'nope'"),
    ],
)
def test_an_error_is_a_document_and_a_line(monkeypatch, capsys, arguments, kind, message):
    status, found, err = complaint(monkeypatch, capsys, *arguments)
    assert status == 2
    assert found["schema"] == "edgemask.error/1"
    assert found["error"]["type"] == kind
    assert message in found["error"]["message"]
    assert err.startswith(f"error: {found['error']['message']}\n")


def test_a_bug_is_a_document_too(monkeypatch, capsys):
    def fail(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("edgemask.cli.demo.run_demo", fail)
    status, found, err = complaint(monkeypatch, capsys, "demo", "--json")
    assert status == 70
    assert found["error"]["type"] == "KeyError"
    assert err.startswith("bug: KeyError: 'x'")


def test_every_schema_is_documented():
    documented = set(re.findall(r'"schema": "edgemask\.([a-z.]+)/1"', (ROOT / "docs" / "cli.md").read_text("utf-8")))
    assert documented >= {*SCHEMAS, "explain", "plan", "error"}


# ---- quick commands --------------------------------------------------------------------------------------


def test_version_and_methods():
    assert document("version", "version") == {}
    found = document("methods", "methods")
    assert [row["name"] for row in found["methods"]] == list(METHODS)
    keys(found["methods"], "name description citation cost status")
    assert found["hyperparameters"] is None
    one = document("methods", "methods", "irm")
    assert [row["name"] for row in one["methods"]] == ["irm"]
    keys(one["hyperparameters"], "name default low high choices law search description")
    assert {row["name"]: row["high"] for row in one["hyperparameters"]}["lr"] is None  # infinity


def test_data(tmp_path: Path):
    found = document("data.list", "data", "list")
    assert [row["name"] for row in found["benchmarks"]] == list(BENCHMARKS)
    keys(found["benchmarks"], "name title domains available missing_files")
    info = document("data.info", "data", "info", "citation")
    keys(info["protocols"], "kind name sources validation targets metrics missing")
    keys(info["files"], "path available")
    path = tmp_path / "data" / "citation" / "acmv9.mat"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"other bytes")
    verified = document("data.verify", "data", "verify", "citation", status=1)["files"]
    assert [row["status"] for row in verified] == ["altered", "missing", "missing"]
    assert "expected" in verified[0]["message"]
    fetched = document("data.fetch", "data", "fetch", "citation", "--offline", status=1)["files"]
    assert {row["status"] for row in fetched} == {"failed"}


def test_results_and_suites(tmp_path: Path):
    (tmp_path / "results").mkdir()
    assert document("results.check", "results", "check")["records"] == 0
    assert document("results.pack", "results", "pack")["written"] == []
    listed = document("reproduce", "reproduce")["suites"]
    keys(listed, "name title runs tables files")
    shown = document("reproduce", "reproduce", "results_citations", "--only-show")["suites"]
    assert [suite["name"] for suite in shown] == ["results_citations"]
    assert shown[0]["tables"][0].keys() == TABLE.keys()
    assert all(Path(file).exists() for file in shown[0]["files"])
    job = document("slurm", "slurm", "results_citations", "--minutes", 7, "--memory-mib", 900, "-o", "job.sbatch")
    assert job["command"] == "sbatch job.sbatch"


@pytest.mark.slow
def test_report(tmp_path: Path):
    found = document("report", "report", "--results", ROOT / "results", "-o", "page.html")
    assert found["output"] == "page.html"
    assert (tmp_path / "page.html").stat().st_size == found["bytes"]


# ---- commands that train ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Write three graphs with named classes and train a model."""
    folder = tmp_path_factory.mktemp("trained")
    for graph in demo_family(80).values():
        write_graph(graph.replace(classes=("ant", "bee", "cat", "dög", "eel")), folder / f"{graph.name}.npz")
    fit = ["fit", "alpha.npz", "beta.npz", "-m", "model", "--method", "robust", *SETS, "--device", "cpu"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("EDGEMASK_CACHE", str(folder / "cache"))
        found = document("fit", *fit)
    keys(found["leaderboard"], "name score error epoch propagation rounds weight seconds note")
    assert found["classes"] == ["ant", "bee", "cat", "dög", "eel"]
    assert found["members"] == ["edgemask-dg-star"]
    return folder


def test_predict(trained: Path, monkeypatch):
    monkeypatch.chdir(trained)
    (graph,) = document("predict", "predict", "model", "gamma.npz", "--device", "cpu")["graphs"]
    keys([graph], "graph name output nodes classes counts node class p")
    assert graph["node"] == list(range(80))
    assert set(graph["class"]) <= {"ant", "bee", "cat", "dög", "eel"}
    assert np.allclose(np.sum(graph["p"], 1), 1)
    found = document("predict", "predict", "model", "gamma.npz", "beta.npz", "-o", "many", "--device", "cpu")["graphs"]
    keys(found, "graph name output nodes classes counts")
    assert [g["output"] for g in found] == ["many/gamma.csv", "many/beta.csv"]
    assert sum(found[0]["counts"]) == 80


def test_evaluate_explain_and_theory(trained: Path, monkeypatch):
    monkeypatch.chdir(trained)
    found = document("evaluate", "evaluate", "model", "gamma.npz", "--device", "cpu")
    assert found["scores"].keys() == found["majority"].keys() == {"micro_f1", "macro_f1"}
    assert all(0 <= value <= 1 for value in found["scores"].values())
    assert found["nodes"] == 80
    found = document("explain", "explain", "model", "gamma.npz", "--node", "3", "--device", "cpu")
    assert found.keys() == {"model", "graph", "name", "output", "kind", "edges"}
    keys(found["edges"], "node neighbour class probability derivative change mask")
    assert {edge["node"] for edge in found["edges"]} == {3}
    assert found["edges"][0]["class"] in {"ant", "bee", "cat", "dög", "eel"}
    found = document("explain", "explain", "model", "gamma.npz", "--adversary", "--device", "cpu")
    assert found.keys() == {"model", "graph", "name", "output", "kind", "origins"}
    keys(found["origins"], "origin edges mean_mask pruned")
    found = document("theory", "theory", "model", "gamma.npz", "--steps", "2", "--device", "cpu")
    assert {"masks", "duality", "gradients"} <= found["report"].keys()


@pytest.mark.slow
def test_plan(trained: Path, monkeypatch):
    monkeypatch.chdir(trained)
    common = words(
        "rule nodes edges machine start_seconds enrich_seconds peak_mib free_mib host_mib host_free_mib basis "
        "device kind"
    )
    plan = ["plan", "alpha.npz", "beta.npz", "--device", "cpu", "--set", "epochs=3"]
    single = document("plan", *plan, "--method", "erm-mlp")
    assert single.keys() == common | words("stages epoch_edges epoch_seconds total_seconds fits suggestions")
    keys(single["stages"], "name epochs seconds")
    race = document("plan", *plan, "--candidates", "erm-mlp")
    assert race.keys() == common | words("candidates beyond_budget notes least_seconds most_seconds budget max_members")
    keys(race["candidates"], "name first_seconds rounds_seconds final_seconds peak_mib host_mib failed fits")


@pytest.mark.slow
def test_bench(tmp_path: Path):
    options = ["--option", "nodes=80", "--protocol", "alpha+beta→gamma", "--seeds", 1, "--device", "cpu"]
    found = document("bench", "bench", "synthetic", "--method", "erm-mlp", *options, "--set", "epochs=2")
    assert found["records"] == 1
    assert found["table"].keys() == TABLE.keys()
    cell = found["table"]["cells"][-1]
    assert cell["row"] == "erm-mlp epochs=2"
    assert cell["std"] is None  # NaN: one seed
    assert cell["values"][0]["value"] == cell["mean"]


@pytest.mark.slow
def test_demo(monkeypatch, tmp_path: Path):
    def short(console, seed):
        return run_demo(console, seed, nodes=80, epochs=2, hidden=8, k=3, clusters=5)

    monkeypatch.setattr("edgemask.cli.demo.run_demo", short)
    found = document("demo", "demo", "--picture", "demo.png")
    assert list(found["scores"]) == ["auto", "erm-mlp", "erm-gcn", "majority class"]
    assert (tmp_path / found["picture"]).exists()
