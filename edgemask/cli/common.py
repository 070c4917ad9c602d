"""Parts that the commands share: options, consoles, parsing of NAME=VALUE, tables, the progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

out = Console()
err = Console(stderr=True)

DataRoot = Annotated[
    Path | None,
    typer.Option(help="Folder of the benchmark data (default: $EDGEMASK_DATA, or a folder in the user's cache)."),
]
Offline = Annotated[bool, typer.Option("--offline", help="Do not download anything.")]
Device = Annotated[str, typer.Option(help="The device to compute on: cpu, cuda, or auto (cuda if there is a GPU).")]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers. The same seed gives the same result.")]
Settings = Annotated[
    list[str], typer.Option("--set", metavar="NAME=VALUE", help="Change a setting of the recipe. Can be repeated.")
]
Reading = Annotated[
    list[str],
    typer.Option(
        "--read",
        metavar="NAME=VALUE",
        help="How to read graph files: undirected=true, self_loops=drop or duplicates=merge. Can be repeated.",
    ),
]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Number of parallel processes (default: 1 on a CPU, as many as fit on a GPU).")
]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run on the Ray cluster at this address: auto (the running one), local (a new one) or HOST:PORT.",
    ),
]
RecipeName = Annotated[
    str, typer.Option("--recipe", help="The recipe that sets all hyper-parameters: robust, paper or released.")
]


def grid(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    """Return rows as a table. A single row is shown as two columns, quantity and value."""
    if len(rows) == 1:
        rows = [{"quantity": name, "value": value} for name, value in rows[0].items()]
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    for i, column in enumerate(columns):
        table.add_column(column.replace("_", " "), justify="right" if i else "left", no_wrap=not i)
    for row in rows:
        table.add_row(*(_shown(row.get(column)) for column in columns))
    return table


def wide() -> Console:
    """Return a console with room for a table of numbers: lines wrap on a narrow terminal, but no number is cut."""
    return Console(width=max(out.width, 132))


def _shown(value: Any) -> str:
    return "–" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value).replace("_", " ")


@contextmanager
def progress(label: str) -> Iterator[Callable[[Any, str], None] | None]:
    """Show a progress bar with loss, mean mask and time left. If stderr is not a terminal, show nothing."""
    if not err.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=err, transient=True) as bar:

        def on_epoch(trainer: Any, stage: str) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(f"{label}, {stage}", total=trainer.method.recipe.epochs, note="")
            last = trainer.history[-1]
            losses = [v for k, v in last.items() if k.startswith("loss")]
            masks = [v for k, v in last.items() if k.startswith("mask original")]
            note = f"loss {sum(losses) / len(losses):.3f}" if losses else ""
            note += f"  mean mask {sum(masks) / len(masks):.3f}" if masks else ""
            bar.update(tasks[stage], completed=trainer.epoch, note=note)

        yield on_epoch
