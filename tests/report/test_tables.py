"""Tests of the tables made from records: averages, missing data, selection rules and failures."""

from __future__ import annotations

import csv
import io

import pytest
from rich.console import Console

from edgemask.experiments.run import ORACLE
from edgemask.report.comparison import ABSENT, MAJORITY
from edgemask.report.render import caption, csv_text, latex, markdown, rich_table
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


def shown(groups, width=200, majority=None) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(rich_table(benchmark_table("title", groups, majority=majority)))
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


# ---- the majority class ------------------------------------------------------------------------------------

GUESS = {"p": {"b": {"micro_f1": 0.5}}, "q": {"b": {"micro_f1": 0.3}, "c": {"micro_f1": 0.7}}}
ONE_CLASS = [record({"b": 0.5}, name="p", seed=s) for s in range(3)]


def test_the_majority_class_is_the_first_row_and_its_rule_is_reference():
    records = [record({"b": 0.6}, name="p", seed=1), record({"b": 0.6, "c": 0.8}, name="q", seed=1)]
    table = benchmark_table("title", {"gcn": records}, majority=GUESS)
    assert table.rows == (MAJORITY, "gcn")
    assert table.columns == benchmark_table("title", {"gcn": records}).columns
    text = shown({"gcn": records}, majority=GUESS)
    assert row(text, MAJORITY) == [MAJORITY, "50.0", "50.0", "30.0", "50.0", "reference"]
    assert row(text, "gcn") == ["gcn", "60.0", "70.0", "60.0", "65.0", "last"]
    assert "1 seed;" in text


def test_a_cell_that_equals_the_majority_class_on_every_seed_is_marked():
    once = [record({"b": v}, name="p", seed=s) for s, v in enumerate((0.5, 0.5, 0.5001))]
    table = benchmark_table("title", {"collapsed": ONE_CLASS, "once": once}, majority=GUESS)
    marked = {name: table.cell(name, "p micro_f1").equals_majority for name in table.rows}
    assert marked == {MAJORITY: False, "collapsed": True, "once": False}
    text = shown({"collapsed": ONE_CLASS, "once": once}, majority=GUESS)
    assert row(text, "collapsed") == ["collapsed", "50.0 ± 0.0 =", "50.0 ± 0.0 =", "last"]
    assert row(text, "once") == ["once", "50.0 ± 0.0", "50.0 ± 0.0", "last"]


def test_average_and_minimum_over_targets_are_marked_on_their_own():
    records = [record({"b": 0.7, "c": 0.3}, name="q")]  # the same average and minimum on other targets
    table = benchmark_table("title", {"gcn": records}, majority=GUESS)
    assert [table.cell("gcn", c).equals_majority for c in table.columns] == [True, True, True]
    other = benchmark_table("title", {"gcn": [record({"b": 0.6, "c": 0.4}, name="q")]}, majority=GUESS)
    assert [other.cell("gcn", c).equals_majority for c in other.columns] == [True, False, True]


def test_every_format_shows_the_mark_and_explains_it():
    table = benchmark_table("title", {"gcn": ONE_CLASS, "mlp": [record({"b": 0.6}, name="p")]}, majority=GUESS)
    assert caption(table).endswith("in bold: the best of a column; = equals the majority class.")
    assert "| gcn | 50.0 ± 0.0 = | 50.0 ± 0.0 = | last |" in markdown(table)
    assert "; = equals the majority class." in markdown(table)
    assert r"gcn & 50.0 $\pm$ 0.0 = & 50.0 $\pm$ 0.0 = & last \\" in latex(table)
    assert "; = equals the majority class.}" in latex(table)
    lines = list(csv.DictReader(io.StringIO(csv_text(table))))
    assert [line["equals majority"] for line in lines] == ["0", "0", "1", "1", "0", "0"]
    assert (lines[0]["row"], lines[0]["mean"], lines[0]["rules"]) == (MAJORITY, "50", "reference")


def test_a_table_without_the_majority_class_has_no_marks():
    table = benchmark_table("title", {"gcn": ONE_CLASS})
    assert table.rows == ("gcn",)
    assert caption(table) == "Mean ± standard deviation over 3 seeds."
    assert "=" not in markdown(table)
    assert "equals majority" not in csv_text(table)


def test_the_majority_class_is_shown_on_the_targets_that_were_scored():
    partly = record({"b": 0.5}, name="q", targets=["b", "c"], missing=["c"])
    table = benchmark_table("title", {"gcn": [partly]}, majority=GUESS)
    assert list(table.cell(MAJORITY, "q micro_f1 1 of 2 targets avg").values.values()) == [30.0]
    assert table.columns == benchmark_table("title", {"gcn": [partly]}).columns


def test_a_protocol_without_a_majority_class_and_a_failed_run_have_no_mark():
    groups = {"gcn": [record({"b": 0.5}, name="p"), record({"b": 0.5}, name="unknown")], "mlp": []}
    lost = record({}, name="p", targets=["b"]) | {"failed": {"kind": "DivergenceError", "message": "epoch 3"}}
    text = shown(groups | {"lost": [lost]}, majority=GUESS)
    assert row(text, MAJORITY) == [MAJORITY, "50.0", "–", "–", "reference"]
    assert row(text, "gcn") == ["gcn", "50.0 =", "50.0", "50.0", "last"]
    assert "=" not in row(text, "lost")[1]
