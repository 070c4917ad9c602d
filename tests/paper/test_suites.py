"""The suites: every table of the paper is there, under its own names, and cells show what records say."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from edgemask.experiments.records import ResultStore, identity
from edgemask.experiments.run import ORACLE, Run
from edgemask.methods.registry import METHODS, method_spec
from edgemask.report.comparison import ABSENT, Cell
from edgemask.report.suite import CellSpec, RunSet
from paper import cells
from paper.published import TABLES
from paper.suites import ROBUST, STAR, SUITES, all_tasks, run_set, suite

ROOT = Path(__file__).resolve().parents[2]


def record(task, values: dict[str, dict[str, float]] | None = None, **more):
    """What a task returns, without running it."""
    metrics = dict.fromkeys(task.protocol.metrics, 0.5)
    return task.describe() | {
        "data": dict.fromkeys(task.protocol.domains, "0"),
        "metrics": values or dict.fromkeys(task.protocol.targets, metrics),
        "select": {"rule": "last"},
        "rules": {},
        "curves": {},
        "seconds": {"train": 1.5, "predict": 0.1},
        "peak_memory_mib": 10.0,
        "machine": {"device": "none"},
        "missing": [],
        **more,
    }


# ---- the declarations ------------------------------------------------------------------------------------


def test_every_table_of_the_paper_has_a_suite():
    assert set(TABLES) <= set(SUITES)


@pytest.mark.parametrize("name", TABLES)
def test_every_figure_of_the_paper_stands_in_a_cell(name: str, tmp_path: Path):
    """In the first table, or, of a table whose methods we have more of, somewhere in it."""
    table = suite(name).comparisons(ResultStore(tmp_path))[0]
    quoted = sorted(cell.paper for cell in table.cells.values() if cell.paper)
    theirs = sorted(value for row in TABLES[name].values() for value in row.values())
    assert quoted == theirs


@pytest.mark.parametrize("name", SUITES)
def test_no_run_is_asked_for_twice_and_each_can_be_told_apart(name: str):
    tasks = suite(name).tasks()
    assert len({identity(t.describe()) for t in tasks}) == len(tasks)


@pytest.mark.parametrize("name", [n for n, s in SUITES.items() if s.tables])
def test_every_table_has_at_least_five_seeds(name: str):
    for part in suite(name).tables:
        assert all(c.runs.seeds >= 5 for c in part.cells)


def test_the_strong_simple_baseline_is_in_every_table_of_results():
    for name in ("results_citations", "results_cora_photo_fb_twitch"):
        assert {t.method for t in suite(name).tasks()} == set(METHODS)
    assert "no game: GCN on the enriched graph" in {c.row for c in suite("recipes").tables[0].cells}


def test_targets_choose_nothing_and_only_the_collapse_looks_at_them():
    for name in SUITES:
        for task in suite(name).tasks():
            assert "oracle" not in getattr(task, "also", ()) or name == "collapse"


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"no table or figure 'results' \(there are: results_citations, "):
        suite("results")


def test_runs_that_two_suites_share_are_run_once():
    both = all_tasks(["results_citations", "recipes"])
    assert len(both) < len(suite("results_citations").tasks()) + len(suite("recipes").tasks())
    assert len({identity(t.describe()) for t in both}) == len(both)


# ---- cells -----------------------------------------------------------------------------------------------

RUNS = run_set("twitch", "erm-gcn", method_spec("erm-gcn").recipe, seeds=2)


def filled(store: ResultStore, runs: RunSet, values: list[dict[str, float]], **more) -> None:
    for task, scores in zip(runs.tasks(), values, strict=True):
        store.add(task, record(task, {t: {"roc_auc": v} for t, v in scores.items()}, **more))


def test_a_cell_averages_over_targets_or_takes_the_lowest(tmp_path: Path):
    store = ResultStore(tmp_path)
    filled(store, RUNS, [{"ES": 0.5, "FR": 0.7}, {"ES": 0.6, "FR": 0.8}])
    average = CellSpec("r", "c", RUNS, cells.Score(), (59.3,)).cell(store, ())
    assert average.by_seed == {0: pytest.approx(60.0), 1: pytest.approx(70.0)}
    assert average.mean == pytest.approx(65.0)
    assert average.std == pytest.approx(50**0.5)
    assert average.difference == pytest.approx(5.7)
    assert average.rules == ("last",)
    assert len(average.keys) == 2
    assert CellSpec("r", "c", RUNS, cells.Score(how="min")).cell(store, ()).mean == pytest.approx(55.0)


def test_a_difference_is_paired_by_seed(tmp_path: Path):
    store, other = ResultStore(tmp_path), replace(RUNS, method="eerm", recipe=method_spec("eerm").recipe)
    filled(store, RUNS, [{"ES": 0.5}, {"ES": 0.6}])
    filled(store, other, [{"ES": 0.4}, {"ES": 0.3}])
    cell = CellSpec("r", "c", RUNS, cells.Score(), minus=other).cell(store, ())
    assert cell.by_seed == {0: pytest.approx(10.0), 1: pytest.approx(30.0)}


def test_what_is_missing_or_failed_or_cannot_be_is_said(tmp_path: Path):
    store, shown = ResultStore(tmp_path), CellSpec("r", "c", RUNS, cells.Score())
    assert shown.cell(store, ()).absent == "not run"
    assert shown.cell(store, ("twitch",)).absent == ABSENT
    first, second = RUNS.tasks()
    store.add(first, record(first, {"ES": {"roc_auc": 0.5}}))
    assert shown.cell(store, ()).absent == "1 of 2 runs"
    assert shown.cell(store, ("twitch",)) == shown.cell(store, ())  # records count wherever their data is
    store.add(second, record(second, {}, failed={"kind": "DivergenceError", "message": "epoch 2"}))
    cell = shown.cell(store, ())
    assert (cell.failed, cell.absent, len(cell.values)) == (1, "", 1)


def test_what_we_found_stands_only_beside_whole_tables(tmp_path: Path):
    whole, empty = (
        SUITES["ablation_lambda"].comparisons(ResultStore(root))[0] for root in (ROOT / "results", tmp_path)
    )
    assert "**λ does not matter.**" in whole.findings[0]
    assert not empty.findings


def test_a_file_that_is_no_record_of_growth_is_rejected_and_the_others_stay(tmp_path: Path):
    kept = next((ROOT / "results" / "speed").glob("growth-*.json"))
    (tmp_path / "speed").mkdir()
    shutil.copy(kept, tmp_path / "speed")
    foreign = [tmp_path / "speed" / f"growth-{n}.json" for n in range(3)]
    for path, content in zip(foreign, ('{"x": 1}', "[]", "{"), strict=True):
        path.write_text(content)
    store = ResultStore(tmp_path)
    assert len(SUITES["complexity"].comparisons(store)) == 1
    assert set(store.rejected) == set(foreign)
    assert all("is not a record of growth" in why for why in store.rejected.values())


def test_an_empty_cell_has_no_mean():
    assert str((Cell().mean, Cell().std, Cell().difference)) == "(nan, nan, nan)"


def game(**more):
    task = next(iter(run_set("citation", STAR, ROBUST).tasks()))
    return record(task, **more)


def test_values_of_a_record():
    scored = game(rules={ORACLE: {"metrics": {"dblpv7": {"micro_f1": 0.9, "macro_f1": 0.7}}}})
    scored["metrics"] = {"dblpv7": {"micro_f1": 0.8, "macro_f1": 0.6}}
    assert cells.Score()(scored) == pytest.approx(80.0)
    assert cells.Score(("micro_f1", "macro_f1"))(scored) == pytest.approx(70.0)
    assert cells.Score(("micro_f1",), rule="oracle")(scored) == pytest.approx(90.0)
    assert cells.Score(rule="oracle")(game()) is None
    assert cells.seconds(game()) == 1.5


def test_pruned_and_retained_shares_are_means_over_the_sources():
    shares = {"a": {"original": {"pruned": 0.2}, "augmented": {"pruned": 0.5}}, "b": {"original": {"pruned": 0.4}}}
    held = game(mask=shares)
    assert cells.Pruned("original")(held) == pytest.approx(30.0)
    assert cells.Pruned("augmented")(held) == pytest.approx(50.0)
    assert cells.Pruned("augmented", retained=True)(held) == pytest.approx(50.0)
    assert cells.Pruned("original")(game()) is None


def test_the_mean_mask_after_an_epoch():
    held = game(curves={"mask original a": [0.5, 0.1], "mask original b": [0.7, None], "mask knn a": [9.0, 9.0]})
    assert cells.MeanMask(1)(held) == pytest.approx(0.6)
    assert cells.MeanMask(2)(held) == pytest.approx(0.1)
    assert cells.MeanMask(3)(held) is None


def test_thirds_of_the_targets_in_their_order():
    task = next(iter(run_set("arxiv", "erm-gcn", method_spec("erm-gcn").recipe).tasks()))
    held = record(task, {t: {"accuracy": v} for t, v in zip(task.protocol.targets, (0.1, 0.2, 0.3), strict=True)})
    assert [cells.Third("accuracy", i)(held) for i in range(3)] == pytest.approx([10.0, 20.0, 30.0])


def test_a_validation_domain_chooses_the_epoch_for_everyone():
    tasks = [t for t in suite("two_by_two_ablation").tasks() if isinstance(t, Run)]
    for task in tasks:
        assert task.recipe.select != "last" or not task.protocol.validation
