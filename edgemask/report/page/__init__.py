"""The report page: tables of results, the runs and records behind each number, training curves and a mask explorer.

The page is one HTML file that opens from disk. It loads nothing from the network and runs only its own scripts.
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

from edgemask.data import BENCHMARKS, benchmark
from edgemask.errors import MissingDependencyError
from edgemask.experiments.own import record_frame
from edgemask.experiments.records import RESULTS_REVISION, Record, ResultStore, canonical
from edgemask.experiments.stored import OWN
from edgemask.methods.registry import METHODS, method_spec
from edgemask.report.comparison import MAJORITY, Comparison
from edgemask.report.own import table
from edgemask.report.page.data import embed, finite
from edgemask.report.render import (
    ROOM,
    around_code,
    best_cells,
    cell_text,
    count_range,
    difference_text,
    missing_runs,
    number,
    p_text,
    paper_text,
    row_rules,
)
from edgemask.report.statistics import LEVEL, REFERENCE, Versus, compare
from edgemask.report.tables import benchmark_table
from edgemask.runtime.atomic import replacing
from edgemask.training.candidates import DEFAULTS

if TYPE_CHECKING:
    from markupsafe import Markup

SCRIPTS = ("report.js", "curves.js", "explorer.js")
# The page may load nothing, and only scripts with these hashes may run. The plots need inline styles.
POLICY = (
    "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)


@dataclass(frozen=True)
class Section:
    """A section of the page: tables that belong together.

    Args:
        name: Id of the section in the page.
        title: Heading of the section.
        tables: The tables. A section without tables is left out.
        command: The command that makes the tables, shown below the heading. Empty shows none.
    """

    name: str
    title: str
    tables: Sequence[Comparison]
    command: str = ""


def benchmark_sections(store: ResultStore) -> list[Section]:
    """Return one section per benchmark, with a table of its methods.

    A row has one record per protocol and seed. Records that differ only in their extras have the same scores, and the
    first of them is shown.
    """
    groups: dict[str, dict[str, dict[tuple[str, int], Record]]] = {}
    for record in store:
        if "method" in record and record["benchmark"] != OWN:
            rows = groups.setdefault(record["benchmark"], {})
            rows.setdefault(_row(record), {}).setdefault((record["protocol"]["name"], record["seed"]), record)
    sections = [
        Section(name, name, [benchmark_table(f"{name}, percent", {r: list(u.values()) for r, u in rows.items()})])
        for name, rows in groups.items()
    ]
    return [*sections, *own_sections(store)]


def own_sections(store: ResultStore) -> list[Section]:
    """Return one section per set of the user's own graphs, with a table of the methods."""
    groups: dict[str, dict[str, list[Record]]] = {}
    for record in store:
        if record["benchmark"] == OWN:
            of = canonical([record["options"], record["protocol"]["metrics"]])
            row = _row(record) if "method" in record else MAJORITY
            groups.setdefault(of, {}).setdefault(row, []).append(record)
    sections = []
    for n, rows in enumerate(groups.values()):
        first = next(iter(rows.values()))[0]
        metrics, graphs = first["protocol"]["metrics"], ", ".join(first["options"]["graphs"])
        frame = record_frame(rows)
        tables = [table(frame, title=f"{m}, percent", metric=m, name=f"{OWN}-{n}") for m in metrics]
        sections.append(Section(f"{OWN}-{n}", f"{graphs} ({first['options']['split']})", tables))
    return sections


def _row(record: Record) -> str:
    """Return a record's method, with the settings, options and candidates that differ from the defaults."""
    known = method_spec(record["method"]).recipe.to_json() if record["method"] in METHODS else {}
    options = benchmark(record["benchmark"]).options if record["benchmark"] in BENCHMARKS else {}
    changed = [f"{k}={v}" for k, v in record["recipe"].items() if k in known and v != known[k]]
    own = record["benchmark"] == OWN  # its options identify the graphs
    changed += [] if own else [f"{k}={v}" for k, v in record["options"].items() if v != options.get(k)]
    raced = tuple(record.get("candidates", DEFAULTS))
    changed += [] if raced == DEFAULTS else [f"of {', '.join(raced)}"]
    changed += [] if record["code"] == RESULTS_REVISION else [f"(results of revision {record['code']})"]
    return " ".join([record["method"], *changed])


def write_report(store: ResultStore, sections: Sequence[Section], path: str | Path) -> Path:
    """Write the page of a store's records and return its path.

    Args:
        store: The records.
        sections: The sections of the page.
        path: The HTML file.

    Raises:
        MissingDependencyError: plotly or jinja2 is not installed.
    """
    target = Path(path)
    with replacing(target, text=True) as sink:
        sink.write(page(store, sections))
    return target


def page(store: ResultStore, sections: Sequence[Section]) -> str:
    """Return the page as text. The same records always give the same text.

    Args:
        store: The records.
        sections: The sections of the page.

    Raises:
        MissingDependencyError: plotly or jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingDependencyError("the report page needs plotly and jinja2: install edgemask[report]") from error
    shown = [section for section in sections if section.tables]
    tables = {section.name: [(c, compare(c)) for c in section.tables] for section in shown}
    library = get_plotlyjs()
    script = "\n".join(_read(name) for name in SCRIPTS)
    environment = Environment(
        loader=PackageLoader("edgemask.report", "page"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"prose": prose, "markdown": markdown}
    return environment.get_template("template.html").render(
        policy=POLICY.format(" ".join(_sha256(text) for text in (script, library))),
        style=_safe(_read("report.css")),
        script=_safe(script),
        suites=[
            {
                "name": section.name,
                "title": section.title,
                "command": section.command,
                "tables": [_table(c, tests) for c, tests in tables[section.name]],
            }
            for section in shown
        ],
        level=f"{100 * LEVEL:g} %",
        paper=any(cell.paper for section in shown for c in section.tables for cell in c.cells.values()),
        facts=_facts(store),
        embedded=embed(store, tables, library),
    )


def _read(name: str) -> str:
    """Return a file of this package with `\\n` line ends, as browsers read it. The hash of a script depends on them."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _sha256(text: str) -> str:
    """Return a hash as the content security policy writes it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _safe(text: str) -> Markup:
    """Mark text as HTML that needs no escaping."""
    from markupsafe import Markup

    return Markup(text)


def prose(text: str) -> Markup:
    """Return escaped HTML, with text in backticks as code."""
    from markupsafe import Markup, escape

    return Markup(around_code(text, lambda t: str(escape(t)), lambda t: f"<code>{escape(t)}</code>"))


def markdown(text: str) -> Markup:
    """Return HTML as `prose` does, with `**text**` in bold. A star after a backslash is a plain star."""
    from markupsafe import Markup

    hidden = around_code(text, lambda t: t.replace(r"\*", "\0"), lambda t: f"`{t.replace('*', chr(0))}`")
    return Markup(re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", str(prose(hidden))).replace("\0", "*"))


# ---- data for the template -------------------------------------------------------------------------------


def _facts(store: ResultStore) -> dict[str, Any]:
    """Return the number of records, their machines and code versions, and the rejected files."""
    devices = Counter(r.get("machine", {}).get("device", "not recorded") for r in store)
    return {
        "records": len(store),
        "failed": sum("failed" in r for r in store),
        "machines": sorted(devices.items(), key=lambda pair: (-pair[1], pair[0])),
        "versions": sorted({r["code"] for r in store}),
        "rejected": [
            (path.relative_to(store.root).as_posix(), reason.removeprefix(f"{path} "))
            for path, reason in sorted(store.rejected.items())
        ],
    }


def _table(c: Comparison, versus: Sequence[Versus]) -> dict[str, Any]:
    """Return a table as the template shows it."""
    best = best_cells(c)
    tests = {v.row: v for v in versus if v.family == REFERENCE and v.pairs}
    cells = [c.cell(row, column) for row in c.rows for column in c.columns]
    return {
        "title": c.title,
        "about": c.about,
        "findings": c.findings,
        "columns": c.columns,
        "reference": c.reference if tests else "",
        "selection": any(cell.rules not in ((), ("none",)) for cell in cells),
        "rows": [
            {
                "name": row,
                "cells": [_cell(c, row, column, (row, column) in best) for column in c.columns],
                "test": _test(tests.get(row)),
                "rules": row_rules(c, row),
            }
            for row in c.rows
        ],
        "empty": "" if any(cell.values for cell in cells) else _reasons(c),
        "paper": any(cell.paper for cell in cells),
        "seeds": _seeds(c),
        "growth": c.name == "complexity",
    }


def _cell(c: Comparison, row: str, column: str, best: bool) -> dict[str, Any]:
    """Return a cell's texts, the numbers it sorts by, and whether it has values and runs to open."""
    cell = c.cell(row, column)
    return {
        "ours": cell_text(cell, c.decimals),
        "paper": paper_text(cell, c.decimals, deviation=len(c.columns) <= ROOM),
        "difference": difference_text(cell, c.decimals),
        "notes": missing_runs(cell, c.decimals),
        "sort": [finite(cell.mean), finite(cell.paper[0]) if cell.paper else None, finite(cell.difference)],
        "has_values": bool(cell.values),
        "has_runs": bool(cell.keys),
        "best": best,
    }


def _test(v: Versus | None) -> dict[str, Any] | None:
    """Return the comparison with the reference row as text."""
    if v is None:
        return None
    interval = "" if math.isnan(v.low) else f"{number(v.low, 1)} to {number(v.high, 1)}"
    return {"sort": finite(v.difference), "difference": number(v.difference, 1, sign=True), "interval": interval,
            "p": p_text(v.adjusted)}  # fmt: skip


def _reasons(c: Comparison) -> str:
    """Return why a table has no values of ours."""
    return ", ".join(dict.fromkeys(cell.absent for cell in c.cells.values() if cell.absent)) or "not run"


def _seeds(c: Comparison) -> str:
    """Return the number of seeds behind the means, as a range if it varies; an empty string if no cell opens."""
    counts = sorted({len(cell.by_seed) for cell in c.cells.values() if cell.keys and cell.values})
    return count_range(counts) if counts else ""


__all__ = ["Section", "benchmark_sections", "own_sections", "page", "write_report"]
