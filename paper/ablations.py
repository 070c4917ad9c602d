"""Suites of the paper's ablations: enrichment, mask, and settings of the game."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from edgemask.config import Recipe, recipe
from edgemask.experiments.records import Record
from edgemask.methods.registry import method_spec
from edgemask.report.suite import CellSpec, Suite, TableSpec
from paper import cells as value
from paper.published import figure
from paper.runs import ATTENTION, BASE, CITATION, FORMS, PROTOCOLS, ROBUST, STAR, default, run_set

ENRICHED_ROWS = {
    "citation": "ACM/DBLP/Citation (avg.)",
    "cora": "Cora",
    "photo": "Amazon-Photo",
    "twitch": "Twitch (avg.)",
    "facebook100": "Facebook-100 (avg.)",
    "elliptic": "Elliptic (T1–T3 avg.)",
    "arxiv": "OGB-Arxiv (T1–T3 avg.)",
}
PRUNED_ROWS = {
    "citation": "Citation avg.",
    "cora": "Cora",
    "photo": "Amazon-Photo",
    "twitch": "Twitch (avg.)",
    "facebook100": "Facebook-100 avg.",
    "elliptic": "Elliptic avg.",
    "arxiv": "OGB-Arxiv avg.",
}
TWO_ROWS = {
    "cora": "Cora (Acc %)",
    "photo": "Amazon-Photo (Acc %)",
    "twitch": "Twitch (ROC-AUC)",
    "facebook100": "Facebook-100 (Acc %)",
    "elliptic": "Elliptic (F1 %)",
    "arxiv": "OGB-Arxiv (Acc %)",
}
EFFECT_ROWS = {
    "cora": "Cora",
    "photo": "Amazon-Photo",
    "twitch": "Twitch",
    "facebook100": "Facebook-100",
    "elliptic": "Elliptic",
    "arxiv": "OGB-Arxiv",
}
MEASURES = ("edge increase %", "avg degree gain", "spectral entropy", "feature Laplacian smoothness")


def enriched(about: str, settings: Recipe) -> TableSpec:
    """Return the table of the measures of enrichment under a recipe.

    Args:
        about: Name of the recipe in the title.
        settings: The recipe.
    """

    def entries() -> Iterator[CellSpec]:
        for where, row in ENRICHED_ROWS.items():
            runs = run_set(where, "enrichment", settings, PROTOCOLS[where][:1])
            for name in MEASURES:
                yield CellSpec(row, name, runs, value.Measured(name), figure("subspace_enrichment", row, name))

    return TableSpec(f"Effect of enrichment, {about}", MEASURES_ABOUT, tuple(entries()), best="", decimals=2)


MEASURES_ABOUT = (
    "Change from the original to the enriched graph, averaged over the domains: edges in percent, mean degree, "
    "spectral entropy (nats) and the reduction of feature smoothness. docs/method.md defines these measures. The paper "
    "does not define any of them."
)


def pruned(about: str, settings: Recipe) -> TableSpec:
    """Return the table of the edges that the mask prunes under a recipe.

    Args:
        about: Name of the recipe in the title.
        settings: The recipe.
    """

    def entries() -> Iterator[CellSpec]:
        for where, row in PRUNED_ROWS.items():
            runs = default(STAR, where) if settings is ROBUST else run_set(where, STAR, settings)
            for column, show in (
                ("pruned from augmented %", value.Pruned("augmented")),
                ("pruned from original %", value.Pruned("original")),
                ("augmented retained %", value.Pruned("augmented", retained=True)),
            ):
                yield CellSpec(row, column, runs, show, figure("mask_prune_stats", row, column))

    text = (
        "Percentage of the sources' edges whose mask after training is below 1/2 (pruned) or at least 1/2 (retained)."
    )
    return TableSpec(f"Edges pruned by the mask, {about}", text, tuple(entries()), best="")


UNION = {name: getattr(ROBUST, name) for name in ("k", "clusters", "knn_ratio", "spectral_ratio")}


def on_union(name: str) -> Recipe:
    """Return a baseline's recipe with training on the enriched graph and no other change."""
    return method_spec(name).under(None, **UNION)


def two_by_two(about: str, sides: dict[str, tuple[str, Recipe]]) -> TableSpec:
    """Return the table of enrichment × mask for one form of the game.

    Args:
        about: Name of the form in the title.
        sides: Method and recipe of each column.
    """

    def entries() -> Iterator[CellSpec]:
        table = "two_by_two_ablation"
        for column, (name, settings) in sides.items():
            for transfer in CITATION:
                row = f"{transfer.replace('→', '->')} (Micro-F1 %)"
                runs = run_set("citation", name, settings, (transfer,))
                yield CellSpec(row.replace("->", "→"), column, runs, value.Score(), figure(table, row, column))
            for where, row in TWO_ROWS.items():
                runs = run_set(where, name, settings)
                yield CellSpec(row, column, runs, value.Score(), figure(table, row, column))

    text = "Average over the targets, in percent."
    return TableSpec(f"Enrichment × mask, {about}", text, tuple(sorted_rows(entries())), best="")


def sorted_rows(entries: Iterator[CellSpec]) -> list[CellSpec]:
    """Return the cells sorted by row. Rows keep the order in which they first appear."""
    cells = list(entries)
    order = list(dict.fromkeys(c.row for c in cells))
    return sorted(cells, key=lambda c: order.index(c.row))


def effects() -> Iterator[CellSpec]:
    """Yield the cells of the effect of training on the enriched graph, by benchmark and method."""
    table = "aug_effect_baselines"
    for where, row in {"citation": "Citation avg.", **EFFECT_ROWS}.items():
        score = value.Score(("micro_f1", "macro_f1")) if where == "citation" else value.Score()
        for column, name in (("ERM", "erm-gcn"), ("EERM", "eerm"), ("GRM", "grm"), ("IS-GIB", "is-gib")):
            added, without = run_set(where, name, on_union(name)), run_set(where, name, method_spec(name).recipe)
            yield CellSpec(row, column, added, score, figure(table, row, column), without)
        added, without = run_set(where, STAR, ROBUST), run_set(where, BASE, method_spec(BASE).recipe)
        yield CellSpec(row, "EdgeMask-DG*", added, score, figure(table, row, "EdgeMask-DG*"), without)


def sweep_tables(
    table: str, setting: str, values: dict[str, Any], transfers: tuple[str, ...], seconds: bool
) -> list[TableSpec]:
    """Return the tables of one setting over several values, one for each form of the game.

    Args:
        table: Name of the paper's table.
        setting: Name of the setting.
        values: Values of the setting, by row.
        transfers: Citation transfers that are averaged.
        seconds: Whether the training time is shown too.
    """
    parts = []
    for about, form in (FORMS if setting != "lam" else LAMBDA_FORMS).items():
        entries = []
        for row, setting_value in values.items():
            runs = run_set("citation", STAR, form.replace(**{setting: setting_value}), transfers)
            shown: list[tuple[str, Callable[[Record], float | None]]] = [
                ("micro", value.Score(("micro_f1",))),
                ("macro", value.Score(("macro_f1",))),
            ]
            shown += [("train seconds", value.seconds)] if seconds else []
            entries += [CellSpec(row, column, runs, show, figure(table, row, column)) for column, show in shown]
        where = transfers[0] if len(transfers) == 1 else "average over three transfers"
        text = f"F1 in percent, {where}."
        title = f"Results by {SYMBOLS[setting]}, {about}"
        parts.append(TableSpec(title, text, tuple(entries), best="" if seconds else "high"))
    return parts


LITERAL = recipe("paper")  # follows the paper literally
SYMBOLS = {"lam": "λ", "k": "k", "clusters": "K"}
LAMBDA_FORMS = {"`paper` recipe": LITERAL, "GAT, attention gate, averaged weights": ATTENTION}
LAMBDAS = {"0.0": 0.0, "1e-5": 1e-5, "1e-4": 1e-4, "1e-3": 1e-3, "1e-2": 1e-2, "1e-1": 1e-1}
ABLATIONS = (
    Suite(
        "subspace_enrichment",
        "Effect of enrichment on the graphs",
        (enriched("the paper's ratios 0.1 and 0.1", LITERAL), enriched("`robust`, ratios 1 and 0.1", ROBUST)),
    ),
    Suite(
        "mask_prune_stats",
        "Edges pruned by the mask",
        (
            pruned("`robust`", ROBUST),
            pruned("GAT, attention gate, averaged weights", ATTENTION),
            pruned("`paper` recipe", LITERAL),
        ),
    ),
    Suite(
        "two_by_two_ablation",
        "Enrichment × mask",
        (
            two_by_two(
                "`robust`; without a mask: the same schedule without an adversary",
                {
                    "original, no mask": (BASE, method_spec(BASE).under(None, mask=False)),
                    "original, mask": (BASE, method_spec(BASE).recipe),
                    "union, no mask": (STAR, ROBUST.replace(mask=False)),
                    "union, mask": (STAR, ROBUST),
                },
            ),
            two_by_two(
                "GAT, attention gate, averaged weights; without a mask: EERM, as in the paper",
                {
                    "original, no mask": ("eerm", method_spec("eerm").recipe),
                    "original, mask": (BASE, ATTENTION.replace(k=0, clusters=0)),
                    "union, no mask": ("eerm", on_union("eerm")),
                    "union, mask": (STAR, ATTENTION),
                },
            ),
        ),
    ),
    Suite(
        "aug_effect_baselines",
        "Effect of training on the enriched graph, by method",
        (
            TableSpec(
                "Score after training on the enriched graph minus score after training on the original graph",
                "Differences in points, paired by protocol and seed. Every target is classified on its original graph.",
                tuple(effects()),
                best="",
            ),
        ),
    ),
    Suite(
        "ablation_lambda",
        "The sparsity coefficient λ",
        tuple(sweep_tables("ablation_lambda", "lam", LAMBDAS, ("CD→A",), False)),
    ),
    Suite(
        "knn_k_ablation",
        "Number of neighbours k",
        tuple(sweep_tables("knn_k_ablation", "k", {str(k): k for k in (3, 5, 10, 20, 50)}, CITATION, False)),
    ),
    Suite(
        "spectral_k_ablation",
        "Number of clusters K",
        tuple(
            sweep_tables(
                "spectral_k_ablation",
                "clusters",
                {str(k): k for k in (50, 100, 150, 200, 250, 300)},
                CITATION,
                True,
            )
        ),
    ),
)
