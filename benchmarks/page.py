"""Make `docs/performance.md` and its plot from the records in `results/speed`.

python -m benchmarks.page > docs/performance.md
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.common import RESULTS, read_record
from benchmarks.plot import growth_plot
from benchmarks.required import checks
from benchmarks.show import Record, machine_name, on_cpu, over_inputs, peak_mib, size, table, time
from edgemask.report.render import spread

TEMPLATE = Path(__file__).with_name("page.md")
PLOT = RESULTS.parent.parent / "docs" / "growth.svg"
STEP_HEAD = ("", "time", "relative to edgemask", "peak memory", "memory above inputs", "steps", "repeats")
ENRICH_HEAD = ("", "", "time", "relative to edgemask", "memory above inputs", "purity", "repeats")


def steps(record: Record) -> str:
    """Format the record of a descent or ascent step."""
    figures, rows = record["figures"], []
    ours = figures["variants"]["edgemask"]["seconds"]
    for name, v in figures["variants"].items():
        how, ratio = "replayed" if v["replayed"] else "launched", f"{v['seconds'] / ours:.1f} ×"
        peak, over = (size(measure(v["peak"], record)) for measure in (peak_mib, over_inputs))
        rows.append([name, time(v["seconds"]), ratio, peak, over, how, v["repeats"]])
    for name, p in figures["products"].items():
        ratio = f"{p['seconds'] / ours:.2f} ×"
        rows.append([f"{name} products alone", time(p["seconds"]), ratio, "", "", "", p["repeats"]])
    shape = "{nodes:,} nodes, {edges:,} edges, {features:,} features.".format(**figures["inputs"])
    shape += launches("products", figures["products"]["sparse"], record)
    return f"{shape}\n\n{table(STEP_HEAD, rows)}"


def enrich(record: Record) -> str:
    """Format the record of enrichment."""
    figures, rows = record["figures"], []
    for kind, title in (("knn", "10 nearest neighbours"), ("spectral", "100 spectral clusters")):
        for who, v in figures[kind].items():
            ratio = f"{v['seconds'] / figures[kind]['edgemask']['seconds']:.1f} ×"
            purity = f"{figures['quality']['purity'][who]:.3f}" if kind == "spectral" else ""
            over = size(v["peak"]["block"]["host"] - v["peak"]["inputs"]["host"])
            rows.append([title, who, time(v["seconds"]), ratio, over, purity, v["repeats"]])
    same = 100 * figures["quality"]["same_similarity"]
    note = (
        f"{same:.3f} % of the neighbours are as similar as those of scikit-learn. Among equally similar nodes, "
        "scikit-learn may choose others."
    )
    return f"{table(ENRICH_HEAD, rows)}\n\n{note}"


def kernels(record: Record) -> str:
    """Format the record of the operators."""
    figures = record["figures"]
    copy = figures["copy"]["bandwidth"]
    parts = [f"A copy moves {copy / 1e9:,.0f} GB/s, counting bytes read and bytes written."]
    parts[0] += launches("operators", figures["copy"], record)
    for name in sorted(figures.keys() - {"copy"}):
        rows = []
        for operator, v in figures[name]["operators"].items():
            ours, plain = v["edgemask"]["seconds"], v["plain torch"]["seconds"]
            speed = v["bytes"] / ours
            share = f"{100 * speed / copy:.0f} %"
            rows.append([operator, time(ours), time(plain), f"{plain / ours:.1f} ×", f"{speed / 1e9:,.0f} GB/s", share])
        parts.append(f"{name}: {figures[name]['nodes']:,} nodes, {figures[name]['edges']:,} edges.")
        parts.append(table(["", "edgemask", "plain torch", "ratio", "bandwidth", "share of a copy's"], rows))
    return "\n\n".join(parts)


def launches(what: str, figure: Record, record: Record) -> str:
    """Say, for records of a GPU, whether the measured times include launching.

    Args:
        what: What was measured, in the plural.
        figure: Times of one of them.
        record: The record, which names the device.

    Returns:
        A sentence, or an empty string for a CPU.
    """
    if on_cpu(record):
        return ""
    if (count := figure.get("in_a_row", 1)) > 1:
        return f" The {what} were launched ahead, {count} in a row: their times are those of the device only."
    return f" The {what} were launched one by one: their times below a millisecond are mostly launch times."


def run(record: Record) -> str:
    """Format the record of a whole run."""
    figures = record["figures"]
    scores = ", ".join(f"{name} {100 * value:.1f}" for name, value in figures["metrics"].items())
    peak = size(peak_mib(figures["peak"], record))
    row = [f"`{figures['recipe']}`, {figures['transfer']}", time(figures["seconds"]), peak, scores, figures["rule"]]
    return table(["run", "time", "peak memory", "accuracy", "selection rule"], [row])


def growth(record: Record) -> str:
    """Format the record of one or more sizes."""
    rows = []
    for p in record["figures"]["points"]:
        times = [time(p[cost]) for cost in ("knn", "spectral", "enrich", "epoch")]
        edges, peak = f"{p['edges']:,} / {p['epoch_edges']:,}", size(peak_mib(p["peak"], record))
        rows.append([f"{p['nodes']:,}", edges, *times, f"{p['knn_recall']:.3f}", peak])
    if fitted := record["figures"]["exponents"]:
        rows.append(
            ["exponent", "", *(f"{fitted[cost]:.2f}" for cost in ("knn", "spectral", "enrich", "epoch")), "", ""]
        )
    head = ["nodes", "edges / edges in an epoch", "kNN", "clusters", "enrichment", "epoch", "kNN recall", "peak memory"]
    search = {"index": "approximate index", "exact": "exact search"}[record["figures"]["search"]]
    return f"Neighbour search: {search}.\n\n{table(head, rows)}"


def plan(record: Record) -> str:
    """Format the record of plans."""
    rows = []
    for name, case in record["figures"].items():
        both = case["planned"], case["real"]
        (planned, real), (planned_peak, real_peak) = ([side[key] for side in both] for key in ("seconds", "peak_mib"))
        times, sizes = (
            [time(planned), time(real), f"{planned / real:.2f}"],
            [size(planned_peak), size(real_peak), f"{planned_peak / real_peak:.2f}"],
        )
        rows.append([name, *times, *sizes, time(case["planned"]["took"])])
    return table(
        ["", "planned time", "real time", "ratio", "planned peak", "real peak", "ratio", "time of the plan"], rows
    )


def accuracy(record: Record) -> str:
    """Format the averages of the replication's rows, before and after the operators and training were rewritten."""
    figures = record["figures"]

    def shown(value: list[float]) -> str:
        return spread(value[0], value[1], decimals=1)

    def label(row: str) -> str:  # the record has the names that two rows had when it was written
        return row.replace("read at", "classified with").replace("read under", "classified with")

    rows = [
        [r["benchmark"], label(r["row"]), shown(r["before"]), shown(r["after"]), r["after"][2]] for r in figures["rows"]
    ]
    kinds = ("float32", "tf32", "bf16")
    precision = [[r["row"], *(shown(r[kind]) for kind in kinds)] for r in figures["precision"]]
    head = [
        "benchmark",
        "row of docs/replication.md",
        f"version {figures['before']}",
        f"version {figures['after']}",
        "seeds",
    ]
    return f"{table(head, rows)}\n\nBy precision, on citation with 5 seeds:\n\n{table(['', *kinds], precision)}"


def deploy(record: Record) -> str:
    """Format predictions of loaded models, and small fits by the number of threads."""
    figures = record["figures"]
    models = [
        [name, time(v["first"]), time(v["seconds"]), time(v["spread"][0]), v["repeats"]]
        for name, v in figures["predict"]["models"].items()
    ]
    fits = [
        [name, count, time(v["seconds"]), time(v["spread"][0]), v["repeats"]]
        for count, own in figures["threads"].items()
        for name, v in own.items()
    ]
    shape = "{nodes:,} nodes, {edges:,} edges.".format(**figures["predict"])
    return "\n\n".join(
        [
            shape,
            table(["model", "first call", "later calls, median", "fastest", "repeats"], models),
            table(["fit on two graphs of 400 nodes", "threads allowed", "median", "fastest", "repeats"], fits),
        ]
    )


SECTIONS: dict[str, Callable[[Record], str]] = {
    "descent": steps,
    "ascent": steps,
    "enrich": enrich,
    "kernels": kernels,
    "run": run,
    "scale": growth,
    "sparse": growth,
    "growth": growth,
    "plan": plan,
    "deploy": deploy,
    "accuracy": accuracy,
}


def section(record: Record) -> str:
    """Format a record under the name of its machine."""
    return f"**{machine_name(record)}**\n\n{SECTIONS[record['part']](record)}"


def required(records: Sequence[Record]) -> str:
    """Format the table of requirements."""
    rows = [
        [machine_name(r), c.figure, c.requirement, c.measured, "yes" if c.met else "**no**"]
        for r in sorted(records, key=machine_name)
        for c in checks(r)
    ]
    return table(["machine", "figure", "requirement", "measured", "met"], rows)


def machines(records: Sequence[Record]) -> str:
    """Format the list of machines and versions."""
    lines = []
    for r in sorted((r for r in records if r["part"] != "accuracy"), key=machine_name):
        m = r["machine"]
        versions = ", ".join(f"{name} {value}" for name, value in m["versions"].items())
        lines.append(f"- {machine_name(r)}: {m['threads']} threads, {m['system']}; {versions}.")
    return "\n".join(dict.fromkeys(lines))


def page(results: Path) -> str:
    """Return the page, with every record of a folder in the section of its part."""
    records = [read_record(path) for path in sorted(results.glob("*.json"))]
    text = TEMPLATE.read_text(encoding="utf-8")
    for part in SECTIONS:
        sections = [section(r) for r in records if r["part"] == part]
        text = text.replace(f"{{{part}}}", "\n\n".join(sections) or "Not measured yet.")
    return text.replace("{required}", required(records)).replace("{machines}", machines(records))


def plot(results: Path) -> str:
    """Return the growth plot of the records in a folder."""
    return growth_plot([read_record(path) for path in sorted(results.glob("growth-*.json"))])


if __name__ == "__main__":
    PLOT.write_text(plot(RESULTS), encoding="utf-8")  # before the page: without a record of growth both fail
    sys.stdout.write(page(RESULTS))
