"""Write `docs/results.md` and its figures from the records under `results/`.

python -m paper.results [DOCS [RESULTS]]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from edgemask.errors import InputError
from edgemask.experiments.records import ResultStore
from edgemask.report.comparison import Comparison
from edgemask.report.render import markdown, statistics_markdown
from edgemask.report.statistics import compare
from paper.figures import FIGURES, draw
from paper.markdown import template
from paper.suites import SUITES

ABSENT = ("elliptic", "arxiv")  # benchmarks whose data was not available where the records were made


def page(store: ResultStore) -> str:
    """Return the page: every suite that has been run, with its command, figure, tables and tests."""
    sections, titles = [], []
    for name, suite in SUITES.items():
        tables = suite.comparisons(store, ABSENT)
        if not has_been_run(tables):
            continue
        titles.append(suite.title)
        parts = [f"## {suite.title}", f"`edgemask reproduce {name}`"]
        if name in FIGURES and any(t.keys or name == "complexity" for t in tables):
            parts.append(f"![{suite.title}](figures/{name}.svg)")
        parts += [markdown(t).rstrip() for t in tables]
        for table in tables:
            if table.tested:
                tests = statistics_markdown(compare(table)).strip()
                parts.append(f"<details><summary>Paired tests</summary>\n\n{tests}\n\n</details>")
        sections.append("\n\n".join(parts))
    seconds = sum(sum(r["seconds"].values()) for r in store)
    return template("results").format(
        records=f"{len(store):,}",
        machines="; ".join(sorted({r["machine"]["device"] for r in store})),
        hours=f"{seconds / 3600:.1f}",
        contents="\n".join(f"- [{title}](#{anchor(title)})" for title in titles),
        sections="\n\n".join(sections),
    )


def has_been_run(tables: Sequence[Comparison]) -> bool:
    """Return whether a suite has tables and each of them has either a record or nothing that can be run.

    The page shows a suite whose data is not available, but not one with a table whose runs are all still to be done. A
    suite may share some runs of its other tables with suites that have been run.
    """
    return bool(tables) and all(
        table.keys or "not run" not in {cell.absent for cell in table.cells.values()} for table in tables
    )


def anchor(title: str) -> str:
    """Return the anchor that GitHub gives a heading.

    >>> anchor("Enrichment × mask")
    'enrichment--mask'
    """
    characters = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return characters.replace(" ", "-")


def figures(store: ResultStore) -> dict[str, str]:
    """Return every figure that has records, as SVG text by name."""
    drawn = {"flow": draw("flow", store)}
    for name, suite in SUITES.items():
        if name in FIGURES and any(t.keys or name == "complexity" for t in suite.comparisons(store, ABSENT)):
            drawn[name] = draw(name, store)
    return drawn


def write(docs: Path, results: Path) -> None:
    """Write the page to `docs/results.md` and the figures to `docs/figures`.

    Args:
        docs: The folder of the documentation.
        results: The folder of the records.

    Raises:
        InputError: The store rejects a record. Nothing is written then.
    """
    store = ResultStore(results)
    text, drawn = page(store), figures(store)
    if store.rejected:
        raise InputError("; ".join(store.rejected.values()))
    (docs / "figures").mkdir(parents=True, exist_ok=True)
    (docs / "results.md").write_text(text, encoding="utf-8")
    for name, svg in drawn.items():
        (docs / "figures" / f"{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    write(Path((sys.argv[1:2] or ["docs"])[0]), Path((sys.argv[2:3] or ["results"])[0]))
