"""`edgemask plan`: what a fit will take, before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from edgemask.cli.common import Device, Reading, RecipeName, Settings, out, pairs, wide
from edgemask.data import read_graph
from edgemask.experiments.plan import plan as predict
from edgemask.methods.registry import method_spec

app = typer.Typer()


@app.command()
def plan(
    sources: Annotated[list[Path], typer.Argument(help="The graphs of the fit: .npz, .mat, or a folder of CSV files.")],
    validation: Annotated[list[Path], typer.Option(help="Labelled graphs that only choose; repeatable.")] = [],  # noqa: B006
    method: Annotated[str, typer.Option(help="A method (`edgemask methods`).")] = "edgemask-dg-star",
    recipe: RecipeName = "robust",
    settings: Settings = [],  # noqa: B006
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Predict time and memory of `edgemask fit` on this machine, from a few epochs on small parts of the graphs."""

    ahead = predict(
        [read_graph(p, **pairs(read)) for p in sources],
        method_spec(method).under(recipe, **pairs(settings)),
        device,
        method=method,
        validation=[read_graph(p, **pairs(read)) for p in validation],
    )
    table = Table(title=f"{ahead.nodes:,} nodes, {ahead.epoch_edges:,} edges an epoch", title_justify="left")
    for column in ("stage", "epochs", "time"):
        table.add_column(column, justify="left" if column == "stage" else "right")
    table.add_row("start", "", shown(ahead.start_seconds))
    table.add_row("enrichment, where it is not cached", "", shown(ahead.enrich_seconds))
    for stage in ahead.stages:
        table.add_row(f"train, {stage.name}", f"{stage.epochs}", shown(stage.seconds))
    table.add_row("total", "", shown(ahead.total_seconds), style="bold")
    wide().print(table)
    say = out.print
    say(f"one epoch on all sources {shown(ahead.epoch_seconds)}, selection rule {ahead.rule}", highlight=False)
    say(
        f"peak memory {ahead.peak_mib / 1024:.2f} GiB of {ahead.free_mib / 1024:.1f} free ({ahead.machine})",
        highlight=False,
    )
    if ahead.device.type == "cuda":
        say(f"of the host {ahead.host_mib / 1024:.2f} GiB of {ahead.host_free_mib / 1024:.1f} free", highlight=False)
    say("it fits" if ahead.fits else "[bold red]it does not fit[/]; with `--set`, less memory would be needed by:")
    for suggestion in [] if ahead.fits else ahead.suggestions():
        say(f"  {suggestion}", highlight=False)
    say(f"estimate: {ahead.basis}", highlight=False, soft_wrap=True)


def shown(seconds: float) -> str:
    """3.2 s, 4 min 10 s, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return (
        f"{int(seconds // 60)} min {int(seconds % 60)} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
    )
