"""The quoted figures are equal to the paper's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paper.published import TABLES, figure

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
