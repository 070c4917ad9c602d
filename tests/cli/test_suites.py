"""`edgemask reproduce`, `slurm`, `report` and `results`, on small suites."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgemask.cli import app
from edgemask.errors import FileError, InputError
from edgemask.experiments.records import ResultStore, write_pack
from edgemask.methods.registry import method_spec
from edgemask.report.suite import CellSpec, RunSet, Suite, TableSpec
from paper import cells, runs, suites

ROOT = Path(__file__).resolve().parents[2]
RECIPE = method_spec("erm-mlp").recipe.replace(epochs=2)
RUNS = RunSet("synthetic", "erm-mlp", RECIPE, ("alpha+beta→gamma",), seeds=2)
TINY = Suite("tiny", "A tiny suite", (TableSpec("Tiny", "Micro-F1.", (CellSpec("MLP", "γ", RUNS, cells.Score()),)),))


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setitem(suites.SUITES, "tiny", TINY)
    monkeypatch.setitem(runs.PROTOCOLS, "synthetic", ("alpha+beta→gamma",))
    monkeypatch.chdir(tmp_path)


def call(*arguments: object, status: int = 0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == status, result.output
    return result


def test_without_a_name_all_suites_are_listed():
    listed = call("reproduce").output
    for name in suites.SUITES:
        assert name in listed


def test_an_unknown_name_lists_the_known_ones():
    result = CliRunner().invoke(app, ["reproduce", "table-1"])
    assert isinstance(result.exception, ValueError)
    assert "no table or figure 'table-1' (there are: results_citations" in str(result.exception)


@pytest.mark.parametrize("text", ["1", "a/b", "2/2", "1/", "-1/2"])
def test_an_invalid_shard_is_refused(text: str):
    result = CliRunner().invoke(app, ["reproduce", "tiny", f"--shard={text}", "--only-show"])
    assert isinstance(result.exception, ValueError)
    assert "shard must be I/N" in str(result.exception)


@pytest.mark.slow
def test_a_suite_runs_once_writes_its_tables_and_reuses_its_records(tmp_path: Path):
    first = call("reproduce", "tiny", "--device", "cpu")
    assert "2 of 2 recorded (0 were recorded before)" in first.output
    assert "MLP" in first.output
    files = {p: p.stat().st_mtime_ns for p in (tmp_path / "results").rglob("*.json")}
    assert len(files) == 2
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"tiny.md", "tiny.tex", "tiny.csv"}
    again = call("reproduce", "tiny", "--device", "cpu")
    assert "2 of 2 recorded (2 were recorded before)" in again.output
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "results").rglob("*.json")} == files


@pytest.mark.slow
def test_the_report_page_is_written_with_the_tables_on_request(tmp_path: Path):
    said = call("reproduce", "tiny", "--only-show", "--report", "--results", few(tmp_path), "-o", "all").output
    assert {p.name for p in (tmp_path / "all").iterdir()} == {"tiny.md", "tiny.tex", "tiny.csv", "report.html"}
    assert "report.html: 2 records" in said


def test_tables_are_replaced_and_not_overwritten_in_place(tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "old").write_text("old")
    os.link(tmp_path / "old", tmp_path / "out" / "tiny.csv")
    call("reproduce", "tiny", "--only-show", "--results", few(tmp_path))
    assert "MLP" in (tmp_path / "out" / "tiny.csv").read_text(encoding="utf-8")
    assert (tmp_path / "old").read_text() == "old"


def test_a_suite_without_tables_says_why(tmp_path: Path):
    said = call("reproduce", "complexity", "explorer", "--only-show").output
    assert "complexity: there are no growth records: `python -m benchmarks --part growth` writes them" in said
    assert "explorer: the report page shows its runs" in said
    assert not list((tmp_path / "out").iterdir())


def test_only_show_marks_runs_that_were_not_run():
    assert "not run" in call("reproduce", "tiny", "--only-show").output


def test_a_file_that_is_not_a_record_is_named(tmp_path: Path):
    path = tmp_path / "results" / "synthetic" / "erm-mlp" / "x.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert "ignored: " in call("reproduce", "tiny", "--only-show").output


def test_a_job_file_requests_the_given_resources_and_runs_every_part(tmp_path: Path):
    call("slurm", "tiny", "--minutes", 7, "--memory-mib", 900, "--gpus", 1, "--elements", 2, "-o", "jobs/t.sbatch")
    text = (tmp_path / "jobs" / "t.sbatch").read_text()
    for asked in (
        "--time=7",
        "--mem=900M",
        "--gpus=1",
        "--array=0-1",
        'reproduce tiny --shard "$SLURM_ARRAY_TASK_ID/2"',
    ):
        assert asked in text
    subprocess.run(["bash", "-n", "jobs/t.sbatch"], check=True)


def test_a_job_file_for_an_unknown_device_is_refused():
    result = CliRunner().invoke(app, ["slurm", "tiny", "--device", "gpu", "--minutes", "1", "--memory-mib", "1"])
    assert "device must be auto, cpu or cuda, got 'gpu'" in str(result.exception)


def test_a_report_without_records_is_refused():
    result = CliRunner().invoke(app, ["report"])
    assert isinstance(result.exception, ValueError)
    assert "there are no records in results: `edgemask bench`, `compare` and `reproduce` write them" in str(
        result.exception
    )


@pytest.mark.slow
def test_a_report_prints_its_path_and_number_of_records(tmp_path: Path):
    said = call("report", "--results", few(tmp_path), "-o", "page.html").output
    assert "page.html: 2 records" in said
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("arguments", [["reproduce"], ["reproduce", "tiny"], ["slurm", "tiny"]])
def test_outside_a_checkout_the_papers_tables_are_refused(monkeypatch, tmp_path: Path, arguments):
    monkeypatch.setattr("edgemask.cli.paper.CHECKOUT", tmp_path)
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, InputError)
    assert "are part of the edgemask repository, not of the installed package: clone the repository" in str(
        result.exception
    )


@pytest.mark.slow
def test_outside_a_checkout_the_report_has_a_table_per_benchmark(monkeypatch, tmp_path: Path):
    results = few(tmp_path)
    monkeypatch.setattr("edgemask.cli.paper.CHECKOUT", tmp_path)
    said = call("report", "--results", results, "-o", "page.html").output
    assert "page.html: 2 records" in said
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "citation, percent" in page
    assert "erm-mlp" in page
    assert not any(title in page for title in ("A tiny suite", suites.suite("results_citations").title))


def test_results_are_packed_and_checked(tmp_path: Path):
    store = ResultStore(tmp_path / "results")
    for task in list(RUNS.tasks()):
        domains = {name: f"hash of {name}" for name in task.protocol.domains}
        metrics = dict.fromkeys(task.protocol.targets, dict.fromkeys(task.protocol.metrics, 0.5))
        own = {"data": domains, "metrics": metrics, "curves": {"loss": [1.0]}, "select": {"rule": "last"}}
        store.add(task, task.describe() | own | {"missing": [], "seconds": {}, "machine": {}})
    assert call("results", "check").output == "results: 2 records\n"
    said = call("results", "pack").output.splitlines()
    assert said[0] == "results/synthetic/erm-mlp.jsonl"
    assert said[1].startswith("2 records in results, ")
    assert call("results", "check", "results").output == "results: 2 records\n"
    path = tmp_path / "results" / "synthetic" / "erm-mlp.jsonl"
    path.write_text(path.read_text(encoding="utf-8").replace('"seed": 1', '"seed": 2'))
    said = call("results", "check", status=1)
    assert said.stdout == "results: 1 records\n"
    assert said.stderr.startswith("results/synthetic/erm-mlp.jsonl, line 2 was changed after it was written")
    result = CliRunner().invoke(app, ["results", "pack"])
    assert "nothing was packed: results/synthetic/erm-mlp.jsonl, line 2 was changed" in str(result.exception)


@pytest.mark.parametrize("command", ["check", "pack"])
def test_a_missing_folder_of_results_is_an_error(command: str, tmp_path: Path):
    result = CliRunner().invoke(app, ["results", command, "nofolder"])
    assert isinstance(result.exception, FileError)
    assert str(result.exception) == "there is no folder nofolder"
    assert list(tmp_path.iterdir()) == []


def few(tmp_path: Path) -> Path:
    """Return the folder of a store of two records of this repository."""
    assert not len(ResultStore(ROOT / "results" / "citation"))  # a benchmark's folder alone is not a store
    records = [r for r in ResultStore(ROOT / "results") if (r["benchmark"], r.get("method")) == ("citation", "erm-mlp")]
    write_pack(tmp_path / "few" / "citation" / "erm-mlp.jsonl", records[:2])
    return tmp_path / "few"
