"""Show the progress of tasks: a live table on a terminal, otherwise a line from time to time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from edgemask.experiments.runner import Tally
from edgemask.runtime.safe_text import SafeConsole

EVERY = 30.0  # seconds between two lines if there is no terminal
SHOWN = 20  # largest number of running tasks and of failures that are listed


@contextmanager
def progress(console: SafeConsole) -> Iterator[Callable[[Tally], None]]:
    """Yield the function `show` of `run_all`. It reports failures and second attempts immediately."""
    printer = ProgressPrinter(console)
    if console.is_terminal:
        with Live(console=console, refresh_per_second=2, get_renderable=lambda: table(printer.tally), transient=True):
            yield printer.news
    else:
        yield printer.lines


class ProgressPrinter:
    """A printer of the changes in a tally since the last call."""

    def __init__(self, console: SafeConsole):
        self.console, self.tally = console, Tally(0)
        self.failed = self.retried = 0
        self.reasons = set[str]()
        self.last, self.since = "", float("-inf")

    def news(self, tally: Tally) -> None:
        """Print new failures and second attempts."""
        self.tally = tally
        for label, why in tally.retried[self.retried :]:
            self._print(f"{label} is run again: {why}")
        for label, why in tally.failed[self.failed :]:
            self._print(
                f"{label} failed" + (f" in the same way: {last_line(why)}" if why in self.reasons else f":\n{why}")
            )
            self.reasons.add(why)
        self.retried, self.failed = len(tally.retried), len(tally.failed)

    def lines(self, tally: Tally) -> None:
        """Print new failures and second attempts, and from time to time a line with the counts."""
        self.news(tally)
        text, now = line(tally), time.monotonic()
        if text != self.last and (now - self.since >= EVERY or not tally.remaining):
            self.last, self.since = text, now
            self._print(text)

    def _print(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)


def counts(tally: Tally) -> dict[str, str]:
    """Return the counts by name. Omit counts that are zero, except `running`."""
    left = tally.seconds_left
    shown = {
        "recorded": f"{tally.already_recorded + tally.done} of {tally.total}",
        "running": str(len(tally.running)),
        "failed": str(len(tally.failed)),
        "data not available": str(len(tally.absent)),
        "time left": "–" if left is None else duration(left),
    }
    return {name: value for name, value in shown.items() if value != "0" or name == "running"}


def line(tally: Tally) -> str:
    """Return the counts on one line."""
    return ", ".join(f"{name} {value}" for name, value in counts(tally).items())


def table(tally: Tally) -> RenderableType:
    """Return a table of the counts and, below it, the running tasks with the time since they started."""
    count_table = Table(box=SIMPLE_HEAD)
    for name in (shown := counts(tally)):
        count_table.add_column(name, justify="right")
    count_table.add_row(*shown.values())
    now = time.monotonic()
    running = [f"  {duration(now - since):>8}  {label}" for label, since in list(tally.running.values())]
    more = [f"  and {len(running) - SHOWN} more"] if len(running) > SHOWN else []
    return Group(count_table, Text("\n".join(running[:SHOWN] + more)))


def summary(tally: Tally) -> str:
    """Return a summary of all tasks, to be printed at the end."""
    before, recorded = tally.already_recorded, tally.already_recorded + tally.done
    lines = [f"{recorded} of {tally.total} recorded ({before} were recorded before)"]
    if tally.recorded_elsewhere:
        lines.append(f"{tally.recorded_elsewhere} of them were first recorded by another process")
    for absent, n in Counter(absent for _, absent in tally.absent).items():
        lines.append(f"data not available for {n} ({absent.root} on {absent.host}): {', '.join(absent.files)}")
    if tally.failed:
        lines.append(f"{len(tally.failed)} failed:")
        lines += [f"  {label}: {last_line(why)}" for label, why in tally.failed[:SHOWN]]
        lines += [f"  and {len(tally.failed) - SHOWN} more"] if len(tally.failed) > SHOWN else []
    if tally.interrupted:
        lines.append("stopped: the records stay, and the same command continues from here")
    elif tally.failed:
        lines.append("the same command runs only the failed runs again")
    return "\n".join(lines)


def last_line(why: str) -> str:
    """Return the last line of a traceback, which names the error."""
    return why.splitlines()[-1]


def duration(seconds: float) -> str:
    """Return a duration as text.

    >>> duration(12.3), duration(250), duration(7500)
    ('12 s', '4 min 10 s', '2 h 05 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
