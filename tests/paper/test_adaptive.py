"""The suites `adaptive` and `single_source`: their runs, and the values of their cells on made-up records."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from edgemask.experiments.auto import AutoRun
from edgemask.experiments.majority import MajorityRun
from edgemask.experiments.records import ResultStore, Task
from edgemask.methods.registry import method_spec
from edgemask.report.comparison import MAJORITY, PUBLISHED, Comparison
from edgemask.report.render import caption, csv_text, latex, markdown, statistics_markdown
from edgemask.report.statistics import compare
from edgemask.report.suite import RunSet
from edgemask.training.candidates import AUTO_RECIPE, DEFAULTS, Candidate
from paper import cells, results
from paper.adaptive import ADAPTIVE, AUTO, ENRICHED, FORMER, SINGLE, SINGLE_SOURCE, TITLES, TRANSFERS, runs, single_runs
from paper.published import ADAPTATION
from paper.runs import PLAIN, STAR
from paper.suites import SUITES, all_tasks
from tests.paper.test_suites import record

TRUST = "How far the expected score and the calibration can be trusted"
BINARY = "erm-gcn-enriched:loss=binary:lr=0.004"
TASKS = ADAPTIVE.tasks()


def race_record(task: Task, score: float, members: tuple[str, ...] = ("erm-mlp",), expected: float | None = 0.7):
    """Return a record of a race that has the same score on every target and metric."""
    metrics = {target: dict.fromkeys(task.protocol.metrics, score) for target in task.protocol.targets}
    interval = {"score": expected, "low": 0.6, "high": 0.8, "by_graph": {}}
    select = {
        "rule": "auto, validation",
        "members": {name: {"propagation": [0.0, "logits"], "temperature": 1.0} for name in members},
        "expected": None if expected is None else interval,
    }
    errors = {target: 0.02 * n for n, target in enumerate(task.protocol.targets, 1)}
    return record(task, metrics, select=select, calibration_error=errors)


def add(store: ResultStore, own: RunSet, scores: list[float], **more) -> None:
    """Add records of some runs, with a score for each seed. Seeds without a score get none."""
    for task in own.tasks():
        if task.seed < len(scores):
            store.add(task, race_record(task, scores[task.seed], **more))


def tables(root: Path, suite=ADAPTIVE) -> dict[str, Comparison]:
    return {table.title: table for table in suite.comparisons(ResultStore(root))}


# ---- runs ------------------------------------------------------------------------------------------------


def test_the_suites_are_registered():
    assert SUITES["adaptive"].tables == ADAPTIVE.tables
    assert SUITES["adaptive"].made is ADAPTIVE.made
    assert SUITES["single_source"].tables == SINGLE_SOURCE.tables


def test_auto_the_former_default_and_every_candidate_run_on_every_benchmark():
    transfers = {where: len(TRANSFERS[where]) for where in TITLES}
    assert transfers == {"citation": 3, "cora": 3, "photo": 3, "twitch": 1, "facebook100": 3, "airports": 3}
    races = Counter((t.benchmark, t.candidates) for t in TASKS if isinstance(t, AutoRun))
    for where, count in transfers.items():
        headline = 10 if where in ("citation", "twitch") else 5
        assert races.pop((where, DEFAULTS)) == headline * count
        assert [races.pop((where, (name,))) for name in DEFAULTS] == [5 * count] * len(DEFAULTS)
        others = Counter(t.method for t in TASKS if t.benchmark == where and t.folder in (STAR, PLAIN))
        assert others == {STAR: headline * count, PLAIN: headline * count}
        assert sum(isinstance(t, MajorityRun) and t.benchmark == where for t in TASKS) == count
    assert not races
    assert len(TASKS) == 16 + 3 * 100 + len(DEFAULTS) * 80


def test_races_use_the_recipe_of_auto_and_all_labels_of_the_citation_networks():
    for task in TASKS:
        if isinstance(task, AutoRun):
            assert task.recipe == AUTO_RECIPE
            assert task.options.get("labels", "multi") == "multi"


def test_generator_seeds_and_triples_are_runs_of_their_own():
    options = {t.options["generator_seed"] for t in TASKS if t.benchmark == "cora" and t.folder == STAR}
    assert options == {0, 1, 2}
    sources = {t.protocol.sources for t in TASKS if t.benchmark == "facebook100"}
    assert len(sources) == 3


def test_rows_of_other_suites_are_the_same_runs():
    shared = {repr(t) for t in all_tasks(["results_citations", "results_cora_photo_fb_twitch"])}
    for row in (FORMER, ENRICHED):
        for where in TITLES:
            own = runs(row, where, TRANSFERS[where][:1]).tasks()
            assert all((repr(t) in shared) == (where != "airports") for t in own)


def test_a_candidate_alone_differs_from_the_baseline_of_the_same_name():
    assert Candidate.parse(PLAIN).recipe != method_spec(PLAIN).recipe
    assert len({FORMER, ENRICHED, *DEFAULTS}) == len(DEFAULTS) + 2


def test_the_transfers_with_one_source():
    tasks = SINGLE_SOURCE.tasks()
    assert Counter(t.folder for t in tasks) == {"auto": 30, PLAIN: 30, "erm-gcn": 30, "majority": 6}
    assert {t.protocol.name for t in tasks} == set(SINGLE) == {"A→C", "A→D", "C→A", "C→D", "D→A", "D→C"}
    assert all(len(t.protocol.sources) == 1 for t in tasks)


# ---- scores ----------------------------------------------------------------------------------------------


def test_tables_without_records_say_not_run(tmp_path: Path):
    shown = tables(tmp_path)
    assert [len(t.rows) for t in shown.values()] == [len(DEFAULTS) + 4, 6, len(DEFAULTS) + 1, 14]
    for table in shown.values():
        assert {cell.absent for cell in table.cells.values()} == {"not run"}
        assert "not run" in markdown(table)
        assert latex(table).isascii()
        assert "not run" in csv_text(table)
    assert not any(v.pairs for v in compare(shown["`auto` and its candidates"]))


def test_scores_are_averages_over_transfers_and_minima_over_targets(tmp_path: Path):
    store = ResultStore(tmp_path)
    add(store, runs(AUTO, "citation"), [0.7 + seed / 100 for seed in range(10)])
    for task in runs(AUTO, "cora").tasks():
        score = 0.9 + 0.03 * task.options["generator_seed"]
        scores = {t: {"accuracy": score - 0.08 * (t == "env2")} for t in task.protocol.targets}
        store.add(task, race_record(task, 0.0) | {"metrics": scores})
    add(store, runs(AUTO, "facebook100", ("triple2→available",)), [0.5] * 5)
    table = tables(tmp_path)["`auto` and its candidates"]
    assert table.columns[:3] == ("Citation", "Cora avg", "Cora min")
    assert table.columns[-3:] == ("FB-100 triple 3 avg", "FB-100 triple 3 min", "Airports")
    assert table.cell(AUTO, "Citation").mean == pytest.approx(74.5)
    assert len(table.cell(AUTO, "Citation").values) == 30
    assert table.cell(AUTO, "Cora avg").mean == pytest.approx(92.0)
    assert table.cell(AUTO, "Cora min").mean == pytest.approx(85.0)
    assert table.cell(AUTO, "FB-100 triple 2 avg").mean == pytest.approx(50.0)
    assert table.cell(AUTO, "FB-100 triple 1 avg").absent == "not run"


def test_the_average_of_the_citation_networks_has_both_metrics(tmp_path: Path):
    store = ResultStore(tmp_path)
    for task in runs("erm-gcn", "citation").tasks():
        scores = {target: {"micro_f1": 0.8, "macro_f1": 0.6} for target in task.protocol.targets}
        store.add(task, race_record(task, 0.0) | {"metrics": scores})
    table = tables(tmp_path)["`auto` and its candidates"]
    assert table.cell("erm-gcn", "Citation").mean == pytest.approx(70.0)
    assert table.cell("erm-gcn", "Citation").absent == ""
    assert table.cell(AUTO, "Citation").absent == "not run"


def test_one_record_of_the_majority_class_serves_all_seeds(tmp_path: Path):
    store = ResultStore(tmp_path)
    add(store, runs(MAJORITY, "twitch"), [0.5])
    add(store, runs(AUTO, "twitch"), [0.6] * 10)
    add(store, runs("erm-mlp", "twitch"), [0.5] * 5)
    add(store, runs("erm-gcn", "twitch"), [0.5, 0.5, 0.5, 0.5, 0.51])
    assert len(list((tmp_path / "twitch" / "majority").iterdir())) == 1
    table = tables(tmp_path)["`auto` and its candidates"]
    guess = table.cell(MAJORITY, "Twitch avg")
    assert (len(guess.values), len(guess.keys), guess.mean) == (10, 1, pytest.approx(50.0))
    assert [table.cell(r, "Twitch avg").equals_majority for r in (AUTO, "erm-mlp", "erm-gcn")] == [False, True, False]
    text = markdown(table)
    assert "| majority class | not run | not run | not run | not run | not run | 50.0 | 50.0 |" in text
    assert "50.0 ± 0.0 =" in text
    assert "over 5–10 seeds" in caption(table)
    tests = {v.row: v for v in compare(table) if v.pairs and v.family == "reference"}
    assert (tests[MAJORITY].pairs, tests[MAJORITY].difference) == (10, pytest.approx(-10.0))
    assert tests["erm-mlp"].pairs == 5


def test_the_tests_compare_the_averages_with_those_of_auto(tmp_path: Path):
    store = ResultStore(tmp_path)
    for row, score in ((AUTO, 0.6), ("erm-mlp", 0.55)):
        for where in ("twitch", "airports"):
            add(store, runs(row, where), [score] * 10)
    table = tables(tmp_path)["`auto` and its candidates"]
    assert table.reference == AUTO
    assert not any(column.endswith("min") for column in table.tested)
    (test,) = (v for v in compare(table) if v.pairs and v.family == "reference")
    assert (test.row, test.other, test.pairs) == ("erm-mlp", AUTO, 5 + 15)
    assert statistics_markdown(compare(table)).startswith("Against auto:")


def test_a_failed_race_is_counted_and_has_no_value(tmp_path: Path):
    store = ResultStore(tmp_path)
    for task in runs(AUTO, "airports").tasks():
        failed = {"failed": {"kind": "InputError", "message": "none is left"}, "select": {"rule": "auto"}}
        store.add(task, record(task, {}, metrics={}, **failed) if task.seed == 4 else race_record(task, 0.5))
    shown = tables(tmp_path)
    cell = shown["`auto` and its candidates"].cell(AUTO, "Airports")
    assert (cell.failed, len(cell.values), cell.absent) == (3, 12, "")
    assert shown[TRUST].cell("Airports", "calibration error").failed == 3
    assert shown["Members of the models of `auto`"].cell("erm-mlp", "Airports").failed == 3


# ---- the best other row ----------------------------------------------------------------------------------


def test_auto_is_compared_with_the_best_other_row_of_each_column(tmp_path: Path):
    store = ResultStore(tmp_path)
    add(store, runs(AUTO, "airports"), [0.5, 0.52, 0.54, 0.56, 0.58])
    add(store, runs("erm-mlp", "airports"), [0.4] * 5)
    add(store, runs("erm-gcn", "airports"), [0.51, 0.53, 0.55, 0.57, 0.59])
    table = tables(tmp_path)["`auto` against the best other row of each column"]
    row = "Airports: auto − erm-gcn"
    assert table.rows[-1] == row
    assert table.cell(row, "difference").mean == pytest.approx(-1.0)
    assert table.cell(row, "interval, low").mean == pytest.approx(-1.0)
    assert table.cell(row, "p").mean == pytest.approx(2**-14)
    assert len(table.cell(row, "difference").keys) == 30
    assert f"| {row} | −1.000 ± 0.000 | −1.000 | −1.000 | 0.000 |" in markdown(table)
    assert table.cell("Citation: auto − the best other row", "difference").absent == "not run"


def test_the_ends_of_an_interval_are_in_order_and_a_single_pair_has_none(tmp_path: Path):
    store = ResultStore(tmp_path)
    add(store, runs(AUTO, "twitch"), [0.61, 0.63, 0.62, 0.60, 0.65])
    add(store, runs("erm-mlp", "twitch"), [0.6] * 5)
    own = runs(AUTO, "facebook100", ("triple1→available",))
    add(store, own, [0.5])
    add(store, replace(own, candidates=("erm-mlp",)), [0.5])
    table = tables(tmp_path)["`auto` against the best other row of each column"]
    low, mean, high = (
        table.cell("Twitch avg: auto − erm-mlp", c).mean for c in ("interval, low", "difference", "interval, high")
    )
    assert 0 <= low < mean < high <= 5
    assert "| FB-100 triple 1 avg: auto − erm-mlp | 0.000 | – | – | 1.000 |" in markdown(table)


# ---- trust and members -----------------------------------------------------------------------------------


def test_the_expected_score_and_the_calibration_of_a_record():
    task = next(iter(runs(AUTO, "twitch").tasks()))
    own = race_record(task, 0.65)
    own["metrics"]["ES"] = {"roc_auc": 0.5}
    assert cells.expected_score(own) == pytest.approx(70.0)
    assert cells.expected_error(own) == pytest.approx(70 - (4 * 65 + 50) / 5)
    assert cells.within_interval(own) == pytest.approx(80.0)
    assert cells.calibration_error(own) == pytest.approx(6.0)
    nothing = race_record(task, 0.65, expected=None)
    assert [f(nothing) for f in (cells.expected_score, cells.expected_error, cells.within_interval)] == [None] * 3
    assert cells.calibration_error(record(task)) is None
    assert cells.expected_score(record(task)) is None


def test_the_error_of_the_expected_score_is_that_of_the_main_metric_in_every_run():
    task = next(iter(runs(AUTO, "citation").tasks()))
    own = race_record(task, 0.0) | {"metrics": {"dblpv7": {"micro_f1": 0.72, "macro_f1": 0.1}}}
    assert cells.expected_error(own) == pytest.approx(2.0)
    assert cells.within_interval(own) == 100.0


def test_errors_above_and_below_do_not_cancel(tmp_path: Path):
    store = ResultStore(tmp_path)
    add(store, runs(AUTO, "airports"), [0.6, 0.8, 0.6, 0.8, 0.7])
    table = tables(tmp_path)[TRUST]
    assert table.rows == tuple(TITLES.values())
    assert table.cell("Airports", "expected score").mean == pytest.approx(70.0)
    assert table.cell("Airports", "score").mean == pytest.approx(70.0)
    assert table.cell("Airports", "error of the expected score").mean == pytest.approx(8.0)
    assert table.cell("Airports", "targets in the interval, %").mean == pytest.approx(100.0)
    assert table.cell("Airports", "calibration error").mean == pytest.approx(2.0)
    assert table.cell("Twitch", "score").absent == "not run"


def test_members_are_counted_with_either_loss(tmp_path: Path):
    store = ResultStore(tmp_path)
    for task in runs(AUTO, "citation").tasks():
        members = ("erm-mlp", BINARY) if task.seed < 5 else ("erm-gcn-enriched",)
        store.add(task, race_record(task, 0.7, members))
    table = tables(tmp_path)["Members of the models of `auto`"]
    shares = {row: table.cell(row, "Citation").mean for row in table.rows}
    expected = {"erm-mlp": 50.0, "erm-gcn-enriched": 100.0, "any candidate with `loss=binary`": 50.0}
    assert shares == dict.fromkeys(table.rows, 0.0) | expected
    assert "| erm-mlp | 50 | not run |" in markdown(table)
    assert caption(table) == "Mean over 10 seeds."


def test_names_of_candidates_with_a_binary_loss_are_recognised():
    for name in (*DEFAULTS, "edgemask-dg:backbone=mix:rho=0.9"):
        other = Candidate.parse(name).with_binary_loss()
        if other is not None:
            own = {"select": {"members": {other.name: {}}}}
            assert [cells.Member(n)(own) for n in DEFAULTS] == [100.0 * (n == name) for n in DEFAULTS]
            assert cells.binary_member(own) == 100.0
    assert cells.binary_member({"select": {"members": {"erm-mlp": {}}}}) == 0.0


# ---- one source ------------------------------------------------------------------------------------------


def test_adaptation_methods_have_published_averages_and_no_runs(tmp_path: Path):
    store = ResultStore(tmp_path)
    add(store, single_runs(AUTO), [0.76] * 5)
    (table,) = tables(tmp_path, SINGLE_SOURCE).values()
    assert table.rows[:4] == (MAJORITY, AUTO, PLAIN, "erm-gcn")
    assert table.rows[4:] == tuple(ADAPTATION)
    assert table.columns[:2] == ("average micro", "average macro")
    assert table.cell(AUTO, "average micro").mean == pytest.approx(76.0)
    cell = table.cell("DM-GNN (Shen et al., 2023)", "average macro")
    assert (cell.paper, cell.absent, cell.values) == ((79.1,), PUBLISHED, {})
    text = markdown(table)
    assert "| DM-GNN (Shen et al., 2023) | published (80.3) | published (79.1) | – |" in text
    assert "in brackets: published figures" in caption(table)
    assert "the paper's figure" not in text
    assert latex(table).isascii()
    assert "Not compared, because no runs are shared: majority class" in statistics_markdown(compare(table))


# ---- the page --------------------------------------------------------------------------------------------


def test_runs_that_other_suites_share_do_not_put_the_suites_on_the_page(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(results, "SUITES", {s.name: s for s in (ADAPTIVE, SINGLE_SOURCE)})
    store = ResultStore(tmp_path)
    add(store, runs(FORMER, "twitch"), [0.5] * 10)
    assert "## " not in results.page(ResultStore(tmp_path))
    add(store, runs(AUTO, "twitch"), [0.5] * 10)
    page = results.page(ResultStore(tmp_path))
    assert "## The default that adapts" in page
    assert f"### {TRUST}" in page
    assert "## Citation networks, one source" not in page
