"""How a suite gets on, for someone who watches: a live table on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from edgemask.experiments.runner import Tally

EVERY = 30.0  # seconds between two lines where there is no terminal
SHOWN = 20  # tasks listed as running, and failures by name, at most


@contextmanager
def progress(console: Console) -> Iterator[Callable[[Tally], None]]:
    """What `run_all` shows its tally to; failures and second attempts are told at once, the rest as there is room."""
    told = ProgressPrinter(console)
    if console.is_terminal:
        with Live(console=console, refresh_per_second=2, get_renderable=lambda: table(told.tally), transient=True):
            yield told.news
    else:
        yield told.lines


class ProgressPrinter:
    """The tally as it was last told."""

    def __init__(self, console: Console):
        self.console, self.tally = console, Tally(0)
        self.failed = self.again = 0
        self.reasons = set[str]()
        self.last, self.since = "", float("-inf")

    def news(self, tally: Tally) -> None:
        self.tally = tally
        for label, why in tally.again[self.again :]:
            self._say(f"{label} runs again: {why}")
        for label, why in tally.failed[self.failed :]:
            self._say(f"{label} failed" + (f", as another: {end(why)}" if why in self.reasons else f":\n{why}"))
            self.reasons.add(why)
        self.again, self.failed = len(tally.again), len(tally.failed)

    def lines(self, tally: Tally) -> None:
        self.news(tally)
        text, now = line(tally), time.monotonic()
        if text != self.last and (now - self.since >= EVERY or not tally.remaining):
            self.last, self.since = text, now
            self._say(text)

    def _say(self, text: str) -> None:
        self.console.print(escape(text), highlight=False, soft_wrap=True)


def counts(tally: Tally) -> dict[str, str]:
    """What there is to count, by name; what is nought and usually so is left out."""
    left = tally.seconds_left
    shown = {
        "recorded": f"{tally.found + tally.done} of {tally.total}",
        "running": str(len(tally.running)),
        "failed": str(len(tally.failed)),
        "data not available": str(len(tally.absent)),
        "time left": "–" if left is None else duration(left),
    }
    return {name: value for name, value in shown.items() if value != "0" or name == "running"}


def line(tally: Tally) -> str:
    return ", ".join(f"{name} {value}" for name, value in counts(tally).items())


def table(tally: Tally) -> RenderableType:
    """The counts, and under them what is running and for how long."""
    held = Table(box=SIMPLE_HEAD)
    for name in (shown := counts(tally)):
        held.add_column(name, justify="right")
    held.add_row(*shown.values())
    now = time.monotonic()
    running = [f"  {duration(now - since):>8}  {label}" for label, since in list(tally.running.values())]
    more = [f"  and {len(running) - SHOWN} more"] if len(running) > SHOWN else []
    return Group(held, Text("\n".join(running[:SHOWN] + more)))


def summary(tally: Tally) -> str:
    """What has become of the tasks, to be read at the end."""
    said = [f"{tally.found + tally.done} of {tally.total} recorded ({tally.found} were there before)"]
    if tally.theirs:
        said.append(f"{tally.theirs} of them were first recorded by another process")
    for absent, n in Counter(absent for _, absent in tally.absent).items():
        said.append(f"data not available for {n} ({absent.root} on {absent.host}): {', '.join(absent.files)}")
    if tally.failed:
        said.append(f"{len(tally.failed)} failed:")
        said += [f"  {label}: {end(why)}" for label, why in tally.failed[:SHOWN]]
        said += [f"  and {len(tally.failed) - SHOWN} more"] if len(tally.failed) > SHOWN else []
    if tally.interrupted:
        said.append("stopped: what is recorded stays, and the same command goes on from there")
    elif tally.failed:
        said.append("the same command runs the failed ones again, and no others")
    return "\n".join(said)


def end(why: str) -> str:
    """The last line of a traceback, which names the error."""
    return why.splitlines()[-1]


def duration(seconds: float) -> str:
    """12 s, 4 min 10 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
