"""Tests of the tables made from records: averages, missing data, selection rules and failures."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from edgemask.experiments.run import ORACLE
from edgemask.report.comparison import ABSENT
from edgemask.report.render import rich_table
from edgemask.report.tables import AVERAGE, benchmark_table, failures, with_oracle


def record(scores, *, name="a→b", seed=0, rule="last", targets=None, missing=(), metrics=("micro_f1",)):
    """Return a record with the fields that tables read. `scores` maps each target to the value of every metric."""
    return {
        "protocol": {"name": name, "targets": list(targets or scores), "metrics": list(metrics)},
        "metrics": {t: dict.fromkeys(metrics, v) for t, v in scores.items()},
        "seed": seed,
        "select": {"rule": rule},
        "missing": list(missing),
    }


def shown(groups, width=200) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(rich_table(benchmark_table("title", groups)))
    return console.file.getvalue()


def row(text: str, name: str) -> list[str]:
    line = next(line for line in text.splitlines() if name in line)
    return [cell.strip() for cell in line.strip("│").split("│")]


def cells(records) -> dict[str, list[float]]:
    table = benchmark_table("title", {"row": records})
    return {c: list(table.cell("row", c).values.values()) for c in table.columns if c != AVERAGE}


def test_one_target_gives_one_column_in_percent():
    records = [record({"b": 0.5}, seed=0), record({"b": 0.75}, seed=1)]
    assert cells(records) == {"a→b micro_f1": [50.0, 75.0]}


def test_several_targets_give_an_average_and_a_minimum():
    assert cells([record({"b": 0.5, "c": 0.25, "d": 0.75})]) == {
        "a→b micro_f1 avg": [50.0],
        "a→b micro_f1 min": [25.0],
    }


def test_a_missing_target_is_left_out_of_the_average():
    partly = record({"b": 0.5, "c": 0.25}, targets=["b", "c", "d"], missing=["d"])
    assert list(cells([partly]).values()) == [[37.5], [25.0]]


def test_every_metric_has_its_column():
    assert list(cells([record({"b": 0.5}, metrics=("micro_f1", "macro_f1"))])) == ["a→b micro_f1", "a→b macro_f1"]


def test_a_row_shows_mean_deviation_and_the_average_over_protocols():
    records = [record({"b": v}, name=n, seed=s) for n, v, s in (("p", 0.5, 0), ("p", 0.6, 1), ("q", 0.9, 0))]
    assert row(shown({"gcn": records}), "gcn") == ["gcn", "55.0 ± 7.1", "90.0", "70.0", "last"]


def test_the_minimum_does_not_enter_the_average():
    assert row(shown({"gcn": [record({"b": 0.5, "c": 0.7})]}), "gcn") == ["gcn", "60.0", "50.0", "60.0", "last"]


def test_a_method_without_records_of_a_protocol_shows_data_not_available():
    groups = {
        "gcn": [record({"b": 0.5}, name="p"), record({"b": 0.5}, name="q")],
        "mlp": [record({"b": 0.4}, name="p")],
    }
    assert row(shown(groups), "mlp") == ["mlp", "40.0", ABSENT, "40.0", "last"]


def test_nothing_is_cut_off_in_a_narrow_terminal():
    records = [record({"b": 0.5}, name=f"alpha+beta→gamma{i}", metrics=("micro_f1", "macro_f1")) for i in range(3)]
    text = shown({"edgemask-dg-star epochs=3": records}, width=80)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_every_row_shows_its_selection_rules():
    groups = {"gcn": [record({"b": 0.5}, rule="validation"), record({"b": 0.5}, name="q", rule="last")]}
    assert row(shown(groups), "gcn")[-1] == "last, validation"


def test_a_protocol_without_data_has_a_column_that_says_so():
    table = benchmark_table("title", {"gcn": []}, ["a→b"])
    assert table.columns == ("a→b", AVERAGE)
    assert table.cell("gcn", "a→b").absent == ABSENT


@pytest.mark.parametrize(("seeds", "words"), [([0], "1 seed"), ([0, 0, 1, 2], "3 seeds")])
def test_the_caption_counts_distinct_seeds(seeds, words):
    assert words in shown({"row": [record({"b": 0.5}, seed=s) for s in seeds]})


def test_an_average_over_some_targets_names_their_number():
    partly = record({"b": 0.5}, targets=["b", "c", "d"], missing=["c", "d"])
    assert list(cells([partly])) == ["a→b micro_f1 1 of 3 targets avg", "a→b micro_f1 1 of 3 targets min"]


def test_the_choice_of_the_oracle_has_its_own_row():
    with_rules = record({"b": 0.5}) | {"rules": {ORACLE: {"metrics": {"b": {"micro_f1": 0.75}}}}}
    text = shown(with_oracle({"gcn": [with_rules], "mlp": [record({"b": 0.4})]}))
    assert row(text, "gcn ") == ["gcn", "50.0", "50.0", "last"]
    assert row(text, "gcn, oracle") == ["gcn, oracle", "75.0", "75.0", "oracle (looks at the target)"]
    assert "mlp, oracle" not in text


def test_failed_runs_have_no_value_and_are_counted():
    lost = record({}, targets=["b"]) | {"failed": {"kind": "DivergenceError", "message": "epoch 3"}}
    text = shown({"ours": [record({"b": 0.5}), lost]})
    assert "50.0" in row(text, "ours")
    assert "(1 failed)" in text
    assert failures([record({"b": 0.5}), lost]) == "1 of 2 runs failed: DivergenceError"
    assert failures([record({"b": 0.5})]) == ""
