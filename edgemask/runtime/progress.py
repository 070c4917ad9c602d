"""Progress of a fit on standard error: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from edgemask.runtime.safe_text import SafeConsole


class Reporter(Protocol):
    """What a fit reports to."""

    def on_epoch(self, trainer: Any, stage: str) -> None:
        """Report the end of an epoch of a stage."""

    def on_heat(self, name: str, number: int) -> None:
        """Report that a candidate has finished a round."""


@contextmanager
def progress(
    label: str, *, race: bool = False, jobs: int = 1, console: SafeConsole | None = None
) -> Iterator[Reporter]:
    """Show the progress of a fit on standard error while the block runs.

    On a terminal there is a bar per stage, with loss, mean mask and time left. In a race only the current stage is
    shown; if candidates train in other processes, there is a line when one has finished a round. Elsewhere there is a
    plain line per stage or, in a race, per candidate and round.

    Args:
        label: Start of every line.
        race: Whether several candidates are trained.
        jobs: Number of processes of the race.
        console: Where to write. By default standard error.
    """
    console = console or SafeConsole(stderr=True)
    if not console.is_terminal:
        yield _Lines(label, race, console)
        return
    columns = (_text("{task.description}"), BarColumn(), _text("{task.fields[note]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        yield _Bars(label, race, jobs, bars)


def _text(form: str) -> TextColumn:
    return TextColumn(form, markup=False)


class _Lines:
    """Plain lines."""

    def __init__(self, label: str, race: bool, console: SafeConsole):
        self.label, self.race, self.console = label, race, console

    def on_epoch(self, trainer: Any, stage: str) -> None:
        """Print a line after the last epoch of a stage."""
        if trainer.done and not self.race:
            epochs = trainer.method.recipe.epochs
            self._print(f"{self.label}, {stage}: epoch {trainer.epoch} of {epochs}  {note(trainer)}")

    def on_heat(self, name: str, number: int) -> None:
        """Print a line."""
        self._print(f"{self.label}, {finished(name, number)}")

    def _print(self, line: str) -> None:
        self.console.print(line.rstrip(), soft_wrap=True)


class _Bars:
    """Bars on a terminal."""

    def __init__(self, label: str, race: bool, jobs: int, bars: Progress):
        self.label, self.race, self.jobs, self.bars = label, race, jobs, bars
        self.tasks: dict[str, TaskID] = {}

    def on_epoch(self, trainer: Any, stage: str) -> None:
        """Advance the bar of a stage."""
        if stage not in self.tasks:
            for other in self.tasks.values() if self.race else ():
                self.bars.update(other, visible=False)
            name, total = f"{self.label}, {stage}", trainer.method.recipe.epochs
            self.tasks[stage] = self.bars.add_task(name, total=total, note="")
        self.bars.update(self.tasks[stage], completed=trainer.epoch, note=note(trainer), visible=True)

    def on_heat(self, name: str, number: int) -> None:
        """Print a line above the bars if there are no bars of other processes."""
        if self.jobs > 1:
            self.bars.console.print(finished(name, number))


def note(trainer: Any) -> str:
    """Return the mean loss and the mean mask of a trainer's last epoch."""
    last = trainer.history[-1]
    losses = [v for k, v in last.items() if k.startswith("loss")]
    masks = [v for k, v in last.items() if k.startswith("mask original")]
    text = f"loss {sum(losses) / len(losses):.3f}" if losses else ""
    return text + (f"  mean mask {sum(masks) / len(masks):.3f}" if masks else "")


def finished(name: str, number: int) -> str:
    """Return that a candidate has finished a round."""
    return f"round {number}: {name} has finished"
