"""The metrics of the benchmarks, by name, over labelled nodes only. None of them repairs itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgemask.errors import MetricError
from edgemask.graph import Graph

Array = npt.NDArray[Any]


def accuracy(y: Array, p: Array) -> float:
    """Share of nodes whose most probable class is their class."""
    return float((p.argmax(1) == y).mean())


def micro_f1(y: Array, p: Array) -> float:
    """Micro-averaged F1; with one label per node it equals accuracy."""
    return accuracy(y, p)


def macro_f1(y: Array, p: Array) -> float:
    """Mean of the per-class F1 over the classes that occur in the labels or the predictions."""
    predicted, scores = p.argmax(1), []
    for c in np.union1d(y, predicted):
        scores.append(_f1(y == c, predicted == c))
    return float(np.mean(scores))


def class_f1(y: Array, p: Array, c: int) -> float:
    """F1 of one class (`f1:1` is the F1 of class 1); 0 when the class is neither there nor predicted."""
    return _f1(y == c, p.argmax(1) == c)


def roc_auc(y: Array, p: Array) -> float:
    """Area under the ROC curve of class 1 in a two-class task; below 0.5 stays below 0.5."""
    if p.shape[1] != 2:
        raise MetricError(f"roc_auc needs 2 classes, got {p.shape[1]}")
    positives = int((y == 1).sum())
    negatives = len(y) - positives
    if not positives or not negatives:
        raise MetricError(f"roc_auc needs both classes, got {positives} positives and {negatives} negatives")
    _, where, counts = np.unique(p[:, 1], return_inverse=True, return_counts=True)
    mean_rank = (np.cumsum(counts) - (counts - 1) / 2)[where]  # ties share their mean rank
    return float((mean_rank[y == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def hits(y: Array, p: Array) -> float:
    """Multi-label hits: share of nodes whose most probable class is one of their labels."""
    return float(y[np.arange(len(y)), p.argmax(1)].mean())


def _f1(truth: Array, predicted: Array) -> float:
    both, total = int((truth & predicted).sum()), int(truth.sum() + predicted.sum())
    return 2 * both / total if total else 0.0


METRICS: dict[str, Callable[..., float]] = {
    "accuracy": accuracy,
    "micro_f1": micro_f1,
    "macro_f1": macro_f1,
    "f1": class_f1,
    "roc_auc": roc_auc,
    "hits": hits,
}


def parse(metric: str) -> tuple[str, tuple[int, ...]]:
    """A metric's name and argument: `"accuracy"` is `("accuracy", ())`, `"f1:1"` is `("f1", (1,))`."""
    kind, _, argument = metric.partition(":")
    if kind not in METRICS:
        raise MetricError(f"no metric {metric!r} (metrics: {', '.join(METRICS)})")
    if kind != "f1":
        if metric != kind:
            raise MetricError(f"metric {metric!r}: {kind} takes no argument")
        return kind, ()
    if not (argument.isascii() and argument.isdigit()):
        raise MetricError(f"metric {metric!r}: f1 needs the index of its class, as in 'f1:1'")
    return kind, (int(argument),)


def score(metrics: Sequence[str], graph: Graph, probabilities: Array) -> dict[str, float]:
    """Each metric on the labelled nodes of `graph` (those of its `eval` mask, where it has one).

    `probabilities` is N × C, a row for every node. Of a node with several labels the metrics for one label
    take the first; `hits` takes them all.
    """
    probabilities = np.asarray(probabilities)
    if probabilities.shape != (graph.num_nodes, graph.num_classes):
        raise MetricError(
            f"graph {graph.name!r}: predictions have shape {probabilities.shape}, "
            f"expected {(graph.num_nodes, graph.num_classes)}"
        )
    if not np.isfinite(probabilities).all():
        node = np.argwhere(~np.isfinite(probabilities))[0][0]
        raise MetricError(f"graph {graph.name!r}: prediction of node {node} is {probabilities[node]}")
    nodes = graph.labelled & graph.masks.get("eval", np.ones(graph.num_nodes, dtype=bool))
    if graph.y is None or not nodes.any():
        raise MetricError(f"graph {graph.name!r}: no labelled node to score")
    y, p = graph.y[nodes], probabilities[nodes]
    several = y if y.ndim == 2 else np.eye(graph.num_classes)[y]
    bare = np.flatnonzero(nodes)[~several.any(1)]  # a miss for `hits`, but no first label to take
    result = {}
    for name in metrics:
        kind, argument = parse(name)
        if argument and argument[0] >= graph.num_classes:
            raise MetricError(f"metric {name!r}: graph {graph.name!r} has {graph.num_classes} classes")
        if kind != "hits" and len(bare):
            raise MetricError(f"metric {name!r}: node {bare[0]} of graph {graph.name!r} has none of the classes")
        result[name] = METRICS[kind](several if kind == "hits" else several.argmax(1), p, *argument)
    return result
