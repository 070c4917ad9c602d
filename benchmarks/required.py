"""What must be reached, by part and kind of machine, beside what was measured."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.show import GIB, Record, on_cpu, peak_mib, size, time


class Check(NamedTuple):
    figure: str
    wanted: str
    measured: str
    reached: bool


def checks(record: Record) -> list[Check]:
    """What is required of this part on this kind of machine."""
    rules = {
        "descent": step,
        "ascent": step,
        "enrich": enrich,
        "run": run,
        "scale": scale,
        "sparse": scale,
        "growth": growth,
    }
    return rules[record["part"]](record) if record["part"] in rules else []


def step(record: Record) -> list[Check]:
    figures, name = record["figures"], f"{record['part']} step, ACMv9"
    ours, stock = (figures["variants"][who] for who in ("edgemask", "stock"))
    taken, peak = ours["seconds"], peak_mib(ours["peak"], record)
    if not on_cpu(record):
        return [
            Check(name, "under 1.5 ms", time(taken), taken < 1.5e-3),
            Check(f"{name}, GPU memory", "under 0.6 GiB", size(peak), peak < 0.6 * GIB),
        ]
    if record["part"] == "ascent":
        return []
    faster, least = stock["seconds"] / taken, sum(p["seconds"] for p in figures["products"].values())
    beside = f"{name}, against its matrix products"
    return [
        Check(name, "10 × the speed of the stock route", f"{faster:.1f} ×", faster >= 10),
        Check(f"{name}, whole process", "under 0.8 GiB", size(peak), peak < 0.8 * GIB),
        Check(beside, "at most 2.5 × their time", f"{taken / least:.2f} ×", taken <= 2.5 * least),
    ]


def enrich(record: Record) -> list[Check]:
    figures = record["figures"]
    taken = sum(figures[kind]["edgemask"]["seconds"] for kind in ("knn", "spectral"))
    ours, theirs = (figures["quality"]["purity"][who] for who in ("edgemask", "scikit-learn"))
    return [
        Check("neighbours and clusters, ACMv9", "under 1.5 s together", time(taken), taken < 1.5),
        Check("purity of the clusters", f"no less than scikit-learn's {theirs:.3f}", f"{ours:.3f}", ours >= theirs),
    ]


def run(record: Record) -> list[Check]:
    limit, wanted = (15 * 60, "under 15 min") if on_cpu(record) else (20, "under 20 s")
    taken = record["figures"]["seconds"]
    return [Check(f"whole `robust` run, {record['figures']['transfer']}", wanted, time(taken), taken < limit)]


def scale(record: Record) -> list[Check]:
    peak = peak_mib(record["figures"]["points"][-1]["peak"], record)
    wanted = f"under 20 GiB{'' if on_cpu(record) else ' of GPU memory'}"
    what = "10⁶ nodes, 10⁷ edges" + (", 5,000 sparse features" if record["part"] == "sparse" else "")
    return [Check(f"{what}: enrichment and an epoch", wanted, size(peak), peak < 20 * GIB)]


def growth(record: Record) -> list[Check]:
    fitted, points = record["figures"]["exponents"], record["figures"]["points"]
    span = f"{points[0]['nodes']:,} to {points[-1]['nodes']:,} nodes"
    return [
        Check(f"exponent of {what}, {span}", "at most 1.15", f"{fitted[key]:.2f}", fitted[key] <= 1.15)
        for what, key in (("enrichment", "enrich"), ("an epoch", "epoch"))
        if fitted
    ]
