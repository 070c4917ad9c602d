"""The results page and its figures match the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgemask.experiments.records import ResultStore
from paper import results
from paper.findings import FINDINGS
from paper.suites import SUITES

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
    for suite in SUITES.values():
        for table in suite.comparisons(store, results.ABSENT):
            for where, cell in table.cells.items():
                assert cell.absent in ("", "data not available"), (table.name, where)


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
