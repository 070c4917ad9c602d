"""Our findings by suite, read from `paper/pages/findings.md`."""

from __future__ import annotations

from paper.markdown import template


def parse(text: str) -> dict[str, tuple[str, ...]]:
    """Return the findings by suite.

    Args:
        text: Markdown with a heading `## NAME` per suite and one list item per finding, on one line each.

    >>> parse("# Title\\n\\n## recipes\\n\\n- One.\\n- Two.\\n")
    {'recipes': ('One.', 'Two.')}
    """
    findings = {}
    for section in text.split("\n## ")[1:]:
        name, *lines = section.splitlines()
        findings[name] = tuple(line.removeprefix("- ") for line in lines if line.startswith("- "))
    return findings


FINDINGS: dict[str, tuple[str, ...]] = parse(template("findings"))
