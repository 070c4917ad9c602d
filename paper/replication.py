"""Generate `docs/replication.md` from the records under `results/`: our variants with their commands.

python -m paper.replication > docs/replication.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from edgemask.config import Recipe
from edgemask.errors import InputError
from edgemask.experiments.records import Record, ResultStore
from edgemask.methods.registry import method_spec
from edgemask.report.render import markdown_table, number, table_line
from paper.markdown import mean_text, template
from paper.published import figure
from paper.runs import PROTOCOLS

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
    """One row of a table: a variant of a method.

    Args:
        label: Name of the row.
        method: Name of the method.
        recipe: Name of a stock recipe; None for the method's default.
        settings: Settings that differ from the recipe.
        seeds: Number of seeds, starting at 0.
    """

    label: str
    method: str
    recipe: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    seeds: int = 5

    @property
    def full_recipe(self) -> Recipe:
        """All settings of the row's runs."""
        return method_spec(self.method).under(self.recipe, **self.settings)

    def command(self, benchmark: str) -> str:
        """Return the command that makes the row's records."""
        words = [f"edgemask bench {benchmark} --method {self.method} --seeds {self.seeds}"]
        words += [f"--recipe {self.recipe}"] if self.recipe else []
        for name, value in self.settings.items():
            text = ",".join(f"{v:g}" for v in value) if isinstance(value, tuple) else value
            words.append(f"--set {name}={text}")
        return " ".join(words)

    def records(self, benchmark: str, everything: Iterable[Record]) -> list[Record]:
        """Return the row's records, all of one version of the code, under the page's protocols.

        If several versions have records, the one with the most is taken, and the newest of those that tie.
        """
        recipe, versions = self.full_recipe, dict[str, list[Record]]()
        for r in everything:
            matches = (r["benchmark"], r["method"]) == (benchmark, self.method) and r["seed"] < self.seeds
            matches &= r["protocol"]["name"] in PROTOCOLS[benchmark]
            if matches and Recipe.from_json(r["recipe"]) == recipe:
                versions.setdefault(r["code"], []).append(r)
        return max(sorted(versions.items(), reverse=True), key=lambda v: len(v[1]), default=("", []))[1]


# The labels also occur in results/speed/accuracy-nvidia-h200.json. If a label changes, `accuracy` in benchmarks/page.py
# must translate the old one.
CITATION = (
    Row("MLP", "erm-mlp"),
    Row("GCN", "erm-gcn"),
    Row("GCN on the enriched graph (ratios 0.5, 0.02)", "erm-gcn-enriched", settings=LIGHT),
    Row(
        "the same, tested on the enriched target",
        "erm-gcn-enriched",
        settings=LIGHT | {"test_graph": "enriched"},
    ),
    Row("GAT, the same enriched training", "erm-gat-enriched", settings=LIGHT | {"epochs": 200}),
    Row("`paper`, classified with s = 1", STAR, "paper"),
    Row(
        "message gate, penalty, classified with its own mask",
        STAR,
        "paper",
        GAT | {"test_mask": "masknet"},
    ),
    Row("message gate, penalty, classified with s = 1", STAR, "paper", GAT),
    Row("`released`", STAR, "released"),
    Row("attention gate, penalty", STAR, "paper", GAT | {"gate": "attention"}),
    Row(
        "attention gate, averaged weights",
        STAR,
        "paper",
        GAT | {"gate": "attention", "average": 0.05},
    ),
    Row(
        "message gate, budget ρ = 0.5, averaged weights",
        STAR,
        "paper",
        GAT | {"gate": "message", "bound": "budget", "rho": 0.5, "average": 0.05},
    ),
    Row(
        "attention gate, averaged weights, propagation 0.9",
        STAR,
        "paper",
        GAT | {"gate": "attention", "average": 0.05, "alpha": (0.9,)},
    ),
    Row(
        "GCN TaskNet, budget ρ = 0.9, propagation 0.95",
        STAR,
        settings={"alpha": (0.95,), "select": "last"},
    ),
    Row(
        "GCN on the enriched graph (1, 0.1), propagation 0.95",
        "erm-gcn-enriched",
        settings={"alpha": (0.95,), "select": "last"},
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
PAPER = {  # rows of the paper's table results_citations
    "the paper's ERM": "ERM",
    "the paper's GRM, its best baseline": "GRM",
    "the paper's EdgeMask-DG\\*": "EDG*",
}


def citation_row(row: Row, everything: list[Record]) -> str:
    """Return a row of the citation table as a Markdown line.

    Raises:
        InputError: The number of records of a transfer is not the row's number of seeds.
    """
    records, cells, means = row.records("citation", everything), [], []
    for name in TRANSFERS:
        scores = [next(iter(r["metrics"].values())) for r in records if r["protocol"]["name"] == name]
        if len(scores) != row.seeds:
            raise InputError(f"{row.label}, {name}: {len(scores)} records under results/, expected {row.seeds}")
        micro, macro = ([100 * s[metric] for s in scores] for metric in ("micro_f1", "macro_f1"))
        means += [fmean(micro), fmean(macro)]
        cells.append(f"{mean_text(micro)} / {mean_text(macro)}")
    return table_line([row.label, *cells, number(fmean(means), 1), _origin(row, records)])


def paper_row(label: str, name: str) -> str:
    """Return the paper's figures for one of its methods as a row of the citation table.

    Args:
        label: Name of the row.
        name: The paper's name of the method.
    """

    def text(column: str, decimals: int) -> str:
        return number(figure("results_citations", name, column)[0], decimals)

    transfers = [t.replace("→", "->") for t in TRANSFERS]
    cells = [f"{text(f'{transfer} micro', 1)} / {text(f'{transfer} macro', 1)}" for transfer in transfers]
    return table_line([label, *cells, text("average", 2), "not stated"])


def twitch_row(row: Row, everything: list[Record]) -> str:
    """Return a row of the Twitch table as a Markdown line.

    Raises:
        InputError: The number of records is not the row's number of seeds.
    """
    records = row.records("twitch", everything)
    if len(records) != row.seeds:
        raise InputError(f"{row.label}: {len(records)} records under results/, expected {row.seeds}")
    scores = [[100 * m["roc_auc"] for m in r["metrics"].values()] for r in records]
    average, lowest = [fmean(s) for s in scores], [min(s) for s in scores]
    alphas = ", ".join(f"{a:g}" for a in sorted({r["select"]["alpha"] for r in records}))
    return table_line([row.label, mean_text(lowest), mean_text(average), alphas, _origin(row, records)])


def _origin(row: Row, records: list[Record]) -> str:
    """Return the selection rules, the number of seeds and the version of the code of a row's records."""
    rules = ", ".join(sorted({r["select"]["rule"] for r in records}))
    version = next(iter({r["code"] for r in records}))
    return f"{rules}, {row.seeds}, {version}"


def collapse(records: list[Record]) -> tuple[str, list[int]]:
    """Describe how the mean mask of the original edges collapses.

    Args:
        records: Records of runs with the `paper` recipe.

    Returns:
        A Markdown table of the mean mask by epoch, and the first epoch below 2 % of each source of each run.
    """
    curves = [
        [v for v in values if v is not None]
        for r in records
        for name, values in r["curves"].items()
        if name.startswith("mask original")
    ]
    epochs = (1, 2, 5, 10, 20, 50, 100, 200)
    means = [number(fmean(curve[epoch - 1] for curve in curves), 4) for epoch in epochs]
    first = [next(i + 1 for i, v in enumerate(curve) if v < 0.02) for curve in curves]
    return markdown_table(["epoch", *map(str, epochs)], [table_line(["mean(s)", *means])]), first


def page(results: Path) -> str:
    """Return the text of `docs/replication.md`.

    Args:
        results: The folder of the records.

    Raises:
        InputError: A row's records are missing.
    """
    everything = [r for r in ResultStore(results) if r.get("method") and not r.get("also")]
    devices = sorted({r["machine"]["device"] for r in everything if r["benchmark"] in ("citation", "twitch")})
    citation = [citation_row(row, everything) for row in CITATION]
    citation += [paper_row(label, name) for label, name in PAPER.items()]
    twitch = [twitch_row(row, everything) for row in TWITCH]
    commands = [table_line([row.label, f"`{row.command('citation')}`"]) for row in CITATION]
    commands += [table_line([f"Twitch: {row.label}", f"`{row.command('twitch')}`"]) for row in TWITCH]
    collapsing = Row("", STAR, "paper").records("citation", everything)
    curve, first = collapse(collapsing)
    origin = "rule, seeds, version"
    return template("replication").format(
        device=", ".join(devices),
        citation=markdown_table(["variant", *TRANSFERS, "average", origin], citation),
        collapse=curve,
        runs=len(collapsing),
        first=min(first),
        last=max(first),
        twitch=markdown_table(["variant", "minimum", "average", "chosen α", origin], twitch),
        commands=markdown_table(["row", "command"], commands),
    )


if __name__ == "__main__":
    sys.stdout.write(page(Path("results")))
