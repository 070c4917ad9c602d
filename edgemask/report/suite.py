"""Suites: tables as declarations of the runs behind them and of the value that each cell shows.

`Suite.tasks()` lists what has to be run. `Suite.comparisons(store)` makes the tables from records alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from edgemask.config import Recipe
from edgemask.data import benchmark
from edgemask.experiments.auto import AutoRun
from edgemask.experiments.enrichment import Enrichment
from edgemask.experiments.majority import MajorityRun
from edgemask.experiments.records import Record, ResultStore, Task
from edgemask.experiments.run import Run
from edgemask.report.comparison import ABSENT, PUBLISHED, Cell, Comparison
from edgemask.report.statistics import ranking_table
from edgemask.training.candidates import DEFAULTS

SEEDS = 5  # seeds of a run in a table


@dataclass(frozen=True)
class RunSet:
    """One method with one recipe on some protocols of a benchmark, over several seeds.

    Args:
        benchmark: Name of the benchmark.
        method: Name of the method, `auto` for a race, `majority` for the majority class of the sources, or `enrichment`
            for measures of the enriched graphs.
        recipe: All settings. The majority class has none.
        protocols: Names of the benchmark's protocols.
        seeds: Number of seeds, starting at 0.
        also: Extras to record (`edgemask.experiments.extras`).
        candidates: Names of the candidates of the method `auto`.
        options: Options with which the benchmark is loaded, as (name, value) pairs, if they are not the default ones.
    """

    benchmark: str
    method: str
    recipe: Recipe
    protocols: tuple[str, ...]
    seeds: int = SEEDS
    also: tuple[str, ...] = ()
    candidates: tuple[str, ...] = DEFAULTS
    options: tuple[tuple[str, Any], ...] = ()

    def tasks(self) -> Iterator[Task]:
        """Yield a task per protocol and seed. The majority class does not depend on the seed and has only seed 0."""
        source = benchmark(self.benchmark)
        for name in self.protocols:
            protocol = source.protocol(name)
            options = source.options_under(protocol, dict(self.options))
            if self.method == "majority":
                yield MajorityRun(self.benchmark, options, protocol)
                continue
            for seed in range(self.seeds):
                if self.method == "enrichment":
                    yield Enrichment(self.benchmark, options, protocol, self.recipe, seed)
                elif self.method == "auto":
                    yield AutoRun(self.benchmark, options, protocol, seed, self.recipe, self.candidates)
                else:
                    yield Run(self.benchmark, options, protocol, self.method, self.recipe, seed, self.also)

    def records(self, store: ResultStore) -> list[tuple[Task, Record | None]]:
        """Return the tasks with their records. Several cells share one look-up.

        The record of a majority class is repeated for every seed, so that it can be paired with other runs.
        """
        pairs: list[tuple[Task, Record | None]] | None = store.derived.get(self)
        if pairs is None:
            pairs = []
            for task in self.tasks():
                record, same = store.find(task), list[Task]([task])
                if isinstance(task, MajorityRun):
                    same = [replace(task, seed=seed) for seed in range(self.seeds)]
                pairs += [(each, record) for each in same]
            store.derived[self] = pairs
        return pairs


@dataclass(frozen=True)
class CellSpec:
    """One cell of a table: a value of each record of `runs`, minus the value of the same run in `minus`.

    Args:
        row: Name of the row.
        column: Name of the column.
        runs: The runs that the cell shows.
        value: Computes the value of one record; None if the record has no such value.
        paper: The paper's figure: (mean, deviation), (value,) or nothing.
        minus: Runs whose values are subtracted, paired by protocol and seed.
        deviation: Whether the cell shows the standard deviation over the seeds. The majority class never does.
    """

    row: str
    column: str
    runs: RunSet
    value: Callable[[Record], float | None]
    paper: tuple[float, ...] = ()
    minus: RunSet | None = None
    deviation: bool = True

    def cell(self, store: ResultStore, absent: Collection[str]) -> Cell:
        """Return the cell. The data of the benchmarks in `absent` is not available."""
        tasks = self.runs.records(store)
        others = [record for _, record in self.minus.records(store)] if self.minus else [None] * len(tasks)
        values, records, failed = {}, list[Record](), 0
        for (task, own), other in zip(tasks, others, strict=True):
            pair = [record for record in (own, other) if record]
            records += pair
            failed += any("failed" in r for r in pair)
            shown = [v for r in pair if "failed" not in r and (v := self.value(r)) is not None]
            if len(shown) == (2 if self.minus else 1):
                values[f"{task.benchmark} {task.protocol.name}", task.seed] = shown[0] - sum(shown[1:])
        if not records and self.runs.benchmark in absent:
            return Cell(paper=self.paper, absent=ABSENT)
        ended = len(values) + failed
        missing = "" if ended == len(tasks) else f"{ended} of {len(tasks)} runs" if ended else "not run"
        rules = tuple(sorted({r["select"]["rule"] for r in records}))
        keys = tuple(dict.fromkeys(r["key"] for r in records))
        deviation = self.deviation and self.runs.method != "majority"
        return Cell(values, self.paper, rules, keys, failed, missing, deviation=deviation)


@dataclass(frozen=True)
class TableSpec:
    """One table of a suite. The fields are those of `Comparison`, with cells as declarations.

    Args:
        published: Figures of rows that have no runs, by row and column. These rows are the last ones.
    """

    title: str
    about: str
    cells: tuple[CellSpec, ...]
    best: str = "high"
    decimals: int = 1
    reference: str = ""
    tested: tuple[str, ...] = ()
    published: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    ranked: tuple[str, ...] = ()

    def comparison(self, name: str, store: ResultStore, absent: Collection[str]) -> Comparison:
        """Return the table of a store's records."""
        quoted = {
            (row, column): Cell(paper=figure, absent=PUBLISHED)
            for row, figures in self.published.items()
            for column, figure in figures.items()
        }
        cells = {(c.row, c.column): c.cell(store, absent) for c in self.cells} | quoted
        return Comparison(
            name,
            self.title,
            self.about,
            tuple(dict.fromkeys(row for row, _ in cells)),
            tuple(dict.fromkeys(column for _, column in cells)),
            cells,
            self.best,
            self.decimals,
            self.reference,
            self.tested,
            ranked=self.ranked,
        )


@dataclass(frozen=True)
class Suite:
    """Tables that belong together, and the runs behind them.

    Args:
        name: Name on the command line.
        title: Heading of the tables.
        tables: The tables.
        extra: Runs that no cell shows.
        made: Makes further tables from a store, without runs.
        findings: Sentences shown beside the first table once all its runs are recorded.
    """

    name: str
    title: str
    tables: tuple[TableSpec, ...] = ()
    extra: tuple[RunSet, ...] = ()
    made: Callable[[ResultStore], list[Comparison]] | None = field(default=None, compare=False)
    findings: tuple[str, ...] = ()

    def tasks(self) -> list[Task]:
        """Return every run behind the suite once."""
        cells = [cell for table in self.tables for cell in table.cells]
        runs = dict.fromkeys([*(r for c in cells for r in (c.runs, c.minus) if r), *self.extra])
        by_text = {repr(task): task for r in runs for task in r.tasks()}
        return list(by_text.values())

    def comparisons(self, store: ResultStore, absent: Collection[str] = ()) -> list[Comparison]:
        """Return the tables of a store's records. A table that ranks its rows is followed by their mean ranks.

        Args:
            store: The records.
            absent: Benchmarks whose data is not available.
        """
        key = ("comparisons", self.name, tuple(absent))
        if key not in store.derived:
            tables = [t.comparison(self.name, store, absent) for t in self.tables]
            tables += self.made(store) if self.made else []
            if all(cell.absent in ("", ABSENT, PUBLISHED) for table in tables for cell in table.cells.values()):
                tables[:1] = [replace(t, findings=self.findings) for t in tables[:1]]
            store.derived[key] = [shown for t in tables for shown in (t, ranking_table(t)) if shown]
        return list(store.derived[key])
