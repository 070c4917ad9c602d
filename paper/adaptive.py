"""The suites `adaptive` and `single_source`: `auto` against its candidates, and against methods that see the target."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from edgemask.config import Recipe
from edgemask.data import benchmark
from edgemask.experiments.records import Record, ResultStore
from edgemask.methods.registry import method_spec
from edgemask.report.comparison import MAJORITY, Cell, Comparison
from edgemask.report.statistics import compare
from edgemask.report.suite import SEEDS, CellSpec, RunSet, Suite, TableSpec
from edgemask.training.candidates import AUTO_RECIPE, DEFAULTS
from paper.cells import (
    Member,
    Score,
    binary_member,
    calibration_error,
    expected_error,
    expected_score,
    within_interval,
)
from paper.published import ADAPTATION
from paper.runs import PLAIN, PROTOCOLS, STAR, default, headline_seeds, run_set

AUTO = "auto"
FORMER = f"former default: {STAR}, `robust`"
ENRICHED = f"{PLAIN}, its own recipe"
ROWS = (MAJORITY, AUTO, *DEFAULTS, FORMER, ENRICHED)
TITLES = {
    "citation": "Citation",
    "cora": "Cora",
    "photo": "Photo",
    "twitch": "Twitch",
    "facebook100": "FB-100",
    "airports": "Airports",
}
TRANSFERS = PROTOCOLS | {
    "facebook100": tuple(f"triple{n}→available" for n in (1, 2, 3)),
    **{where: tuple(p.name for p in benchmark(where).sets["generator_seeds"]) for where in ("cora", "photo")},
}
BOTH = ("micro_f1", "macro_f1")
# `auto` trains on all labels of a node. Other methods train on the first label, so their runs need no option.
OPTIONS = {"citation": (("labels", "multi"),)}


def race(where: str, protocols: tuple[str, ...], seeds: int, candidates: tuple[str, ...] = DEFAULTS) -> RunSet:
    """Return the races on a benchmark, whose sources have all their labels.

    Args:
        where: Name of the benchmark.
        protocols: Names of the protocols.
        seeds: Number of seeds.
        candidates: Names of the candidates.
    """
    options = OPTIONS.get(where, ())
    return RunSet(where, "auto", AUTO_RECIPE, protocols, seeds, candidates=candidates, options=options)


def runs(row: str, where: str, protocols: tuple[str, ...] = ()) -> RunSet:
    """Return the runs of a row on a benchmark.

    Args:
        row: Name of the row. A candidate runs in a race of its own, so that its epoch and its propagation are chosen by
            the same rule as in the race of all candidates.
        where: Name of the benchmark.
        protocols: Names of the protocols; those in `TRANSFERS` if empty.
    """
    protocols = protocols or TRANSFERS[where]
    if row == MAJORITY:
        return run_set(where, "majority", Recipe(), protocols, headline_seeds(where))
    if row == AUTO:
        return race(where, protocols, headline_seeds(where))
    if row in (FORMER, ENRICHED):
        return default(STAR if row == FORMER else PLAIN, where, protocols)
    return race(where, protocols, SEEDS, (row,))


# ---- scores ----------------------------------------------------------------------------------------------


COLUMNS: dict[str, tuple[str, tuple[str, ...]]] = {  # the benchmark and the protocols behind each group of columns
    **{title: (where, TRANSFERS[where]) for where, title in TITLES.items() if where not in ("facebook100", "airports")},
    **{f"FB-100 triple {n}": ("facebook100", (name,)) for n, name in enumerate(TRANSFERS["facebook100"], 1)},
    "Airports": ("airports", TRANSFERS["airports"]),
}


def score_cells(row: str) -> Iterator[CellSpec]:
    """Yield the cells of a row of scores: the average of every benchmark, and the minimum over several targets."""
    for title, (where, protocols) in COLUMNS.items():
        own = runs(row, where, protocols)
        if where in ("citation", "airports"):  # every transfer has one target
            yield CellSpec(row, title, own, Score(BOTH if where == "citation" else ()))
        else:
            yield CellSpec(row, f"{title} avg", own, Score())
            yield CellSpec(row, f"{title} min", own, Score(how="min"))


AVERAGES = tuple(cell.column for cell in score_cells(AUTO) if not cell.column.endswith(" min"))
SCORES = TableSpec(
    "`auto` and its candidates",
    "Average and minimum over the targets in percent: micro- and macro-F1 over three transfers on Citation, ROC-AUC on "
    "Twitch, accuracy elsewhere. Cora and Photo are means over three seeds of the data generator, Airports is the mean "
    "over three transfers. `auto` is the race of all candidates. A candidate alone runs in a race of its own, so that "
    "its epoch and its propagation are chosen by the same rule, on validation domains or on held-out sources. On "
    "Citation, races use all labels of the sources. Scores count the first label of a node. The majority class is the "
    f"most frequent class of the sources. `{PLAIN}` with its own recipe is the strong simple baseline of the other "
    "tables. The tests compare the averages of all transfers with those of `auto`.",
    tuple(cell for row in ROWS for cell in score_cells(row)),
    reference=AUTO,
    tested=AVERAGES,
    ranked=AVERAGES,
)

# ---- trust and members -----------------------------------------------------------------------------------

TRUST: dict[str, Callable[[Record], float | None]] = {
    "expected score": expected_score,
    "score": Score(),
    "error of the expected score": expected_error,
    "targets in the interval, %": within_interval,
    "calibration error": calibration_error,
}
BENCHMARKS = {title: runs(AUTO, where) for where, title in TITLES.items()}
MEMBERS: dict[str, Callable[[Record], float | None]] = {
    **{name: Member(name) for name in DEFAULTS},
    "any candidate with `loss=binary`": binary_member,
}


# ---- the best other row ----------------------------------------------------------------------------------


def best_others(store: ResultStore) -> list[Comparison]:
    """Return the table of `auto` against the best other row of each column of the scores.

    Args:
        store: The records.
    """
    scores, cells = SCORES.comparison("adaptive", store, ()), dict[tuple[str, str], Cell]()
    for column in scores.columns:
        own = scores.cell(AUTO, column)
        others = [r for r in scores.rows if r != AUTO and own.values.keys() & scores.cell(r, column).values.keys()]
        best = max(others, key=lambda row: scores.cell(row, column).mean, default="")
        row = f"{column}: {AUTO} − {best or 'the best other row'}"
        if best:
            cells |= {(row, name): cell for name, cell in difference_cells(scores, column, best).items()}
        else:
            cells[row, "difference"] = Cell(absent="not run")
    return [
        Comparison(
            "adaptive",
            "`auto` against the best other row of each column",
            "Difference in points over the runs with the same protocol and seed that both rows have, its 95 % "
            "bootstrap interval, and the p-value of the paired test of these two rows, without a correction for the "
            "number of columns. With 5 pairs p is at least 0.0625.",
            tuple(dict.fromkeys(row for row, _ in cells)),
            ("difference", "interval, low", "interval, high", "p"),
            cells,
            best="",
            decimals=3,
        )
    ]


def difference_cells(scores: Comparison, column: str, other: str) -> dict[str, Cell]:
    """Return the cells of the comparison of `auto` with another row on one column of the scores.

    Args:
        scores: The scores.
        column: Name of the column.
        other: Name of the row, which has runs in common with `auto`.
    """
    (test,) = (v for v in compare(replace(scores, rows=(other, AUTO), tested=(column,), best="")) if v.pairs)
    a, b = scores.cell(AUTO, column), scores.cell(other, column)
    differences = {unit: value - b.values[unit] for unit, value in a.values.items() if unit in b.values}
    cell = Cell(differences, rules=a.rules, keys=(*a.keys, *b.keys))
    numbers = {"interval, low": -test.high, "interval, high": -test.low, "p": test.p}  # the test is of other − auto
    return {"difference": cell} | {
        name: replace(cell, values=dict.fromkeys(differences, number), deviation=False)
        for name, number in numbers.items()
        if not math.isnan(number)
    }


ADAPTIVE = Suite(
    "adaptive",
    "The default that adapts",
    (
        SCORES,
        TableSpec(
            "How far the expected score and the calibration can be trusted",
            "The model of `auto`, means over transfers and targets in percent or points. The expected score of the "
            "main metric is told after training, before the target is seen, with an interval. Its error is the "
            "distance to the average score of the targets of a run. The calibration error is the mean gap between "
            "confidence and accuracy on the targets, over 15 bins of confidence.",
            tuple(CellSpec(row, c, own, show) for row, own in BENCHMARKS.items() for c, show in TRUST.items()),
            best="",
        ),
        TableSpec(
            "Members of the models of `auto`",
            "Percentage of the runs in which a candidate is a member of the model. If nodes of the sources have "
            "several labels, which is the case on Citation only, candidates also race with the loss on all labels, "
            "`loss=binary`, and both forms are counted.",
            tuple(
                CellSpec(row, column, own, show, deviation=False)
                for row, show in MEMBERS.items()
                for column, own in BENCHMARKS.items()
            ),
            best="",
            decimals=0,
        ),
    ),
    made=best_others,
)


# ---- one source ------------------------------------------------------------------------------------------

SINGLE = tuple(protocol.name for protocol in benchmark("citation").sets["single"])
METRICS = {"micro": BOTH[:1], "macro": BOTH[1:]}


def single_runs(row: str, protocols: tuple[str, ...] = SINGLE) -> RunSet:
    """Return the runs of a row of the transfers with one source.

    Args:
        row: `majority class`, `auto`, or the name of a method, which runs with its default recipe.
        protocols: Names of the protocols.
    """
    if row == MAJORITY:
        return run_set("citation", "majority", Recipe(), protocols)
    if row == AUTO:
        return race("citation", protocols, SEEDS)
    return run_set("citation", row, method_spec(row).recipe, protocols)


def single_cells(row: str) -> Iterator[CellSpec]:
    """Yield the cells of a row of the transfers with one source: the averages, and each transfer."""
    for short, metric in METRICS.items():
        yield CellSpec(row, f"average {short}", single_runs(row), Score(metric))
    for transfer in SINGLE:
        for short, metric in METRICS.items():
            yield CellSpec(row, f"{transfer} {short}", single_runs(row, (transfer,)), Score(metric))


SINGLE_SOURCE = Suite(
    "single_source",
    "Citation networks, one source",
    (
        TableSpec(
            "One source, beside methods that see the target",
            "F1 on the target in percent, for the six transfers between two of the citation networks. Our rows train "
            "without the target. The last rows are adaptation methods, which train with the graph and the features of "
            "the target; only their published averages are shown. Their metric is given the number of labels of each "
            "node, ours is not. This matters most on ACM (A), where 6 % of the nodes have two labels.",
            tuple(cell for row in (MAJORITY, AUTO, PLAIN, "erm-gcn") for cell in single_cells(row)),
            reference=AUTO,
            tested=tuple(f"{transfer} {short}" for transfer in SINGLE for short in METRICS),
            published=ADAPTATION,
        ),
    ),
)
