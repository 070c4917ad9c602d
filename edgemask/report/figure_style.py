"""How figures look, and the parts they are built of: dots in rows, bands over a setting, a caption, SVG of two schemes.

Text and axes are drawn in one colour, INK, which in an SVG becomes `currentColor` and follows the reader's scheme; data
in colours that stand out on white and on dark and differ in every common colour blindness, and each in a shape too.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from edgemask.report.comparison import Cell
from edgemask.report.statistics import LEVEL, bootstrap

WIDTH = 6.5  # inches: the paper's column
POINTS = 8  # size of all text in print
LISTED = 8  # of what is missing, by name
INK, INK_ON_DARK, FAINT = "#1b1b1b", "#e6e6e6", "#8c8c8c"
SIZES = ("font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize")
COLOURS = ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color", "ytick.color")
RC: Any = {
    **dict.fromkeys((*SIZES, "figure.labelsize"), POINTS),
    **dict.fromkeys(COLOURS, INK),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    **dict.fromkeys(("legend.frameon", "axes.spines.top", "axes.spines.right"), False),
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that layouts are the same everywhere
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.alpha": 0.35,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.5,
    "svg.fonttype": "none",  # text stays text
    "pdf.fonttype": 42,
}
STYLE = (
    f".edgemask-figure{{color:{INK}}}"
    f"@media (prefers-color-scheme: dark){{.edgemask-figure{{color:{INK_ON_DARK}}}}}"
    ".edgemask-figure *{stroke-linejoin:round;stroke-linecap:butt}"
)


@dataclass(frozen=True)
class Look:
    colour: str
    marker: str
    line: Any = "-"


BLUE, VERMILION, GREEN, PINK, ORANGE, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"
LOOKS = (Look(BLUE, "o"), Look(VERMILION, "s", "--"), Look(GREEN, "^", "-."), Look(PINK, "D", (0, (1, 1))))
PAPER = Look(INK, "d", (0, (1, 2)))
OPEN: dict[str, Any] = {"mec": INK, "mfc": "none", "mew": 0.9, "markersize": 6.5}
THEIRS = "the paper's figure"
DEVIATION, INTERVAL = "mean ± standard deviation", f"mean and {100 * LEVEL:.0f} % bootstrap interval"
Key = tuple[str, str, str]  # row, panel, series


# ---- what a figure says of itself ------------------------------------------------------------------------


def there(cell: Cell) -> bool:
    """Whether a cell has something of ours to draw."""
    return bool(cell.values) and all(map(isfinite, cell.values.values()))


def alive(cells: Mapping[Key, Cell], place: int) -> list[str]:
    """The rows, panels or series of which there is anything of ours, in their order."""
    held = {key[place] for key, cell in cells.items() if there(cell)}
    return [name for name in dict.fromkeys(key[place] for key in cells) if name in held]


def spread(cell: Cell, interval: bool) -> list[float]:
    """How far an error bar reaches below and above the mean: the deviation over seeds or, with `interval`, the
    bootstrap interval of their mean; nowhere where there is one seed."""
    ends = bootstrap(list(cell.by_seed.values())) if interval else (cell.mean - cell.std, cell.mean + cell.std)
    return [float(max(0.0, np.nan_to_num(d))) for d in (cell.mean - ends[0], ends[1] - cell.mean)]


def not_run(cells: Mapping[Key, Cell]) -> list[str]:
    """What is left out, in as few words as will do: rows, panels and series without any value, then single cells."""
    held = [set(alive(cells, place)) for place in range(3)]
    gone = [key for key, cell in cells.items() if not there(cell)]
    whole = [[name for name, some in zip(key, held, strict=True) if name not in some] for key in gone]
    names = [w[0] if w else ", ".join(n for n in key if n) for w, key in zip(whole, gone, strict=True)]
    return list(dict.fromkeys(" ".join(name.split()) for name in names))


def caption(figure: Figure, cells: Mapping[Key, Cell], text: str = "", bars: str = DEVIATION) -> None:
    """Under a figure: whose marks are whose, seeds, selection rules, and what is missing."""
    held = [cell for cell in cells.values() if there(cell)]
    seeds = [len(cell.by_seed) for cell in held]
    rules = sorted({rule for cell in held for rule in cell.rules if not rule.startswith("none")})
    few = f"{min(seeds)}–{max(seeds)}" if min(seeds) < max(seeds) else f"{max(seeds)}"
    marks = f"Filled: ours, {bars} over {few} seeds" if max(seeds) > 1 else "Filled: ours, one seed"
    marks += f" (selection rule: {', '.join(rules)})." if rules else "."
    if any(cell.paper for cell in cells.values()):
        marks += " Open: the paper's own figures."
    if missing := not_run(cells):
        more = [f"and {len(missing) - LISTED} more"] if missing[LISTED:] else []
        text += f" Not run: {'; '.join(missing[:LISTED] + more).removesuffix('.')}."
    if part := sum(bool(cell.absent) for cell in held):
        text += f" Some runs are missing behind {part} of the {len(held)} values."
    if failed := sum(cell.failed for cell in held):
        text += f" Failed runs are in no mean: {failed} times."
    write_caption(figure, f"{marks} {text}")


def write_caption(figure: Figure, text: str) -> None:
    figure.supxlabel(textwrap.fill(" ".join(text.split()), 104), x=0.01, ha="left", linespacing=1.3)


def legend(figure: Figure, named: Mapping[str, Look], paper: str, *, lines: bool = False) -> None:
    """Above a figure, outside the data: the mark of each series, and the paper's open one where there is any."""
    handles = [
        Line2D([], [], color=k.colour, marker=k.marker, linestyle=k.line if lines else "", label=name)
        for name, k in named.items()
    ]
    if paper:
        dots: Any = PAPER.line if lines else ""
        handles.append(Line2D([], [], color=INK, marker=paper, linestyle=dots, label=THEIRS, **OPEN))
    columns = 3 if len(handles) > 4 else 4
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, columnspacing=1.2, handlelength=2.4)


# ---- dots in rows ----------------------------------------------------------------------------------------


def dot_grid(
    cells: Mapping[Key, Cell],
    *,
    about: str = "",
    looks: Sequence[Look] = LOOKS,
    dodge: bool = True,
    paper_once: bool = False,
    share: bool = False,
    interval: bool = False,
    pitch: float = 0.0,
    tune: Callable[[str, Axes], object] = lambda panel, axes: None,
) -> Figure:
    """Panels side by side, a row for each thing, a mark for each series: ours filled, the paper's open, in the series'
    shape or, where all series have the same figure of it, once (`paper_once`).

    With `dodge` the series of a row lie under each other; with `share` all panels have one scale; `tune` may change a
    panel once it is drawn. Rows, panels and series without anything of ours are left out; the caption names them.
    """
    rows, panels, series = (alive(cells, place) for place in range(3))
    style = dict(zip(series, looks, strict=False))
    mine = {panel: [s for s in series if any((row, panel, s) in cells for row in rows)] for panel in panels}
    quoted = any(c.paper for c in cells.values() if there(c))
    slots = {panel: len(mine[panel]) + (paper_once and quoted) if dodge else 1 for panel in panels}
    pitch = pitch or 0.11 * max(slots.values()) + 0.12
    figure = Figure(figsize=(WIDTH, pitch * len(rows) + 1.4), layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True, sharex=share, squeeze=False)[0]
    for axes, panel in zip(grid, panels, strict=True):
        for number, s in enumerate(mine[panel]):
            offset = ((number + 0.5) / slots[panel] - 0.5) * 0.7 if dodge else 0.0
            held = {y + offset: c for y, row in enumerate(rows) if there(c := cells.get((row, panel, s), Cell()))}
            bars(axes, held, style[s], interval)
            if not paper_once:
                opened(axes, {y: c.paper[0] for y, c in held.items() if c.paper}, style[s].marker)
        for y, row in enumerate(rows):
            beside = [cells[row, panel, s] for s in mine[panel] if (row, panel, s) in cells]
            if beside and not any(there(c) for c in beside):
                axes.text(0.5, y, "not run", transform=axes.get_yaxis_transform(), ha="center", va="center", alpha=0.7)
            elif paper_once and (figures := [c.paper[0] for c in beside if c.paper]):
                opened(axes, {y + (0.5 - 0.5 / slots[panel]) * 0.7: figures[0]}, PAPER.marker)
        axes.set_title(panel, loc="left" if len(panels) == 1 else "center")
        axes.set_yticks(range(len(rows)), [textwrap.fill(row, 45 if len(panels) == 1 else 27) for row in rows])
        axes.set_ylim(len(rows) - 0.45, -0.55)
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.08)
        axes.locator_params(axis="x", nbins=max(3, 9 // len(panels) + 1))
        tune(panel, axes)
    legend(figure, style, (PAPER.marker if paper_once else style[series[0]].marker) if quoted else "")
    caption(figure, cells, about, INTERVAL if interval else DEVIATION)
    return figure


def bars(axes: Axes, cells: Mapping[float, Cell], look: Look, interval: bool) -> None:
    """Ours at each height: the mean, and how far it spreads."""
    if cells:
        reach = np.transpose([spread(c, interval) for c in cells.values()])
        mean = [c.mean for c in cells.values()]
        axes.errorbar(mean, list(cells), xerr=reach, fmt=look.marker, color=look.colour, elinewidth=1.2, zorder=3)


def opened(axes: Axes, values: Mapping[float, float], marker: str) -> None:
    """The paper's at each height."""
    axes.plot(list(values.values()), list(values), marker, **OPEN, zorder=4)


# ---- lines over a setting --------------------------------------------------------------------------------


def band(axes: Axes, x: Sequence[float], cells: Sequence[Cell], look: Look, **options: Any) -> None:
    """Means joined by a line, broken where one is missing, in a band of their deviations."""
    mean, reach = (np.array([getattr(cell, name) for cell in cells]) for name in ("mean", "std"))
    axes.plot(x, mean, color=look.colour, marker=look.marker, linestyle=look.line, zorder=3, **options)
    axes.fill_between(x, mean - reach, mean + reach, color=look.colour, alpha=0.2, linewidth=0, zorder=2)


def quoted_line(axes: Axes, x: Iterable[float], cells: Sequence[Cell], line: Any = PAPER.line) -> None:
    """The paper's figures: open marks, joined by a dotted line, with its deviations where it gives them."""
    points = [(at, *cell.paper, 0.0)[:3] for at, cell in zip(x, cells, strict=True) if cell.paper]
    if points:
        at, mean, reach = zip(*points, strict=True)
        bars: dict[str, Any] = {"yerr": reach, "elinewidth": 0.9} if any(reach) else {}
        axes.errorbar(at, mean, color=INK, marker=PAPER.marker, linestyle=line, zorder=4, **bars, **OPEN)


# ---- files -----------------------------------------------------------------------------------------------


def svg(figure: Figure, name: str, title: str) -> str:
    """A figure as SVG text without a background, the same bytes for the same figure, that follows the reader's scheme.

    What it styles is its own: several may stand in one page.
    """
    sink = io.StringIO()
    with matplotlib.rc_context(RC | {"svg.hashsalt": name}):
        figure.savefig(sink, format="svg", metadata={"Title": title, "Date": None, "Creator": None})
    text = re.sub(r' id="[A-Za-z2.]+_\d+"', "", sink.getvalue())  # names of groups, which nothing refers to
    text = text.replace(INK, "currentColor").replace("<svg ", '<svg class="edgemask-figure" role="img" ', 1)
    return re.sub(r"<style[^>]*>.*?</style>", f"<style>{STYLE}</style>", text, count=1, flags=re.DOTALL)


def printed(figure: Figure, kind: str) -> bytes:
    """A figure on white, as "png" or "pdf", the same bytes for the same figure."""
    sink = io.BytesIO()
    metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None, "Creator": None, "Producer": None}}[kind]
    with matplotlib.rc_context(RC):
        figure.savefig(sink, format=kind, dpi=200, facecolor="white", metadata=metadata)
    return sink.getvalue()
