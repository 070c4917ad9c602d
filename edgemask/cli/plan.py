"""The command `plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from edgemask.cli.common import Device, Reading, RecipeName, Settings, out, reading, wide
from edgemask.config import parse_settings
from edgemask.data import read_graph
from edgemask.experiments.plan import plan as predict
from edgemask.methods.registry import method_spec

app = typer.Typer()


@app.command()
def plan(
    sources: Annotated[
        list[Path], typer.Argument(help="Graphs to train on: .npz files, .mat files or folders of CSV files.")
    ],
    validation: Annotated[
        list[Path], typer.Option(help="Labelled graph used only for model selection. Can be repeated.")
    ] = [],  # noqa: B006
    method: Annotated[str, typer.Option(help="A method. `edgemask methods` lists them.")] = "edgemask-dg-star",
    recipe: RecipeName = "robust",
    settings: Settings = [],  # noqa: B006
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Predict the time and memory of a fit before it runs.

    The prediction is for `edgemask fit` on this machine. A few epochs on small parts of the graphs are measured.
    """
    prediction = predict(
        [read_graph(p, **reading(read)) for p in sources],
        method_spec(method).under(recipe, **parse_settings(settings)),
        device,
        method=method,
        validation=[read_graph(p, **reading(read)) for p in validation],
    )
    table = Table(title=f"{prediction.nodes:,} nodes, {prediction.epoch_edges:,} edges per epoch", title_justify="left")
    for column in ("stage", "epochs", "time"):
        table.add_column(column, justify="left" if column == "stage" else "right")
    table.add_row("start", "", shown(prediction.start_seconds))
    table.add_row("enrichment, if it is not cached", "", shown(prediction.enrich_seconds))
    for stage in prediction.stages:
        table.add_row(f"train, {stage.name}", f"{stage.epochs}", shown(stage.seconds))
    table.add_row("total", "", shown(prediction.total_seconds), style="bold")
    wide().print(table)
    out.print(
        f"one epoch on all sources {shown(prediction.epoch_seconds)}, selection rule {prediction.rule}", highlight=False
    )
    out.print(
        f"peak memory {prediction.peak_mib / 1024:.2f} GiB of {prediction.free_mib / 1024:.1f} GiB free "
        f"({prediction.machine})",
        highlight=False,
    )
    if prediction.device.type == "cuda":
        out.print(
            f"host memory {prediction.host_mib / 1024:.2f} GiB of {prediction.host_free_mib / 1024:.1f} GiB free",
            highlight=False,
        )
    out.print(
        "it fits" if prediction.fits else "[bold red]it does not fit[/]. These settings (`--set`) need less memory:"
    )
    for suggestion in [] if prediction.fits else prediction.suggestions():
        out.print(f"  {suggestion}", highlight=False)
    out.print(f"estimate: {prediction.basis}", highlight=False, soft_wrap=True)


def shown(seconds: float) -> str:
    """Return a duration as text.

    >>> shown(3.2), shown(250), shown(7500)
    ('3.2 s', '4 min 10 s', '2 h 5 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return (
        f"{int(seconds // 60)} min {int(seconds % 60)} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
    )
