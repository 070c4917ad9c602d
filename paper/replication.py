"""`docs/replication.md`, made from the records under `results/`: each row with its command, ours beside the paper's.

python -m paper.replication > docs/replication.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgemask.config import Recipe
from edgemask.errors import InputError
from edgemask.experiments.records import Record, ResultStore
from edgemask.methods.registry import method_spec

STAR = "edgemask-dg-star"
GAT: dict[str, Any] = {"knn_ratio": 0.5, "spectral_ratio": 0.02, "epochs": 100}
LIGHT: dict[str, Any] = {
    "knn_ratio": 0.5,
    "spectral_ratio": 0.02,
    "alpha": (0.0,),
    "average": 0.0,
    "average_from": 0.25,
    "select": "last",
}


@dataclass(frozen=True)
class Row:
    """One line of a table: what was run, and what others reported for it."""

    label: str
    method: str
    recipe: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    seeds: int = 5
    reported: str = ""

    @property
    def settled(self) -> Recipe:
        return method_spec(self.method).under(self.recipe, **self.settings)

    def command(self, benchmark: str) -> str:
        words = [f"edgemask bench {benchmark} --method {self.method} --seeds {self.seeds}"]
        words += [f"--recipe {self.recipe}"] if self.recipe else []
        for name, value in self.settings.items():
            shown = ",".join(f"{v:g}" for v in value) if isinstance(value, tuple) else value
            words.append(f"--set {name}={shown}")
        return " ".join(words)

    def records(self, benchmark: str, everything: Iterable[Record]) -> list[Record]:
        """Its records, all of one version of the code: of the newest of those that have the most."""
        wanted, versions = self.settled, dict[str, list[Record]]()
        for r in everything:
            ours = (r["benchmark"], r["method"]) == (benchmark, self.method) and r["seed"] < self.seeds
            if ours and Recipe.from_json(r["recipe"]) == wanted:
                versions.setdefault(r["code"], []).append(r)
        return max(sorted(versions.items(), reverse=True), key=lambda v: len(v[1]), default=("", []))[1]


CITATION = (
    Row("MLP", "erm-mlp", reported="51.5"),
    Row("GCN", "erm-gcn", reported="69.7"),
    Row("GCN on the enriched graph (ratios 0.5, 0.02)", "erm-gcn-enriched", settings=LIGHT, reported="73.6"),
    Row(
        "the same, tested on the enriched target",
        "erm-gcn-enriched",
        settings=LIGHT | {"test_graph": "enriched"},
        reported="57",
    ),
    Row("GAT, the same enriched training", "erm-gat-enriched", settings=LIGHT | {"epochs": 200}, reported="71.8"),
    Row("`paper`, read at s = 1", STAR, "paper"),
    Row(
        "message gate, penalty, read under its own mask", STAR, "paper", GAT | {"test_mask": "masknet"}, reported="≈ 53"
    ),
    Row("message gate, penalty, read at s = 1", STAR, "paper", GAT, reported="≈ 68"),
    Row("`released`", STAR, "released"),
    Row("attention gate, penalty", STAR, "paper", GAT | {"gate": "attention"}, reported="70.5"),
    Row(
        "attention gate, averaged weights", STAR, "paper", GAT | {"gate": "attention", "average": 0.05}, reported="74.2"
    ),
    Row(
        "message gate, budget ρ = 0.5, averaged weights",
        STAR,
        "paper",
        GAT | {"gate": "message", "bound": "budget", "rho": 0.5, "average": 0.05},
        reported="73.8",
    ),
    Row(
        "attention gate, averaged weights, propagation 0.9",
        STAR,
        "paper",
        GAT | {"gate": "attention", "average": 0.05, "alpha": (0.9,)},
        reported="76.5",
    ),
    Row(
        "GCN TaskNet, budget ρ = 0.9, propagation 0.95",
        STAR,
        settings={"alpha": (0.95,), "select": "last"},
        reported="77.2",
    ),
    Row(
        "GCN on the enriched graph (1, 0.1), propagation 0.95",
        "erm-gcn-enriched",
        settings={"alpha": (0.95,), "select": "last"},
        reported="77.4",
    ),
    Row("`robust` without enrichment and without mask", "edgemask-dg", settings={"mask": False}),
    Row("EdgeMask-DG: `robust` without enrichment", "edgemask-dg"),
    Row("`robust` without mask", STAR, settings={"mask": False}),
    Row("EdgeMask-DG\\* (kNN): `robust` without spectral edges", "edgemask-dg-star-knn"),
    Row("**EdgeMask-DG\\*, `robust`**", STAR, seeds=10),
    Row("**GCN on the enriched graph, same averaging and propagation**", "erm-gcn-enriched", seeds=10),
)
TWITCH = (
    Row("MLP", "erm-mlp", settings={"select": "validation"}),
    Row("GCN", "erm-gcn", settings={"select": "validation"}),
    Row("GCN on the enriched graph, same averaging and propagation", "erm-gcn-enriched", seeds=10),
    Row("**EdgeMask-DG\\*, `robust`**", STAR, seeds=10),
)
TRANSFERS = ("AC→D", "AD→C", "CD→A")
PAPER = {  # Table results_citations of the paper
    "the paper's ERM": "67.9 / 62.7 | 70.9 / 67.8 | 62.4 / 59.6 | 65.24",
    "the paper's GRM, its best baseline": "73.7 / 71.2 | 79.1 / 75.7 | 70.2 / 69.7 | 73.28",
    "the paper's EdgeMask-DG\\*": "72.5 / 69.8 | 79.1 / 77.7 | 71.6 / 72.1 | 73.81",
}


def spread(values: list[float]) -> str:
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"


def citation_row(row: Row, everything: list[Record]) -> str:
    records, shown, means = row.records("citation", everything), [], []
    for name in TRANSFERS:
        group = [next(iter(r["metrics"].values())) for r in records if r["protocol"]["name"] == name]
        if len(group) != row.seeds:
            raise InputError(f"{row.label}, {name}: {len(group)} records under results/, expected {row.seeds}")
        micro, macro = ([100 * g[m] for g in group] for m in ("micro_f1", "macro_f1"))
        means += [np.mean(micro), np.mean(macro)]
        shown.append(f"{spread(micro)} / {spread(macro)}")
    rules = ", ".join(sorted({r["select"]["rule"] for r in records}))
    version = next(iter({r["code"] for r in records}))
    last = f"{rules}, {row.seeds}, {version}"
    return f"| {row.label} | {' | '.join(shown)} | {np.mean(means):.1f} | {row.reported} | {last} |"


def twitch_row(row: Row, everything: list[Record]) -> str:
    records = row.records("twitch", everything)
    if len(records) != row.seeds:
        raise InputError(f"{row.label}: {len(records)} records under results/, expected {row.seeds}")
    scores = [[100 * m["roc_auc"] for m in r["metrics"].values()] for r in records]
    average, lowest = [float(np.mean(s)) for s in scores], [min(s) for s in scores]
    alphas = ", ".join(f"{a:g}" for a in sorted({r["select"]["alpha"] for r in records}))
    rules = ", ".join(sorted({r["select"]["rule"] for r in records}))
    version = next(iter({r["code"] for r in records}))
    return f"| {row.label} | {spread(lowest)} | {spread(average)} | {alphas} | {rules}, {row.seeds}, {version} |"


def collapse(everything: list[Record]) -> str:
    """The curve of mean(s) over the original edges in `paper`, and where it falls below 2 %."""
    records = Row("", STAR, "paper").records("citation", everything)
    curves = [
        [v for v in values if v is not None]
        for r in records
        for key, values in r["curves"].items()
        if key.startswith("mask original")
    ]
    marks = (1, 2, 5, 10, 20, 50, 100, 200)
    cells = " | ".join(f"{np.mean([c[e - 1] for c in curves]):.4f}" for e in marks)
    first = [next(i + 1 for i, v in enumerate(c) if v < 0.02) for c in curves]
    return (
        f"| epoch | {' | '.join(map(str, marks))} |\n| --- |{' --- |' * len(marks)}\n| mean(s) | {cells} |\n\n"
        f"It falls below 2 % between epochs {min(first)} and {max(first)} in every one of the {len(records)} runs."
    )


def page(results: Path) -> str:
    everything = [r for r in ResultStore(results) if r.get("method") and not r.get("also")]
    device = sorted({r["machine"]["device"] for r in everything if r["benchmark"] in ("citation", "twitch")})
    paper = "\n".join(f"| {k} | {v} |  | not stated |" for k, v in PAPER.items())
    citation = "\n".join(citation_row(row, everything) for row in CITATION)
    twitch = "\n".join(twitch_row(row, everything) for row in TWITCH)
    commands = "\n".join(f"| {row.label} | `{row.command('citation')}` |" for row in CITATION)
    commands += "\n" + "\n".join(f"| Twitch: {row.label} | `{row.command('twitch')}` |" for row in TWITCH)
    return TEMPLATE.format(
        device=", ".join(device),
        citation=citation,
        paper=paper,
        twitch=twitch,
        collapse=collapse(everything),
        commands=commands,
    )


TEMPLATE = """# Replication

Made from the raw records under `results/` by `python -m paper.replication > docs/replication.md`. Machine: {device}. Every number is in percent, mean ± standard deviation over seeds. The target's labels are not reachable during training and selection; the last column names the selection rule, the number of seeds and the version of the code.

## Citation networks, leave one out

Micro-F1 / macro-F1 on the unseen domain, and the average of the six figures. "Prototype" is the average of an earlier measurement of the same variant (2 seeds, last epoch); of the two rows marked ≈ it had measured two transfers only.

| variant | AC→D | AD→C | CD→A | average | prototype | rule, seeds, version |
| --- | --- | --- | --- | --- | --- | --- |
{citation}
{paper}

What we found:

- **The paper's letter collapses.** With the message gate and a fixed λ the MaskNet removes every edge within a dozen epochs: dropping informative edges raises the loss and lowers the penalty, so nothing holds it back. Read under its own mask the TaskNet is at the level of an MLP.
- **The attention gate with averaged weights reaches the paper's figure** without propagation: the softmax renormalises, so the adversary cannot remove everything, and averaging is worth what the game's noise costs.
- **Enrichment at training time and the original graph at test time carry most of the gain**; reading the target on its enriched graph loses it all.
- **Propagating the logits over the target graph is worth 2.4 points** to the attention game (74.34 against 76.77), and leave-one-source-out finds its strength without the target.
- **The mask does not pay on citation with a GCN.** Under the same schedule and over the same 5 seeds or more, the game is 0.2 points behind no adversary at all on the enriched graph and 0.8 behind on the original one; a plain GCN trained on the enriched graph, with the same averaging and propagation, is level with the method: behind on AC→D and AD→C, ahead on CD→A.

### The collapse of `paper`

Mean mask over the original edges, averaged over transfers, sources and seeds:

{collapse}

## Twitch: train DE, validate ENGB, test five

ROC-AUC, minimum and average over the five targets. The paper reports 52.5 / 59.3 for EdgeMask-DG\\* and 52.5 / 56.7 for its best baseline.

| variant | minimum | average | chosen α | rule, seeds, version |
| --- | --- | --- | --- | --- |
{twitch}

The same default recipe, with nothing set by hand, finds on the validation domain that propagation hurts here (α = 0 in every run). The enriched GCN is two points below the plain one here, and `robust`, trained on the same enriched graph, is not; the three differ in more than the mask, so this says where to look, not why. A plain GCN whose epoch is chosen on ENGB beats every figure of the paper's column.

## Where ours and the prototype differ

- Message gate with penalty: the same collapse, a few points lower when read at s = 1. A collapsed TaskNet was never trained on neighbours, so this figure is noise by nature (± 5).
- Enriched target: ours reads a seeded sample of the target's enrichment at the training ratios.

## Commands

Each row's command; add `--data-root`. A run whose record is there is not run again.

| row | command |
| --- | --- |
{commands}
"""


if __name__ == "__main__":
    sys.stdout.write(page(Path("results")))
