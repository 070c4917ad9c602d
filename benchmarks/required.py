"""Required figures by part and kind of machine, compared with the measured ones."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.show import GIB, Record, on_cpu, peak_mib, size, time


class Check(NamedTuple):
    """One requirement: the figure, the required value, the measured value, and whether it is met."""

    figure: str
    requirement: str
    measured: str
    met: bool


def checks(record: Record) -> list[Check]:
    """Return the requirements of a record's part on its kind of machine."""
    rules = {
        "descent": step,
        "ascent": step,
        "enrich": enrich,
        "run": run,
        "scale": scale,
        "sparse": scale,
        "growth": growth,
        "deploy": deploy,
    }
    return rules[record["part"]](record) if record["part"] in rules else []


def step(record: Record) -> list[Check]:
    """Check a descent or ascent step."""
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
    speedup, products = stock["seconds"] / taken, sum(p["seconds"] for p in figures["products"].values())
    relative = f"{name}, relative to its matrix products"
    return [
        Check(name, "10 × the speed of the stock implementation", f"{speedup:.1f} ×", speedup >= 10),
        Check(f"{name}, whole process", "under 0.8 GiB", size(peak), peak < 0.8 * GIB),
        Check(relative, "at most 2.5 × their time", f"{taken / products:.2f} ×", taken <= 2.5 * products),
    ]


def enrich(record: Record) -> list[Check]:
    """Check time and purity of the enrichment of ACMv9."""
    figures = record["figures"]
    taken = sum(figures[kind]["edgemask"]["seconds"] for kind in ("knn", "spectral"))
    ours, stock = (figures["quality"]["purity"][who] for who in ("edgemask", "scikit-learn"))
    return [
        Check("neighbours and clusters, ACMv9", "under 1.5 s in total", time(taken), taken < 1.5),
        Check("purity of the clusters", f"at least scikit-learn's {stock:.3f}", f"{ours:.3f}", ours >= stock),
    ]


def run(record: Record) -> list[Check]:
    """Check the time of a whole run."""
    limit, requirement = (15 * 60, "under 15 min") if on_cpu(record) else (20, "under 20 s")
    taken = record["figures"]["seconds"]
    return [Check(f"whole `robust` run, {record['figures']['transfer']}", requirement, time(taken), taken < limit)]


def scale(record: Record) -> list[Check]:
    """Check the memory of a million nodes."""
    peak = peak_mib(record["figures"]["points"][-1]["peak"], record)
    requirement = f"under 20 GiB{'' if on_cpu(record) else ' of GPU memory'}"
    graph = "10⁶ nodes, 10⁷ edges" + (", 5,000 sparse features" if record["part"] == "sparse" else "")
    return [Check(f"{graph}: enrichment and an epoch", requirement, size(peak), peak < 20 * GIB)]


def growth(record: Record) -> list[Check]:
    """Check the exponents of growth."""
    fitted, points = record["figures"]["exponents"], record["figures"]["points"]
    span = f"{points[0]['nodes']:,} to {points[-1]['nodes']:,} nodes"
    return [
        Check(f"exponent of {name}, {span}", "at most 1.15", f"{fitted[key]:.2f}", fitted[key] <= 1.15)
        for name, key in (("enrichment", "enrich"), ("an epoch", "epoch"))
        if fitted
    ]


def deploy(record: Record) -> list[Check]:
    """Check the time of a prediction, and that small fits with all threads are not slower than with one."""
    if not on_cpu(record):
        return []
    figures, threads = record["figures"]["predict"], record["machine"]["threads"]
    every, one = (record["figures"]["threads"][str(count)] for count in (threads, 1))
    ratio = max(every[name]["spread"][0] / one[name]["spread"][0] for name in one)
    nodes = f"{figures['nodes']:,} nodes"
    fastest = {name: model["spread"][0] for name, model in figures["models"].items()}
    return [
        *(Check(f"{name} predicts {nodes}", "under 150 ms", time(t), t < 0.15) for name, t in fastest.items()),
        Check("small fit, all threads relative to one", "at most 1.15 × the time", f"{ratio:.2f} ×", ratio <= 1.15),
    ]
