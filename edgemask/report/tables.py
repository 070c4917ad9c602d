"""Tables of runs on one benchmark: a row per method, a column per protocol and metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from edgemask.experiments.records import Record
from edgemask.experiments.run import ORACLE
from edgemask.report.comparison import ABSENT, MAJORITY, Cell, Comparison, Unit

AVERAGE = "average"
MajorityMetrics = Mapping[str, Mapping[str, float]]  # target → metric → value, of `edgemask.experiments.majority`


def benchmark_table(
    title: str,
    groups: Mapping[str, Sequence[Record]],
    absent: Sequence[str] = (),
    name: str = "bench",
    majority: Mapping[str, MajorityMetrics] | None = None,
) -> Comparison:
    """Return the table of a benchmark's records, in percent.

    A protocol with several targets has two columns per metric: the average and the minimum over the targets. The last
    column averages the protocols and metrics, without the minimum columns. Failed runs have no value. With `majority`,
    the first row is that of the majority class, and cells of other rows that equal it are marked.

    Args:
        title: Heading of the table.
        groups: Records by the name of their row.
        absent: Protocols whose data is not available. Each gets a column that says so.
        name: Name of the table in files.
        majority: Metrics of the majority class by the name of the protocol (`majority_metrics`). None for no such row.
    """
    values = {row: _columns(records) for row, records in groups.items()}
    columns = dict.fromkeys(column for row in values.values() for column in row)
    cells = {}
    for row, records in groups.items():
        rules = tuple(sorted({r["select"]["rule"] for r in records}))
        failed = sum("failed" in r for r in records)
        keys = {(r["protocol"]["name"], r["seed"]): r.get("key", "") for r in records}
        for column in columns:
            own = values[row].get(column, {})
            runs = tuple(keys[unit] for unit in own if keys[unit])
            cells[row, column] = Cell(own, rules=rules, keys=runs, absent="" if own or failed else ABSENT)
        cells[row, AVERAGE] = Cell(_average(values[row]), rules=rules, failed=failed)
        cells |= {(row, protocol): Cell(rules=rules, absent=ABSENT) for protocol in absent}
    rows = tuple(groups)
    if majority is not None:
        rows = (MAJORITY, *rows)
        guessed = _majority_columns(majority, [r for records in groups.values() for r in records])
        guessed[AVERAGE] = _average(guessed if guessed.keys() == columns.keys() else {})
        cells |= {(MAJORITY, c): Cell(guessed.get(c, {}), rules=("reference",)) for c in (*columns, AVERAGE)}
    return Comparison(name, title, "", rows, (*columns, *absent, AVERAGE), cells)


def _columns(records: Sequence[Record]) -> dict[str, dict[Unit, float]]:
    """Return column → unit → value in percent."""
    columns: dict[str, dict[Unit, float]] = {}
    for record in records:
        if "failed" in record:
            continue
        protocol, scores = record["protocol"], record["metrics"]
        unit = protocol["name"], record["seed"]
        targets = protocol["targets"]
        for metric in protocol["metrics"]:
            own = [100 * scores[t][metric] for t in targets if t in scores]
            label = f"{protocol['name']} {metric}"
            if len(own) < len(targets):
                label += f" {len(own)} of {len(targets)} targets"
            several = len(targets) > 1
            columns.setdefault(f"{label} avg" if several else label, {})[unit] = fmean(own)
            if several:
                columns.setdefault(f"{label} min", {})[unit] = min(own)
    return columns


def _majority_columns(
    majority: Mapping[str, MajorityMetrics], records: Sequence[Record]
) -> dict[str, dict[Unit, float]]:
    """Return column → unit → value in percent of the majority class, on the targets and columns of some records.

    The majority class does not depend on a seed, so its only seed is 0.
    """
    scored = []
    for record in records:
        metrics = majority.get(record["protocol"]["name"], {})
        if "failed" not in record and record["metrics"].keys() <= metrics.keys():
            own = {target: metrics[target] for target in record["metrics"]}
            scored.append(record | {"metrics": own, "seed": 0})
    return _columns(scored)


def _average(columns: Mapping[str, Mapping[Unit, float]]) -> dict[Unit, float]:
    """Return the mean over all columns except the minima, for each seed that all of them have."""
    averaged = [
        {seed: value for (_, seed), value in own.items()} for name, own in columns.items() if not name.endswith(" min")
    ]
    seeds = set.intersection(*(set(own) for own in averaged)) if averaged else set()
    return {(AVERAGE, seed): fmean(own[seed] for own in averaged) for seed in sorted(seeds)}


def with_oracle(groups: Mapping[str, list[Record]]) -> dict[str, list[Record]]:
    """Return the groups, each followed by a row of what the oracle would have chosen, if the records have it."""
    rows: dict[str, list[Record]] = {}
    for name, records in groups.items():
        rows[name] = records
        if scored := [r for r in records if ORACLE in r.get("rules", {})]:
            rule = {"select": {"rule": ORACLE}}
            rows[f"{name}, oracle"] = [r | rule | {"metrics": r["rules"][ORACLE]["metrics"]} for r in scored]
    return rows


def failures(records: Sequence[Record]) -> str:
    """Describe how many runs failed and why; an empty string if none did."""
    kinds = sorted({r["failed"]["kind"] for r in records if "failed" in r})
    return f"{sum('failed' in r for r in records)} of {len(records)} runs failed: {', '.join(kinds)}" if kinds else ""
