"""Suites of the paper's results: every system on every benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from edgemask.config import Recipe
from edgemask.data import arxiv, elliptic
from edgemask.experiments.records import Record
from edgemask.methods.registry import method_spec
from edgemask.report.suite import CellSpec, RunSet, Suite, TableSpec
from paper import cells as value
from paper.published import NAMES, SHOWN, figure
from paper.runs import CITATION, OTHERS, STAR, default, run_set


def label(name: str) -> str:
    """Return the name of a method, with the paper's name in brackets if it has one."""
    return f"{name} ({NAMES[name]})" if name in NAMES else name


def citation_cells(row: str, runs: RunSet, paper_row: str = "") -> Iterator[CellSpec]:
    """Yield the cells of a row of the citation table: six scores and their average, as in the paper.

    Args:
        row: Name of the row.
        runs: The runs that the row shows.
        paper_row: Name of the row in the paper's table, if it has one.
    """
    table = "results_citations"
    for transfer in CITATION:
        for short, metric in (("micro", "micro_f1"), ("macro", "macro_f1")):
            column = f"{transfer} {short}"
            one = run_set(runs.benchmark, runs.method, runs.recipe, (transfer,), runs.seeds, runs.also)
            quoted = figure(table, paper_row, column.replace("→", "->"))
            yield CellSpec(row, column, one, value.Score((metric,)), quoted)
    yield CellSpec(row, "average", runs, value.Score(("micro_f1", "macro_f1")), figure(table, paper_row, "average"))


def other_benchmark_cells(
    row: str, name: str, settings: Recipe | None = None, paper_row: str = ""
) -> Iterator[CellSpec]:
    """Yield the cells of a row of the other benchmarks: minimum and average over the targets, as in the paper.

    Args:
        row: Name of the row.
        name: Name of the method.
        settings: All settings; the method's default recipe if None.
        paper_row: Name of the row in the paper's table, if it has one.
    """
    for where, title in OTHERS.items():
        runs = default(name, where) if settings is None else run_set(where, name, settings)
        for how in ("min", "avg"):
            column = f"{title} {how}"
            quoted = figure("results_cora_photo_fb_twitch", paper_row, column)
            yield CellSpec(row, column, runs, value.Score(how=how), quoted)


def temporal_cells(name: str) -> Iterator[CellSpec]:
    """Yield the cells of a method's row for Elliptic and OGB-Arxiv: the three test periods and their average."""
    paper_row = {"grm": "GRM*"}.get(name, NAMES[name])
    for where, title, metric, periods in (
        ("elliptic", "Elliptic", "f1:1", elliptic.PERIODS),
        ("arxiv", "ArXiv", "accuracy", arxiv.PERIODS),
    ):
        runs = run_set(where, name, method_spec(name).recipe)
        shown: dict[str, Callable[[Record], float | None]] = {
            period: value.PeriodScore(metric, targets) for period, targets in periods.items()
        }
        shown["avg"] = value.Score((metric,))
        for period, show in shown.items():
            column = f"{title} {period}"
            quoted = figure("results_elliptic_arxiv_sorted", paper_row, column)
            yield CellSpec(label(name), column, runs, show, quoted)


REBUILT = (
    "Some methods are partial reimplementations from descriptions with gaps: "
    + ", ".join(n for n in SHOWN if method_spec(n).status.startswith("partial"))
    + ". `edgemask methods` lists what is our own in each."
)
SIX = tuple(f"{t} {m}" for t in CITATION for m in ("micro", "macro"))
RESULTS = (
    Suite(
        "results_citations",
        "Citation networks, leave one domain out",
        (
            TableSpec(
                "Citation networks",
                f"F1 on the unseen domain in percent. Every method runs with its defaults. {REBUILT}",
                tuple(c for n in SHOWN for c in citation_cells(label(n), default(n, "citation"), NAMES.get(n, ""))),
                reference=label("erm-gcn"),
                tested=SIX,
            ),
        ),
    ),
    Suite(
        "results_cora_photo_fb_twitch",
        "Cora, Photo, Facebook-100, Twitch",
        (
            TableSpec(
                "Cora, Photo, Facebook-100, Twitch",
                "Minimum and average over the target domains, in percent: ROC-AUC on Twitch, accuracy elsewhere. The "
                "validation domain chooses the epoch for every method. The paper's figures are on other data: we "
                "generated Cora and Photo ourselves, and for Facebook-100 we use the targets whose files are "
                f"available. {REBUILT}",
                tuple(c for n in SHOWN for c in other_benchmark_cells(label(n), n, paper_row=NAMES.get(n, ""))),
                reference=label("erm-gcn"),
                tested=tuple(f"{title} avg" for title in OTHERS.values()),
            ),
        ),
    ),
    Suite(
        "results_elliptic_arxiv_sorted",
        "Elliptic and OGB-Arxiv over time",
        (
            TableSpec(
                "Elliptic and OGB-Arxiv",
                "F1 of the illicit class (Elliptic) and accuracy (ArXiv) in percent, by thirds of the test steps. "
                + REBUILT,
                tuple(
                    c
                    for n in ("erm-gcn", "eerm", "arm", "lisa", "mmd", STAR, "group-dro", "is-gib", "mario", "grm")
                    for c in temporal_cells(n)
                ),
                reference=label("erm-gcn"),
            ),
        ),
    ),
)
