"""The replication page matches the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from paper.replication import CITATION, TWITCH, Row, citation_row, page, paper_row

ROW = Row("GCN", "erm-gcn")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.paper
def test_the_page_matches_the_records():
    assert (ROOT / "docs" / "replication.md").read_text(encoding="utf-8") == page(ROOT / "results")


def test_a_row_without_records_is_an_error():
    with pytest.raises(ValueError, match="GCN, AC→D: 0 records under results/, expected 5"):
        citation_row(Row("GCN", "erm-gcn"), [])


def test_a_row_has_only_the_records_of_the_transfers_with_two_sources():
    run = {"benchmark": "citation", "method": "erm-gcn", "seed": 0, "code": "1", "recipe": ROW.full_recipe.to_json()}
    own, other = ({**run, "protocol": {"name": name}} for name in ("AC→D", "A→D"))
    assert ROW.records("citation", [own, other]) == [own]


def test_the_papers_figures_are_those_of_its_table():
    assert paper_row("the paper's ERM", "ERM") == (
        "| the paper's ERM | 67.9 / 62.7 | 70.9 / 67.8 | 62.4 / 59.6 | 65.24 | not stated |"
    )


def test_a_command_names_every_setting():
    row = Row("x", "erm-gcn", "paper", {"alpha": (0.0, 0.5), "epochs": 3}, 7)
    assert row.command("citation") == (
        "edgemask bench citation --method erm-gcn --seeds 7 --recipe paper --set alpha=0,0.5 --set epochs=3"
    )


@pytest.mark.parametrize("row", [*CITATION, *TWITCH], ids=lambda r: r.label)
def test_every_row_has_at_least_five_seeds(row):
    assert row.seeds >= 5
