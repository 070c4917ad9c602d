"""Style and building blocks of the figures: dots in rows, bands over a setting, captions, SVG for light and dark pages.

Text and axes have one colour, INK. In an SVG it becomes `currentColor` and follows the reader's colour scheme. The
colours of the data are visible on light and on dark backgrounds, and readers with any common colour blindness can tell
them apart. Each series also has its own marker shape.
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

WIDTH = 6.5  # inches: width of the paper's column
POINTS = 8  # size of all text in print
LISTED = 8  # number of missing items that a caption names
INK, INK_ON_DARK, FAINT = "#1b1b1b", "#e6e6e6", "#8c8c8c"
SIZES = ("font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize")
COLOURS = ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color", "ytick.color")
RC: Any = {
    **dict.fromkeys((*SIZES, "figure.labelsize"), POINTS),
    **dict.fromkeys(COLOURS, INK),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    **dict.fromkeys(("legend.frameon", "axes.spines.top", "axes.spines.right"), False),
    "font.family": "DejaVu Sans",  # part of matplotlib, so layouts are the same on every machine
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.alpha": 0.35,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.5,
    "svg.fonttype": "none",  # keep text as text, not as outlines
    "pdf.fonttype": 42,
}
STYLE = (
    f".edgemask-figure{{color:{INK}}}"
    f"@media (prefers-color-scheme: dark){{.edgemask-figure{{color:{INK_ON_DARK}}}}}"
    ".edgemask-figure *{stroke-linejoin:round;stroke-linecap:butt}"
)


@dataclass(frozen=True)
class Look:
    """Colour, marker and line style of a series."""

    colour: str
    marker: str
    line: Any = "-"


BLUE, VERMILION, GREEN, PINK, ORANGE, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"
LOOKS = (Look(BLUE, "o"), Look(VERMILION, "s", "--"), Look(GREEN, "^", "-."), Look(PINK, "D", (0, (1, 1))))
PAPER = Look(INK, "d", (0, (1, 2)))
OPEN: dict[str, Any] = {"mec": INK, "mfc": "none", "mew": 0.9, "markersize": 6.5}
PAPER_LABEL = "the paper's figure"
DEVIATION, INTERVAL = "mean ± standard deviation", f"mean and {100 * LEVEL:.0f} % bootstrap interval"
Key = tuple[str, str, str]  # row, panel, series


# ---- captions and legends --------------------------------------------------------------------------------


def has_values(cell: Cell) -> bool:
    """Return whether a cell has values of ours, all of them finite."""
    return bool(cell.values) and all(map(isfinite, cell.values.values()))


def names_with_values(cells: Mapping[Key, Cell], place: int) -> list[str]:
    """Return the names of the rows (`place` 0), panels (1) or series (2) that have values of ours, in order."""
    names = {key[place] for key, cell in cells.items() if has_values(cell)}
    return [name for name in dict.fromkeys(key[place] for key in cells) if name in names]


def error_bar(cell: Cell, interval: bool) -> list[float]:
    """Return the lengths of an error bar below and above the mean; 0 if there is only one seed.

    Args:
        cell: The cell to draw.
        interval: Show the bootstrap interval of the mean over seeds instead of the standard deviation.
    """
    ends = bootstrap(list(cell.by_seed.values())) if interval else (cell.mean - cell.std, cell.mean + cell.std)
    return [float(max(0.0, np.nan_to_num(d))) for d in (cell.mean - ends[0], ends[1] - cell.mean)]


def not_run(cells: Mapping[Key, Cell]) -> list[str]:
    """Return the names of everything without values: whole rows, panels or series if possible, else single cells."""
    present = [set(names_with_values(cells, place)) for place in range(3)]
    missing = [key for key, cell in cells.items() if not has_values(cell)]
    whole = [[name for name, names in zip(key, present, strict=True) if name not in names] for key in missing]
    names = [w[0] if w else ", ".join(n for n in key if n) for w, key in zip(whole, missing, strict=True)]
    return list(dict.fromkeys(" ".join(name.split()) for name in names))


def caption(figure: Figure, cells: Mapping[Key, Cell], text: str = "", bars: str = DEVIATION) -> None:
    """Write the caption of a figure: the meaning of the marks, seeds, selection rules, and missing or failed runs.

    Args:
        figure: The figure.
        cells: The cells that the figure draws.
        text: Sentences to add.
        bars: Meaning of the error bars.
    """
    drawn = [cell for cell in cells.values() if has_values(cell)]
    seeds = [len(cell.by_seed) for cell in drawn]
    rules = sorted({rule for cell in drawn for rule in cell.rules if not rule.startswith("none")})
    count = f"{min(seeds)}–{max(seeds)}" if min(seeds) < max(seeds) else f"{max(seeds)}"
    marks = f"Filled: ours, {bars} over {count} seeds" if max(seeds) > 1 else "Filled: ours, one seed"
    marks += f" (selection rule: {', '.join(rules)})." if rules else "."
    if any(cell.paper for cell in cells.values()):
        marks += " Open: the paper's own figures."
    if missing := not_run(cells):
        more = [f"and {len(missing) - LISTED} more"] if missing[LISTED:] else []
        text += f" Not run: {'; '.join(missing[:LISTED] + more).removesuffix('.')}."
    if partial := sum(bool(cell.absent) for cell in drawn):
        text += f" Some runs are missing behind {partial} of the {len(drawn)} values."
    if failed := sum(cell.failed for cell in drawn):
        text += f" The means exclude failed runs ({failed})."
    write_caption(figure, f"{marks} {text}")


def write_caption(figure: Figure, text: str) -> None:
    """Write text under a figure, wrapped to its width."""
    figure.supxlabel(textwrap.fill(" ".join(text.split()), 104), x=0.01, ha="left", linespacing=1.3)


def legend(figure: Figure, named: Mapping[str, Look], paper: str, *, lines: bool = False) -> None:
    """Draw the legend above a figure.

    Args:
        figure: The figure.
        named: Style of each series.
        paper: Marker of the paper's figures. Empty if the figure shows none.
        lines: Show the line styles too.
    """
    handles = [
        Line2D([], [], color=k.colour, marker=k.marker, linestyle=k.line if lines else "", label=name)
        for name, k in named.items()
    ]
    if paper:
        dots: Any = PAPER.line if lines else ""
        handles.append(Line2D([], [], color=INK, marker=paper, linestyle=dots, label=PAPER_LABEL, **OPEN))
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
    """Draw panels side by side with one row per name and one mark per series: ours filled, the paper's open.

    Rows, panels and series without values of ours are left out; the caption names them.

    Args:
        cells: Cells by (row, panel, series).
        about: Sentences to add to the caption.
        looks: Styles of the series.
        dodge: Draw the series of a row below each other instead of at the same height.
        paper_once: Draw the paper's figure once per row, because it is the same for all series. Otherwise each series
            shows its own, with its own marker.
        share: Use one scale for all panels.
        interval: Show bootstrap intervals instead of standard deviations.
        pitch: Height of a row in inches; 0 chooses it by the number of series.
        tune: Called with the name and the axes of each panel after it is drawn, to change it.
    """
    rows, panels, series = (names_with_values(cells, place) for place in range(3))
    style = dict(zip(series, looks, strict=False))
    shown = {panel: [s for s in series if any((row, panel, s) in cells for row in rows)] for panel in panels}
    quoted = any(c.paper for c in cells.values() if has_values(c))
    slots = {panel: len(shown[panel]) + (paper_once and quoted) if dodge else 1 for panel in panels}
    pitch = pitch or 0.11 * max(slots.values()) + 0.12
    figure = Figure(figsize=(WIDTH, pitch * len(rows) + 1.4), layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True, sharex=share, squeeze=False)[0]
    for axes, panel in zip(grid, panels, strict=True):
        for number, s in enumerate(shown[panel]):
            offset = ((number + 0.5) / slots[panel] - 0.5) * 0.7 if dodge else 0.0
            by_height = {
                y + offset: c for y, row in enumerate(rows) if has_values(c := cells.get((row, panel, s), Cell()))
            }
            draw_means(axes, by_height, style[s], interval)
            if not paper_once:
                draw_paper(axes, {y: c.paper[0] for y, c in by_height.items() if c.paper}, style[s].marker)
        for y, row in enumerate(rows):
            in_row = [cells[row, panel, s] for s in shown[panel] if (row, panel, s) in cells]
            if in_row and not any(has_values(c) for c in in_row):
                axes.text(0.5, y, "not run", transform=axes.get_yaxis_transform(), ha="center", va="center", alpha=0.7)
            elif paper_once and (figures := [c.paper[0] for c in in_row if c.paper]):
                draw_paper(axes, {y + (0.5 - 0.5 / slots[panel]) * 0.7: figures[0]}, PAPER.marker)
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


def draw_means(axes: Axes, cells: Mapping[float, Cell], look: Look, interval: bool) -> None:
    """Draw the mean and the error bar of each cell at its height.

    Args:
        axes: Where to draw.
        cells: The cells by their height on the y axis.
        look: Colour and marker.
        interval: Draw confidence intervals instead of standard deviations.
    """
    if cells:
        reach = np.transpose([error_bar(c, interval) for c in cells.values()])
        mean = [c.mean for c in cells.values()]
        axes.errorbar(mean, list(cells), xerr=reach, fmt=look.marker, color=look.colour, elinewidth=1.2, zorder=3)


def draw_paper(axes: Axes, values: Mapping[float, float], marker: str) -> None:
    """Draw the paper's figures as open marks at their heights.

    Args:
        axes: Where to draw.
        values: The figures by their height on the y axis.
        marker: Marker of the points.
    """
    axes.plot(list(values.values()), list(values), marker, **OPEN, zorder=4)


# ---- lines over a setting --------------------------------------------------------------------------------


def band(axes: Axes, x: Sequence[float], cells: Sequence[Cell], look: Look, **options: Any) -> None:
    """Draw means as a line with a band of their deviations. The line has a gap where a mean is missing.

    Args:
        axes: Where to draw.
        x: Values of the setting.
        cells: The cell of each value.
        look: Colour, marker and style of the line.
        **options: Further options of `Axes.plot`, such as `label`.
    """
    mean, reach = (np.array([getattr(cell, name) for cell in cells]) for name in ("mean", "std"))
    axes.plot(x, mean, color=look.colour, marker=look.marker, linestyle=look.line, zorder=3, **options)
    axes.fill_between(x, mean - reach, mean + reach, color=look.colour, alpha=0.2, linewidth=0, zorder=2)


def quoted_line(axes: Axes, x: Iterable[float], cells: Sequence[Cell], line: Any = PAPER.line) -> None:
    """Draw the paper's figures as open marks joined by a dotted line, with error bars if the paper has deviations.

    Args:
        axes: Where to draw.
        x: Values of the setting.
        cells: The cell of each value. Cells without a figure of the paper are left out.
        line: Style of the line.
    """
    points = [(at, *cell.paper, 0.0)[:3] for at, cell in zip(x, cells, strict=True) if cell.paper]
    if points:
        at, mean, reach = zip(*points, strict=True)
        bars: dict[str, Any] = {"yerr": reach, "elinewidth": 0.9} if any(reach) else {}
        axes.errorbar(at, mean, color=INK, marker=PAPER.marker, linestyle=line, zorder=4, **bars, **OPEN)


# ---- files -----------------------------------------------------------------------------------------------


def svg(figure: Figure, name: str, title: str) -> str:
    """Return a figure as SVG text without a background. It follows the reader's colour scheme.

    The same figure always gives the same bytes. The styles apply to the figure only, so one page may contain several.

    Args:
        figure: The figure.
        name: Makes the ids of the SVG unique in a page.
        title: Title of the SVG.
    """
    sink = io.StringIO()
    with matplotlib.rc_context(RC | {"svg.hashsalt": name}):
        figure.savefig(sink, format="svg", metadata={"Title": title, "Date": None, "Creator": None})
    text = re.sub(r' id="[A-Za-z2.]+_\d+"', "", sink.getvalue())  # ids of groups, which nothing refers to
    text = text.replace(INK, "currentColor").replace("<svg ", '<svg class="edgemask-figure" role="img" ', 1)
    return re.sub(r"<style[^>]*>.*?</style>", f"<style>{STYLE}</style>", text, count=1, flags=re.DOTALL)


def printed(figure: Figure, kind: str) -> bytes:
    """Return a figure on white as "png" or "pdf". The same figure always gives the same bytes."""
    sink = io.BytesIO()
    metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None, "Creator": None, "Producer": None}}[kind]
    with matplotlib.rc_context(RC):
        figure.savefig(sink, format=kind, dpi=200, facecolor="white", metadata=metadata)
    return sink.getvalue()
