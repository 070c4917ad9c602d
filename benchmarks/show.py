"""Formatting of figures: Markdown tables, times and sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from edgemask.report.render import markdown_table, table_line

Record = dict[str, Any]
GIB = 2**10  # MiB


def machine_name(record: Record) -> str:
    """Return the name of the device of a record."""
    return str(record["machine"]["device"])


def on_cpu(record: Record) -> bool:
    """Return whether a record was measured on a CPU."""
    return bool(record["machine"]["kind"] == "cpu")


def peak_mib(peak: dict[str, dict[str, float]], record: Record) -> float:
    """Return the peak memory of the process in MiB: on the device if it is a GPU, else on the host."""
    return peak["process"]["host" if on_cpu(record) else "device"]


def over_inputs(peak: dict[str, dict[str, float]], record: Record) -> float:
    """Return the MiB by which the peak of the block exceeds the memory of its inputs."""
    where = "host" if on_cpu(record) else "device"
    return peak["block"][where] - peak["inputs"][where]


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table of cells that need not be strings."""
    return markdown_table(head, (table_line([str(cell) for cell in row]) for row in rows))


def time(seconds: float) -> str:
    """Format a time in ms, s or min."""
    if seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def size(mib: float) -> str:
    """Format a size in MiB or GiB."""
    return f"{mib / GIB:.2f} GiB" if mib >= GIB / 10 else f"{mib:.0f} MiB"
