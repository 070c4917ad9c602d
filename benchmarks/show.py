"""How figures are shown: tables in Markdown, times, sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Record = dict[str, Any]
GIB = 2**10  # MiB


def machine_name(record: Record) -> str:
    return str(record["machine"]["device"])


def on_cpu(record: Record) -> bool:
    return bool(record["machine"]["kind"] == "cpu")


def peak_mib(peak: dict[str, dict[str, float]], record: Record) -> float:
    """The most the process held, of the device's memory on a GPU."""
    return peak["process"]["host" if on_cpu(record) else "device"]


def over_inputs(peak: dict[str, dict[str, float]], record: Record) -> float:
    where = "host" if on_cpu(record) else "device"
    return peak["block"][where] - peak["inputs"][where]


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def time(seconds: float) -> str:
    if seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def size(mib: float) -> str:
    return f"{mib / GIB:.2f} GiB" if mib >= GIB / 10 else f"{mib:.0f} MiB"
