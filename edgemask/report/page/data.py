"""What the report page embeds: blocks of deflated JSON in base64, which the page unpacks when they are asked for.

Records stand in the order of the store and are referred to by their place in it. Curves are rounded; a page that would
grow too large leaves the curves of later seeds out, and the views of the mask that do not fit.
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
from edgemask.experiments.extras import pack, unpack
from edgemask.experiments.records import Record, ResultStore
from edgemask.report.comparison import Cell, Comparison, Unit
from edgemask.report.render import number, ours, p_text, rules, spread
from edgemask.report.statistics import Versus

PER_BLOCK = 64  # records, or their curves, that are unpacked together
DIGITS = 4  # of a curve's largest value
ROOM = 7 * 2**20  # bytes of all blocks and the plotting library; the rest of 8 MiB is for the tables themselves
VIEW_ROOM = 3 * 2**20  # of them, for views of the mask
EFFORT = 7  # of deflate: 9 takes up to five times the time for 1.5 % less
DEFAULTS = Recipe().to_json()
T = TypeVar("T")
Tested = tuple[Comparison, Sequence[Versus]]


@dataclass(frozen=True)
class Embedded:
    """The blocks by the id they have in the page, and what of the store is in them."""

    blocks: dict[str, str]
    views: list[dict[str, Any]]  # what each view shows, in the order of the blocks "view-0", "view-1", …
    views_left_out: int
    curves: int
    curves_left_out: int


def embed(store: ResultStore, tables: Mapping[str, Sequence[Tested]], library: str) -> Embedded:
    """All blocks of a page: the tables by suite, every record, the plotting library, views, and the curves that fit."""
    places = {r["key"]: n for n, r in enumerate(store.records)}
    blocks = {"library": deflated(library.encode())}
    for name, suite in tables.items():
        blocks[f"suite-{name}"] = packed([table(c, tests, store.records, places) for c, tests in suite])
    for n, some in enumerate(batches(store.records)):
        blocks[f"records-{n}"] = packed([shown(r, store) for r in some])
    held, shown_views, left_out = views(store.records, VIEW_ROOM)
    blocks |= held
    curve_blocks, where = curves(store.records, ROOM - sum(map(len, blocks.values())))
    blocks |= curve_blocks
    runs = [[r["benchmark"], r.get("method", r.get("kind", "")), r["protocol"]["name"], r["seed"]] for r in store]
    drawn = [n for n, place in enumerate(where) if place]
    listed = (places[key] for suite in tables.values() for c, _ in suite for key in c.keys)
    games = (n for n in listed if where[n] and any(name.startswith("mask ") for name in store.records[n]["curves"]))
    first = next(games, drawn[0] if drawn else None)  # what the page shows to begin with
    blocks["index"] = packed({"runs": runs, "curves": where, "per_block": PER_BLOCK, "first": first})
    return Embedded(blocks, shown_views, left_out, len(drawn), sum(bool(r.get("curves")) for r in store) - len(drawn))


def deflated(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, EFFORT)).decode()


def packed(value: Any) -> str:
    try:
        return deflated(compact_json(value))
    except ValueError:  # a number that JSON has not: rare, and to look for it in every record takes longer
        return deflated(compact_json(plain(value)))


def compact_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def batches(values: Sequence[T]) -> Iterator[Sequence[T]]:
    return (values[start : start + PER_BLOCK] for start in range(0, len(values), PER_BLOCK))


def plain(value: Any) -> Any:
    """The value with numbers that JSON has not, such as NaN, as text."""
    if isinstance(value, dict):
        return {name: plain(held) for name, held in value.items()}
    if isinstance(value, list):
        return [plain(held) for held in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


# ---- tables ----------------------------------------------------------------------------------------------


def table(
    c: Comparison, tests: Sequence[Versus], records: Sequence[Record], places: Mapping[str, int]
) -> dict[str, Any]:
    """What a table's cells open: the runs behind each, and how its row compares with others."""
    cells = {(r, k): c.cell(row, column) for r, row in enumerate(c.rows) for k, column in enumerate(c.columns)}
    return {
        "title": c.title,
        "rows": c.rows,
        "columns": c.columns,
        "decimals": c.decimals,
        "selection": [rules(c, row) for row in c.rows],
        "cells": [[r, k, opened(cell, c.decimals, records, places)] for (r, k), cell in cells.items() if cell.keys],
        "versus": [versus(v) for v in tests if v.pairs],
    }


def opened(cell: Cell, decimals: int, records: Sequence[Record], places: Mapping[str, int]) -> dict[str, Any]:
    """A cell with its value for each protocol and seed, and their records: two where one is taken from the other."""
    runs: dict[Unit, list[int]] = {}
    for key in cell.keys:
        record = records[places[key]]
        unit = f"{record['benchmark']} {record['protocol']['name']}", record["seed"]
        runs.setdefault(unit, []).append(places[key])

    def value(unit: Unit) -> float | str | None:
        failed = any("failed" in records[n] for n in runs[unit])
        return "failed" if failed else finite(cell.values.get(unit, math.nan))

    return {
        "ours": ours(cell, decimals),
        "paper": spread(cell.paper[0], (*cell.paper, math.nan)[1], decimals) if cell.paper else "",
        "difference": number(cell.difference, decimals, sign=True) if cell.values and cell.paper else "",
        "rules": cell.rules,
        "failed": cell.failed,
        "absent": cell.absent,
        "units": [[*unit, value(unit), held] for unit, held in runs.items()],
    }


def versus(v: Versus) -> dict[str, Any]:
    numbers = {name: finite(getattr(v, name)) for name in ("difference", "low", "high")}
    tests = {"p": p_text(v.p), "adjusted": p_text(v.adjusted), "pairs": v.pairs}
    return {"family": v.family, "row": v.row, "other": v.other} | numbers | tests


def finite(value: float) -> float | None:
    return float(f"{value:.7g}") if math.isfinite(value) else None


# ---- records and curves ----------------------------------------------------------------------------------


def shown(record: Record, store: ResultStore) -> Record:
    """A record as it is, but for its curves and views, and of its recipe what differs from the defaults."""
    held = {k: v for k, v in record.items() if k not in ("curves", "explorer")}
    held["recipe"] = {k: v for k, v in held["recipe"].items() if k not in DEFAULTS or v != DEFAULTS[k]}
    return held | {"file": store.path_of(record).relative_to(store.root).as_posix()}


def curves(records: Sequence[Record], room: int) -> tuple[dict[str, str], list[list[int] | None]]:
    """Blocks of curves within some room, the first seed of every run before the second; and each record's block and
    place in it, None where it has none."""
    blocks: dict[str, str] = {}
    where: list[list[int] | None] = [None] * len(records)
    for n, some in enumerate(by_seed(records)):
        block = packed([{name: coded(c) for name, c in records[i]["curves"].items()} for i in some])
        room -= len(block)
        if room < 0:
            break
        blocks[f"curves-{n}"] = block
        for place, i in enumerate(some):
            where[i] = [n, place]
    return blocks, where


def by_seed(records: Sequence[Record]) -> Iterator[Sequence[int]]:
    """The places of all records with curves, in groups of one seed."""
    held = sorted((r["seed"], n) for n, r in enumerate(records) if r.get("curves"))
    for _, group in groupby(held, key=lambda pair: pair[0]):
        yield from batches([n for _, n in group])


def coded(curve: Sequence[float | None]) -> list[Any]:
    """[e, steps]: the running sum of the steps over 10^e is the curve, to four digits of its largest value; a gap is
    None. Steps of a smooth curve are small numbers, which deflate well."""
    values = np.array(curve, dtype=np.float64)
    there = np.isfinite(values)
    largest = float(np.abs(values[there]).max(initial=0.0))
    e = min(DIGITS - 1 - math.floor(math.log10(largest)), 300) if largest > 0 else 0
    steps = np.diff(np.rint(values[there] * 10.0**e), prepend=0).astype(np.int64).tolist()
    if there.all():
        return [e, steps]
    rest = iter(steps)
    return [e, [next(rest) if held else None for held in there]]


def decoded(e: int, steps: Iterable[int | None]) -> list[float | None]:
    """The curve that `coded` wrote."""
    total, curve = 0, list[float | None]()
    for step in steps:
        total += step or 0
        curve.append(None if step is None else total / 10.0**e)
    return curve


# ---- views of the mask -----------------------------------------------------------------------------------


def views(records: Sequence[Record], room: int) -> tuple[dict[str, str], list[dict[str, Any]], int]:
    """Blocks of the views within some room, what each shows, and how many did not fit."""
    blocks, about, left_out = dict[str, str](), list[dict[str, Any]](), 0
    for n, record in enumerate(records):
        for graph, view in record.get("explorer", {}).items():
            block = packed(compact(view))
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
    """A view (`bench.extras.explore`) in about two thirds of the room: edges by target, each source as the gap to the
    one before it, its low bytes together and then its high bytes."""
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
