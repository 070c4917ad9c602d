"""The baselines page is what the records say, and hides nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgemask.experiments.records import ResultStore
from edgemask.methods.registry import METHODS, cost_class
from paper import published as paper
from paper.baselines import EXPLAINED, TRANSFERS, beside, citation_row, of, other_row, page, settled

ROOT = Path(__file__).resolve().parents[2]


def record(method: str, benchmark: str, protocol: str, targets: dict[str, float], metrics, seed=0, **more):
    return {
        "benchmark": benchmark,
        "method": method,
        "seed": seed,
        "recipe": settled(method, benchmark).to_json(),
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


def test_the_page_is_what_the_records_say():
    assert (ROOT / "docs" / "baselines.md").read_text(encoding="utf-8") == page(ROOT / "results")


def test_a_system_stands_beside_the_papers_figure_and_their_difference():
    row = citation_row("mmd", citation(0.66))
    assert "| 66.0 ± 0.0 / 66.0 ± 0.0 |" in row
    assert "**66.0** | 2.0 s, 100 MiB | last |" in row
    cells = "68.7 (-2.7) / 65.9 (+0.1) | 70.2 (-4.2, note 6) / 65.8 (+0.2) | 62.2 (+3.8, note 6) / 58.5 (+7.5, note 6)"
    assert row.endswith(f"\n| ↳ paper's | {cells} | 65.2 (+0.8) |  |  |")


def test_a_system_the_paper_does_not_have_is_one_row():
    runs = [record("irm", "citation", t, {"x": 0.6}, ("micro_f1", "macro_f1")) for t in TRANSFERS]
    assert "\n" not in citation_row("irm", runs)


def test_a_difference_over_three_points_is_explained_or_marked():
    assert beside(70.0, "is-gib", "citation", 66.9) == "66.9 (+3.1, unexplained)"
    assert beside(60.0, "mmd", "cora", 68.2) == "68.2 (-8.2, note 1)"
    assert beside(70.0, "mmd", "citation", 67.0) == "67.0 (+3.0)"
    assert beside(70.0, "irm", "citation", None) == "–"


def test_a_failed_or_missing_run_is_said_not_left_blank():
    lost = citation(0.5, ("AC→D",), failed={"kind": "DivergenceError", "message": "epoch 2"})
    row = citation_row("mmd", lost + citation(0.5, ("AD→C",)))
    assert "2 of 2 runs failed: DivergenceError" in row
    assert "not run" in row
    assert "| – |" in row  # no average of a part


def test_several_targets_have_a_minimum_and_an_average():
    runs = [record("eerm", "twitch", "p", {"a": 0.5, "b": 0.7}, ("roc_auc",), seed=s) for s in range(2)]
    row = other_row("eerm", "twitch", "p", runs)
    assert row.startswith("| eerm | 50.0 ± 0.0 | 51.6 (-1.6) | **60.0 ± 0.0** | 54.1 (+5.9, note 3) |")


def test_a_validation_domain_chooses_for_everyone():
    assert settled("mmd", "citation").select == "last"
    assert settled("mmd", "twitch").select == "validation"
    assert settled("edgemask-dg-star", "twitch").select == "auto"


@pytest.mark.parametrize("name", paper.NAMES)
def test_the_papers_systems_have_their_figures(name):
    assert name in METHODS
    assert any(paper.NAMES[name] in paper.TABLES[t] for t in ("results_citations", "results_cora_photo_fb_twitch"))


def test_explanations_are_of_systems_and_benchmarks_there_are():
    for key in EXPLAINED:
        if isinstance(key, tuple):
            assert key[0] in METHODS


def test_cost_classes_are_what_the_records_say():
    everything = [r for r in ResultStore(ROOT / "results") if r.get("method") and not r.get("also")]
    times = {n: np.median([r["seconds"]["train"] for r in of(n, "citation", everything)]) for n in METHODS}
    for name, seconds in times.items():
        low, high = map(int, cost_class(name).rstrip("×").split("–"))
        assert low <= round(seconds / times["erm-gcn"]) <= high, name
