"""The commands `explain` and `theory`."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.table import Table

from edgemask.cli.common import (
    GRAPH_FORMS,
    Device,
    InferenceBatch,
    Reading,
    Seed,
    check_inputs,
    grid,
    out,
    reading,
    wide,
)
from edgemask.cli.json_output import Json, output
from edgemask.cli.loading import node_names
from edgemask.cli.tables import write_guarded
from edgemask.errors import InputError
from edgemask.estimator import EdgeMaskClassifier
from edgemask.graph import Array, Graph
from edgemask.legal import did_you_mean
from edgemask.runtime.atomic import replacing, writable
from edgemask.runtime.device import resolve_device

EDGES_SHOWN = 20

app = typer.Typer()


@app.command()
def explain(
    model: Annotated[Path, typer.Argument(help="A model file that `edgemask fit` wrote.")],
    graph: Annotated[
        Path, typer.Argument(help=f"A graph with the same features as the training graphs: {GRAPH_FORMS}.")
    ],
    node: Annotated[
        list[str],
        typer.Option(
            help="Explain the prediction of this node: its id if the graph has ids, else its row. Can be repeated "
            "(default: a random sample of 20 nodes)."
        ),
    ] = [],  # noqa: B006
    adversary: Annotated[
        bool,
        typer.Option(
            "--adversary",
            help="Show the mask of the adversary instead: a worst case of training, not the reason of a prediction.",
        ),
    ] = False,
    target: Annotated[
        Path | None, typer.Option("--output", "-o", help="CSV file to write, with a row per edge.")
    ] = None,
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
    inference_batch: InferenceBatch = None,
    json: Json = False,
) -> None:
    """Show the edges that predictions depend on.

    For every edge that ends in an explained node: the derivative of the predicted probability by the weight of the
    edge, and, for the most important edges, the change of that probability if the edge is removed.
    """
    options = reading(read)
    if target:
        writable(target)
    resolve_device(device)
    check_inputs([model, graph])
    with output("explain", json) as result:
        estimator = EdgeMaskClassifier.load(model, device=device, inference_batch=inference_batch)
        about = estimator.model_.read_graph(graph, options)
        names = node_names(about)
        fields: dict[str, Any] = {"model": model, "graph": graph, "name": about.name, "output": target}
        if adversary:
            frame, table, origins = adversary_table(estimator, about, names)
            fields |= {"kind": "adversary", "origins": origins}
        else:
            frame, table = explanation_table(estimator, about, [names[row_of(n, names)] for n in node] or None)
            fields |= {"kind": "prediction", "edges": frame.to_dict("records")}
        if target:
            ends = ["source", "destination"] if adversary else ["node", "neighbour", "class"]
            write_guarded(frame, target, ends)
        result.show(fields, lambda: wide().print(table))


def row_of(node: str, names: Array) -> int:
    """Return the row of a node that a user names.

    Raises:
        InputError: There is no such node.
    """
    known = names.astype(str)
    rows = np.flatnonzero(known == node)
    if not len(rows):
        raise InputError(f"no node {node!r} in the graph{did_you_mean(node, known[:1000].tolist())}")
    return int(rows[0])


def explanation_table(
    estimator: EdgeMaskClassifier, target: Graph, nodes: list[Any] | None
) -> tuple[pd.DataFrame, Table]:
    """Return the explanation of predictions with the names of nodes and classes, and a table of the strongest edges."""
    frame = estimator.explain(target, nodes)
    shown = frame if nodes else frame.dropna(subset="change").sort_values("change", key=abs, ascending=False)
    title = "edges that predictions depend on" + ("" if len(shown) <= EDGES_SHOWN else f", the {EDGES_SHOWN} strongest")
    table = Table(title=title, title_justify="left")
    for column in ("node", "neighbour", "predicted class", "probability", "derivative", "change if removed"):
        table.add_column(column, justify="left" if column in ("node", "neighbour") else "right")
    for row in shown.head(EDGES_SHOWN).itertuples(index=False):
        *texts, p, derivative, change = row[:6]
        table.add_row(
            *(str(text) for text in texts),
            f"{p:.3f}",
            f"{derivative:+.3f}",
            "" if np.isnan(change) else f"{change:+.3f}",
        )
    return frame, table


def adversary_table(
    estimator: EdgeMaskClassifier, target: Graph, names: Array
) -> tuple[pd.DataFrame, Table, list[dict[str, Any]]]:
    """Return the adversary's mask of every edge, and a table and JSON values of its mean by origin of the edges."""
    mask = estimator.adversary(target)
    ends = {"source": names[mask.edges[0]], "destination": names[mask.edges[1]]}
    frame = pd.DataFrame({**ends, "origin": mask.origin, "mask": mask.s})
    origins: list[dict[str, Any]] = [
        {"origin": str(origin), "edges": len(m), "mean_mask": float(m.mean()), "pruned": float((m < 0.5).mean())}
        for origin, m in frame.groupby("origin", sort=False)["mask"]
    ]
    table = Table(title="mask of the adversary by origin (pruned: below 0.5)", title_justify="left")
    for column in ("origin", "edges", "mean mask", "pruned"):
        table.add_column(column, justify="left" if column == "origin" else "right")
    for row in origins:
        table.add_row(row["origin"], f"{row['edges']:,}", f"{row['mean_mask']:.3f}", f"{100 * row['pruned']:.1f} %")
    return frame, table, origins


@app.command()
def theory(
    model: Annotated[Path, typer.Argument(help="A model file that `edgemask fit` wrote.")],
    graph: Annotated[
        Path, typer.Argument(help=f"A labelled graph with the same features as the training graphs: {GRAPH_FORMS}.")
    ],
    steps: Annotated[int, typer.Option(min=1, help="Number of steps of each gradient ascent.")] = 50,
    seed: Seed = 0,
    target: Annotated[
        Path | None, typer.Option("--output", "-o", help="JSON file to write with the full report.")
    ] = None,
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Check the paper's theory on a trained model.

    The checks are KKT residuals, the surrogate mask, the duality bound and the gradient formulas.
    """
    options = reading(read)
    if target:
        writable(target)
    resolve_device(device)
    check_inputs([model, graph])
    with output("theory", json) as result:
        estimator = EdgeMaskClassifier.load(model, device=device)
        labelled = estimator.model_.read_graph(graph, options, labels=True)
        report = estimator.theory(labelled, steps=steps, seed=seed)
        if target:
            with replacing(target, text=True) as sink:
                sink.write(dumps(report.to_json(), indent=1) + "\n")
        fields = {"model": model, "graph": graph, "output": target, "report": report.to_json()}

        def print_report() -> None:
            for title, rows in report.tables().items():
                wide().print(grid(title, rows))
            out.print(report.verdict(), soft_wrap=True)

        result.show(fields | {"verdict": report.verdict()}, print_report)
