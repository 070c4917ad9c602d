"""Data classes for tables: `Cell` holds the values of our runs and the paper's figure, `Comparison` holds the cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isclose, nan
from statistics import fmean, stdev

from edgemask.training.race import MAJORITY

__all__ = ["ABSENT", "MAJORITY", "PUBLISHED", "Cell", "Comparison", "Unit"]

ABSENT = "data not available"
PUBLISHED = "published"  # a cell that has a published figure and no runs
EQUAL = 1e-9  # two scores are equal up to rounding if they differ by at most this
Unit = tuple[str, int]  # (protocol, seed): two cells are compared unit by unit


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Args:
        values: Our values, one per unit.
        paper: The paper's figure: (mean, deviation), (value,) or nothing.
        rules: Selection rules of the runs behind the cell.
        keys: Keys of the records behind the cell.
        failed: Number of runs that diverged or ran out of memory.
        absent: Why values are missing: "data not available", "not run", "3 of 5 runs", or "published" if there are no
            runs to do. Empty if none is missing.
        equals_majority: Whether every value equals that of the majority class. `Comparison.cell` sets it.
        deviation: Whether the cell has a standard deviation over the seeds. Values that do not depend on the seed and
            shares of the runs have none.
    """

    values: Mapping[Unit, float] = field(default_factory=dict)
    paper: tuple[float, ...] = ()
    rules: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    failed: int = 0
    absent: str = ""
    equals_majority: bool = False
    deviation: bool = True

    @cached_property
    def by_seed(self) -> dict[int, float]:
        """Mean over the protocols, by seed."""
        groups: dict[int, list[float]] = {}
        for (_, seed), value in self.values.items():
            groups.setdefault(seed, []).append(value)
        return {seed: fmean(groups[seed]) for seed in sorted(groups)}

    @cached_property
    def mean(self) -> float:
        """Mean over the seeds; NaN if there are no values."""
        return fmean(self.by_seed.values()) if self.values else float("nan")

    @cached_property
    def std(self) -> float:
        """Sample standard deviation over the seeds; NaN if there are fewer than two or if the cell has none."""
        return stdev(self.by_seed.values()) if self.deviation and len(self.by_seed) > 1 else float("nan")

    @property
    def difference(self) -> float:
        """Our mean minus the paper's; NaN if either is missing."""
        return self.mean - self.paper[0] if self.paper else float("nan")


@dataclass(frozen=True)
class Comparison:
    """One table.

    A row named "majority class" shows the scores of predicting the most frequent class of the sources. Cells of other
    rows with the same scores are marked.

    Args:
        name: Name of the table in files.
        title: Heading of the table.
        about: Text that says what was run and how the columns are defined.
        rows: Names of the rows.
        columns: Names of the columns.
        cells: Cells by (row, column). Cells without content may be left out.
        best: "high" or "low" if that end of a column is better, else empty.
        decimals: Decimals to print.
        reference: The row that every other row is tested against, such as ERM. Empty if there is none.
        tested: The columns of scores that the tests compare.
        ranked: The columns over which rows are ranked. Empty if they are not.
        over_seeds: Whether the values are scores over seeds. Other values are not compared with the majority class.
        findings: Sentences about the differences between our results and the paper's.
    """

    name: str
    title: str
    about: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]
    best: str = "high"
    decimals: int = 1
    reference: str = ""
    tested: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    ranked: tuple[str, ...] = ()
    over_seeds: bool = True

    def cell(self, row: str, column: str) -> Cell:
        """Return a cell, marked if it equals the majority class; an empty one if `cells` does not have it."""
        cell = self.cells.get((row, column), Cell())
        return replace(cell, equals_majority=True) if self._equals_majority(row, column) else cell

    @property
    def has_majority(self) -> bool:
        """Whether the table has a row of scores of the majority class."""
        return self.over_seeds and MAJORITY in self.rows

    def _equals_majority(self, row: str, column: str) -> bool:
        """Return whether all values of a cell equal those of the majority class, which are the same for all seeds."""
        if not self.has_majority or row == MAJORITY:
            return False
        values, majority = (self.cells.get((r, column), Cell()).values for r in (row, MAJORITY))
        expected = {protocol: value for (protocol, _), value in majority.items()}
        equal = [isclose(v, expected.get(p, nan), rel_tol=0, abs_tol=EQUAL) for (p, _), v in values.items()]
        return bool(equal) and all(equal)

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of all records behind the table, each once."""
        return tuple(dict.fromkeys(key for cell in self.cells.values() for key in cell.keys))
