"""`edgemask reproduce`, `slurm`, `report` on small suites."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgemask.cli import app
from edgemask.experiments.records import ResultStore, write_pack
from edgemask.methods.registry import method_spec
from edgemask.report.suite import CellSpec, RunSet, Suite, TableSpec
from paper import cells, suites

ROOT = Path(__file__).resolve().parents[2]
RECIPE = method_spec("erm-mlp").recipe.replace(epochs=2)
RUNS = RunSet("synthetic", "erm-mlp", RECIPE, ("alpha+beta→gamma",), seeds=2)
TINY = Suite("tiny", "A tiny suite", (TableSpec("Tiny", "Micro-F1.", (CellSpec("MLP", "γ", RUNS, cells.Score()),)),))


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setitem(suites.SUITES, "tiny", TINY)
    monkeypatch.setitem(suites.PROTOCOLS, "synthetic", ("alpha+beta→gamma",))
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
def test_a_shard_that_is_none_is_refused(text: str):
    result = CliRunner().invoke(app, ["reproduce", "tiny", f"--shard={text}", "--only-show"])
    assert isinstance(result.exception, ValueError)
    assert "shard must be I/N" in str(result.exception)


@pytest.mark.slow
def test_a_suite_is_run_once_shown_and_written_and_its_records_serve_again(tmp_path: Path):
    first = call("reproduce", "tiny", "--device", "cpu")
    assert "2 of 2 recorded (0 were there before)" in first.output
    assert "MLP" in first.output
    files = {p: p.stat().st_mtime_ns for p in (tmp_path / "results").rglob("*.json")}
    assert len(files) == 2
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"tiny.md", "tiny.tex", "tiny.csv"}
    again = call("reproduce", "tiny", "--device", "cpu")
    assert "2 of 2 recorded (2 were there before)" in again.output
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "results").rglob("*.json")} == files


def test_the_report_page_comes_with_the_tables_on_demand(tmp_path: Path):
    said = call("reproduce", "tiny", "--only-show", "--report", "--results", few(tmp_path), "-o", "all").output
    assert {p.name for p in (tmp_path / "all").iterdir()} == {"tiny.md", "tiny.tex", "tiny.csv", "report.html"}
    assert "report.html: 2 records" in said


def test_a_suite_without_tables_says_where_they_come_from(tmp_path: Path):
    said = call("reproduce", "complexity", "explorer", "--only-show").output
    assert "complexity: no records of growth: `python -m benchmarks --part growth` makes them" in said
    assert "explorer: its runs are shown by the report page" in said
    assert not list((tmp_path / "out").iterdir())


def test_what_was_not_run_is_said_when_only_shown():
    assert "not run" in call("reproduce", "tiny", "--only-show").output


def test_a_file_that_is_not_trusted_is_named(tmp_path: Path):
    path = tmp_path / "results" / "synthetic" / "erm-mlp" / "x.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert "ignored: " in call("reproduce", "tiny", "--only-show").output


def test_a_job_file_asks_for_what_it_is_told_and_runs_every_part(tmp_path: Path):
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


def test_a_job_file_for_a_device_that_cannot_be_is_refused():
    result = CliRunner().invoke(app, ["slurm", "tiny", "--device", "gpu", "--minutes", "1", "--memory-mib", "1"])
    assert "device must be auto, cpu or cuda, got 'gpu'" in str(result.exception)


def test_a_report_without_records_is_refused():
    result = CliRunner().invoke(app, ["report"])
    assert isinstance(result.exception, ValueError)
    assert "results holds no records: `edgemask bench` and `edgemask reproduce` write them" in str(result.exception)


def test_a_report_says_where_it_is_and_how_large(tmp_path: Path):
    said = call("report", "--results", few(tmp_path), "-o", "page.html").output
    assert "page.html: 2 records" in said
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def few(tmp_path: Path) -> Path:
    """A store of two records of this repository."""
    assert not len(ResultStore(ROOT / "results" / "citation"))  # a benchmark's folder alone is not a store
    records = [r for r in ResultStore(ROOT / "results") if (r["benchmark"], r.get("method")) == ("citation", "erm-mlp")]
    write_pack(tmp_path / "few" / "citation" / "erm-mlp.jsonl", records[:2])
    return tmp_path / "few"
