"""The command `evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from edgemask.cli.common import GRAPH_FORMS, Device, InferenceBatch, Reading, check_inputs, out, reading
from edgemask.cli.completion import METRIC_NAMES
from edgemask.cli.json_output import Json, output
from edgemask.estimator import EdgeMaskClassifier
from edgemask.graph import Array, Graph
from edgemask.metrics import parse, score, scored_nodes
from edgemask.runtime.device import resolve_device

app = typer.Typer()


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="A model file that `edgemask fit` wrote.")],
    graph: Annotated[Path, typer.Argument(help=f"A labelled graph: {GRAPH_FORMS}.")],
    metric: Annotated[
        list[str], typer.Option(help="A metric to compute. Can be repeated.", autocompletion=METRIC_NAMES)
    ] = ["micro_f1", "macro_f1"],  # noqa: B006
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
    inference_batch: InferenceBatch = None,
    json: Json = False,
) -> None:
    """Score a trained model on a labelled graph.

    Beside each score stands the one of a model that predicts the most frequent class of this graph for every node.
    """
    options = reading(read)
    for name in metric:
        parse(name)
    resolve_device(device)
    check_inputs([model, graph])
    with output("evaluate", json) as result:
        estimator = EdgeMaskClassifier.load(model, device=device, inference_batch=inference_batch)
        target = estimator.model_.read_graph(graph, options, labels=True)
        scores = estimator.scores(target, metric)
        fields = {
            "model": model,
            "graph": graph,
            "name": target.name,
            "nodes": int(scored_nodes(target).sum()),
            "scores": scores,
            "majority": score(metric, target, np.tile(class_shares(target), (target.num_nodes, 1))),
            "metric": estimator.model_.metric,
            "expected": None if estimator.expected_ is None else asdict(estimator.expected_),
            "rule": estimator.rule_,
        }
        result.show(fields, lambda: print_scores(fields))


def class_shares(graph: Graph) -> Array:
    """Return the share of each class among the labelled nodes."""
    labels = graph.first_labels[graph.first_labels >= 0]
    return np.bincount(labels, minlength=graph.num_classes) / max(1, len(labels))


def print_scores(fields: Mapping[str, Any]) -> None:
    """Print the scores of a model beside those of the most frequent class."""
    for name, value in fields["scores"].items():
        guess = fields["majority"][name]
        out.print(f"{name} {100 * value:.2f} (most frequent class: {100 * guess:.2f})")
    expected = fields["expected"]
    if expected and fields["metric"] in fields["scores"]:
        text = f"{100 * expected['score']:.1f} ({100 * expected['low']:.1f} to {100 * expected['high']:.1f})"
        out.print(f"expected {fields['metric']} on an unseen graph: {text}")
    out.print(f"(selection rule {fields['rule']})")
