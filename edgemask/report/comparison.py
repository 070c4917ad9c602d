"""A table of ours beside the paper's: rows, columns, and in each cell what every seed gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean, stdev

ABSENT = "data not available"
Unit = tuple[str, int]  # what is paired between two cells: a benchmark's protocol, and a seed


@dataclass(frozen=True)
class Cell:
    """Ours, one value per unit, and the paper's figure: (mean, deviation), (value,) or nothing."""

    values: Mapping[Unit, float] = field(default_factory=dict)
    paper: tuple[float, ...] = ()
    rules: tuple[str, ...] = ()  # selection rules of the runs behind it
    keys: tuple[str, ...] = ()  # of their records
    failed: int = 0  # runs that diverged or ran out of memory
    absent: str = ""  # why there is nothing of ours: "data not available", "not run"

    @cached_property
    def by_seed(self) -> dict[int, float]:
        """The mean over protocols for each seed."""
        groups: dict[int, list[float]] = {}
        for (_, seed), value in self.values.items():
            groups.setdefault(seed, []).append(value)
        return {seed: fmean(groups[seed]) for seed in sorted(groups)}

    @cached_property
    def mean(self) -> float:
        return fmean(self.by_seed.values()) if self.values else float("nan")

    @cached_property
    def std(self) -> float:
        """The sample deviation over seeds; NaN of fewer than two."""
        return stdev(self.by_seed.values()) if len(self.by_seed) > 1 else float("nan")

    @property
    def difference(self) -> float:
        """Ours less the paper's; NaN where either has nothing."""
        return self.mean - self.paper[0] if self.paper else float("nan")


@dataclass(frozen=True)
class Comparison:
    """One table. `cells` may leave gaps. Where `best` is "high" or "low" that end of a column is better."""

    name: str
    title: str
    about: str  # what was run, and how the columns are defined
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]
    best: str = "high"
    decimals: int = 1
    reference: str = ""  # the row every other is tested against (ERM), where there is one
    tested: tuple[str, ...] = ()  # the columns of scores that tests compare
    findings: tuple[str, ...] = ()  # what we found where ours and the paper's differ

    def cell(self, row: str, column: str) -> Cell:
        return self.cells.get((row, column), Cell())

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(key for cell in self.cells.values() for key in cell.keys))
