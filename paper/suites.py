"""Declarations of the runs and cells of every table and figure of the paper, and of some of our own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from edgemask.config import Recipe, recipe
from edgemask.data import arxiv, elliptic
from edgemask.errors import InputError
from edgemask.experiments.records import Record, ResultStore, Task
from edgemask.methods.registry import method_spec
from edgemask.report.page import Section
from edgemask.report.suite import CellSpec, RunSet, Suite, TableSpec
from paper import cells as value
from paper.adaptive import ADAPTIVE, SINGLE_SOURCE
from paper.findings import FINDINGS
from paper.growth import growth
from paper.mask_worth import MASK_WORTH
from paper.published import NAMES, SHOWN, figure
from paper.runs import ATTENTION, BASE, CITATION, FORMS, OTHERS, PLAIN, PROTOCOLS, ROBUST, STAR, default, run_set

# ---- the paper's results ---------------------------------------------------------------------------------


def label(name: str) -> str:
    """Return the name of a method, with the paper's name in brackets if it has one."""
    return f"{name} ({NAMES[name]})" if name in NAMES else name


def citation_cells(row: str, runs: RunSet, paper_row: str = "") -> Iterator[CellSpec]:
    """Yield the cells of a row of the citation table: six scores and their average, as in the paper.

    Args:
        row: Name of the row.
        runs: The runs that the row shows.
        paper_row: Name of the row in the paper's table, if it has one.
    """
    table = "results_citations"
    for transfer in CITATION:
        for short, metric in (("micro", "micro_f1"), ("macro", "macro_f1")):
            column = f"{transfer} {short}"
            one = run_set(runs.benchmark, runs.method, runs.recipe, (transfer,), runs.seeds, runs.also)
            quoted = figure(table, paper_row, column.replace("→", "->"))
            yield CellSpec(row, column, one, value.Score((metric,)), quoted)
    yield CellSpec(row, "average", runs, value.Score(("micro_f1", "macro_f1")), figure(table, paper_row, "average"))


def other_benchmark_cells(
    row: str, name: str, settings: Recipe | None = None, paper_row: str = ""
) -> Iterator[CellSpec]:
    """Yield the cells of a row of the other benchmarks: minimum and average over the targets, as in the paper.

    Args:
        row: Name of the row.
        name: Name of the method.
        settings: All settings; the method's default recipe if None.
        paper_row: Name of the row in the paper's table, if it has one.
    """
    for where, title in OTHERS.items():
        runs = default(name, where) if settings is None else run_set(where, name, settings)
        for how in ("min", "avg"):
            column = f"{title} {how}"
            quoted = figure("results_cora_photo_fb_twitch", paper_row, column)
            yield CellSpec(row, column, runs, value.Score(how=how), quoted)


def temporal_cells(name: str) -> Iterator[CellSpec]:
    """Yield the cells of a method's row for Elliptic and OGB-Arxiv: the three test periods and their average."""
    paper_row = {"grm": "GRM*"}.get(name, NAMES[name])
    for where, title, metric, periods in (
        ("elliptic", "Elliptic", "f1:1", elliptic.PERIODS),
        ("arxiv", "ArXiv", "accuracy", arxiv.PERIODS),
    ):
        runs = run_set(where, name, method_spec(name).recipe)
        shown: dict[str, Callable[[Record], float | None]] = {
            period: value.PeriodScore(metric, targets) for period, targets in periods.items()
        }
        shown["avg"] = value.Score((metric,))
        for period, show in shown.items():
            column = f"{title} {period}"
            quoted = figure("results_elliptic_arxiv_sorted", paper_row, column)
            yield CellSpec(label(name), column, runs, show, quoted)


REBUILT = (
    "Some methods are partial reimplementations from descriptions with gaps: "
    + ", ".join(n for n in SHOWN if method_spec(n).status.startswith("partial"))
    + ". `edgemask methods` lists what is our own in each."
)
SIX = tuple(f"{t} {m}" for t in CITATION for m in ("micro", "macro"))
RESULTS = (
    Suite(
        "results_citations",
        "Citation networks, leave one domain out",
        (
            TableSpec(
                "Citation networks",
                f"F1 on the unseen domain in percent. Every method runs with its defaults. {REBUILT}",
                tuple(c for n in SHOWN for c in citation_cells(label(n), default(n, "citation"), NAMES.get(n, ""))),
                reference=label("erm-gcn"),
                tested=SIX,
            ),
        ),
    ),
    Suite(
        "results_cora_photo_fb_twitch",
        "Cora, Photo, Facebook-100, Twitch",
        (
            TableSpec(
                "Cora, Photo, Facebook-100, Twitch",
                "Minimum and average over the target domains, in percent: ROC-AUC on Twitch, accuracy elsewhere. The "
                "validation domain chooses the epoch for every method. The paper's figures are on other data: we "
                "generated Cora and Photo ourselves, and for Facebook-100 we use the targets whose files are "
                f"available. {REBUILT}",
                tuple(c for n in SHOWN for c in other_benchmark_cells(label(n), n, paper_row=NAMES.get(n, ""))),
                reference=label("erm-gcn"),
                tested=tuple(f"{title} avg" for title in OTHERS.values()),
            ),
        ),
    ),
    Suite(
        "results_elliptic_arxiv_sorted",
        "Elliptic and OGB-Arxiv over time",
        (
            TableSpec(
                "Elliptic and OGB-Arxiv",
                "F1 of the illicit class (Elliptic) and accuracy (ArXiv) in percent, by thirds of the test steps. "
                + REBUILT,
                tuple(
                    c
                    for n in ("erm-gcn", "eerm", "arm", "lisa", "mmd", STAR, "group-dro", "is-gib", "mario", "grm")
                    for c in temporal_cells(n)
                ),
                reference=label("erm-gcn"),
            ),
        ),
    ),
)


# ---- the paper's ablations -------------------------------------------------------------------------------

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


# ---- our own tables --------------------------------------------------------------------------------------


def recipes() -> Iterator[CellSpec]:
    """Yield the cells of the three recipes and of the enriched GCN."""
    for name in ("paper", "released", "robust"):
        settings = method_spec(STAR).under(name)
        runs = default(STAR, "citation") if name == "robust" else run_set("citation", STAR, settings)
        yield from citation_cells(name, runs, "EDG*")
        yield from other_benchmark_cells(name, STAR, None if name == "robust" else settings, "EDG*")
    yield from citation_cells("no game: GCN on the enriched graph", default(PLAIN, "citation"))
    yield from other_benchmark_cells("no game: GCN on the enriched graph", PLAIN)


def collapse() -> Iterator[CellSpec]:
    """Yield the cells of the mean mask and the scores, by gate and bound."""
    base = recipe("paper", knn_ratio=0.5, spectral_ratio=0.02, epochs=100)
    for gate in ("message", "attention", "softmax"):
        for bound in ("penalty", "dual", "budget"):
            runs = run_set("citation", STAR, base.replace(gate=gate, bound=bound), CITATION[:2], also=("oracle",))
            row = f"{gate} gate, {bound}"
            for epoch in (1, 5, 20, 100):
                yield CellSpec(row, f"mean mask, epoch {epoch}", runs, value.MeanMask(epoch))
            yield CellSpec(row, "micro-F1, last epoch", runs, value.Score(("micro_f1",)))
            yield CellSpec(row, "micro-F1, best epoch (oracle)", runs, value.Score(("micro_f1",), rule="oracle"))


def inference_cells() -> Iterator[CellSpec]:
    """Yield the cells of the ways to classify a target: graph, mask, averaging and propagation."""
    for graph in ("original", "enriched"):
        for mask in ("ones", "masknet"):
            for average in (0.0, 0.05):
                row = f"{graph} graph, {'s = 1' if mask == 'ones' else 'masked'}, "
                row += "averaged weights" if average else "last weights"
                for alpha in (0.0, 0.9):
                    settings = ROBUST.replace(
                        test_graph=graph, test_mask=mask, average=average, alpha=(alpha,), select="last"
                    )
                    both = value.Score(("micro_f1", "macro_f1"))
                    yield CellSpec(row, f"α = {alpha:g}", run_set("citation", STAR, settings, CITATION[:2]), both)


def theory() -> Iterator[CellSpec]:
    """Yield the cells of the theory's quantities, by form of the game and transfer."""
    for row, form in FORMS.items():
        for transfer in CITATION:
            runs = run_set("citation", STAR, form, (transfer,), also=("theory",))
            for column, show in value.THEORY.items():
                yield CellSpec(f"{row}, {transfer}", column, runs, show)


OURS = (
    Suite("complexity", "Time and memory by graph size", made=growth),
    Suite(
        "theory",
        "Checks of the theory on trained networks",
        (
            TableSpec(
                "Theory after training",
                "Measured on the first source of each transfer after training. docs/method.md defines the quantities.",
                tuple(theory()),
                best="",
                decimals=4,
            ),
        ),
    ),
    Suite(
        "recipes",
        "`paper`, `released` and `robust` side by side",
        (
            TableSpec(
                "Recipes",
                "`paper` follows the paper literally, `released` the authors' released code, and `robust` is our own. "
                "The paper's figure is always that of its EdgeMask-DG*. In percent.",
                tuple(recipes()),
            ),
        ),
    ),
    Suite(
        "collapse",
        "Collapse of the mask, by gate and bound",
        (
            TableSpec(
                "Mean mask of the original edges, and accuracy",
                "GAT on the citation networks, 100 epochs, averaged over the sources and the transfers AC→D and AD→C. "
                "The best epoch is chosen on the target, for comparison only.",
                tuple(collapse()),
                best="",
                decimals=2,
            ),
        ),
    ),
    Suite(
        "inference",
        "Inference on the target",
        (
            TableSpec(
                "Graph × mask × averaging × propagation",
                "`robust` on the citation networks at the last epoch. Mean of the four F1 scores of AC→D and AD→C, in "
                "percent.",
                tuple(inference_cells()),
            ),
        ),
    ),
    Suite(
        "explorer",
        "Views of the mask explorer",
        extra=(run_set("citation", STAR, ROBUST, seeds=1, also=("explorer",)),),
    ),
    MASK_WORTH,
    ADAPTIVE,
    SINGLE_SOURCE,
)

SUITES: dict[str, Suite] = {
    s.name: replace(s, findings=FINDINGS.get(s.name, ())) for s in (*RESULTS, *ABLATIONS, *OURS)
}


def suite(name: str) -> Suite:
    """Return a suite by name.

    Raises:
        InputError: There is no suite of that name. The message lists the names.
    """
    if name not in SUITES:
        raise InputError(f"no table or figure {name!r} (there are: {', '.join(SUITES)})")
    return SUITES[name]


def all_tasks(names: Sequence[str]) -> list[Task]:
    """Return the tasks of several suites, each once."""
    return list({repr(t): t for n in names for t in suite(n).tasks()}.values())


def sections(store: ResultStore, absent: Collection[str] = ()) -> list[Section]:
    """Return the sections of the report page.

    Args:
        store: The records.
        absent: Benchmarks whose data is not available.
    """
    return [
        Section(s.name, s.title, s.comparisons(store, absent), f"edgemask reproduce {s.name}") for s in SUITES.values()
    ]
