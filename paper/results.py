"""`docs/results.md` and its figures, made from the records under `results/`.

python -m paper.results [DOCS [RESULTS]]
"""

from __future__ import annotations

import sys
from pathlib import Path

from edgemask.errors import InputError
from edgemask.experiments.records import ResultStore
from edgemask.report.render import markdown, statistics_markdown
from edgemask.report.statistics import compare
from paper.figures import FIGURES, draw
from paper.suites import SUITES

ABSENT = ("elliptic", "arxiv")  # benchmarks whose data was not available where the records were made


def page(store: ResultStore) -> str:
    """The page: every suite with its command, figure, tables and tests."""
    sections = []
    for name, suite in SUITES.items():
        tables = suite.comparisons(store, ABSENT)
        if not tables:
            continue
        parts = [f"## {suite.title}", f"`edgemask reproduce {name}`"]
        if name in FIGURES and any(t.keys or name == "complexity" for t in tables):
            parts.append(f"![{suite.title}](figures/{name}.svg)")
        parts += [markdown(t).rstrip() for t in tables]
        for table in tables:
            if table.tested:
                tests = statistics_markdown(compare(table)).strip()
                parts.append(f"<details><summary>Paired tests</summary>\n\n{tests}\n\n</details>")
        sections.append("\n\n".join(parts))
    machines = sorted({r["machine"]["device"] for r in store})
    seconds = sum(sum(r["seconds"].values()) for r in store)
    contents = "\n".join(f"- [{s.title}](#{anchor(s.title)})" for s in SUITES.values() if s.name != "explorer")
    head = HEAD.format(
        records=f"{len(store):,}", machines="; ".join(machines), hours=f"{seconds / 3600:.1f}", contents=contents
    )
    return head + "\n\n".join(sections) + "\n"


def anchor(title: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def figures(store: ResultStore) -> dict[str, str]:
    """Every figure that the records allow, as SVG."""
    drawn = {"flow": draw("flow", store)}
    for name, suite in SUITES.items():
        if name in FIGURES and any(t.keys or name == "complexity" for t in suite.comparisons(store, ABSENT)):
            drawn[name] = draw(name, store)
    return drawn


HEAD = """# Results

Every table and figure of the paper, and some of ours, from the {records} records under `results/`, by `python -m paper.results`. Machines: {machines}; {hours} hours of runs, many side by side on one card, so times are upper bounds.

Each number is ours, mean ± standard deviation over seeds; in brackets the paper's own figure and ours less the paper's. No label of a target is reachable during training and selection, and the selection rule stands in the last column. A cell of which not all runs are there says so; "data not available" is said of benchmarks whose files are not public or not here. Tests are sign-flip permutation tests over pairs of the same protocol and seed, with Holm's correction within each of a table's two families of comparisons, against ERM and against the best other system; intervals are paired bootstrap intervals.

![EdgeMask-DG*: enrich, play, read the target on its own graph](figures/flow.svg)

{contents}

"""


def write(docs: Path, results: Path) -> None:
    store = ResultStore(results)
    text, drawn = page(store), figures(store)
    if store.rejected:
        raise InputError("\n".join(store.rejected.values()))
    (docs / "figures").mkdir(parents=True, exist_ok=True)
    (docs / "results.md").write_text(text, encoding="utf-8")
    for name, text in drawn.items():
        (docs / "figures" / f"{name}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path((sys.argv[1:2] or ["docs"])[0]), Path((sys.argv[2:3] or ["results"])[0]))
