"""`docs/baselines.md`, made from the records under `results/`: every system, ours beside the paper's figure.

python -m paper.baselines > docs/baselines.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from edgemask.config import Recipe
from edgemask.experiments.records import Record, ResultStore
from edgemask.methods.registry import METHODS, method_spec
from edgemask.report.tables import failures
from paper import published as paper

SEEDS = 5
LARGE = 3.0  # points of difference from the paper's figure that ask for a word
TRANSFERS = ("AC→D", "AD→C", "CD→A")
OTHERS = {"cora": "Cora", "photo": "Photo", "facebook100": "FB-100", "twitch": "Twitch"}
GENERATED = "The shifted copies are made by a generator with a seed of its own; the paper's are not public."
MISSING = "Penn94 and Texas80 are not available: other targets than the paper's."
ROBUST = "`robust` bounds the adversary and propagates logits; the paper's letter collapses."
PLAIN = (
    "A plain GCN, trained to its last epoch, has 69.7 here, as in an earlier measurement with other code (see "
    "docs/replication.md); the paper quotes 65.2 without backbone or settings. Systems near ERM in the paper are near "
    "ERM here: their distance from the paper is within 1.1 points of ERM's on average, and within 3.9 in any cell."
)
COLUMN = (
    "Unexplained. Every system of the column is above the paper's figure: a plain GCN by 8.6 (minimum) and 10.3 "
    "(average), GroupDRO, MMD and ARM by 13.4 to 15.5. At its last epoch the plain GCN has nearly the same figures "
    "(`rules` in its records), so the selection rule is not why. It had the same figure in an earlier measurement with "
    "other code."
)
GIN = (
    "It goes with the backbone: a plain GIN has 61.5 here and GraphAug takes 0.8 from it, while the same code with a GCN "
    "is above the paper's figure. Why the paper's GIN is so much better is unexplained."
)
PARTIAL = "Rebuilt in part, at defaults of our own: its status below says what is not the paper's."
# Why ours and the paper's figure differ, where we know: by benchmark for all systems, or by system and benchmark.
EXPLAINED: dict[tuple[str, str] | str, str] = {
    "cora": GENERATED,
    "photo": GENERATED,
    "facebook100": MISSING,
    "twitch": COLUMN,
    ("edgemask-dg-star", "citation"): ROBUST,
    ("graph-aug-gin", "citation"): GIN,
    **{(name, "citation"): PLAIN for name in ("erm-gcn", "group-dro", "mmd", "eerm", "graph-aug-gcn")},
    **{(name, "citation"): PARTIAL for name in ("mario", "grm")},
}
NOTES = list(dict.fromkeys(EXPLAINED.values()))


def settled(name: str, benchmark: str) -> Recipe:
    """What a system runs with on a benchmark: its defaults; where there is a validation domain, it chooses the epoch
    for all alike."""
    recipe = method_spec(name).recipe
    return recipe.replace(select="validation") if benchmark != "citation" and recipe.select == "last" else recipe


def of(name: str, benchmark: str, everything: Iterable[Record], protocol: str | None = None) -> list[Record]:
    """The records of a system's default runs."""
    wanted = settled(name, benchmark)
    return [
        r
        for r in everything
        if (r["benchmark"], r["method"]) == (benchmark, name)
        and r["seed"] < SEEDS
        and (protocol is None or r["protocol"]["name"] == protocol)
        and Recipe.from_json(r["recipe"]) == wanted
    ]


def spread(values: list[float]) -> str:
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def beside(ours: float, name: str, benchmark: str, theirs: float | None) -> str:
    """The paper's figure and how far ours is from it, with a word where that is far."""
    if theirs is None:
        return "–"
    apart = ours - theirs
    why = EXPLAINED.get((name, benchmark), EXPLAINED.get(benchmark))
    mark = f", note {NOTES.index(why) + 1}" if why else ", unexplained"
    return f"{theirs:.1f} ({apart:+.1f}{mark if abs(apart) > LARGE else ''})"


def cost(records: list[Record]) -> str:
    """Median seconds of training and the most memory of a run."""
    seconds = np.median([r["seconds"]["train"] for r in records])
    return f"{seconds:.1f} s, {max(r['peak_memory_mib'] for r in records):.0f} MiB"


def citation_row(name: str, everything: list[Record]) -> str | None:
    """A system's row and, where the paper has the system, its figures in a row below."""
    records, shown, quoted, means = of(name, "citation", everything), [], [], []
    if not records:
        return None

    def compared(ours: float, column: str) -> str:
        theirs = paper.figure("results_citations", paper.NAMES.get(name, ""), column)
        return beside(ours, name, "citation", theirs[0] if theirs else None)

    for transfer in TRANSFERS:
        group = [r for r in records if r["protocol"]["name"] == transfer]
        scores = [next(iter(r["metrics"].values())) for r in group if "failed" not in r]
        if not scores:
            shown.append(failures(group) or "not run")
            quoted.append("–")
            continue
        both = {how: [100 * s[f"{how}_f1"] for s in scores] for how in ("micro", "macro")}
        means += [float(np.mean(v)) for v in both.values()]
        shown.append(" / ".join(map(spread, both.values())))
        column = transfer.replace("→", "->")
        quoted.append(" / ".join(compared(float(np.mean(v)), f"{column} {how}") for how, v in both.items()))
    whole = len(means) == 2 * len(TRANSFERS)
    average = float(np.mean(means)) if whole else float("nan")
    quoted.append(compared(average, "average") if whole else "–")
    rules = ", ".join(sorted({r["select"]["rule"] for r in records}))
    note = "; ".join(filter(None, [rules, failures(records)]))
    total = f"**{average:.1f}**" if whole else "–"
    row = f"| {name} | {' | '.join(shown)} | {total} | {cost(records)} | {note} |"
    known = paper.NAMES.get(name) in paper.TABLES["results_citations"]
    return f"{row}\n| ↳ paper's | {' | '.join(quoted)} |  |  |" if known else row


def other_row(name: str, benchmark: str, protocol: str, everything: list[Record]) -> str | None:
    records = of(name, benchmark, everything, protocol)
    if not records:
        return None
    metric = records[0]["protocol"]["metrics"][0]
    scores = [[100 * m[metric] for m in r["metrics"].values()] for r in records if "failed" not in r]
    rules = ", ".join(sorted({r["select"]["rule"] for r in records}))
    note = "; ".join(filter(None, [rules, failures(records)]))
    if not scores:
        return f"| {name} | – | – | – | – | {cost(records)} | {note} |"
    lowest, average = [min(s) for s in scores], [float(np.mean(s)) for s in scores]
    quoted, theirs = "results_cora_photo_fb_twitch", paper.NAMES.get(name, "")
    low, mean = (next(iter(paper.figure(quoted, theirs, f"{OTHERS[benchmark]} {how}")), None) for how in ("min", "avg"))
    cells = [spread(lowest), beside(float(np.mean(lowest)), name, benchmark, low)]
    cells += [f"**{spread(average)}**", beside(float(np.mean(average)), name, benchmark, mean)]
    return f"| {name} | {' | '.join(cells)} | {cost(records)} | {note} |"


def section(benchmark: str, protocol: str, everything: list[Record]) -> str:
    rows = [row for name in METHODS if (row := other_row(name, benchmark, protocol, everything))]
    if not rows:
        return ""
    some = next(r for r in everything if (r["benchmark"], r["protocol"]["name"]) == (benchmark, protocol))
    left = f"; data not available: {', '.join(some['missing'])}" if some["missing"] else ""
    metric = some["protocol"]["metrics"][0]
    head = "| system | minimum | paper's | average | paper's | time, memory of a run | rule |"
    title = f"### {OTHERS[benchmark]}: {protocol}\n\n{metric} over {len(some['metrics'])} targets{left}.\n"
    return "\n".join([title, head, "| --- | --- | --- | --- | --- | --- | --- |", *rows, ""])


def page(results: Path) -> str:
    everything = [r for r in ResultStore(results) if r.get("method") and not r.get("also")]
    citation = [row for name in METHODS if (row := citation_row(name, everything))]
    pairs = dict.fromkeys((r["benchmark"], r["protocol"]["name"]) for r in everything if r["benchmark"] != "citation")
    others = [text for b in OTHERS for where, p in sorted(pairs) if where == b and (text := section(b, p, everything))]
    systems = [f"| {name} | {e.summary} | {e.citation} | {e.status} |" for name, e in METHODS.items()]
    return TEMPLATE.format(
        device=", ".join(sorted({r["machine"]["device"] for r in everything})),
        seeds=SEEDS,
        large=LARGE,
        citation="\n".join(citation),
        others="\n".join(others),
        systems="\n".join(systems),
        notes="\n".join(f"{i}. {text}" for i, text in enumerate(NOTES, 1)),
    )


TEMPLATE = """# Baselines

Every system the paper compares with, and a few more, on the same data and splits, made from the raw records under `results/` by `python -m paper.baselines > docs/baselines.md`. Machine: {device}; many runs shared it, so times are upper bounds. Percent, mean ± standard deviation over {seeds} seeds; the target's labels are out of reach during training and selection, and the rule of selection stands beside every row.

Each system runs with its defaults, untuned: the baselines as `erm-gcn` does, on the original graph, to the last epoch, without averaging or propagation; rows named `-enriched` or `edgemask-dg` have both. The budget is 200 epochs, but 400 for rows named `-enriched`; leave-one-source-out trains once more for each source. Four benchmarks choose the epoch on a validation domain, for everyone: their protocols come with one, which is no target, and selection by the sources alone is for citation, which has none. "Paper's" is the paper's own figure and, in brackets, how far ours is from it: differences over {large:g} points are explained or marked unexplained. The paper's figures of other systems were copied from other papers, with other backbones, splits and tuning, so that a difference is not by itself a fault of either.

## Citation networks

Micro-F1 / macro-F1 on the unseen domain, and the average of the six figures; below a system, the paper's figures of it, cell by cell.

| system | AC→D | AD→C | CD→A | average | time, memory of a run | rule |
| --- | --- | --- | --- | --- | --- | --- |
{citation}

## Cora, Photo, Facebook-100, Twitch

{others}
Notes on differences from the paper's figures:

{notes}

## The systems

Each is one file under `edgemask/methods/`, whose head has the objective and what we chose where its paper is silent. "Partial" says what is not the paper's.

| name | what | citation | status |
| --- | --- | --- | --- |
{systems}
"""


if __name__ == "__main__":
    sys.stdout.write(page(Path("results")))
