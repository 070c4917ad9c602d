"""Parts of the generated pages: templates and mean ± deviation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from edgemask.report.render import spread

PAGES = Path(__file__).parent / "pages"


def template(name: str) -> str:
    """Return the text of `paper/pages/NAME.md`, whose placeholders `str.format` fills."""
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def mean_text(values: Sequence[float], decimals: int = 1) -> str:
    """Format the mean and sample deviation of at least one value.

    >>> mean_text([77.0, 78.0])
    '77.5 ± 0.7'
    >>> mean_text([77.0])
    '77.0'
    """
    return spread(fmean(values), stdev(values) if len(values) > 1 else math.nan, decimals)
