"""`edgemask fit`, `predict`, `evaluate`, `explain`, `theory`: a user's own graphs."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from rich.table import Table

from edgemask.cli.common import Device, Reading, RecipeName, Seed, Settings, grid, out, pairs, progress, wide
from edgemask.data import read_graph
from edgemask.data.csv_folder import node_ids
from edgemask.enrich import default_cache
from edgemask.estimator import EdgeMaskClassifier
from edgemask.runtime.atomic import replacing, writable
from edgemask.runtime.distributed import started

app = typer.Typer()
InferenceBatch = Annotated[
    int | None,
    typer.Option(min=1, help="Read the graph layer by layer, in blocks of so many nodes [default: as fitted]."),
]


@app.command()
def fit(
    sources: Annotated[list[Path], typer.Argument(help="Labelled graphs: .npz, .mat, or a folder of CSV files.")],
    model: Annotated[Path, typer.Option("--model", "-m", help="Where the trained model goes.")],
    validation: Annotated[list[Path], typer.Option(help="Labelled graphs that only choose; repeatable.")] = [],  # noqa: B006
    recipe: RecipeName = "robust",
    settings: Settings = [],  # noqa: B006
    metric: Annotated[str, typer.Option(help="What selection maximises.")] = "micro_f1",
    seed: Seed = 0,
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Write the state here as it goes, and continue from it.")
    ] = None,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Epochs between two checkpoints.")] = 10,
) -> None:
    """Train on labelled source graphs and write a model file.

    Several processes: `torchrun --nproc-per-node 2 -m edgemask fit … --set batch_size=1024 --set shards=2`.
    """

    first = started().first
    for path in (model, checkpoint):
        if path is not None and first:
            writable(path)
    estimator = EdgeMaskClassifier(recipe, seed=seed, device=device, metric=metric, **pairs(settings))
    with progress("fit") if first else nullcontext() as on_epoch:
        estimator.fit(
            [read_graph(p, **pairs(read)) for p in sources],
            [read_graph(p, **pairs(read)) for p in validation],
            checkpoint_path=checkpoint,
            checkpoint_every=checkpoint_every,
            cache=default_cache(),
            on_epoch=on_epoch,
        )
    if not first:
        return
    estimator.save(model)
    choice = estimator.choice_
    scores = "".join(f"\n  α = {a:g}: {100 * v:.2f}" for a, v in choice.scores.items())
    out.print(f"selection rule {choice.rule}: epoch {choice.epoch}, propagation α = {choice.alpha:g}{scores}")
    out.print(f"model: {model}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    graph: Annotated[Path, typer.Argument(help="Any graph with the same features; labels are not looked at.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="CSV file [default: standard output].")] = None,
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
    inference_batch: InferenceBatch = None,
) -> None:
    """Write every node's class and class probabilities as CSV; a node is its id in a CSV folder, else its row."""

    estimator = EdgeMaskClassifier.load(model, device=device, inference_batch=inference_batch)
    p = estimator.predict_proba(read_graph(graph, **pairs(read)))
    frame = pd.DataFrame(p, columns=[f"p:{c}" for c in estimator.classes_])
    frame.insert(0, "class", estimator.classes_[p.argmax(1)])
    if graph.is_dir():
        frame.index = pd.Index(node_ids(graph))
    frame = frame.rename_axis("node")
    if output is None:
        frame.to_csv(sys.stdout)
        return
    with replacing(output, text=True) as sink:
        frame.to_csv(sink)


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    graph: Annotated[Path, typer.Argument(help="A labelled graph.")],
    metric: Annotated[list[str], typer.Option(help="Repeatable.")] = ["micro_f1", "macro_f1"],  # noqa: B006
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
    inference_batch: InferenceBatch = None,
) -> None:
    """Score a model on a labelled graph."""

    estimator = EdgeMaskClassifier.load(model, device=device, inference_batch=inference_batch)
    target = read_graph(graph, **pairs(read))
    for name, value in estimator.scores(target, metric).items():
        out.print(f"{name} {100 * value:.2f}", highlight=False)
    out.print(
        f"(selection rule {estimator.choice_.rule}, propagation α = {estimator.choice_.alpha:g})", highlight=False
    )


@app.command()
def explain(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    graph: Annotated[Path, typer.Argument(help="Any graph with the same features.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="CSV of every edge's mask and origin.")] = None,
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
    inference_batch: InferenceBatch = None,
) -> None:
    """Show what the MaskNet prunes, by origin; an edge counts as pruned when its mask is below 0.5."""

    estimator = EdgeMaskClassifier.load(model, device=device, inference_batch=inference_batch)
    mask = estimator.explain(read_graph(graph, **pairs(read)))
    frame = pd.DataFrame({"source": mask.edges[0], "destination": mask.edges[1], "origin": mask.origin, "mask": mask.s})
    if output:
        if graph.is_dir():
            names = np.array(node_ids(graph))
            frame = frame.assign(source=names[frame["source"]], destination=names[frame["destination"]])
        with replacing(output, text=True) as sink:
            frame.to_csv(sink, index=False)
    table = Table(title="mask by origin", title_justify="left")
    for column in ("origin", "edges", "mean mask", "pruned"):
        table.add_column(column, justify="left" if column == "origin" else "right")
    for origin, part in frame.groupby("origin", sort=False):
        table.add_row(
            str(origin), f"{len(part):,}", f"{part['mask'].mean():.3f}", f"{100 * (part['mask'] < 0.5).mean():.1f} %"
        )
    wide().print(table)


@app.command()
def theory(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    graph: Annotated[Path, typer.Argument(help="A labelled graph with the same features.")],
    steps: Annotated[int, typer.Option(min=1, help="Steps of every gradient ascent.")] = 50,
    seed: Seed = 0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The whole report as JSON.")] = None,
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Check the paper's theory on a trained pair: KKT residuals, surrogate mask, duality bound, gradients."""

    report = EdgeMaskClassifier.load(model, device=device).theory(
        read_graph(graph, **pairs(read)), steps=steps, seed=seed
    )
    for title, rows in report.tables().items():
        wide().print(grid(title, rows))
    if output:
        with replacing(output, text=True) as sink:
            sink.write(json.dumps(report.to_json(), indent=1) + "\n")
