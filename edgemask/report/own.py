"""Tables and paired tests of methods on the user's own graphs."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict
from statistics import fmean
from typing import Any

import pandas as pd

from edgemask.errors import InputError
from edgemask.report.comparison import MAJORITY, Cell, Comparison, Unit
from edgemask.report.statistics import REFERENCE
from edgemask.report.statistics import compare as compare_rows
from edgemask.report.tables import AVERAGE

COLUMNS = ("method", "target", "protocol", "seed", "rule", "failed", "record")


def table(
    frame: pd.DataFrame, *, title: str = "", metric: str | None = None, reference: str | None = None, name: str = "own"
) -> Comparison:
    """Return the table of a comparison in percent: a row per method, best first, and a column per target.

    Args:
        frame: What `edgemask.compare` returned.
        title: Heading of the table. By default the metric.
        metric: The metric to show. By default the first one.
        reference: The method that the others are tested against. By default the first one.
        name: Name of the table in files.

    Raises:
        InputError: The frame is not that of a comparison, or does not have the metric.
    """
    metric = _metric(frame, metric)
    methods, targets = list(dict.fromkeys(frame["method"])), list(dict.fromkeys(frame["target"]))
    cells: dict[tuple[str, str], Cell] = {}
    for method in methods:
        own = frame[frame["method"] == method]
        common: dict[str, Any] = {"rules": tuple(sorted({*own["rule"]} - {""})), "deviation": method != MAJORITY}
        by_seed: dict[int, list[float]] = {}
        for target in targets:
            runs = own[(own["target"] == target) & (own["failed"] == "")]
            values: dict[Unit, float] = {
                (str(p), int(seed)): 100 * float(v)
                for p, seed, v in zip(runs["protocol"], runs["seed"], runs[metric], strict=True)
            }
            keys = tuple(dict.fromkeys(own.loc[own["target"] == target, "record"]))
            cells[method, target] = Cell(values, keys=tuple(k for k in keys if k), **common)
            for (_, seed), value in values.items():
                by_seed.setdefault(seed, []).append(value)
        average = {(AVERAGE, seed): fmean(v) for seed, v in by_seed.items() if len(v) == len(targets)}
        failed = own.loc[own["failed"] != "", ["protocol", "seed"]].drop_duplicates()
        cells[method, AVERAGE] = Cell(average, failed=len(failed), **common)
    score = {m: c.mean if (c := cells[m, AVERAGE]).values else float("-inf") for m in methods}
    rows = tuple(sorted(methods, key=lambda m: -score[m]))
    first = next((m for m in methods if m != MAJORITY), "") if reference is None else reference
    heading = title or f"{metric}, percent"
    return Comparison(name, heading, "", rows, (*targets, AVERAGE), cells, reference=first, tested=tuple(targets))


def paired(frame: pd.DataFrame, *, metric: str | None = None, reference: str | None = None) -> pd.DataFrame:
    """Test the difference of every method to the first one, with the tests of the paper's tables.

    A pair is a run of both methods on the same graphs with the same seed. If a run has several targets, their
    differences are averaged.

    Args:
        frame: What `edgemask.compare` returned.
        metric: The metric to compare. By default the first one.
        reference: The method that the others are compared with. By default the first one.

    Returns:
        A row per method: `method`, `reference`, `pairs`, `difference` (the mean, in percentage points), `low` and
        `high` (its 95 % bootstrap interval), `p` (sign-flip test) and `adjusted` (Holm's correction).

    Raises:
        InputError: The frame is not that of a comparison, or does not have the metric or the reference.
    """
    tests = [asdict(v) for v in compare_rows(table(frame, metric=metric, reference=reference)) if v.family == REFERENCE]
    columns = {"row": "method", "other": "reference"}
    names = ["method", "reference", "pairs", "difference", "low", "high", "p", "adjusted"]
    return pd.DataFrame(tests, columns=[*columns, *names[2:]]).rename(columns=columns)[names]


def _metric(frame: pd.DataFrame, metric: Hashable | None) -> str:
    """Return the name of the metric to show."""
    if missing := [name for name in COLUMNS if name not in frame]:
        raise InputError(f"this is not a table that edgemask.compare returned: it has no column {missing[0]!r}")
    names = list(frame.columns)
    metrics = names[names.index("seed") + 1 : names.index("rule")]
    if not metrics or (metric is not None and metric not in metrics):
        raise InputError(f"no metric {metric!r} in the table (metrics: {', '.join(map(str, metrics))})")
    return str(metrics[0] if metric is None else metric)
