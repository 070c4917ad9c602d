"""Data embedded in the report page: blocks of deflated JSON in base64, which the page unpacks when it needs them.

Records are in the order of the store and are referred to by their index. Curves are rounded. If the page would become
too large, it omits the curves of later seeds and the views of the mask that do not fit.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

import numpy as np

from edgemask.config import Recipe
from edgemask.experiments.record_schema import pack, unpack
from edgemask.experiments.records import Record, ResultStore
from edgemask.report.comparison import Cell, Comparison, Unit
from edgemask.report.render import cell_text, difference_text, p_text, paper_text, row_rules
from edgemask.report.statistics import Versus

PER_BLOCK = 64  # records, or curves of records, in one block
DIGITS = 4  # digits kept of a curve's largest value
ROOM = 7 * 2**20  # bytes for all blocks and the plotting library; the rest of 8 MiB is for the tables
VIEW_ROOM = 3 * 2**20  # bytes of ROOM for views of the mask
EFFORT = 7  # compression level of deflate: level 9 takes up to five times as long and saves 1.5 %
DEFAULTS = Recipe().to_json()
T = TypeVar("T")
Tested = tuple[Comparison, Sequence[Versus]]


@dataclass(frozen=True)
class Embedded:
    """The blocks of a page.

    Args:
        blocks: Text of each block by its id in the page.
        views: Descriptions of the views, in the order of the blocks "view-0", "view-1", …
        views_left_out: Number of views that did not fit.
        curves: Number of records whose curves are embedded.
        curves_left_out: Number of records whose curves did not fit.
    """

    blocks: dict[str, str]
    views: list[dict[str, Any]]
    views_left_out: int
    curves: int
    curves_left_out: int


def embed(store: ResultStore, tables: Mapping[str, Sequence[Tested]], library: str) -> Embedded:
    """Return all blocks of a page: tables, records, the plotting library, and the views and curves that fit.

    Args:
        store: The records.
        tables: The tables of each section with their tests.
        library: JavaScript of the plotting library.
    """
    indices = {r["key"]: n for n, r in enumerate(store.records)}
    blocks = {"library": _deflated(library.encode())}
    for name, section in tables.items():
        blocks[f"suite-{name}"] = packed([_table(c, tests, store.records, indices) for c, tests in section])
    for n, batch in enumerate(_batches(store.records)):
        blocks[f"records-{n}"] = packed([_record(r, store) for r in batch])
    view_blocks, descriptions, left_out = views(store.records, VIEW_ROOM)
    blocks |= view_blocks
    curve_blocks, where = curves(store.records, ROOM - sum(map(len, blocks.values())))
    blocks |= curve_blocks
    runs = [[r["benchmark"], r.get("method", r.get("kind", "")), r["protocol"]["name"], r["seed"]] for r in store]
    drawn = [n for n, place in enumerate(where) if place]
    listed = (indices[key] for section in tables.values() for c, _ in section for key in c.keys)
    masked = (n for n in listed if where[n] and any(name.startswith("mask ") for name in store.records[n]["curves"]))
    first = next(masked, drawn[0] if drawn else None)  # the run that the page shows first: one with masks if possible
    blocks["index"] = packed({"runs": runs, "curves": where, "per_block": PER_BLOCK, "first": first})
    return Embedded(blocks, descriptions, left_out, len(drawn), sum(bool(r.get("curves")) for r in store) - len(drawn))


def _deflated(data: bytes) -> str:
    """Return deflated bytes in base64."""
    return base64.b64encode(zlib.compress(data, EFFORT)).decode()


def packed(value: Any) -> str:
    """Return a value as deflated JSON in base64."""
    try:
        return _deflated(_compact_json(value))
    except ValueError:  # NaN or infinity: rare, and checking every record would be slower
        return _deflated(_compact_json(plain(value)))


def _compact_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _batches(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Return the values in groups of at most PER_BLOCK."""
    return (values[start : start + PER_BLOCK] for start in range(0, len(values), PER_BLOCK))


def plain(value: Any) -> Any:
    """Return a value with NaN and infinity replaced by strings, because JSON has no such numbers."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


# ---- tables ----------------------------------------------------------------------------------------------


def _table(
    c: Comparison, tests: Sequence[Versus], records: Sequence[Record], indices: Mapping[str, int]
) -> dict[str, Any]:
    """Return what the cells of a table open: the runs behind each cell, and the comparisons of its row."""
    cells = {(r, k): c.cell(row, column) for r, row in enumerate(c.rows) for k, column in enumerate(c.columns)}
    return {
        "title": c.title,
        "rows": c.rows,
        "columns": c.columns,
        "decimals": c.decimals,
        "selection": [row_rules(c, row) for row in c.rows],
        "cells": [[r, k, _cell(cell, c.decimals, records, indices)] for (r, k), cell in cells.items() if cell.keys],
        "versus": [_versus(v) for v in tests if v.pairs],
    }


def _cell(cell: Cell, decimals: int, records: Sequence[Record], indices: Mapping[str, int]) -> dict[str, Any]:
    """Return a cell with its value and its records for each protocol and seed.

    A value has two records if it is the difference of two runs.
    """
    runs: dict[Unit, list[int]] = {}
    for key in cell.keys:
        record = records[indices[key]]
        unit = f"{record['benchmark']} {record['protocol']['name']}", record["seed"]
        runs.setdefault(unit, []).append(indices[key])

    def value(unit: Unit) -> float | str | None:
        record = records[runs[unit][0]]
        in_benchmark = record["protocol"]["name"], record["seed"]  # the unit in a table of one benchmark
        failed = any("failed" in records[n] for n in runs[unit])
        return "failed" if failed else finite(cell.values.get(unit, cell.values.get(in_benchmark, math.nan)))

    return {
        "ours": cell_text(cell, decimals),
        "paper": paper_text(cell, decimals),
        "difference": difference_text(cell, decimals),
        "rules": cell.rules,
        "failed": cell.failed,
        "absent": cell.absent,
        "units": [[*unit, value(unit), numbers] for unit, numbers in runs.items()],
    }


def _versus(v: Versus) -> dict[str, Any]:
    """Return a comparison as the page shows it."""
    numbers = {name: finite(getattr(v, name)) for name in ("difference", "low", "high")}
    tests = {"p": p_text(v.p), "adjusted": p_text(v.adjusted), "pairs": v.pairs}
    return {"family": v.family, "row": v.row, "other": v.other} | numbers | tests


def finite(value: float) -> float | None:
    """Return a number rounded to seven digits, or None for NaN and infinity."""
    return float(f"{value:.7g}") if math.isfinite(value) else None


# ---- records and curves ----------------------------------------------------------------------------------


def _record(record: Record, store: ResultStore) -> Record:
    """Return a record without curves, views and settings at their defaults, but with the name of its file."""
    kept = {k: v for k, v in record.items() if k not in ("curves", "explorer")}
    kept["recipe"] = {k: v for k, v in kept["recipe"].items() if k not in DEFAULTS or v != DEFAULTS[k]}
    return kept | {"file": store.path_of(record).relative_to(store.root).as_posix()}


def curves(records: Sequence[Record], room: int) -> tuple[dict[str, str], list[list[int] | None]]:
    """Return blocks of curves of at most `room` bytes, and where the curves of each record are.

    The curves of the first seed of all runs come before those of the second seed. The location is [block, index in the
    block], or None if a record's curves are not embedded.
    """
    blocks: dict[str, str] = {}
    where: list[list[int] | None] = [None] * len(records)
    for n, batch in enumerate(_by_seed(records)):
        block = packed([{name: coded(c) for name, c in records[i]["curves"].items()} for i in batch])
        room -= len(block)
        if room < 0:
            break
        blocks[f"curves-{n}"] = block
        for place, i in enumerate(batch):
            where[i] = [n, place]
    return blocks, where


def _by_seed(records: Sequence[Record]) -> Iterator[Sequence[int]]:
    """Yield the indices of all records with curves in batches of one seed each."""
    with_curves = sorted((r["seed"], n) for n, r in enumerate(records) if r.get("curves"))
    for _, group in groupby(with_curves, key=lambda pair: pair[0]):
        yield from _batches([n for _, n in group])


def coded(curve: Sequence[float | None]) -> list[Any]:
    """Return a curve as [e, steps]: the running sum of the steps divided by 10^e is the curve.

    Values are rounded to four digits of the largest value. A missing value is None. The steps of a smooth curve are
    small numbers, which compress well.

    >>> coded([1.5, None, 1.25])
    [3, [1500, None, -250]]
    """
    values = np.array(curve, dtype=np.float64)
    present = np.isfinite(values)
    largest = float(np.abs(values[present]).max(initial=0.0))
    e = min(DIGITS - 1 - math.floor(math.log10(largest)), 300) if largest > 0 else 0
    steps = np.diff(np.rint(values[present] * 10.0**e), prepend=0).astype(np.int64).tolist()
    if present.all():
        return [e, steps]
    rest = iter(steps)
    return [e, [next(rest) if step else None for step in present]]


def decoded(e: int, steps: Iterable[int | None]) -> list[float | None]:
    """Return the curve that `coded` encoded."""
    total, curve = 0, list[float | None]()
    for step in steps:
        total += step or 0
        curve.append(None if step is None else total / 10.0**e)
    return curve


# ---- views of the mask -----------------------------------------------------------------------------------


def views(records: Sequence[Record], room: int) -> tuple[dict[str, str], list[dict[str, Any]], int]:
    """Return blocks of views of at most `room` bytes, a description of each view, and the number that did not fit.

    `test_graph` and `test_mask` in a block tell which edges the prediction uses, and with which weights.
    """
    blocks, about, left_out = dict[str, str](), list[dict[str, Any]](), 0
    for n, record in enumerate(records):
        for graph, view in record.get("explorer", {}).items():
            used = {name: record["recipe"].get(name, DEFAULTS[name]) for name in ("test_graph", "test_mask")}
            block = packed(compact(view) | used)
            if len(block) > room:
                left_out += 1
                continue
            room -= len(block)
            blocks[f"view-{len(about)}"] = block
            protocol = record["protocol"]["name"]
            names = {"graph": graph, "benchmark": record["benchmark"], "protocol": protocol}
            about.append(names | {"nodes": view["nodes"], "record": n})
    return blocks, about, left_out


def compact(view: Mapping[str, Any]) -> dict[str, Any]:
    """Return a view (`edgemask.experiments.extras.explore`) in about two thirds of its size.

    Edges are sorted by target. Each source is stored as the difference to the previous source, and the four bytes of
    these differences are stored as four separate arrays.
    """
    src, dst = unpack(view["src"], np.uint32).astype(np.int64), unpack(view["dst"], np.uint32).astype(np.int64)
    order = np.lexsort((src, dst))
    src, dst = src[order], dst[order]
    first = np.diff(dst, prepend=-1) != 0
    gaps = np.where(first, src, np.diff(src, prepend=0))
    planes = [pack(gaps >> shift & 255, np.uint8, EFFORT) for shift in (0, 8, 16, 24)]
    edges = {name: pack(unpack(view[name], np.uint8)[order], np.uint8, EFFORT) for name in ("origin", "mask")}
    same = {name: view[name] for name in ("nodes", "classes", "origins", "alpha", "true", "before", "after")}
    degrees = pack(np.bincount(dst, minlength=view["nodes"]), np.uint32, EFFORT)
    return same | edges | {"degree": degrees, "gaps": planes}
