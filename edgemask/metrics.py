"""Metrics of the benchmarks by name, computed on labelled nodes only.

A metric that is not defined for its input raises a `MetricError`. No metric changes its value, for example by reporting
1 - AUC for an AUC below 0.5.

The functions take labels `y` (N integers, or N × C for the metrics in `EVERY_LABEL`) and class probabilities `p`
(N × C).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgemask.errors import MetricError
from edgemask.graph import Graph
from edgemask.legal import did_you_mean

Array = npt.NDArray[Any]


def accuracy(y: Array, p: Array) -> float:
    """Return the share of nodes whose most probable class is their label."""
    return float((p.argmax(1) == y).mean())


def micro_f1(y: Array, p: Array) -> float:
    """Return the micro-averaged F1 score. With one label per node it equals the accuracy."""
    return accuracy(y, p)


def macro_f1(y: Array, p: Array) -> float:
    """Return the mean F1 score of the classes that occur in the labels or the predictions."""
    predicted, scores = p.argmax(1), []
    for c in np.union1d(y, predicted):
        scores.append(_f1(y == c, predicted == c))
    return float(np.mean(scores))


def class_f1(y: Array, p: Array, c: int) -> float:
    """Return the F1 score of class `c`, or 0 if it occurs neither in the labels nor in the predictions."""
    return _f1(y == c, p.argmax(1) == c)


def roc_auc(y: Array, p: Array) -> float:
    """Return the area under the ROC curve of class 1 in a task with two classes. It can be below 0.5.

    Raises:
        MetricError: There are not two classes, or the labels contain only one of them.
    """
    if p.shape[1] != 2:
        raise MetricError(f"roc_auc needs 2 classes, got {p.shape[1]}")
    positives = int((y == 1).sum())
    negatives = len(y) - positives
    if not positives or not negatives:
        raise MetricError(f"roc_auc needs both classes, got {positives} positives and {negatives} negatives")
    _, inverse, counts = np.unique(p[:, 1], return_inverse=True, return_counts=True)
    mean_rank = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # tied nodes share their mean rank
    return float((mean_rank[y == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def hits(y: Array, p: Array) -> float:
    """Return the share of nodes whose most probable class is one of their labels. `y` is N × C."""
    return float(y[np.arange(len(y)), p.argmax(1)].mean())


def label_micro_f1(y: Array, p: Array) -> float:
    """Return the F1 score over all pairs of a node and a class, predicted if the probability is above 1/2.

    It is the multi-label score with thresholds. `y` is N × C.
    """
    return _f1(y > 0, p > 0.5)


def label_macro_f1(y: Array, p: Array) -> float:
    """Return the mean over all classes of their F1 scores, with a class predicted if its probability is above 1/2.

    A class that occurs neither in the labels nor in the predictions counts as 0. `y` is N × C.
    """
    return float(np.mean([_f1(y[:, c] > 0, p[:, c] > 0.5) for c in range(y.shape[1])]))


def _f1(truth: Array, predicted: Array) -> float:
    """Return the F1 score of two boolean arrays."""
    both, total = int((truth & predicted).sum()), int(truth.sum() + predicted.sum())
    return 2 * both / total if total else 0.0


METRICS: dict[str, Callable[..., float]] = {
    "accuracy": accuracy,
    "micro_f1": micro_f1,
    "macro_f1": macro_f1,
    "f1": class_f1,
    "roc_auc": roc_auc,
    "hits": hits,
    "label_micro_f1": label_micro_f1,
    "label_macro_f1": label_macro_f1,
}
THRESHOLDED = ("label_micro_f1", "label_macro_f1")  # metrics of each class's own probability
EVERY_LABEL = ("hits", *THRESHOLDED)  # metrics that use all labels of a node


def thresholded(metrics: Sequence[str]) -> bool:
    """Return whether a metric compares the probability of each class with a threshold."""
    return any(metric in THRESHOLDED for metric in metrics)


def parse(metric: str) -> tuple[str, tuple[int, ...]]:
    """Return the name and the argument of a metric.

    Raises:
        MetricError: The metric is unknown, or its argument is not valid.

    >>> parse("accuracy"), parse("f1:1")
    (('accuracy', ()), ('f1', (1,)))
    """
    if not isinstance(metric, str):
        raise MetricError(f"metric must be the name of one metric, such as 'micro_f1', got {metric!r}")
    kind, _, argument = metric.partition(":")
    if kind not in METRICS:
        raise MetricError(f"no metric {metric!r} (metrics: {', '.join(METRICS)}){did_you_mean(kind, METRICS)}")
    if kind != "f1":
        if metric != kind:
            raise MetricError(f"metric {metric!r}: {kind} does not take an argument")
        return kind, ()
    if not (argument.isascii() and argument.isdigit()):
        raise MetricError(f"metric {metric!r}: f1 needs the index of a class, as in 'f1:1'")
    return kind, (int(argument),)


def scored_nodes(graph: Graph) -> Array:
    """Return a boolean mask of the labelled nodes, within the mask `eval` if the graph has one, else within `test`."""
    mask = graph.masks.get("eval", graph.masks.get("test"))
    return graph.labelled if mask is None else graph.labelled & mask


def score(
    metrics: Sequence[str],
    graph: Graph,
    probabilities: Array,
    *,
    nodes: Array | None = None,
    of_labels: bool = False,
) -> dict[str, float]:
    """Compute metrics on the labelled nodes of a graph. If it has a mask `eval` or `test`, only its nodes are used.

    If nodes have several labels, `hits` and the thresholded metrics use all of them; the others use the first one.

    Args:
        metrics: Names of the metrics, such as `"accuracy"` or `"f1:1"`.
        graph: A graph with labels.
        probabilities: N × C class probabilities of all nodes.
        nodes: Boolean mask of the nodes to score. By default `scored_nodes(graph)`.
        of_labels: Whether each probability is that of a label on its own, so that rows need not sum to 1. Thresholded
            metrics need such probabilities; see `edgemask.inference.label_probabilities`.

    Returns:
        The values by metric.

    Raises:
        MetricError: A metric is unknown or not defined for this graph, or the probabilities are not valid.
    """
    probabilities = np.asarray(probabilities)
    if probabilities.shape != (graph.num_nodes, graph.num_classes):
        raise MetricError(
            f"graph {graph.name!r}: predictions have shape {probabilities.shape}, "
            f"expected {(graph.num_nodes, graph.num_classes)}"
        )
    if not np.isfinite(probabilities).all():
        row = int(np.argwhere(~np.isfinite(probabilities))[0][0])
        name = graph.node_name(row)
        raise MetricError(f"graph {graph.name!r}: prediction of node {name!r} must be finite, got {probabilities[row]}")
    nodes = scored_nodes(graph) if nodes is None else nodes
    if graph.y is None or not nodes.any():
        raise MetricError(f"graph {graph.name!r}: there are no labelled nodes to score")
    y, p = graph.y[nodes], probabilities[nodes]
    indicators = y if y.ndim == 2 else np.eye(graph.num_classes)[y]
    classless = np.flatnonzero(nodes)[
        ~indicators.any(1)
    ]  # `EVERY_LABEL` counts them as misses; other metrics need a label
    result = {}
    for name in metrics:
        kind, argument = parse(name)
        if kind in THRESHOLDED and not of_labels:
            raise MetricError(f"metric {name!r} needs a probability of each label: it works with runs of a method only")
        if argument and argument[0] >= graph.num_classes:
            raise MetricError(f"metric {name!r}: graph {graph.name!r} has only {graph.num_classes} classes")
        if kind not in EVERY_LABEL and len(classless):
            raise MetricError(f"metric {name!r}: node {classless[0]} of graph {graph.name!r} has none of the classes")
        result[name] = METRICS[kind](indicators if kind in EVERY_LABEL else indicators.argmax(1), p, *argument)
    return result
