"""The suite `mask_worth`: its runs differ in the mask alone, and differences are paired by protocol and seed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from edgemask.config import recipe
from edgemask.experiments.records import ResultStore
from edgemask.experiments.run import Run
from edgemask.report.render import latex, markdown, statistics_markdown
from edgemask.report.statistics import compare
from paper.mask_worth import MASK_WORTH, ZERO, runs
from paper.runs import PROTOCOLS
from paper.suites import SUITES
from tests.paper.test_suites import record

BENCHMARKS = ("citation", "cora", "photo", "facebook100", "twitch", "airports")
TASKS = MASK_WORTH.tasks()


def add(store: ResultStore, scores: dict[tuple[str, float | None], list[float]], backbone: str = "mix") -> None:
    """Add records of the airports: a score for each seed, by mask and budget, plus 1, 2 and 3 points per transfer."""
    for (mask, rho), values in scores.items():
        for task in runs("airports", mask, backbone, rho).tasks():
            transfer = PROTOCOLS["airports"].index(task.protocol.name) + 1
            value = values[task.seed] + transfer / 100
            store.add(task, record(task, {t: {"accuracy": value} for t in task.protocol.targets}))


# ---- runs ------------------------------------------------------------------------------------------------


def test_the_suite_is_registered():
    assert SUITES["mask_worth"].tables == MASK_WORTH.tables


def test_there_is_a_run_for_every_mask_backbone_budget_benchmark_and_seed():
    kinds = Counter((t.method, t.recipe.mask, t.recipe.backbone, t.recipe.rho) for t in TASKS)
    protocols = sum(len(PROTOCOLS[where]) for where in BENCHMARKS)
    expected = {("edgemask-dg", False, backbone, 0.9) for backbone in ("gcn", "mix", "sage")}
    expected |= {
        (*kind, backbone, rho)
        for kind in (("random-mask", False), ("edgemask-dg", True))
        for backbone in ("gcn", "mix", "sage")
        for rho in (0.9, 0.7, 0.5)
    }
    assert kinds == dict.fromkeys(expected, 5 * protocols)
    assert {(t.benchmark, t.protocol.name) for t in TASKS} == {(b, p) for b in BENCHMARKS for p in PROTOCOLS[b]}


def test_runs_differ_in_the_mask_and_the_selected_epoch_alone():
    assert all(isinstance(t, Run) and not t.also for t in TASKS)
    for task in TASKS:
        same = task.recipe.replace(backbone="gcn", rho=0.9, mask=True, select="auto")
        assert same == recipe("robust", k=0, clusters=0, epochs=200, alpha=(0.0,))
        assert task.recipe.select == ("validation" if task.protocol.validation else "last")


def test_the_budget_is_that_of_the_run():
    assert {t.recipe.rho for t in runs("cora", "random", "mix", 0.7).tasks()} == {0.7}
    assert {t.method for t in runs("cora", "random", "mix", 0.7).tasks()} == {"random-mask"}
    assert {(t.method, t.recipe.mask) for t in runs("cora", "none", "mix").tasks()} == {("edgemask-dg", False)}
    assert {(t.method, t.recipe.mask) for t in runs("cora", "adversary", "mix", 0.7).tasks()} == {("edgemask-dg", True)}


# ---- tables ----------------------------------------------------------------------------------------------


def test_tables_without_records_say_not_run(tmp_path: Path):
    tables = MASK_WORTH.comparisons(ResultStore(tmp_path))
    assert len(tables) == 1 + len(BENCHMARKS)
    assert [len(t.rows) for t in tables] == [21, *[19] * 6]
    for table in tables:
        assert {cell.absent for cell in table.cells.values()} == {"not run"}
        assert set(table.cells) == {(row, column) for row in table.rows for column in table.columns}
        assert "not run" in markdown(table)
        assert latex(table).isascii()


def test_a_score_is_averaged_over_the_transfers_and_a_difference_is_paired(tmp_path: Path):
    store = ResultStore(tmp_path)
    add(store, {("none", None): [0.4, 0.42, 0.44, 0.46, 0.48]})
    add(store, {("random", 0.7): [0.5, 0.5, 0.5, 0.5, 0.5], ("adversary", 0.7): [0.5, 0.52, 0.54, 0.56, 0.58]})
    scores, *_, airports = MASK_WORTH.comparisons(ResultStore(tmp_path))
    assert scores.cell("mix, no mask", "Airports").mean == pytest.approx(46.0)
    assert scores.cell("mix, adversary, ρ = 0.7", "Airports").by_seed[1] == pytest.approx(54.0)
    assert airports.title.endswith("Airports")
    plain = airports.cell("mix, ρ = 0.7: adversary − no mask", "average")
    assert list(plain.values.values()) == pytest.approx([10.0] * 15)
    random = airports.cell("mix, ρ = 0.7: adversary − random mask", "average")
    assert random.by_seed == {seed: pytest.approx(2.0 * seed) for seed in range(5)}
    one = airports.cell("mix, ρ = 0.7: adversary − random mask", PROTOCOLS["airports"][0])
    assert (one.mean, len(one.values)) == (pytest.approx(4.0), 5)
    assert airports.cell("mix, ρ = 0.9: adversary − no mask", "average").values == {}
    assert airports.cell("gcn, ρ = 0.7: adversary − no mask", "average").absent == "not run"


def test_the_adversary_is_tested_against_no_mask_and_against_random_masks(tmp_path: Path):
    store = ResultStore(tmp_path)
    add(store, {("none", None): [0.4] * 5}, "gcn")
    add(store, {("none", None): [0.4] * 5, ("random", 0.5): [0.45] * 5, ("adversary", 0.5): [0.44] * 5})
    airports = MASK_WORTH.comparisons(ResultStore(tmp_path))[-1]
    assert set(airports.cell(ZERO, "average").values.values()) == {0.0}
    tests = {v.row: v for v in compare(airports) if v.pairs}
    assert set(tests) == {f"mix, ρ = 0.5: adversary − {other}" for other in ("no mask", "random mask")}
    gain, loss = (tests[f"mix, ρ = 0.5: adversary − {other}"] for other in ("no mask", "random mask"))
    assert (gain.pairs, gain.difference, gain.p) == (15, pytest.approx(4.0), pytest.approx(2**-14))
    assert (loss.other, loss.difference, loss.adjusted) == (ZERO, pytest.approx(-1.0), pytest.approx(2**-13))
    text = statistics_markdown(compare(airports))
    assert text.startswith(f"Against {ZERO}:")
    assert "best other row" not in text


def test_a_benchmark_with_several_targets_shows_the_minimum(tmp_path: Path):
    store = ResultStore(tmp_path)
    for mask, scores in (("none", (0.5, 0.6)), ("adversary", (0.6, 0.5))):
        for task in runs("twitch", mask, "sage", 0.9 if mask == "adversary" else None).tasks():
            values = dict(zip(task.protocol.targets, (*scores, 0.9, 0.9, 0.9), strict=True))
            store.add(task, record(task, {t: {"roc_auc": v} for t, v in values.items()}))
    scores, *others = MASK_WORTH.comparisons(ResultStore(tmp_path))
    assert scores.cell("sage, adversary, ρ = 0.9", "Twitch min").mean == pytest.approx(50.0)
    (twitch,) = (t for t in others if t.title.endswith("Twitch"))
    assert twitch.columns == ("minimum", "average")
    assert twitch.cell("sage, ρ = 0.9: adversary − no mask", "average").mean == pytest.approx(0.0)
