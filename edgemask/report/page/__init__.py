"""The report page: every table beside the paper's, runs down to their records, curves, and a mask explorer.

One HTML file that opens from disk, asks the network for nothing, and runs no script but its own.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgemask.errors import MissingDependencyError
from edgemask.experiments.records import Record, ResultStore
from edgemask.methods.registry import method_spec
from edgemask.report.comparison import Comparison
from edgemask.report.page.data import embed, finite
from edgemask.report.render import ROOM, around_code, leaders, number, ours, p_text, rules, spread
from edgemask.report.statistics import LEVEL, REFERENCE, Versus, compare
from edgemask.report.tables import benchmark_table
from edgemask.runtime.atomic import replacing

if TYPE_CHECKING:
    from markupsafe import Markup

SCRIPTS = ("report.js", "curves.js", "explorer.js")
# Nothing is loaded from anywhere, and the scripts that may run are named by the hash of their text. Styles may be set
# by script, which plots need.
POLICY = (
    "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)


@dataclass(frozen=True)
class Section:
    """A section of the page: tables that belong together."""

    name: str
    title: str
    tables: Sequence[Comparison]


def benchmark_sections(store: ResultStore) -> list[Section]:
    """Return one section per benchmark, with a table of its methods."""
    groups: dict[str, dict[str, list[Record]]] = {}
    for record in store:
        if "method" in record:
            groups.setdefault(record["benchmark"], {}).setdefault(_row(record), []).append(record)
    return [
        Section(name, name, [benchmark_table(f"{name}, percent", rows, name=name)]) for name, rows in groups.items()
    ]


def _row(record: Record) -> str:
    """Return a record's method, with the settings that differ from the method's own recipe."""
    own, recipe = method_spec(record["method"]).recipe.to_json(), record["recipe"]
    changed = [f"{k}={v}" for k, v in recipe.items() if k in own and v != own[k] and k != "select"]
    return " ".join([record["method"], *changed])


def write_report(store: ResultStore, sections: Sequence[Section], path: str | Path) -> Path:
    """Write the page of a store's records and return its path."""
    target = Path(path)
    with replacing(target, text=True) as sink:
        sink.write(page(store, sections))
    return target


def page(store: ResultStore, sections: Sequence[Section]) -> str:
    """Return the page as text. It is the same for the same records.

    Raises:
        MissingDependencyError: plotly or jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingDependencyError("the report page needs plotly and jinja2: install edgemask[report]") from error
    tables = {section.name: [(c, compare(c)) for c in section.tables] for section in sections if section.tables}
    titles = {section.name: section.title for section in sections}
    library = get_plotlyjs()
    script = "\n".join(own(name) for name in SCRIPTS)
    environment = Environment(
        loader=PackageLoader("edgemask.report", "page"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"prose": prose, "markdown": markdown}
    return environment.get_template("template.html").render(
        policy=POLICY.format(" ".join(sha256(text) for text in (script, library))),
        style=safe(own("report.css")),
        script=safe(script),
        suites=[
            {"name": name, "title": titles[name], "tables": [table(c, tests) for c, tests in found]}
            for name, found in tables.items()
        ],
        level=f"{100 * LEVEL:g} %",
        facts=facts(store),
        embedded=embed(store, tables, library),
    )


def own(name: str) -> str:
    """A file of this package, with the line ends that a browser reads a page with."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8").replace("\r\n", "\n")


def sha256(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def safe(text: str) -> Markup:
    from markupsafe import Markup

    return Markup(text)


def prose(text: str) -> Markup:
    """Escaped text, what is in backticks as code."""
    from markupsafe import Markup, escape

    return Markup(around_code(text, lambda t: str(escape(t)), lambda t: f"<code>{escape(t)}</code>"))


def markdown(text: str) -> Markup:
    """As `prose`, with what is between double stars strong and a star after a backslash a star."""
    from markupsafe import Markup

    hidden = around_code(text, lambda t: t.replace(r"\*", "\0"), lambda t: f"`{t.replace('*', chr(0))}`")
    return Markup(re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", str(prose(hidden))).replace("\0", "*"))


# ---- what the template shows -----------------------------------------------------------------------------


def facts(store: ResultStore) -> dict[str, Any]:
    """Where the records come from, and the files that were not trusted."""
    devices = Counter(r.get("machine", {}).get("device", "not recorded") for r in store)
    return {
        "records": len(store),
        "failed": sum("failed" in r for r in store),
        "machines": sorted(devices.items(), key=lambda pair: (-pair[1], pair[0])),
        "versions": sorted({r["code"] for r in store}),
        "rejected": [
            (path.relative_to(store.root).as_posix(), why.removeprefix(f"{path} "))
            for path, why in sorted(store.rejected.items())
        ],
    }


def table(c: Comparison, versus: Sequence[Versus]) -> dict[str, Any]:
    """A table as it is printed: of each cell the text, what it sorts by, and whether it opens."""
    best = leaders(c)
    tests = {v.row: v for v in versus if v.family == REFERENCE and v.pairs}
    held = [c.cell(row, column) for row in c.rows for column in c.columns]
    return {
        "title": c.title,
        "about": c.about,
        "findings": c.findings,
        "columns": c.columns,
        "reference": c.reference if tests else "",
        "selection": any(cell.rules not in ((), ("none",)) for cell in held),
        "rows": [
            {
                "name": row,
                "cells": [cell(c, row, column, (row, column) in best) for column in c.columns],
                "test": tested(tests.get(row)),
                "rules": rules(c, row),
            }
            for row in c.rows
        ],
        "empty": "" if any(cell.values for cell in held) else empty(c),
        "paper": any(cell.paper for cell in held),
        "seeds": seeds(c),
        "growth": c.name == "complexity",
    }


def cell(c: Comparison, row: str, column: str, best: bool) -> dict[str, Any]:
    held = c.cell(row, column)
    text = ours(held, c.decimals)
    theirs = held.paper[1] if len(held.paper) > 1 and len(c.columns) <= ROOM else math.nan  # a wide table has no room
    notes = [f"{held.failed} failed" if held.failed else "", held.absent]
    return {
        "ours": text,
        "paper": spread(held.paper[0], theirs, c.decimals) if held.paper else "",
        "difference": number(held.difference, c.decimals, sign=True) if held.values and held.paper else "",
        "notes": [note for note in notes if note and note != text],
        "sort": [finite(held.mean), finite(held.paper[0]) if held.paper else None, finite(held.difference)],
        "there": bool(held.values),
        "runs": bool(held.keys),
        "best": best,
    }


def tested(v: Versus | None) -> dict[str, Any] | None:
    if v is None:
        return None
    interval = "" if math.isnan(v.low) else f"{number(v.low, 1)} to {number(v.high, 1)}"
    return {"sort": finite(v.difference), "difference": number(v.difference, 1, sign=True), "interval": interval,
            "p": p_text(v.adjusted)}  # fmt: skip


def empty(c: Comparison) -> str:
    """Why a table has nothing of ours."""
    return ", ".join(dict.fromkeys(held.absent for held in c.cells.values() if held.absent)) or "not run"


def seeds(c: Comparison) -> str:
    counts: Sequence[int] = sorted({len(held.by_seed) for held in c.cells.values() if held.keys and held.values})
    return "–".join(map(str, dict.fromkeys((counts[0], counts[-1])))) if counts else ""


__all__ = ["Section", "benchmark_sections", "page", "write_report"]
