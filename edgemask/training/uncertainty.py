"""Standard errors of scores and of their differences, by a delete-one-group jackknife over the scored nodes."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

import numpy as np

from edgemask.graph import Array, Graph
from edgemask.metrics import score, scored_nodes
from edgemask.seeds import numpy_stream

GROUPS = 50


def replicates(metric: str, graph: Graph, probabilities: Array) -> Array:
    """Return the score without each group of nodes in turn.

    The groups depend on the labels only, so the replicates of different predictions can be subtracted. Every group has
    about the same share of each class.

    Args:
        metric: Name of the metric.
        graph: A labelled graph.
        probabilities: N × C class probabilities of all nodes.

    Raises:
        MetricError: The metric is not defined without one of the groups, because a class has too few nodes.
    """
    scored = scored_nodes(graph)
    group = np.full(graph.num_nodes, -1)
    nodes = np.flatnonzero(scored)
    nodes = numpy_stream(0, "jackknife", len(nodes)).permutation(nodes)
    nodes = nodes[np.argsort(graph.first_labels[nodes], kind="stable")]
    count = min(GROUPS, len(nodes))
    group[nodes] = np.arange(len(nodes)) % count
    kept = (scored & (group != g) for g in range(count))
    return np.array([score((metric,), graph, probabilities, nodes=mask)[metric] for mask in kept])


def standard_error(by_graph: Mapping[str, Array], minus: Mapping[str, Array] | None = None) -> float:
    """Return the standard error of a mean score over graphs, or of the difference of two such means.

    Args:
        by_graph: Replicates of the score on each graph.
        minus: Replicates of the other score on the same graphs.
    """
    variance = 0.0
    for name, values in by_graph.items():
        values = values if minus is None else values - minus[name]
        variance += (len(values) - 1) * float(np.var(values))
    return sqrt(variance) / len(by_graph)
