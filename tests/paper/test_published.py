"""The quoted figures are equal to the paper's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paper.published import ADAPTATION, TABLES, figure

SHARED = Path(__file__).resolve().parents[3] / "shared" / "paper" / "tables.json"


@pytest.mark.skipif(not SHARED.exists(), reason="needs the paper's figures beside the repository")
def test_every_figure_is_the_papers():
    expected = json.loads(SHARED.read_text())["tables"]
    quoted = {t: {r: {c: list(v) for c, v in row.items()} for r, row in rows.items()} for t, rows in TABLES.items()}
    assert quoted == expected


def test_a_figure_that_the_paper_does_not_give_is_empty():
    assert figure("results_citations", "EDG*", "average") == (73.81,)
    assert figure("results_citations", "EDG*", "nothing") == ()
    assert figure("results_citations", "nobody", "average") == ()


def test_figures_of_adaptation_methods_are_averages_of_micro_and_macro_f1():
    averages = [(row["average micro"], row["average macro"]) for row in ADAPTATION.values()]
    assert averages == [((m,), (n,)) for m, n in ((76.5, 74.9), (77.1, 75.2), (77.2, 75.7), (79.2, 77.9), (80.3, 79.1))]
