"""Every table and figure of the paper, and some of ours, as declarations: what is run, and what each cell shows.

`SUITES[name].tasks()` is what has to be run; `SUITES[name].comparisons(store)` are its tables, from records alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edgemask.bench import cells as value
from edgemask.bench.comparison import ABSENT, Cell, Comparison
from edgemask.bench.enrichment import Enrichment
from edgemask.bench.findings import FINDINGS
from edgemask.bench.growth import growth
from edgemask.bench.paper import NAMES, figure
from edgemask.bench.run import Run
from edgemask.bench.store import Record, ResultStore, Task
from edgemask.data import benchmark
from edgemask.methods.registry import METHODS, entry
from edgemask.recipe import Recipe, recipe

STAR, BASE, PLAIN = "edgemask-dg-star", "edgemask-dg", "erm-gcn-enriched"
SEEDS, HEADLINE = 5, 10
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


def chosen(settled: Recipe, where: str) -> Recipe:
    """A recipe as it runs on a benchmark: where there is a validation domain, it chooses the epoch for all alike."""
    validated = bool(benchmark(where).protocol(PROTOCOLS[where][0]).validation)
    return settled.with_(select="validation") if validated and settled.select == "last" else settled


# ---- what is run, and what is shown of it ----------------------------------------------------------------


@dataclass(frozen=True)
class Runs:
    """One method under one recipe on some protocols of a benchmark, over seeds."""

    benchmark: str
    method: str
    recipe: Recipe
    protocols: tuple[str, ...] = ()  # of the benchmark; none: the usual ones
    seeds: int = SEEDS
    also: tuple[str, ...] = ()

    def tasks(self) -> Iterator[Task]:
        source = benchmark(self.benchmark)
        settled = chosen(self.recipe, self.benchmark)
        for name in self.protocols or PROTOCOLS[self.benchmark]:
            for seed in range(self.seeds):
                split, options = source.protocol(name), dict(source.options)
                if self.method == "enrichment":
                    yield Enrichment(self.benchmark, options, split, self.recipe, seed)
                else:
                    yield Run(self.benchmark, options, split, self.method, settled, seed, self.also)

    def found(self, store: ResultStore) -> list[tuple[Task, Record | None]]:
        """The tasks with their records; looked up once, however many cells show them."""
        held: list[tuple[Task, Record | None]] | None = store.derived.get(self)
        if held is None:
            held = store.derived[self] = [(task, store.find(task)) for task in self.tasks()]
        return held


@dataclass(frozen=True)
class Entry:
    """One cell: a value of each record of `of`, less that of the same protocol and seed in `minus`."""

    row: str
    column: str
    of: Runs
    value: Callable[[Record], float | None]
    paper: tuple[float, ...] = ()
    minus: Runs | None = None

    def cell(self, store: ResultStore, absent: Collection[str]) -> Cell:
        tasks = self.of.found(store)
        others = [record for _, record in self.minus.found(store)] if self.minus else [None] * len(tasks)
        values, records, failed = {}, list[Record](), 0
        for (task, own), other in zip(tasks, others, strict=True):
            pair = [record for record in (own, other) if record]
            records += pair
            failed += any("failed" in r for r in pair)
            shown = [v for r in pair if "failed" not in r and (v := self.value(r)) is not None]
            if len(shown) == (2 if self.minus else 1):
                values[f"{task.benchmark} {task.protocol.name}", task.seed] = shown[0] - sum(shown[1:])
        if not records and self.of.benchmark in absent:
            return Cell(paper=self.paper, absent=ABSENT)
        there = len(values) + failed
        why = "" if there == len(tasks) else f"{there} of {len(tasks)} runs" if there else "not run"
        rules = tuple(sorted({r["select"]["rule"] for r in records}))
        keys = tuple(r["key"] for r in records)
        return Cell(values, self.paper, rules, keys, failed, why)


@dataclass(frozen=True)
class Part:
    """One table of a suite."""

    title: str
    about: str
    entries: tuple[Entry, ...]
    best: str = "high"
    decimals: int = 1
    reference: str = ""
    tested: tuple[str, ...] = ()

    def comparison(self, name: str, store: ResultStore, absent: Collection[str]) -> Comparison:
        return Comparison(
            name,
            self.title,
            self.about,
            tuple(dict.fromkeys(e.row for e in self.entries)),
            tuple(dict.fromkeys(e.column for e in self.entries)),
            {(e.row, e.column): e.cell(store, absent) for e in self.entries},
            self.best,
            self.decimals,
            self.reference,
            self.tested,
        )


@dataclass(frozen=True)
class Suite:
    """Tables that belong together, and the runs behind them."""

    name: str
    title: str
    parts: tuple[Part, ...] = ()
    extra: tuple[Runs, ...] = ()  # runs that no cell shows
    made: Callable[[ResultStore], list[Comparison]] | None = field(default=None, compare=False)  # not from runs

    def tasks(self) -> list[Task]:
        """Every run behind the suite, each once."""
        runs = dict.fromkeys([*(r for p in self.parts for e in p.entries for r in (e.of, e.minus) if r), *self.extra])
        by_text = {repr(task): task for r in runs for task in r.tasks()}
        return list(by_text.values())

    def comparisons(self, store: ResultStore, absent: Collection[str] = ()) -> list[Comparison]:
        """Its tables from the records of a store; with the first, where no run is missing, what we found. Of the
        benchmarks in `absent` the data is not available."""
        asked = ("comparisons", self.name, tuple(absent))
        if asked not in store.derived:
            tables = [p.comparison(self.name, store, absent) for p in self.parts]
            tables += self.made(store) if self.made else []
            if all(cell.absent in ("", ABSENT) for table in tables for cell in table.cells.values()):
                tables[:1] = [replace(t, findings=FINDINGS.get(self.name, ())) for t in tables[:1]]
            store.derived[asked] = tables
        return list(store.derived[asked])


# ---- the paper's results ---------------------------------------------------------------------------------


def label(name: str) -> str:
    """A method's name, with the paper's name of it."""
    return f"{name} ({NAMES[name]})" if name in NAMES else name


def default(name: str, where: str) -> Runs:
    """A method as it comes; the two of the headline over more seeds where the headline is."""
    seeds = HEADLINE if name in (STAR, PLAIN) and where in ("citation", "twitch") else SEEDS
    return Runs(where, name, entry(name).recipe, seeds=seeds)


def citation_entries(row: str, runs: Runs, theirs: str = "") -> Iterator[Entry]:
    """Six figures and their average, as in the paper's table."""
    quoted = "results_citations"
    for transfer in CITATION:
        for short, metric in (("micro", "micro_f1"), ("macro", "macro_f1")):
            column = f"{transfer} {short}"
            one = Runs(runs.benchmark, runs.method, runs.recipe, (transfer,), runs.seeds, runs.also)
            figures = figure(quoted, theirs, column.replace("→", "->"))
            yield Entry(row, column, one, value.Score((metric,)), figures)
    yield Entry(row, "average", runs, value.Score(("micro_f1", "macro_f1")), figure(quoted, theirs, "average"))


def other_entries(row: str, name: str, settled: Recipe | None = None, theirs: str = "") -> Iterator[Entry]:
    """Minimum and average over the targets of each other benchmark, as in the paper's table."""
    for where, title in OTHERS.items():
        runs = default(name, where) if settled is None else Runs(where, name, settled)
        for how in ("min", "avg"):
            column = f"{title} {how}"
            quoted = figure("results_cora_photo_fb_twitch", theirs, column)
            yield Entry(row, column, runs, value.Score(how=how), quoted)


def temporal_entries(name: str) -> Iterator[Entry]:
    theirs = {"grm": "GRM*"}.get(name, NAMES[name])
    for where, title, metric in (("elliptic", "Elliptic", "f1:1"), ("arxiv", "ArXiv", "accuracy")):
        runs = Runs(where, name, entry(name).recipe)
        for third, column in enumerate((f"{title} T1", f"{title} T2", f"{title} T3", f"{title} avg")):
            quoted = figure("results_elliptic_arxiv_sorted", theirs, column)
            show = value.Score((metric,)) if third == 3 else value.Third(metric, third)
            yield Entry(label(name), column, runs, show, quoted)


REBUILT = (
    "Rebuilt in part, from descriptions with gaps: "
    + ", ".join(n for n in METHODS if entry(n).status.startswith("partial"))
    + "; `edgemask methods` says what in each is ours."
)
SIX = tuple(f"{t} {m}" for t in CITATION for m in ("micro", "macro"))
RESULTS = (
    Suite(
        "results_citations",
        "Citation networks, leave one domain out",
        (
            Part(
                "Citation networks",
                "F1 on the unseen domain in percent, every system at its defaults; ours beside the paper's figure. "
                + REBUILT,
                tuple(e for n in METHODS for e in citation_entries(label(n), default(n, "citation"), NAMES.get(n, ""))),
                reference=label("erm-gcn"),
                tested=SIX,
            ),
        ),
    ),
    Suite(
        "results_cora_photo_fb_twitch",
        "Cora, Photo, Facebook-100, Twitch",
        (
            Part(
                "Cora, Photo, Facebook-100, Twitch",
                "Minimum and average over the target domains, accuracy (Twitch: ROC-AUC) in percent; the validation "
                "domain chooses the epoch for everyone. Cora and Photo are generated anew, and of Facebook-100 the "
                f"targets are those whose files are here, so the paper's figures are on other data. {REBUILT}",
                tuple(e for n in METHODS for e in other_entries(label(n), n, theirs=NAMES.get(n, ""))),
                reference=label("erm-gcn"),
                tested=tuple(f"{title} avg" for title in OTHERS.values()),
            ),
        ),
    ),
    Suite(
        "results_elliptic_arxiv_sorted",
        "Elliptic and OGB-Arxiv over time",
        (
            Part(
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


def enriched(about: str, settled: Recipe) -> Part:
    def entries() -> Iterator[Entry]:
        for where, row in ENRICHED_ROWS.items():
            runs = Runs(where, "enrichment", settled, PROTOCOLS[where][:1])
            for name in MEASURES:
                yield Entry(row, name, runs, value.Measured(name), figure("subspace_enrichment", row, name))

    return Part(f"What enrichment adds, {about}", MEASURES_ABOUT, tuple(entries()), best="", decimals=2)


MEASURES_ABOUT = (
    "Change from the original to the enriched graph, mean over the domains: edges in percent, mean degree, spectral "
    "entropy (nats) and the reduction of the features' smoothness, as docs/method.md defines them. The paper defines "
    "none of them."
)


def pruned(about: str, settled: Recipe) -> Part:
    def entries() -> Iterator[Entry]:
        for where, row in PRUNED_ROWS.items():
            runs = default(STAR, where) if settled is ROBUST else Runs(where, STAR, settled)
            for column, show in (
                ("pruned from augmented %", value.Pruned("augmented")),
                ("pruned from original %", value.Pruned("original")),
                ("augmented retained %", value.Pruned("augmented", retained=True)),
            ):
                yield Entry(row, column, runs, show, figure("mask_prune_stats", row, column))

    text = "Share of the sources' edges whose mask is below 1/2 after training (pruned), or not (retained)."
    return Part(f"What the mask prunes, {about}", text, tuple(entries()), best="")


UNION = {name: getattr(ROBUST, name) for name in ("k", "clusters", "knn_ratio", "spectral_ratio")}


def on_union(name: str) -> Recipe:
    """A baseline trained directly on the enriched graph, all else as it is."""
    return entry(name).under(None, **UNION)


def two_by_two(about: str, sides: dict[str, tuple[str, Recipe]]) -> Part:
    def entries() -> Iterator[Entry]:
        quoted = "two_by_two_ablation"
        for column, (name, settled) in sides.items():
            for transfer in CITATION:
                row = f"{transfer.replace('→', '->')} (Micro-F1 %)"
                runs = Runs("citation", name, settled, (transfer,))
                yield Entry(row.replace("->", "→"), column, runs, value.Score(), figure(quoted, row, column))
            for where, row in TWO_ROWS.items():
                runs = Runs(where, name, settled)
                yield Entry(row, column, runs, value.Score(), figure(quoted, row, column))

    text = "Average over targets, percent."
    return Part(f"Enrichment × mask, {about}", text, tuple(sorted_rows(entries())), best="")


def sorted_rows(entries: Iterator[Entry]) -> list[Entry]:
    """By row, in the order rows first appear."""
    held = list(entries)
    order = list(dict.fromkeys(e.row for e in held))
    return sorted(held, key=lambda e: order.index(e.row))


def effects() -> Iterator[Entry]:
    quoted = "aug_effect_baselines"
    for where, row in {"citation": "Citation avg.", **EFFECT_ROWS}.items():
        score = value.Score(("micro_f1", "macro_f1")) if where == "citation" else value.Score()
        for column, name in (("ERM", "erm-gcn"), ("EERM", "eerm"), ("GRM", "grm"), ("IS-GIB", "is-gib")):
            added, without = Runs(where, name, on_union(name)), Runs(where, name, entry(name).recipe)
            yield Entry(row, column, added, score, figure(quoted, row, column), without)
        ours = Runs(where, STAR, ROBUST), Runs(where, BASE, entry(BASE).recipe)
        yield Entry(row, "EdgeMask-DG*", ours[0], score, figure(quoted, row, "EdgeMask-DG*"), ours[1])


def swept(quoted: str, setting: str, values: dict[str, Any], transfers: tuple[str, ...], seconds: bool) -> list[Part]:
    """One setting over several values, in both forms of the game."""
    parts = []
    for about, form in (FORMS if setting != "lam" else LAMBDA_FORMS).items():
        entries = []
        for row, setting_value in values.items():
            runs = Runs("citation", STAR, form.with_(**{setting: setting_value}), transfers)
            shown: list[tuple[str, Callable[[Record], float | None]]] = [
                ("micro", value.Score(("micro_f1",))),
                ("macro", value.Score(("macro_f1",))),
            ]
            shown += [("train seconds", value.seconds)] if seconds else []
            entries += [Entry(row, column, runs, show, figure(quoted, row, column)) for column, show in shown]
        where = transfers[0] if len(transfers) == 1 else "average over three transfers"
        text = f"F1 in percent, {where}."
        parts.append(Part(f"{setting} by value, {about}", text, tuple(entries), best="" if seconds else "high"))
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
                    "original, no mask": (BASE, entry(BASE).under(None, mask=False)),
                    "original, mask": (BASE, entry(BASE).recipe),
                    "union, no mask": (STAR, ROBUST.with_(mask=False)),
                    "union, mask": (STAR, ROBUST),
                },
            ),
            two_by_two(
                "GAT, attention gate, averaged weights; without mask EERM, as the paper has it",
                {
                    "original, no mask": ("eerm", entry("eerm").recipe),
                    "original, mask": (BASE, ATTENTION.with_(k=0, clusters=0)),
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
            Part(
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


def recipes() -> Iterator[Entry]:
    for name in ("paper", "released", "robust"):
        settled = entry(STAR).under(name)
        ours = default(STAR, "citation") if name == "robust" else Runs("citation", STAR, settled)
        yield from citation_entries(name, ours, "EDG*")
        yield from other_entries(name, STAR, None if name == "robust" else settled, "EDG*")
    yield from citation_entries("no game: GCN on the enriched graph", default(PLAIN, "citation"))
    yield from other_entries("no game: GCN on the enriched graph", PLAIN)


def collapse() -> Iterator[Entry]:
    base = recipe("paper", knn_ratio=0.5, spectral_ratio=0.02, epochs=100)
    for gate in ("message", "attention", "softmax"):
        for bound in ("penalty", "dual", "budget"):
            runs = Runs("citation", STAR, base.with_(gate=gate, bound=bound), CITATION[:2], also=("oracle",))
            row = f"{gate} gate, {bound}"
            for epoch in (1, 5, 20, 100):
                yield Entry(row, f"mean mask, epoch {epoch}", runs, value.MeanMask(epoch))
            yield Entry(row, "micro-F1, last epoch", runs, value.Score(("micro_f1",)))
            yield Entry(row, "micro-F1, best epoch (oracle)", runs, value.Score(("micro_f1",), rule="oracle"))


def readings() -> Iterator[Entry]:
    for graph in ("original", "enriched"):
        for mask in ("ones", "masknet"):
            for average in (0.0, 0.05):
                row = f"{graph} graph, {'s = 1' if mask == 'ones' else 'masked'}, "
                row += "averaged weights" if average else "last weights"
                for alpha in (0.0, 0.9):
                    settled = ROBUST.with_(
                        test_graph=graph, test_mask=mask, average=average, alpha=(alpha,), select="last"
                    )
                    both = value.Score(("micro_f1", "macro_f1"))
                    yield Entry(row, f"α = {alpha:g}", Runs("citation", STAR, settled, CITATION[:2]), both)


def theory() -> Iterator[Entry]:
    for row, form in FORMS.items():
        for transfer in CITATION:
            runs = Runs("citation", STAR, form, (transfer,), also=("theory",))
            for column, show in value.THEORY.items():
                yield Entry(f"{row}, {transfer}", column, runs, show)


OURS = (
    Suite("complexity", "Time and memory as graphs grow", made=growth),
    Suite(
        "theory",
        "The theory's checks on trained pairs",
        (
            Part(
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
            Part(
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
            Part(
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
            Part(
                "Graph × mask × averaging × propagation",
                "`robust` on the citation networks, last epoch: mean of the four F1 figures of AC→D and AD→C, percent.",
                tuple(readings()),
            ),
        ),
    ),
    Suite(
        "explorer",
        "The mask explorer's views",
        extra=(Runs("citation", STAR, ROBUST, seeds=1, also=("explorer",)),),
    ),
)

SUITES: dict[str, Suite] = {s.name: s for s in (*RESULTS, *ABLATIONS, *OURS)}


def suite(name: str) -> Suite:
    """A suite by name; an unknown name is an error that lists the known ones."""
    if name not in SUITES:
        raise ValueError(f"no table or figure {name!r} (there are: {', '.join(SUITES)})")
    return SUITES[name]


def all_tasks(names: Sequence[str]) -> list[Task]:
    """The tasks of several suites, each once."""
    return list({repr(t): t for n in names for t in suite(n).tasks()}.values())
