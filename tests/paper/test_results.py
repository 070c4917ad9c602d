"""The results page and its figures are what the records say."""

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


def test_every_record_is_trusted(store: ResultStore):
    assert not store.rejected


def test_the_page_is_what_the_records_say(store: ResultStore):
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == results.page(store)


def test_the_figures_are_what_the_records_say(store: ResultStore):
    drawn = results.figures(store)
    assert set(drawn) == {path.stem for path in (ROOT / "docs" / "figures").glob("*.svg")}
    for name, text in drawn.items():
        assert (ROOT / "docs" / "figures" / f"{name}.svg").read_text(encoding="utf-8") == text, name


def test_everything_whose_data_is_here_was_run(store: ResultStore):
    for suite in SUITES.values():
        for table in suite.comparisons(store, results.ABSENT):
            for where, cell in table.cells.items():
                assert cell.absent in ("", "data not available"), (table.name, where)


def test_findings_are_of_suites_there_are():
    assert set(FINDINGS) <= set(SUITES)


def test_a_store_with_records_that_are_not_trusted_makes_no_page(tmp_path: Path):
    (tmp_path / "toy" / "erm").mkdir(parents=True)
    (tmp_path / "toy" / "erm" / "a-seed0-0.json").write_text("{}")
    with pytest.raises(ValueError, match="is not a result record"):
        results.write(tmp_path / "docs", tmp_path)
    assert not (tmp_path / "docs").exists()


def test_anchors_are_as_a_reader_clicks_them():
    assert results.anchor("`paper`, `released` and `robust` side by side") == "paper-released-and-robust-side-by-side"
    assert results.anchor("Enrichment × mask") == "enrichment--mask"
