"""The results page and its figures match the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgemask.experiments.auto import AutoRun
from edgemask.experiments.records import ResultStore
from edgemask.methods.registry import method_spec
from edgemask.report.suite import CellSpec, Suite, TableSpec
from paper import results
from paper.cells import Score
from paper.findings import FINDINGS
from paper.runs import run_set
from paper.suites import SUITES
from tests.paper.test_suites import record

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def store() -> ResultStore:
    return ResultStore(ROOT / "results")


@pytest.mark.paper
def test_every_record_is_accepted(store: ResultStore):
    assert not store.rejected


@pytest.mark.paper
def test_the_page_matches_the_records(store: ResultStore):
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == results.page(store)


@pytest.mark.paper
def test_the_figures_match_the_records(store: ResultStore):
    drawn = results.figures(store)
    assert set(drawn) == {path.stem for path in (ROOT / "docs" / "figures").glob("*.svg")}
    for name, text in drawn.items():
        assert (ROOT / "docs" / "figures" / f"{name}.svg").read_text(encoding="utf-8") == text, name


@pytest.mark.paper
def test_every_run_with_available_data_is_recorded(store: ResultStore):
    """A suite that was never run is not on the page. All runs of the others are recorded, except races on citation."""
    for suite in SUITES.values():
        if results.has_been_run(suite.comparisons(store, results.ABSENT)):
            missing = [t for t in suite.tasks() if t.benchmark not in results.ABSENT and store.find(t) is None]
            assert {(t.benchmark, type(t)) for t in missing} <= {("citation", AutoRun)}, suite.name


def test_a_suite_without_any_record_is_not_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mlp, gcn = (run_set("twitch", name, method_spec(name).recipe, seeds=1) for name in ("erm-mlp", "erm-gcn"))
    temporal = run_set("elliptic", "erm-gcn", method_spec("erm-gcn").recipe, seeds=1)
    suites = {
        name: Suite(name, f"The {name} suite", (TableSpec("T", "", tuple(CellSpec("r", str(i), r, Score())
                                                                          for i, r in enumerate(own))),))
        for name, own in {"partly": (mlp, gcn), "later": (gcn, temporal), "absent": (temporal,)}.items()
    }  # fmt: skip
    monkeypatch.setattr(results, "SUITES", suites | {"empty": Suite("empty", "The empty suite")})
    store = ResultStore(tmp_path)
    for task in mlp.tasks():
        store.add(task, record(task))
    page = results.page(ResultStore(tmp_path))
    assert [name for name in results.SUITES if f"## The {name} suite" in page] == ["partly", "absent"]
    assert [name for name in results.SUITES if f"(#the-{name}-suite)" in page] == ["partly", "absent"]
    assert "not run" in page
    for task in gcn.tasks():
        store.add(task, record(task))
    assert "## The later suite" in results.page(ResultStore(tmp_path))


def test_a_suite_with_a_table_that_was_never_run_is_not_on_the_page(tmp_path: Path):
    mlp, gcn = (run_set("twitch", name, method_spec(name).recipe, seeds=1) for name in ("erm-mlp", "erm-gcn"))
    temporal = run_set("elliptic", "erm-gcn", method_spec("erm-gcn").recipe, seeds=1)
    shared, own, absent = (TableSpec("T", "", (CellSpec("r", "c", r, Score()),)) for r in (mlp, gcn, temporal))
    store = ResultStore(tmp_path)
    for task in mlp.tasks():  # runs that the suite shares with another one
        store.add(task, record(task))
    assert not results.has_been_run(Suite("s", "S", (shared, own)).comparisons(store, results.ABSENT))
    assert results.has_been_run(Suite("t", "T", (shared, absent)).comparisons(store, results.ABSENT))
    assert not results.has_been_run([])


def test_findings_name_known_suites():
    assert set(FINDINGS) <= set(SUITES)
    assert all(FINDINGS.values())


def test_a_store_with_a_rejected_record_makes_no_page(tmp_path: Path):
    (tmp_path / "toy" / "erm").mkdir(parents=True)
    (tmp_path / "toy" / "erm" / "a-seed0-0.json").write_text("{}")
    with pytest.raises(ValueError, match="is not a result record"):
        results.write(tmp_path / "docs", tmp_path)
    assert not (tmp_path / "docs").exists()


def test_anchors_are_those_of_github():
    assert results.anchor("`paper`, `released` and `robust` side by side") == "paper-released-and-robust-side-by-side"
    assert results.anchor("Enrichment × mask") == "enrichment--mask"
