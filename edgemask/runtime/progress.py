"""The progress of a fit on standard error: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

OnEpoch = Callable[[Any, str], None]


@contextmanager
def progress(label: str, *, one_line: bool = False, lines: bool = False) -> Iterator[OnEpoch | None]:
    """Show the progress of a fit. The block gets a function to call after every epoch, or None if nothing is shown.

    Args:
        label: Start of every line.
        one_line: Show only the current stage.
        lines: If standard error is not a terminal, print a line when a stage begins and when it ends.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _print_lines(label) if lines else None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console, transient=True) as bar:

        def on_epoch(trainer: Any, stage: str) -> None:
            if stage not in tasks:
                for other in tasks.values() if one_line else ():
                    bar.update(other, visible=False)
                tasks[stage] = bar.add_task(f"{label}, {stage}", total=trainer.method.recipe.epochs, note="")
            bar.update(tasks[stage], completed=trainer.epoch, note=_note(trainer), visible=True)

        yield on_epoch


def _print_lines(label: str) -> OnEpoch:
    """Return a function that prints a line when a stage begins and when it ends."""
    begun = set[str]()

    def on_epoch(trainer: Any, stage: str) -> None:
        epochs = trainer.method.recipe.epochs
        if stage not in begun or trainer.epoch == epochs:
            begun.add(stage)
            print(f"{label}, {stage}: epoch {trainer.epoch} of {epochs}  {_note(trainer)}".rstrip(), file=sys.stderr)

    return on_epoch


def _note(trainer: Any) -> str:
    """Return the mean loss and the mean mask of the last epoch."""
    last = trainer.history[-1]
    losses = [v for k, v in last.items() if k.startswith("loss")]
    masks = [v for k, v in last.items() if k.startswith("mask original")]
    note = f"loss {sum(losses) / len(losses):.3f}" if losses else ""
    return note + (f"  mean mask {sum(masks) / len(masks):.3f}" if masks else "")
