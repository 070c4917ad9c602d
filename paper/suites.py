"""Every table and figure of the paper, and some of our own, as declarations of runs and cells."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from edgemask.config import Recipe, recipe
from edgemask.data import benchmark
from edgemask.errors import InputError
from edgemask.experiments.records import Record, ResultStore, Task
from edgemask.methods.registry import method_spec
from edgemask.report.page import Section
from edgemask.report.suite import SEEDS, CellSpec, RunSet, Suite, TableSpec
from paper import cells as value
from paper.findings import FINDINGS
from paper.growth import growth
from paper.published import NAMES, SHOWN, figure

STAR, BASE, PLAIN = "edgemask-dg-star", "edgemask-dg", "erm-gcn-enriched"
HEADLINE = 10  # seeds of the headline
CITATION = ("AC→D", "AD→C", "CD→A")
PROTOCOLS = {
    "citation": CITATION,
    "cora": ("env0→env2-9",),
    "photo": ("env0→env2-9",),
    "facebook100": ("triple1→available",),
    "twitch": ("DE→ES,FR,PTBR,RU,TW",),
    "elliptic": ("t07–t11→t17–t49",),
    "arxiv": ("2011→2016,2018,2020",),
}
OTHERS = {"cora": "Cora", "photo": "Photo", "facebook100": "FB-100", "twitch": "Twitch"}
# The two forms of the game that every ablation is run in: ours, and the paper's networks in the form that does not
# collapse and comes nearest to the paper's figures.
ROBUST = recipe("robust")
ATTENTION = recipe("paper", gate="attention", knn_ratio=0.5, spectral_ratio=0.02, epochs=100, average=0.05)
FORMS = {"`robust`": ROBUST, "GAT, attention gate, averaged weights": ATTENTION}


def run_set(
    where: str,
    method: str,
    recipe: Recipe,
    protocols: tuple[str, ...] = (),
    seeds: int = SEEDS,
    also: tuple[str, ...] = (),
) -> RunSet:
    """Return the runs of a method on a benchmark, on its usual protocols unless others are given.

    If the benchmark has a validation domain, every method chooses its epoch on it.
    """
    validated = bool(benchmark(where).protocol(PROTOCOLS[where][0]).validation)
    if method != "enrichment" and validated and recipe.select == "last":
        recipe = recipe.replace(select="validation")
    return RunSet(where, method, recipe, protocols or PROTOCOLS[where], seeds, also)


# ---- the paper's results ---------------------------------------------------------------------------------


def label(name: str) -> str:
    """A method's name, with the paper's name of it."""
    return f"{name} ({NAMES[name]})" if name in NAMES else name


def default(name: str, where: str) -> RunSet:
    """A method as it comes; the two of the headline over more seeds where the headline is."""
    seeds = HEADLINE if name in (STAR, PLAIN) and where in ("citation", "twitch") else SEEDS
    return run_set(where, name, method_spec(name).recipe, seeds=seeds)


def citation_entries(row: str, runs: RunSet, theirs: str = "") -> Iterator[CellSpec]:
    """Six figures and their average, as in the paper's table."""
    quoted = "results_citations"
    for transfer in CITATION:
        for short, metric in (("micro", "micro_f1"), ("macro", "macro_f1")):
            column = f"{transfer} {short}"
            one = run_set(runs.benchmark, runs.method, runs.recipe, (transfer,), runs.seeds, runs.also)
            figures = figure(quoted, theirs, column.replace("→", "->"))
            yield CellSpec(row, column, one, value.Score((metric,)), figures)
    yield CellSpec(row, "average", runs, value.Score(("micro_f1", "macro_f1")), figure(quoted, theirs, "average"))


def other_entries(row: str, name: str, settled: Recipe | None = None, theirs: str = "") -> Iterator[CellSpec]:
    """Minimum and average over the targets of each other benchmark, as in the paper's table."""
    for where, title in OTHERS.items():
        runs = default(name, where) if settled is None else run_set(where, name, settled)
        for how in ("min", "avg"):
            column = f"{title} {how}"
            quoted = figure("results_cora_photo_fb_twitch", theirs, column)
            yield CellSpec(row, column, runs, value.Score(how=how), quoted)


def temporal_entries(name: str) -> Iterator[CellSpec]:
    theirs = {"grm": "GRM*"}.get(name, NAMES[name])
    for where, title, metric in (("elliptic", "Elliptic", "f1:1"), ("arxiv", "ArXiv", "accuracy")):
        runs = run_set(where, name, method_spec(name).recipe)
        for third, column in enumerate((f"{title} T1", f"{title} T2", f"{title} T3", f"{title} avg")):
            quoted = figure("results_elliptic_arxiv_sorted", theirs, column)
            show = value.Score((metric,)) if third == 3 else value.Third(metric, third)
            yield CellSpec(label(name), column, runs, show, quoted)


REBUILT = (
    "Rebuilt in part, from descriptions with gaps: "
    + ", ".join(n for n in SHOWN if method_spec(n).status.startswith("partial"))
    + "; `edgemask methods` says what in each is ours."
)
SIX = tuple(f"{t} {m}" for t in CITATION for m in ("micro", "macro"))
RESULTS = (
    Suite(
        "results_citations",
        "Citation networks, leave one domain out",
        (
            TableSpec(
                "Citation networks",
                "F1 on the unseen domain in percent, every system at its defaults; ours beside the paper's figure. "
                + REBUILT,
                tuple(e for n in SHOWN for e in citation_entries(label(n), default(n, "citation"), NAMES.get(n, ""))),
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
                "Minimum and average over the target domains, accuracy (Twitch: ROC-AUC) in percent; the validation "
                "domain chooses the epoch for everyone. Cora and Photo are generated anew, and of Facebook-100 the "
                f"targets are those whose files are here, so the paper's figures are on other data. {REBUILT}",
                tuple(e for n in SHOWN for e in other_entries(label(n), n, theirs=NAMES.get(n, ""))),
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
                "F1 of the illicit class (Elliptic) and accuracy (ArXiv) in percent, in thirds of the test steps. "
                + REBUILT,
                tuple(
                    e
                    for n in ("erm-gcn", "eerm", "arm", "lisa", "mmd", STAR, "group-dro", "is-gib", "mario", "grm")
                    for e in temporal_entries(n)
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


def enriched(about: str, settled: Recipe) -> TableSpec:
    def entries() -> Iterator[CellSpec]:
        for where, row in ENRICHED_ROWS.items():
            runs = run_set(where, "enrichment", settled, PROTOCOLS[where][:1])
            for name in MEASURES:
                yield CellSpec(row, name, runs, value.Measured(name), figure("subspace_enrichment", row, name))

    return TableSpec(f"What enrichment adds, {about}", MEASURES_ABOUT, tuple(entries()), best="", decimals=2)


MEASURES_ABOUT = (
    "Change from the original to the enriched graph, mean over the domains: edges in percent, mean degree, spectral "
    "entropy (nats) and the reduction of the features' smoothness, as docs/method.md defines them. The paper defines "
    "none of them."
)


def pruned(about: str, settled: Recipe) -> TableSpec:
    def entries() -> Iterator[CellSpec]:
        for where, row in PRUNED_ROWS.items():
            runs = default(STAR, where) if settled is ROBUST else run_set(where, STAR, settled)
            for column, show in (
                ("pruned from augmented %", value.Pruned("augmented")),
                ("pruned from original %", value.Pruned("original")),
                ("augmented retained %", value.Pruned("augmented", retained=True)),
            ):
                yield CellSpec(row, column, runs, show, figure("mask_prune_stats", row, column))

    text = "Share of the sources' edges whose mask is below 1/2 after training (pruned), or not (retained)."
    return TableSpec(f"What the mask prunes, {about}", text, tuple(entries()), best="")


UNION = {name: getattr(ROBUST, name) for name in ("k", "clusters", "knn_ratio", "spectral_ratio")}


def on_union(name: str) -> Recipe:
    """A baseline trained directly on the enriched graph, all else as it is."""
    return method_spec(name).under(None, **UNION)


def two_by_two(about: str, sides: dict[str, tuple[str, Recipe]]) -> TableSpec:
    def entries() -> Iterator[CellSpec]:
        quoted = "two_by_two_ablation"
        for column, (name, settled) in sides.items():
            for transfer in CITATION:
                row = f"{transfer.replace('→', '->')} (Micro-F1 %)"
                runs = run_set("citation", name, settled, (transfer,))
                yield CellSpec(row.replace("->", "→"), column, runs, value.Score(), figure(quoted, row, column))
            for where, row in TWO_ROWS.items():
                runs = run_set(where, name, settled)
                yield CellSpec(row, column, runs, value.Score(), figure(quoted, row, column))

    text = "Average over targets, percent."
    return TableSpec(f"Enrichment × mask, {about}", text, tuple(sorted_rows(entries())), best="")


def sorted_rows(entries: Iterator[CellSpec]) -> list[CellSpec]:
    """By row, in the order rows first appear."""
    held = list(entries)
    order = list(dict.fromkeys(e.row for e in held))
    return sorted(held, key=lambda e: order.index(e.row))


def effects() -> Iterator[CellSpec]:
    quoted = "aug_effect_baselines"
    for where, row in {"citation": "Citation avg.", **EFFECT_ROWS}.items():
        score = value.Score(("micro_f1", "macro_f1")) if where == "citation" else value.Score()
        for column, name in (("ERM", "erm-gcn"), ("EERM", "eerm"), ("GRM", "grm"), ("IS-GIB", "is-gib")):
            added, without = run_set(where, name, on_union(name)), run_set(where, name, method_spec(name).recipe)
            yield CellSpec(row, column, added, score, figure(quoted, row, column), without)
        ours = run_set(where, STAR, ROBUST), run_set(where, BASE, method_spec(BASE).recipe)
        yield CellSpec(row, "EdgeMask-DG*", ours[0], score, figure(quoted, row, "EdgeMask-DG*"), ours[1])


def swept(
    quoted: str, setting: str, values: dict[str, Any], transfers: tuple[str, ...], seconds: bool
) -> list[TableSpec]:
    """One setting over several values, in both forms of the game."""
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
            entries += [CellSpec(row, column, runs, show, figure(quoted, row, column)) for column, show in shown]
        where = transfers[0] if len(transfers) == 1 else "average over three transfers"
        text = f"F1 in percent, {where}."
        parts.append(TableSpec(f"{setting} by value, {about}", text, tuple(entries), best="" if seconds else "high"))
    return parts


LETTER = recipe("paper")
LAMBDA_FORMS = {"the paper's letter": LETTER, "GAT, attention gate, averaged weights": ATTENTION}
LAMBDAS = {"0.0": 0.0, "1e-5": 1e-5, "1e-4": 1e-4, "1e-3": 1e-3, "1e-2": 1e-2, "1e-1": 1e-1}
ABLATIONS = (
    Suite(
        "subspace_enrichment",
        "What enrichment adds to a graph",
        (enriched("the paper's ratios 0.1 and 0.1", LETTER), enriched("`robust`, ratios 1 and 0.1", ROBUST)),
    ),
    Suite(
        "mask_prune_stats",
        "What the mask prunes",
        (
            pruned("`robust`", ROBUST),
            pruned("GAT, attention gate, averaged weights", ATTENTION),
            pruned("the paper's letter", LETTER),
        ),
    ),
    Suite(
        "two_by_two_ablation",
        "Enrichment × mask",
        (
            two_by_two(
                "`robust`; without mask the same schedule without an adversary",
                {
                    "original, no mask": (BASE, method_spec(BASE).under(None, mask=False)),
                    "original, mask": (BASE, method_spec(BASE).recipe),
                    "union, no mask": (STAR, ROBUST.replace(mask=False)),
                    "union, mask": (STAR, ROBUST),
                },
            ),
            two_by_two(
                "GAT, attention gate, averaged weights; without mask EERM, as the paper has it",
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
        "What training on the enriched graph does to each system",
        (
            TableSpec(
                "Score on the enriched graph less that on the original",
                "Points, paired by protocol and seed; every target is read on its original graph.",
                tuple(effects()),
                best="",
            ),
        ),
    ),
    Suite(
        "ablation_lambda",
        "The sparsity coefficient λ",
        tuple(swept("ablation_lambda", "lam", LAMBDAS, ("CD→A",), False)),
    ),
    Suite(
        "knn_k_ablation",
        "Neighbours k",
        tuple(swept("knn_k_ablation", "k", {str(k): k for k in (3, 5, 10, 20, 50)}, CITATION, False)),
    ),
    Suite(
        "spectral_k_ablation",
        "Clusters K",
        tuple(
            swept(
                "spectral_k_ablation",
                "clusters",
                {str(k): k for k in (50, 100, 150, 200, 250, 300)},
                CITATION,
                True,
            )
        ),
    ),
)


# ---- ours ------------------------------------------------------------------------------------------------


def recipes() -> Iterator[CellSpec]:
    for name in ("paper", "released", "robust"):
        settled = method_spec(STAR).under(name)
        ours = default(STAR, "citation") if name == "robust" else run_set("citation", STAR, settled)
        yield from citation_entries(name, ours, "EDG*")
        yield from other_entries(name, STAR, None if name == "robust" else settled, "EDG*")
    yield from citation_entries("no game: GCN on the enriched graph", default(PLAIN, "citation"))
    yield from other_entries("no game: GCN on the enriched graph", PLAIN)


def collapse() -> Iterator[CellSpec]:
    base = recipe("paper", knn_ratio=0.5, spectral_ratio=0.02, epochs=100)
    for gate in ("message", "attention", "softmax"):
        for bound in ("penalty", "dual", "budget"):
            runs = run_set("citation", STAR, base.replace(gate=gate, bound=bound), CITATION[:2], also=("oracle",))
            row = f"{gate} gate, {bound}"
            for epoch in (1, 5, 20, 100):
                yield CellSpec(row, f"mean mask, epoch {epoch}", runs, value.MeanMask(epoch))
            yield CellSpec(row, "micro-F1, last epoch", runs, value.Score(("micro_f1",)))
            yield CellSpec(row, "micro-F1, best epoch (oracle)", runs, value.Score(("micro_f1",), rule="oracle"))


def readings() -> Iterator[CellSpec]:
    for graph in ("original", "enriched"):
        for mask in ("ones", "masknet"):
            for average in (0.0, 0.05):
                row = f"{graph} graph, {'s = 1' if mask == 'ones' else 'masked'}, "
                row += "averaged weights" if average else "last weights"
                for alpha in (0.0, 0.9):
                    settled = ROBUST.replace(
                        test_graph=graph, test_mask=mask, average=average, alpha=(alpha,), select="last"
                    )
                    both = value.Score(("micro_f1", "macro_f1"))
                    yield CellSpec(row, f"α = {alpha:g}", run_set("citation", STAR, settled, CITATION[:2]), both)


def theory() -> Iterator[CellSpec]:
    for row, form in FORMS.items():
        for transfer in CITATION:
            runs = run_set("citation", STAR, form, (transfer,), also=("theory",))
            for column, show in value.THEORY.items():
                yield CellSpec(f"{row}, {transfer}", column, runs, show)


OURS = (
    Suite("complexity", "Time and memory as graphs grow", made=growth),
    Suite(
        "theory",
        "The theory's checks on trained pairs",
        (
            TableSpec(
                "The theory on trained pairs",
                "On the first source of each transfer, after training: docs/method.md has the quantities.",
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
                "The paper's letter, the authors' released code, and ours; beside each the paper's figure of its "
                "EdgeMask-DG*. Percent.",
                tuple(recipes()),
            ),
        ),
    ),
    Suite(
        "collapse",
        "The collapse of the mask, by gate and bound",
        (
            TableSpec(
                "Mean mask of the original edges, and accuracy",
                "GAT on the citation networks, 100 epochs, mean over sources and the transfers AC→D and AD→C. The best "
                "epoch is chosen on the target, for comparison only.",
                tuple(collapse()),
                best="",
                decimals=2,
            ),
        ),
    ),
    Suite(
        "inference",
        "How a target is read",
        (
            TableSpec(
                "Graph × mask × averaging × propagation",
                "`robust` on the citation networks, last epoch: mean of the four F1 figures of AC→D and AD→C, percent.",
                tuple(readings()),
            ),
        ),
    ),
    Suite(
        "explorer",
        "The mask explorer's views",
        extra=(run_set("citation", STAR, ROBUST, seeds=1, also=("explorer",)),),
    ),
)

SUITES: dict[str, Suite] = {
    s.name: replace(s, findings=FINDINGS.get(s.name, ())) for s in (*RESULTS, *ABLATIONS, *OURS)
}


def suite(name: str) -> Suite:
    """A suite by name; an unknown name is an error that lists the known ones."""
    if name not in SUITES:
        raise InputError(f"no table or figure {name!r} (there are: {', '.join(SUITES)})")
    return SUITES[name]


def all_tasks(names: Sequence[str]) -> list[Task]:
    """The tasks of several suites, each once."""
    return list({repr(t): t for n in names for t in suite(n).tasks()}.values())


def sections(store: ResultStore, absent: Collection[str] = ()) -> list[Section]:
    """Return the sections of the report page. The data of the benchmarks in `absent` is not available."""
    return [Section(s.name, s.title, s.comparisons(store, absent)) for s in SUITES.values()]
