"""Draw every figure of the paper, and some of our own, from the records of a store.

`FIGURES[name](store)` returns a Matplotlib figure, `draw` its SVG text, and `save` writes a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from edgemask.errors import InputError
from edgemask.experiments.records import ResultStore
from edgemask.experiments.run import ORACLE
from edgemask.report.comparison import Cell, Comparison
from edgemask.report.figure_style import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    LOOKS,
    ORANGE,
    PAPER,
    RC,
    SKY,
    VERMILION,
    WIDTH,
    Key,
    Look,
    band,
    caption,
    dot_grid,
    legend,
    printed,
    quoted_line,
    svg,
    write_caption,
)
from edgemask.report.render import plain_text
from edgemask.report.statistics import ranking
from edgemask.runtime.atomic import replacing
from paper.growth import COLUMNS
from paper.runs import OTHERS
from paper.suites import SUITES

Drawing = Callable[[ResultStore], Figure]
FIGURES: dict[str, Drawing] = {}
KINDS = (".svg", ".png", ".pdf")
OURS, F1 = "ours", "average of micro-F1 and macro-F1 over {} transfers, %"


def drawing(function: Drawing) -> Drawing:
    """Register a figure under the name of its function, drawn in our style."""

    def styled(store: ResultStore) -> Figure:
        with matplotlib.rc_context(RC):
            return function(store)

    FIGURES[function.__name__] = styled
    return function


def draw(name: str, store: ResultStore) -> str:
    """Return a figure as SVG text. Equal records give equal bytes.

    Args:
        name: Name of the figure.
        store: The records.

    Raises:
        InputError: There is no such figure, or the store has no finished run for it.
    """
    title = SUITES[name].title if name in SUITES else "EdgeMask-DG*"
    return svg(_figure(name, store), name, title)


def save(name: str, store: ResultStore, path: str | Path) -> None:
    """Write a figure to a file.

    Args:
        name: Name of the figure.
        store: The records.
        path: The file. It ends in .svg, .png or .pdf; the last two have a white background.

    Raises:
        InputError: The path has another ending, there is no such figure, or the store has no finished run
            for it.
    """
    path = Path(path)
    if path.suffix not in KINDS:
        raise InputError(f"{path}: the file name of a figure must end in {', '.join(KINDS)}")
    data = draw(name, store).encode() if path.suffix == ".svg" else printed(_figure(name, store), path.suffix[1:])
    with replacing(path) as sink:
        sink.write(data)


def _figure(name: str, store: ResultStore) -> Figure:
    if name not in FIGURES:
        raise InputError(f"no figure {name!r} (there are: {', '.join(FIGURES)})")
    return FIGURES[name](store)


def tables(name: str, store: ResultStore) -> list[Comparison]:
    """Return the tables of a suite.

    Raises:
        InputError: The store has no finished run of the suite.
    """
    comparisons = SUITES[name].comparisons(store)
    if not any(cell.values for table in comparisons for cell in table.cells.values()):
        raise InputError(f"{name}: {store.root} has no finished run of this suite; run `{command(name)}`")
    return comparisons


def command(name: str) -> str:
    """Return the command that makes the records of a suite."""
    return f"edgemask reproduce {name}" if SUITES[name].tasks() else "python -m benchmarks --part growth"


def form(table: Comparison) -> str:
    """Return the part of a table's title that distinguishes it within its suite: the text after the first comma."""
    return table.title.split(", ", 1)[1].replace("`", "").split(";")[0]


# ---- methods -----------------------------------------------------------------------------------------------


def ranked(table: Comparison, columns: Sequence[str]) -> list[str]:
    """Return the rows sorted by their mean advantage over the columns' averages, best first.

    Rows without a value come last.

    Args:
        table: The table.
        columns: The columns that count.
    """
    means = np.array([[table.cell(row, column).mean for column in columns] for row in table.rows])
    finite = np.isfinite(means)
    centred = np.where(finite, means, 0) - np.where(finite, means, 0).sum(0) / np.maximum(finite.sum(0), 1)
    score = np.where(finite, centred, 0).sum(1) / np.maximum(finite.sum(1), 1)
    return [table.rows[i] for i in np.lexsort((-score, ~finite.any(1)))]


def embolden(axes: Axes) -> None:
    """Set the labels of the paper's method in bold."""
    for tick in axes.get_yticklabels():
        tick.set_fontweight("bold" if tick.get_text().startswith("edgemask") else "normal")


@drawing
def results_citations(store: ResultStore) -> Figure:
    """Draw the average score of every method on the citation networks."""
    (table,) = tables("results_citations", store)
    rows = ranked(table, ["average"])
    cells = {(row, F1.format("three"), OURS): table.cell(row, "average") for row in rows}
    about = (
        "Every method runs with its defaults; rows are sorted by our result. Bold: EdgeMask-DG and its enriched forms."
    )
    return dot_grid(cells, about=about, interval=True, pitch=0.165, tune=lambda _, axes: embolden(axes))


@drawing
def results_cora_photo_fb_twitch(store: ResultStore) -> Figure:
    """Draw the average and worst target of every method on the other benchmarks."""
    (table,) = tables("results_cora_photo_fb_twitch", store)
    shown = {"avg": "average over targets", "min": "worst target"}
    cells = {
        (row, f"{title}, {'ROC-AUC' if title == 'Twitch' else 'acc.'} %", name): table.cell(row, f"{title} {how}")
        for row in ranked(table, [f"{title} avg" for title in OTHERS.values()])
        for title in OTHERS.values()
        for how, name in shown.items()
    }
    about = (
        "The paper's figures are on other data: we generated Cora and Photo ourselves, and for Facebook-100 we use the "
        "targets whose files are available."
    )
    looks = LOOKS[0], Look(VERMILION, "<")
    return dot_grid(
        cells, about=about, looks=looks, interval=True, dodge=False, pitch=0.165, tune=lambda _, axes: embolden(axes)
    )


@drawing
def recipes(store: ResultStore) -> Figure:
    """Draw the three recipes and the enriched GCN on every benchmark."""
    (table,) = tables("recipes", store)
    panels = {
        "average": "Citation, F1",
        **{f"{t} avg": f"{t}, {'AUC' if t == 'Twitch' else 'acc.'}" for t in OTHERS.values()},
    }
    cells = {(row, title, OURS): table.cell(row, column) for row in table.rows for column, title in panels.items()}
    about = "Averages over the targets, %. The paper's figure is that of its EdgeMask-DG* for every recipe."
    return dot_grid(cells, about=about, pitch=0.34)


@drawing
def inference(store: ResultStore) -> Figure:
    """Draw the ways to classify a target: graph, mask, averaging and propagation."""
    (table,) = tables("inference", store)
    names = {column: f"propagation {column}" for column in table.columns}
    cells = {
        (row, F1.format("two"), names[column]): table.cell(row, column)
        for row in table.rows
        for column in table.columns
    }
    about = "Recipe robust on the citation networks. Rows: graph on which the target is classified, its mask, weights."
    return dot_grid(cells, about=about)


# ---- mean ranks --------------------------------------------------------------------------------------------


@drawing
def adaptive(store: ResultStore) -> Figure:
    """Draw the mean ranks of `auto` and its candidates."""
    return mean_ranks(tables("adaptive", store)[0])


def mean_ranks(table: Comparison) -> Figure:
    """Draw the mean rank of every row of a table, with bars that join rows within the critical difference.

    Args:
        table: A table that ranks its rows.

    Raises:
        InputError: Fewer than two rows or columns of the table are complete.
    """
    ranks = ranking(table)
    if ranks is None:
        raise InputError(f"{table.title}: fewer than two rows or columns are complete, so there are no mean ranks")
    order, groups = [r.row for r in ranks.ranks], ranks.cliques
    figure = Figure(figsize=(WIDTH, 0.9 + 0.175 * len(order)), layout="constrained")
    axes = figure.subplots()
    for place, rank in enumerate(ranks.ranks):
        look = LOOKS[rank.row == table.reference]
        axes.plot(rank.mean, place, look.marker, color=look.colour, markersize=4.5)
    means = {r.row: r.mean for r in ranks.ranks}
    for group in groups:
        x = np.linspace(means[group[0]], means[group[-1]], 2)
        axes.plot(x, [order.index(group[0])] * 2, color=FAINT, linewidth=2.5, zorder=0, solid_capstyle="round")
    axes.set_yticks(range(len(order)), [plain_text(row) for row in order])
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.set_xlabel("mean rank (1 is best)")
    axes.grid(axis="x", color=FAINT, linewidth=0.5)
    text = (
        f"Mean ranks over {len(ranks.columns)} columns. A bar starts at a row and reaches to the last row that is "
        f"closer than Nemenyi's critical difference, {ranks.critical_difference:.2f} ranks at the level 0.05."
    )
    if ranks.rows_left_out or ranks.columns_left_out:
        text += " Incomplete, left out: " + ", ".join((*ranks.columns_left_out, *ranks.rows_left_out)) + "."
    write_caption(figure, text)
    return figure


# ---- effects of enrichment and mask ------------------------------------------------------------------------


def by_form(name: str, store: ResultStore, columns: Mapping[str, str]) -> dict[Key, Cell]:
    """Return the cells of a suite's tables, with a panel for each column and a series for each table.

    Args:
        name: Name of the suite.
        store: The records.
        columns: Panel titles by column.
    """
    comparisons = tables(name, store)
    return {
        (row, title, form(table)): table.cell(row, column)
        for row in comparisons[0].rows
        for column, title in columns.items()
        for table in comparisons
    }


@drawing
def subspace_enrichment(store: ResultStore) -> Figure:
    """Draw the measures of enrichment by benchmark."""
    columns = {
        "edge increase %": "edges, + %", "avg degree gain": "mean degree, +",
        "spectral entropy": "spectral\nentropy, + nats", "feature Laplacian smoothness": "feature\nsmoothness, −",
    }  # fmt: skip
    cells = by_form("subspace_enrichment", store, columns)
    about = "Change by enrichment, averaged over the domains. docs/method.md defines the measures; the paper does not."
    return dot_grid(cells, about=about, paper_once=True)


@drawing
def mask_prune_stats(store: ResultStore) -> Figure:
    """Draw the percentage of pruned edges by benchmark."""
    columns = {f"pruned from {o} %": f"pruned {o} edges, %" for o in ("augmented", "original")}
    cells = by_form("mask_prune_stats", store, columns)
    about = "An edge of a source is pruned if its mask is below 1/2 after training; all other edges are retained."
    return dot_grid(cells, about=about, paper_once=True, tune=lambda _, axes: axes.set_xlim(-4, 104))


@drawing
def aug_effect_baselines(store: ResultStore) -> Figure:
    """Draw the effect of training on the enriched graph, by benchmark and method."""
    (table,) = tables("aug_effect_baselines", store)
    cells = {(row, column, OURS): table.cell(row, column) for row in table.rows for column in table.columns}
    about = (
        "Points of score that training on the enriched graph adds, paired by protocol and seed. Every target is "
        "classified on its original graph. The vertical line marks no change."
    )

    def zero(_: str, axes: Axes) -> None:
        axes.axvline(0, color=INK, linewidth=0.8)

    return dot_grid(cells, about=about, pitch=0.24, share=True, tune=zero)


@drawing
def two_by_two_ablation(store: ResultStore) -> Figure:
    """Draw enrichment × mask, a panel for each row of the tables."""
    comparisons = tables("two_by_two_ablation", store)
    columns = dict(zip(comparisons[0].columns, ("neither", "mask", "enriched", "both"), strict=True))
    rows = [row for row in comparisons[0].rows if any(t.cell(row, c).values for t in comparisons for c in columns)]
    lines = -(-len(rows) // 3)
    figure = Figure(figsize=(WIDTH, 1.45 * lines + 1.1), layout="constrained")
    grid = figure.subplots(lines, 3, squeeze=False).ravel()
    for axes, row in zip(grid, rows, strict=False):
        for number, (table, look) in enumerate(zip(comparisons, LOOKS, strict=False)):
            at = np.arange(4) + (number - 1) * 0.2
            four = [table.cell(row, column) for column in columns]
            spread = np.nan_to_num([cell.std for cell in four])
            mean = [cell.mean for cell in four]
            axes.errorbar(at, mean, yerr=spread, fmt=look.marker, color=look.colour, elinewidth=1.2, zorder=3)
        quoted_line(axes, np.arange(4) + 0.2, [comparisons[0].cell(row, column) for column in columns], line="")
        axes.set_title(row)
        axes.set_xticks(range(4), columns.values())
        axes.set_xlim(-0.5, 3.5)
        axes.grid(visible=False, axis="x")
        axes.margins(y=0.12)
    for axes in grid[len(rows) :]:
        axes.remove()
    legend(figure, {form(t): look for t, look in zip(comparisons, LOOKS, strict=False)}, PAPER.marker)
    cells = {
        (row, form(t), columns[c]): t.cell(row, c) for row in comparisons[0].rows for t in comparisons for c in columns
    }
    caption(figure, cells, "Neither: original graph, no mask; both: EdgeMask-DG*.")
    return figure


# ---- settings ------------------------------------------------------------------------------------------------


def sweep(name: str, setting: str, store: ResultStore, about: str = "") -> Figure:
    """Draw a suite over the values of a setting, with a panel for each column and a band for each table.

    Args:
        name: Name of the suite.
        setting: Label of the horizontal axis.
        store: The records.
        about: A sentence for the caption.
    """
    comparisons = tables(name, store)
    rows, columns = comparisons[0].rows, comparisons[0].columns
    figure = Figure(figsize=(WIDTH, 2.9), layout="constrained")
    grid = figure.subplots(1, len(columns), squeeze=False)[0]
    for axes, column in zip(grid, columns, strict=True):
        for table, look in zip(comparisons, LOOKS, strict=False):
            band(axes, range(len(rows)), [table.cell(row, column) for row in rows], look)
        quoted_line(axes, range(len(rows)), [comparisons[0].cell(row, column) for row in rows])
        axes.set_title("training time, s" if column == "train seconds" else f"{column}-F1, %")
        axes.set_xticks(range(len(rows)), rows)
        axes.set_xlabel(setting)
        if column == "train seconds":
            logarithmic(axes, "y")
    legend(figure, {form(t): look for t, look in zip(comparisons, LOOKS, strict=False)}, PAPER.marker, lines=True)
    cells = {(row, column, form(t)): t.cell(row, column) for row in rows for column in columns for t in comparisons}
    caption(figure, cells, f"{comparisons[0].about} {about}")
    return figure


@drawing
def ablation_lambda(store: ResultStore) -> Figure:
    """Draw the scores over λ."""
    return sweep("ablation_lambda", "sparsity coefficient λ", store)


@drawing
def knn_k_ablation(store: ResultStore) -> Figure:
    """Draw the scores over the number of neighbours."""
    return sweep("knn_k_ablation", "neighbours k", store)


@drawing
def spectral_k_ablation(store: ResultStore) -> Figure:
    """Draw the scores and the training time over the number of clusters."""
    return sweep(
        "spectral_k_ablation", "clusters K", store, "Our training times and the paper's are from different machines."
    )


# ---- by epoch, by graph size ---------------------------------------------------------------------------------


@drawing
def collapse(store: ResultStore) -> Figure:
    """Draw the mean mask and the target score by epoch, for every gate and bound."""
    (table,) = tables("collapse", store)
    runs = {cell.row: cell.runs for cell in SUITES["collapse"].tables[0].cells}
    gates, bounds = (list(dict.fromkeys(row.split(", ")[i] for row in table.rows)) for i in range(2))
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    grid = figure.subplots(2, len(gates), sharex=True, sharey="row", squeeze=False)
    for column, gate in enumerate(gates):
        for bound, look in zip(bounds, LOOKS, strict=False):
            tasks = runs[f"{gate}, {bound}"].tasks()
            records = {(t.protocol.name, t.seed): r for t in tasks if (r := store.find(t)) and "failed" not in r}
            for axes, curve in zip(grid[:, column], (mean_mask, target_score), strict=True):
                epochs, points = by_epoch({unit: curve(record) for unit, record in records.items()})
                band(axes, epochs, points, look, markevery=(0.1, 0.2), markersize=4)
        grid[0, column].set_title(gate)
        grid[1, column].set_xlabel("epoch")
    grid[0, 0].set_ylabel("mean mask")
    grid[0, 0].set_ylim(-0.04, 1.04)
    grid[1, 0].set_ylabel("micro-F1, %")
    legend(figure, dict(zip(bounds, LOOKS, strict=False)), "", lines=True)
    cells = {
        (gate, bound, ""): table.cell(f"{gate}, {bound}", "micro-F1, last epoch") for gate in gates for bound in bounds
    }
    about = (
        "GAT on the citation networks, averaged over the transfers. Top: the mask of the sources' original edges. "
        "Bottom: the score on the target, which is used for this figure only."
    )
    caption(figure, cells, about)
    return figure


Curve = dict[int, float]


def mean_mask(record: Mapping[str, Any]) -> Curve:
    """Return the mean mask of the original edges by epoch, averaged over the sources."""
    curves = [c for name, c in record["curves"].items() if name.startswith("mask original")]
    by = {epoch: [v for v in values if v is not None] for epoch, values in enumerate(zip(*curves, strict=True), 1)}
    return {epoch: float(np.mean(values)) for epoch, values in by.items() if values}


def target_score(record: Mapping[str, Any]) -> Curve:
    """Return the micro-F1 on the targets by epoch, in percent."""
    curve = record["rules"][ORACLE]["curve"]
    return {epoch: 100 * v for epoch, v in zip(curve["epoch"], curve["micro_f1"], strict=True)}


def by_epoch(curves: Mapping[tuple[str, int], Curve]) -> tuple[list[int], list[Cell]]:
    """Return the epochs, and for each of them a cell with the values of the curves.

    Args:
        curves: Curves by protocol and seed.
    """
    epochs = sorted({epoch for curve in curves.values() for epoch in curve})
    return epochs, [Cell({unit: curve[e] for unit, curve in curves.items() if e in curve}) for e in epochs]


@drawing
def complexity(store: ResultStore) -> Figure:
    """Draw the seconds over the number of nodes, a panel for each machine."""
    comparisons = tables("complexity", store)
    lines = -(-len(comparisons) // 3)
    figure = Figure(figsize=(WIDTH, 2.4 * lines + 1), layout="constrained")
    grid = figure.subplots(lines, min(3, len(comparisons)), squeeze=False).ravel()
    for axes in grid[len(comparisons) :]:
        axes.remove()
    for axes, table in zip(grid, comparisons, strict=False):
        sizes = {row: int(row.split()[0].replace(",", "")) for row in table.rows if row.endswith("nodes")}
        nodes = list(sizes.values())
        fitted = []
        for column, look in zip(COLUMNS.values(), LOOKS, strict=True):
            band(axes, nodes, [table.cell(row, column) for row in sizes], look)
            if (exponent := table.cell("exponent", column)).values:
                fitted.append(f"{column.removesuffix(', s')} {exponent.mean:.2f}")
        logarithmic(axes, "x")
        logarithmic(axes, "y")
        axes.set_title("\n".join([form(table), *(", ".join(fitted[i : i + 2]) for i in range(0, len(fitted), 2))]))
        axes.set_xlabel("nodes N")
        slopes(axes, nodes, table, next(iter(sizes)))
    grid[0].set_ylabel("seconds")
    legend(
        figure, {c.removesuffix(", s"): look for c, look in zip(COLUMNS.values(), LOOKS, strict=True)}, "", lines=True
    )
    write_caption(
        figure,
        "Filled: ours, one measurement per point. The fitted exponents of N are above each panel. Thin lines: the "
        "paper's analysis, N² for neighbours and an epoch, N³ for clusters and enrichment, from our smallest graph on.",
    )
    return figure


def slopes(axes: Axes, nodes: list[int], table: Comparison, first: str) -> None:
    """Draw the paper's N² from the first point of the neighbours and N³ from that of the clusters.

    Args:
        axes: The panel. The lines end within it.
        nodes: Numbers of nodes.
        table: The machine's table.
        first: Row of the smallest graph.
    """
    low, high = axes.get_ylim()
    high *= 8
    for column, power, sign in (("kNN, s", 2, "N²"), ("clusters, s", 3, "N³")):
        start = table.cell(first, column).mean
        end = min(nodes[0] * (high / start) ** (1 / power), max(nodes[-1], 2 * nodes[0]))
        axes.plot([nodes[0], end], [start, start * (end / nodes[0]) ** power], color=INK, linewidth=0.8, zorder=1)
        axes.annotate(sign, (end, start * (end / nodes[0]) ** power), (3, -3), textcoords="offset points", va="top")
    axes.set_ylim(low, high * 1.2)


def logarithmic(axes: Axes, which: str) -> None:
    """Make the `x` or `y` axis logarithmic, with plain tick labels.

    Ticks are at powers of ten; a short vertical axis has them at 1, 2 and 5 times each power.
    """
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if which == "y" and high < 50 * low else (1,), numticks=9))
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v / 1e6:g}M" if v >= 1e6 else f"{v:,g}"))
    axis.set_minor_locator(NullLocator())


# ---- theory ----------------------------------------------------------------------------------------------------


@drawing
def theory(store: ResultStore) -> Figure:
    """Draw the theory's quantities by form of the game and transfer."""
    (table,) = tables("theory", store)
    cells = {
        (row.replace("`", ""), panel, series): table.cell(row, column)
        for row in table.rows
        for column, (panel, series) in CHECKS.items()
    }
    about = (
        "Measured on the first source of each transfer after training. KKT gap: 0 at a KKT point, 1 at the worst mask. "
        "AUC: how well the mask ranks the edges that the surrogate keeps. A duality gap cannot be below 0; errors "
        "should be near 0."
    )

    def tune(panel: str, axes: Axes) -> None:
        if panel == ERRORS:
            axes.set_xscale("symlog", linthresh=1e-8)
            axes.set_xticks([0, 1e-4, 1], ["0", "10⁻⁴", "1"])
            axes.xaxis.set_minor_locator(NullLocator())

    looks = (*LOOKS, Look(ORANGE, "v"), Look(SKY, "P"), Look(INK, "X"))
    return dot_grid(cells, about=about, looks=looks, tune=tune)


LEARNED, PERMUTED, ASCENT, ERRORS = (
    "learned mask",
    "its values, permuted",
    "best of several ascents",
    "errors and gaps",
)
CHECKS = {
    "KKT gap, learned": ("KKT gap", LEARNED),
    "KKT gap, randomly permuted": ("KKT gap", PERMUTED),
    "KKT gap, ascent": ("KKT gap", ASCENT),
    "loss, learned": ("loss", LEARNED),
    "loss, randomly permuted": ("loss", PERMUTED),
    "surrogate agreement (AUC)": ("surrogate, AUC", LEARNED),
    "surrogate: |primal - dual|": (ERRORS, "surrogate, |primal − dual|"),
    "smallest duality gap": (ERRORS, "smallest duality gap"),
    "TaskNet gradient error": (ERRORS, "TaskNet gradient"),
    "MaskNet gradient error": (ERRORS, "MaskNet gradient"),
}


# ---- the method ----------------------------------------------------------------------------------------------------

NODES = ((0.2, 1.0), (0.62, 1.22), (1.0, 0.98), (0.45, 0.6), (0.9, 0.45), (1.35, 1.2), (1.5, 0.7), (0.12, 0.35))
ORIGINAL = ((0, 1), (0, 3), (1, 2), (2, 5), (3, 4), (2, 6))
NEIGHBOURS, CLUSTERED = ((1, 5), (3, 7), (4, 6)), ((0, 7), (2, 4), (5, 6))
EDGES = (
    ("original edges", ORIGINAL, INK, "-"),
    ("kNN: near in features", NEIGHBOURS, BLUE, "--"),
    ("spectral: same cluster", CLUSTERED, GREEN, ":"),
)


@drawing
def flow(store: ResultStore) -> Figure:
    """Draw our version of the paper's Figure 1. It does not use the store."""
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, WIDTH), ylim=(0, 2.75), aspect="equal")
    axes.axis("off")
    for left, width, title in (
        (0.03, 1.9, "1  Enrich each source"),
        (2.3, 2.1, "2  Train by a min–max game"),
        (4.77, 1.7, "3  Classify the target"),
    ):
        box(axes, left, 0.05, width, 2.4, FAINT)
        axes.text(left + 0.05, 2.55, title, fontweight="bold")
    for number, (name, edges, colour, line) in enumerate(EDGES):
        graph(axes, 0.2, 1.05, edges, colour, line)
        height = 0.87 - 0.2 * number
        axes.plot([0.13, 0.43], [height] * 2, color=colour, linestyle=line, linewidth=1.4)
        axes.text(0.5, height, name, va="center")
    axes.text(0.98, 0.22, "a new sample every epoch", ha="center", va="center", style="italic")
    for low, colour, name, text in (
        (1.6, VERMILION, "MaskNet", "chooses s to raise the loss,\nlimited by λ or a budget ρ"),
        (0.2, BLUE, "TaskNet", "learns to lower the loss\nunder the mask s"),
    ):
        box(axes, 2.42, low, 1.86, 0.72, colour)
        axes.text(3.35, low + 0.57, name, ha="center", va="center", fontweight="bold")
        axes.text(3.35, low + 0.25, text, ha="center", va="center", linespacing=1.3)
    for start, end, x, text, side in (
        (1.57, 0.95, 3.1, "mask of\neach edge", "right"),
        (0.95, 1.57, 3.6, "loss on\nthe labels", "left"),
    ):
        arrow(axes, (x, start), (x, end))
        axes.text(x + (0.08 if side == "left" else -0.08), 1.26, text, ha=side, va="center")
    arrow(axes, (1.97, 1.25), (2.27, 1.25))
    arrow(axes, (4.44, 0.56), (4.74, 0.56))
    graph(axes, 4.82, 1.05, ORIGINAL, INK, "-")
    axes.text(5.62, 1.02, "original graph,\nno enrichment, s = 1", ha="center", va="center", linespacing=1.3)
    box(axes, 4.97, 0.42, 1.3, 0.3, BLUE)
    axes.text(5.62, 0.57, "TaskNet", ha="center", va="center", fontweight="bold")
    axes.text(5.62, 0.22, "class of every node", ha="center", va="center")
    write_caption(
        figure,
        "EdgeMask-DG*, after the paper's Figure 1: enrichment with edges derived from the features, a min–max game of "
        "two networks over the edge mask, and a target that neither network has seen.",
    )
    return figure


def box(axes: Axes, left: float, bottom: float, width: float, height: float, colour: str) -> None:
    """Draw a rounded rectangle.

    Args:
        axes: Where to draw.
        left: Left end in data coordinates.
        bottom: Lower end.
        width: Width.
        height: Height.
        colour: Colour of the border.
    """
    shape = "round,pad=0,rounding_size=0.06"
    patch = FancyBboxPatch((left, bottom), width, height, shape, facecolor="none", edgecolor=colour, linewidth=1.2)
    axes.add_patch(patch)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw an arrow between two points.

    Args:
        axes: Where to draw.
        start: Where it begins (x, y).
        end: Where its head is (x, y).
    """
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, color=INK, shrinkA=0, shrinkB=0))


def graph(axes: Axes, left: float, bottom: float, edges: Sequence[tuple[int, int]], colour: str, line: str) -> None:
    """Draw the nodes of the small graph and some of its edges.

    Args:
        axes: Where to draw.
        left: Left end of the graph in data coordinates.
        bottom: Lower end.
        edges: Pairs of indices of `NODES`.
        colour: Colour of the edges.
        line: Line style of the edges.
    """
    at = np.add(NODES, (left - 0.03, bottom - 0.12))
    for ends in edges:
        axes.plot(*at[list(ends)].T, color=colour, linestyle=line, linewidth=1.4, zorder=1)
    axes.plot(*at.T, "o", color=VERMILION, markersize=5, zorder=2)
