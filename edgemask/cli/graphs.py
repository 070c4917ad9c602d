"""The commands `fit`, `predict`, `evaluate`, `explain` and `theory`, for a user's own graphs."""

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

from edgemask.cli.common import Device, Reading, RecipeName, Seed, Settings, grid, out, progress, wide
from edgemask.config import parse_settings
from edgemask.data import read_graph
from edgemask.data.csv_folder import node_ids
from edgemask.enrich import default_cache
from edgemask.estimator import EdgeMaskClassifier
from edgemask.runtime.atomic import replacing, writable
from edgemask.runtime.distributed import started

app = typer.Typer()
InferenceBatch = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Process the graph in blocks of this many nodes, to save memory (default: as when the model was trained).",
    ),
]


@app.command()
def fit(
    sources: Annotated[
        list[Path], typer.Argument(help="Labelled graphs to train on: .npz files, .mat files or folders of CSV files.")
    ],
    model: Annotated[Path, typer.Option("--model", "-m", help="Where to write the trained model.")],
    validation: Annotated[
        list[Path], typer.Option(help="Labelled graph used only for model selection. Can be repeated.")
    ] = [],  # noqa: B006
    recipe: RecipeName = "robust",
    settings: Settings = [],  # noqa: B006
    metric: Annotated[str, typer.Option(help="The metric that model selection maximises.")] = "micro_f1",
    seed: Seed = 0,
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Save the training state to this file, and continue from it if it exists.")
    ] = None,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Save the training state after this many epochs.")] = 10,
) -> None:
    """Train a model on labelled source graphs.

    To train in several processes: `torchrun --nproc-per-node 2 -m edgemask fit … --set batch_size=1024 --set shards=2`.
    """
    first = started().first
    for path in (model, checkpoint):
        if path is not None and first:
            writable(path)
    estimator = EdgeMaskClassifier(recipe, seed=seed, device=device, metric=metric, **parse_settings(settings))
    with progress("fit") if first else nullcontext() as on_epoch:
        estimator.fit(
            [read_graph(p, **parse_settings(read)) for p in sources],
            [read_graph(p, **parse_settings(read)) for p in validation],
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
    model: Annotated[Path, typer.Argument(help="A model file that `edgemask fit` wrote.")],
    graph: Annotated[
        Path, typer.Argument(help="A graph with the same features as the training graphs. Labels are ignored.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="CSV file to write (default: print to standard output).")
    ] = None,
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
    inference_batch: InferenceBatch = None,
) -> None:
    """Predict the class of every node of a graph.

    The result is a CSV table with the class and the class probabilities. In a folder of CSV files a node is named by
    its id, otherwise by its row.
    """
    estimator = EdgeMaskClassifier.load(model, device=device, inference_batch=inference_batch)
    p = estimator.predict_proba(read_graph(graph, **parse_settings(read)))
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
    model: Annotated[Path, typer.Argument(help="A model file that `edgemask fit` wrote.")],
    graph: Annotated[Path, typer.Argument(help="A labelled graph.")],
    metric: Annotated[list[str], typer.Option(help="A metric to compute. Can be repeated.")] = ["micro_f1", "macro_f1"],  # noqa: B006
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
    inference_batch: InferenceBatch = None,
) -> None:
    """Score a trained model on a labelled graph."""
    estimator = EdgeMaskClassifier.load(model, device=device, inference_batch=inference_batch)
    target = read_graph(graph, **parse_settings(read))
    for name, value in estimator.scores(target, metric).items():
        out.print(f"{name} {100 * value:.2f}", highlight=False)
    out.print(
        f"(selection rule {estimator.choice_.rule}, propagation α = {estimator.choice_.alpha:g})", highlight=False
    )


@app.command()
def explain(
    model: Annotated[Path, typer.Argument(help="A model file that `edgemask fit` wrote.")],
    graph: Annotated[Path, typer.Argument(help="A graph with the same features as the training graphs.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="CSV file to write with the mask and origin of every edge.")
    ] = None,
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
    inference_batch: InferenceBatch = None,
) -> None:
    """Show which edges of a graph a trained model masks.

    The table shows the edges by origin: those of the graph and those that enrichment added. An edge counts as pruned
    if its mask is below 0.5.
    """
    estimator = EdgeMaskClassifier.load(model, device=device, inference_batch=inference_batch)
    mask = estimator.explain(read_graph(graph, **parse_settings(read)))
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
    model: Annotated[Path, typer.Argument(help="A model file that `edgemask fit` wrote.")],
    graph: Annotated[Path, typer.Argument(help="A labelled graph with the same features as the training graphs.")],
    steps: Annotated[int, typer.Option(min=1, help="Number of steps of each gradient ascent.")] = 50,
    seed: Seed = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="JSON file to write with the full report.")
    ] = None,
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Check the paper's theory on a trained model.

    The checks are KKT residuals, the surrogate mask, the duality bound and the gradient formulas.
    """
    report = EdgeMaskClassifier.load(model, device=device).theory(
        read_graph(graph, **parse_settings(read)), steps=steps, seed=seed
    )
    for title, rows in report.tables().items():
        wide().print(grid(title, rows))
    if output:
        with replacing(output, text=True) as sink:
            sink.write(json.dumps(report.to_json(), indent=1) + "\n")
