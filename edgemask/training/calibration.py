"""Calibration of probabilities: a temperature fitted on predictions of labelled graphs, and the error that is left."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.optimize import minimize_scalar

from edgemask.graph import Array, Graph
from edgemask.inference import tempered
from edgemask.metrics import scored_nodes

COLDEST, HOTTEST = 0.05, 20.0  # limits of a temperature
BINS = 15


def fit_temperature(graphs: Mapping[str, Graph], predictions: Mapping[str, Array]) -> float:
    """Return the temperature with the smallest mean log loss on labelled graphs. Every graph has the same weight.

    Args:
        graphs: Labelled graphs by name.
        predictions: N × C class probabilities of their nodes by name.
    """
    parts = []
    for name, p in predictions.items():
        nodes = np.flatnonzero(scored_nodes(graphs[name]) & (graphs[name].first_labels >= 0))
        parts.append((p[nodes].astype(np.float64), graphs[name].first_labels[nodes]))

    def loss(log_temperature: float) -> float:
        temperature = float(np.exp(log_temperature))
        losses = [-np.log(np.maximum(tempered(p, temperature)[np.arange(len(y)), y], 1e-12)).mean() for p, y in parts]
        return float(np.mean(losses))

    found = minimize_scalar(loss, bounds=(np.log(COLDEST), np.log(HOTTEST)), method="bounded", options={"xatol": 1e-4})
    return float(np.exp(found.x))


def calibration_error(graph: Graph, probabilities: Array) -> float:
    """Return the expected calibration error: the mean gap between confidence and accuracy over 15 bins of confidence.

    Each bin counts with its share of the scored nodes.
    """
    nodes = np.flatnonzero(scored_nodes(graph) & (graph.first_labels >= 0))
    p, y = probabilities[nodes], graph.first_labels[nodes]
    confidence, hit = p.max(1), p.argmax(1) == y
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, weights=confidence - hit, minlength=BINS)
    return float(np.abs(gaps).sum() / len(nodes))
