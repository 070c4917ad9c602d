"""`edgemask compare` and `edgemask tune` on own graphs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgemask import compare, write_graph
from edgemask.cli import app
from edgemask.data.synthetic import demo_family
from edgemask.errors import EdgemaskError
from edgemask.experiments.local import InProcess

GRAPHS = list(demo_family(80).values())
FILES = [f"{g.name}.npz" for g in GRAPHS]
SETS = [part for s in ("epochs=3", "hidden=8", "k=3", "clusters=5") for part in ("--set", s)]
FAST = [*SETS, "--seeds", "2", "--device", "cpu"]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEMASK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("edgemask.cli.running.Local", lambda settings, jobs: InProcess(settings))
    monkeypatch.setattr("edgemask.cli.reproduce.in_checkout", lambda: False)
    for graph in GRAPHS:
        write_graph(graph, tmp_path / f"{graph.name}.npz")


def invoke(*arguments: str):
    result = CliRunner().invoke(app, [*arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.slow
def test_the_table_the_tests_and_the_report_of_a_comparison():
    pytest.importorskip("plotly")
    shown = invoke("compare", *FILES, "--method", "erm-gcn", *FAST, "--report", "r.html").stdout
    for text in ("alpha", "gamma", "average", "majority class", "erm-gcn-enriched", "selection", "adjusted p"):
        assert text in shown
    again = invoke("compare", *FILES, "--method", "erm-gcn", *FAST)
    assert "21 of 21 recorded (21 were recorded before)" in again.stderr
    assert "majority class" in Path("r.html").read_text()
    invoke("report", "--results", "edgemask-compare", "-o", "again.html")
    assert "leave one graph out" in Path("again.html").read_text()
    invoke("results", "check", "edgemask-compare")


@pytest.mark.slow
def test_the_document_has_the_numbers_of_the_library():
    found = json.loads(
        invoke("compare", *FILES[:2], "--target", FILES[2], "--method", "erm-gcn", *FAST, "--json").stdout
    )
    assert found["schema"] == "edgemask.compare/1"
    assert set(found) == {
        *("schema", "version", "warnings", "graphs", "split", "results", "report", "runs", "tables", "tests"),
        "failures",
    }
    settings = {"epochs": 3, "hidden": 8, "k": 3, "clusters": 5}
    frame = compare(GRAPHS[:2], ["erm-gcn"], targets=GRAPHS[2], seeds=2, settings=settings, device="cpu")
    assert [r["micro_f1"] for r in found["runs"]] == frame["micro_f1"].tolist()
    assert found["split"] == "targets"
    assert {t["reference"] for t in found["tests"]} == {"erm-gcn"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "alpha.npz", "--method", "erm-gcn"], "at least 2 graphs"),
        (["compare", "nope.npz", "beta.npz"], "nope.npz: no such file"),
        (["compare", "nope.npz", "--method", "erm-gnc"], "did you mean 'erm-gcn'"),
        (["compare", "nope.npz", "--metric", "f2"], "no metric 'f2'"),
        (["compare", "nope.npz", "--set", "epoch=3"], "did you mean 'epochs'"),
        (["compare", "nope.npz", "--read", "lable=x"], "did you mean 'label'"),
        (["compare", *FILES, "--results", "alpha.npz"], "alpha.npz"),
        (["compare", *FILES, "--report", "alpha.npz/r.html"], "alpha.npz"),
        (["compare", *FILES, "--target", "alpha.npz"], "is the same as"),
        (["tune", "citatio", "--method", "erm-gcn"], "citatio: no such file or folder, and no benchmark.*'citation'"),
        (["tune", *FILES, "--method", "erm-gnc"], "did you mean 'erm-gcn'"),
        (["tune", *FILES, "--method", "erm-gcn", "--protocol", "x"], "--protocol needs a benchmark"),
        (["tune", "synthetic", "--method", "erm-gcn", "--metric", "accuracy"], "--metric and --read are for graphs"),
    ],
)
def test_errors_come_before_the_work(arguments: list[str], message: str):
    with pytest.raises(EdgemaskError, match=message):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


@pytest.mark.slow
def test_tune_prints_settings_for_own_graphs_and_for_benchmarks():
    pytest.importorskip("optuna")
    options = ["--method", "erm-gcn", "--trials", "2", "--set", "epochs=2", "--device", "cpu", "--json"]
    found = json.loads(invoke("tune", *FILES, *options).stdout)
    assert found["schema"] == "edgemask.tune/1"
    (search,) = found["searches"]
    assert found["benchmark"] is None
    assert search["best"] == max(t["score"] for t in search["trials"])
    assert search["options"].startswith("--set lr=")
    assert "trial" not in invoke("tune", *FILES, *options).stderr  # stored trials are not run again
    old = json.loads(invoke("tune", "synthetic", "--protocol", "alpha+beta→gamma", *options).stdout)
    assert old["benchmark"] == "synthetic"
    assert Path("tuned/synthetic").is_dir()
