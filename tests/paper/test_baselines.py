"""The baselines page: it matches the records and reports failed and missing runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgemask.experiments.records import ResultStore
from edgemask.methods.registry import METHODS, cost_class
from paper.baselines import (
    EXPLAINED,
    TRANSFERS,
    citation_row,
    default_recipe,
    default_records,
    other_row,
    page,
    paper_text,
)
from paper.published import NAMES, SHOWN, TABLES

ROOT = Path(__file__).resolve().parents[2]


def record(method: str, benchmark: str, protocol: str, targets: dict[str, float], metrics, seed=0, **more):
    return {
        "benchmark": benchmark,
        "method": method,
        "seed": seed,
        "recipe": default_recipe(method, benchmark).to_json(),
        "protocol": {"name": protocol, "metrics": list(metrics), "targets": list(targets)},
        "metrics": {t: dict.fromkeys(metrics, v) for t, v in targets.items()},
        "select": {"rule": "last"},
        "seconds": {"train": 2.0},
        "peak_memory_mib": 100.0,
        **more,
    }


def citation(value: float, transfers=TRANSFERS, **more):
    both = ("micro_f1", "macro_f1")
    return [record("mmd", "citation", t, {"x": value}, both, seed=s, **more) for t in transfers for s in range(2)]


@pytest.mark.paper
def test_the_page_matches_the_records():
    assert (ROOT / "docs" / "baselines.md").read_text(encoding="utf-8") == page(ROOT / "results")


def test_a_method_has_a_second_row_with_the_papers_figures_and_the_differences():
    row = citation_row("mmd", citation(0.66))
    assert "| 66.0 ± 0.0 / 66.0 ± 0.0 |" in row
    assert "**66.0** | 2.0 s, 100 MiB | last |" in row
    cells = "68.7 (−2.7) / 65.9 (+0.1) | 70.2 (−4.2, note 6) / 65.8 (+0.2) | 62.2 (+3.8, note 6) / 58.5 (+7.5, note 6)"
    assert row.endswith(f"\n| ↳ paper | {cells} | 65.2 (+0.8) |  |  |")


def test_a_method_that_the_paper_does_not_have_is_one_row():
    runs = [record("irm", "citation", t, {"x": 0.6}, ("micro_f1", "macro_f1")) for t in TRANSFERS]
    assert "\n" not in citation_row("irm", runs)


def test_a_difference_over_three_points_is_explained_or_marked_as_unexplained():
    assert paper_text(70.0, "is-gib", "citation", (66.9,)) == "66.9 (+3.1, unexplained)"
    assert paper_text(60.0, "mmd", "cora", (68.2, 0.4)) == "68.2 (−8.2, note 1)"
    assert paper_text(70.0, "mmd", "citation", (67.0,)) == "67.0 (+3.0)"
    assert paper_text(70.0, "irm", "citation", ()) == "–"


def test_a_failed_or_missing_run_is_reported():
    lost = citation(0.5, ("AC→D",), failed={"kind": "DivergenceError", "message": "epoch 2"})
    row = citation_row("mmd", lost + citation(0.5, ("AD→C",)))
    assert "2 of 2 runs failed: DivergenceError" in row
    assert "not run" in row
    assert "| – |" in row  # no average over a part of the transfers


def test_several_targets_have_a_minimum_and_an_average():
    runs = [record("eerm", "twitch", "p", {"a": 0.5, "b": 0.7}, ("roc_auc",), seed=s) for s in range(2)]
    row = other_row("eerm", "twitch", "p", runs)
    assert row.startswith("| eerm | 50.0 ± 0.0 | 51.6 (−1.6) | **60.0 ± 0.0** | 54.1 (+5.9, note 3) |")


def test_every_method_uses_a_validation_domain_if_there_is_one():
    assert default_recipe("mmd", "citation").select == "last"
    assert default_recipe("mmd", "twitch").select == "validation"
    assert default_recipe("edgemask-dg-star", "twitch").select == "auto"


@pytest.mark.parametrize("name", NAMES)
def test_the_papers_methods_have_figures(name):
    assert name in METHODS
    assert any(NAMES[name] in TABLES[t] for t in ("results_citations", "results_cora_photo_fb_twitch"))


def test_explanations_name_known_methods():
    for key in EXPLAINED:
        if isinstance(key, tuple):
            assert key[0] in METHODS


@pytest.mark.paper
def test_cost_classes_match_the_records():
    everything = [r for r in ResultStore(ROOT / "results") if r.get("method") and not r.get("also")]
    runs = {name: default_records(name, "citation", everything) for name in SHOWN}
    times = {name: np.median([r["seconds"]["train"] for r in records]) for name, records in runs.items()}
    for name, seconds in times.items():
        low, high = map(int, cost_class(name).rstrip("×").split("–"))
        assert low <= round(seconds / times["erm-gcn"]) <= high, name
