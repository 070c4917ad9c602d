"""Tables from records: mean ± standard deviation over seeds, the selection rule beside every number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.table import Table

from edgemask.bench.run import ORACLE, Record

ABSENT = "data not available"


def cells(records: Sequence[Record]) -> dict[str, list[float]]:
    """Column → one value per record, in percent: each protocol's metric averaged over its targets; where there
    are several targets, also the minimum over them. Failed runs have no value."""
    columns: dict[str, list[float]] = {}
    for record in records:
        if "failed" in record:
            continue
        protocol, scores = record["protocol"], record["metrics"]
        for metric in protocol["metrics"]:
            values = [100 * scores[t][metric] for t in protocol["targets"] if t in scores]
            several, of = len(protocol["targets"]) > 1, len(protocol["targets"])
            label = f"{protocol['name']} {metric}" + (f" {len(values)} of {of} targets" if len(values) < of else "")
            columns.setdefault(f"{label} avg" if several else label, []).append(float(np.mean(values)))
            if several:
                columns.setdefault(f"{label} min", []).append(float(np.min(values)))
    return columns


def mean_std(values: Sequence[float]) -> str:
    """Mean ± sample standard deviation; without the deviation when there is one value."""
    if len(values) < 2:
        return f"{np.mean(values):.1f}"
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"


def table(title: str, groups: dict[str, list[Record]], absent: Sequence[str] = ()) -> Table:
    """A terminal table: a row per group (method), a column per protocol and metric, their average, and the
    selection rule; a column for each `absent` protocol says that its data is not there."""
    by_group = {name: cells(records) for name, records in groups.items()}
    columns = [*dict.fromkeys(c for row in by_group.values() for c in row), *absent]
    out = Table(title=title, title_justify="left", title_style="bold")
    out.add_column("method", overflow="fold")  # folded, never cut: two columns may differ in their ends alone
    for column in columns:
        out.add_column(column, justify="right", overflow="fold")
    out.add_column("average", justify="right", style="bold", overflow="fold")
    out.add_column("selection", overflow="fold")
    for name, row in by_group.items():
        shown = [mean_std(row[c]) if c in row else ABSENT for c in columns]
        headline = [np.mean(v) for c, v in row.items() if not c.endswith(" min")]
        rules = ", ".join(sorted({r["select"]["rule"] for r in groups[name]}))
        if failed := failures(groups[name]):
            rules += f"; {failed}"
        out.add_row(name, *shown, f"{np.mean(headline):.1f}" if headline else "–", rules)
    return out


def failures(records: Sequence[Record]) -> str:
    """How many runs failed, and of what; nothing where none did."""
    kinds = sorted({r["failed"]["kind"] for r in records if "failed" in r})
    return f"{sum('failed' in r for r in records)} of {len(records)} runs failed: {', '.join(kinds)}" if kinds else ""


def with_oracle(groups: dict[str, list[Record]]) -> dict[str, list[Record]]:
    """The groups, each followed by what the oracle would have chosen, where the records hold it."""
    rows: dict[str, list[Record]] = {}
    for name, records in groups.items():
        rows[name] = records
        if looked := [r for r in records if ORACLE in r.get("rules", {})]:
            rule = {"select": {"rule": ORACLE}}
            rows[f"{name}, oracle"] = [r | rule | {"metrics": r["rules"][ORACLE]["metrics"]} for r in looked]
    return rows


def footer(records: Sequence[Record]) -> str:
    """What a reader must know beside the numbers: seeds, data that was not there."""
    seeds = len({r["seed"] for r in records})
    missing = sorted({name for r in records for name in r["missing"]})
    lines = [f"percent, mean ± standard deviation over {seeds} seed{'s' * (seeds > 1)}"]
    if missing:
        lines.append(f"{ABSENT}: {', '.join(missing)}")
    return "\n".join(lines)
