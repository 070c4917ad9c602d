"""The growth plot as an SVG. It is written without a plotting library, so the same records give the same file."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Any

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 400, 60, 20, 170, 45
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def growth_plot(records: Sequence[dict[str, Any]]) -> str:
    """Plot seconds of enrichment and of an epoch against nodes, on logarithmic axes, with lines for each machine.

    Raises:
        ValueError: There are no records.
    """
    lines = {}
    for record in records:
        sizes, machine = record["figures"]["points"], record["machine"]["device"]
        lines[f"enrichment, {machine}"] = [(p["nodes"], p["enrich"]) for p in sizes]
        lines[f"epoch, {machine}"] = [(p["nodes"], p["epoch"]) for p in sizes]
    if not lines:
        raise ValueError("there is no record of growth to plot: measure it with `python -m benchmarks --part growth`")
    points = [point for line in lines.values() for point in line]
    (x0, x1), (y0, y1) = (
        (floor(min(map(log10, axis))), ceil(max(map(log10, axis)))) for axis in zip(*points, strict=True)
    )

    def at(nodes: float, seconds: float) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * (log10(nodes) - x0) / max(x1 - x0, 1)
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (log10(seconds) - y0) / max(y1 - y0, 1)
        return f"{x:.1f} {y:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"',
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for power in range(x0, x1 + 1):
        x, y = at(10.0**power, 10.0**y0).split()
        parts.append(f'<path d="M{at(10.0**power, 10.0**y0)} L{at(10.0**power, 10.0**y1)}" stroke="#ddd"/>')
        parts.append(f'<text x="{x}" y="{float(y) + 16:.1f}" text-anchor="middle">{label(power)}</text>')
    for power in range(y0, y1 + 1):
        x, y = at(10.0**x0, 10.0**power).split()
        parts.append(f'<path d="M{at(10.0**x0, 10.0**power)} L{at(10.0**x1, 10.0**power)}" stroke="#ddd"/>')
        parts.append(f'<text x="{float(x) - 6:.1f}" y="{float(y) + 4:.1f}" text-anchor="end">{label(power)} s</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">nodes</text>')
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " L".join(at(*point) for point in line)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for point in line:
            x, y = at(*point).split()
            parts.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 10}" y="{TOP + 16 + 18 * number}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def label(power: int) -> str:
    """Return the label of a power of ten."""
    return "10" + str(power).translate(SUPERSCRIPT)
