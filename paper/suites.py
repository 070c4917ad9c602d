"""All suites: the runs and cells of every table and figure of the paper, and of some of our own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from edgemask.errors import InputError
from edgemask.experiments.records import ResultStore, Task
from edgemask.legal import did_you_mean
from edgemask.report.page import Section
from edgemask.report.suite import Suite
from paper.ablations import ABLATIONS
from paper.adaptive import ADAPTIVE, SINGLE_SOURCE
from paper.findings import FINDINGS
from paper.mask_worth import MASK_WORTH
from paper.systems import RESULTS
from paper.variants import VARIANTS

OURS = (*VARIANTS, MASK_WORTH, ADAPTIVE, SINGLE_SOURCE)
SUITES: dict[str, Suite] = {
    s.name: replace(s, findings=FINDINGS.get(s.name, ())) for s in (*RESULTS, *ABLATIONS, *OURS)
}


def suite(name: str) -> Suite:
    """Return a suite by name.

    Raises:
        InputError: There is no suite of that name. The message lists the names.
    """
    if name not in SUITES:
        raise InputError(f"no table or figure {name!r} (there are: {', '.join(SUITES)}){did_you_mean(name, SUITES)}")
    return SUITES[name]


def all_tasks(names: Sequence[str]) -> list[Task]:
    """Return the tasks of several suites, each once."""
    return list({repr(t): t for n in names for t in suite(n).tasks()}.values())


def sections(store: ResultStore, absent: Collection[str] = ()) -> list[Section]:
    """Return the sections of the report page.

    Args:
        store: The records.
        absent: Benchmarks whose data is not available.
    """
    return [
        Section(s.name, s.title, s.comparisons(store, absent), f"edgemask reproduce {s.name}") for s in SUITES.values()
    ]
