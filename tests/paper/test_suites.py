"""The suites: every table of the paper is declared under its own names, and cells show the records' values."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from edgemask.data import arxiv, benchmark, elliptic
from edgemask.experiments.records import ResultStore, identity
from edgemask.experiments.run import ORACLE, Run
from edgemask.methods.registry import METHODS, method_spec
from edgemask.report.comparison import ABSENT, Cell
from edgemask.report.suite import CellSpec, RunSet
from paper import baselines, cells, results, suites
from paper.published import SHOWN, TABLES
from paper.runs import ROBUST, STAR, run_set
from paper.suites import SUITES, all_tasks, suite

ROOT = Path(__file__).resolve().parents[2]


def record(task, values: dict[str, dict[str, float]] | None = None, **more):
    """Return a record of a task without running it."""
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
def test_every_figure_of_the_paper_is_in_a_cell_of_the_first_table(name: str, tmp_path: Path):
    table = suite(name).comparisons(ResultStore(tmp_path))[0]
    quoted = sorted(cell.paper for cell in table.cells.values() if cell.paper)
    expected = sorted(value for row in TABLES[name].values() for value in row.values())
    assert quoted == expected


@pytest.mark.parametrize("name", SUITES)
def test_every_run_is_declared_once_and_has_its_own_identity(name: str):
    tasks = suite(name).tasks()
    assert len({identity(t.describe()) for t in tasks}) == len(tasks)


@pytest.mark.parametrize("name", [n for n, s in SUITES.items() if s.tables])
def test_every_table_has_at_least_five_seeds(name: str):
    for part in suite(name).tables:
        assert all(c.runs.seeds >= 5 for c in part.cells)


def test_the_strong_simple_baseline_is_in_every_table_of_results():
    for name in ("results_citations", "results_cora_photo_fb_twitch"):
        assert {t.method for t in suite(name).tasks()} == set(SHOWN)
    assert "no game: GCN on the enriched graph" in {c.row for c in suite("recipes").tables[0].cells}


def test_a_new_method_in_the_registry_changes_no_suite_and_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = ResultStore(tmp_path)
    for name in ("erm-gcn", "erm-gcn-enriched"):
        for where in ("citation", "twitch"):
            for task in run_set(where, name, method_spec(name).recipe, seeds=2).tasks():
                store.add(task, record(task))
    before = baselines.page(tmp_path), results.page(ResultStore(tmp_path))
    assert all("| erm-gcn-enriched | " in page for page in before)
    monkeypatch.setitem(METHODS, "dummy", replace(method_spec("erm-gcn"), status="partial: a dummy"))
    spec = importlib.util.spec_from_file_location("suites_with_a_dummy", suites.__file__)
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    assert again.SUITES == SUITES
    monkeypatch.setattr(results, "SUITES", again.SUITES)
    assert (baselines.page(tmp_path), results.page(ResultStore(tmp_path))) == before
    for task in run_set("citation", "dummy", method_spec("dummy").recipe, seeds=2).tasks():
        store.add(task, record(task))
    assert baselines.page(tmp_path) == before[0]


def test_targets_choose_nothing_and_only_the_collapse_suite_uses_them():
    for name in SUITES:
        for task in suite(name).tasks():
            assert "oracle" not in getattr(task, "also", ()) or name == "collapse"


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"no table or figure 'results' \(there are: results_citations, "):
        suite("results")


def test_runs_that_two_suites_share_are_listed_once():
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


def test_missing_failed_and_unavailable_runs_are_reported(tmp_path: Path):
    store, shown = ResultStore(tmp_path), CellSpec("r", "c", RUNS, cells.Score())
    assert shown.cell(store, ()).absent == "not run"
    assert shown.cell(store, ("twitch",)).absent == ABSENT
    first, second = RUNS.tasks()
    store.add(first, record(first, {"ES": {"roc_auc": 0.5}}))
    assert shown.cell(store, ()).absent == "1 of 2 runs"
    assert shown.cell(store, ("twitch",)) == shown.cell(store, ())  # records count even if their data is not available
    store.add(second, record(second, {}, failed={"kind": "DivergenceError", "message": "epoch 2"}))
    cell = shown.cell(store, ())
    assert (cell.failed, cell.absent, len(cell.values)) == (1, "", 1)


@pytest.mark.paper
def test_findings_are_shown_only_beside_complete_tables(tmp_path: Path):
    complete, empty = (
        SUITES["ablation_lambda"].comparisons(ResultStore(root))[0] for root in (ROOT / "results", tmp_path)
    )
    assert "**λ does not matter.**" in complete.findings[0]
    assert not empty.findings


def test_an_invalid_growth_file_is_rejected_and_the_others_are_shown(tmp_path: Path):
    (tmp_path / "speed").mkdir()
    times = {"knn": 1.0, "spectral": 1.0, "enrich": 2.0, "epoch": 0.5}
    point = {"nodes": 1000, **times, "peak": {"process": {"host": 700.0, "device": 0.0}}}
    valid = {"machine": {"device": "2 cores", "kind": "cpu"}, "figures": {"points": [point], "exponents": {}}}
    (tmp_path / "speed" / "growth-2-cores.json").write_text(json.dumps(valid))
    invalid = [tmp_path / "speed" / f"growth-{n}.json" for n in range(3)]
    for path, content in zip(invalid, ('{"x": 1}', "[]", "{"), strict=True):
        path.write_text(content)
    store = ResultStore(tmp_path)
    assert len(SUITES["complexity"].comparisons(store)) == 1
    assert set(store.rejected) == set(invalid)
    assert all("is not a growth record" in reason for reason in store.rejected.values())


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
    masked = game(mask=shares)
    assert cells.Pruned("original")(masked) == pytest.approx(30.0)
    assert cells.Pruned("augmented")(masked) == pytest.approx(50.0)
    assert cells.Pruned("augmented", retained=True)(masked) == pytest.approx(50.0)
    assert cells.Pruned("original")(game()) is None


def test_the_mean_mask_after_an_epoch():
    curves = game(curves={"mask original a": [0.5, 0.1], "mask original b": [0.7, None], "mask knn a": [9.0, 9.0]})
    assert cells.MeanMask(1)(curves) == pytest.approx(0.6)
    assert cells.MeanMask(2)(curves) == pytest.approx(0.1)
    assert cells.MeanMask(3)(curves) is None


def test_scores_by_period():
    task = next(iter(run_set("arxiv", "erm-gcn", method_spec("erm-gcn").recipe).tasks()))
    scored = record(task, {t: {"accuracy": v} for t, v in zip(task.protocol.targets, (0.1, 0.2, 0.3), strict=True)})
    scores = [cells.PeriodScore("accuracy", targets)(scored) for targets in arxiv.PERIODS.values()]
    assert scores == pytest.approx([10.0, 20.0, 30.0])
    assert cells.PeriodScore("accuracy", ("2016", "2018"))(scored) == pytest.approx(15.0)
    assert cells.PeriodScore("accuracy", ("2022",))(scored) is None


@pytest.mark.parametrize("module", [elliptic, arxiv])
def test_periods_are_the_targets_in_their_order(module):
    (protocol,) = benchmark(module.__name__.split(".")[-1]).protocols
    assert sum(module.PERIODS.values(), ()) == protocol.targets


def test_every_method_chooses_its_epoch_on_a_validation_domain_if_there_is_one():
    tasks = [t for t in suite("two_by_two_ablation").tasks() if isinstance(t, Run)]
    for task in tasks:
        assert task.recipe.select != "last" or not task.protocol.validation
