"""Growth from 10⁴ to 10⁶ synthetic nodes, and a million nodes with sparse features: enrichment and one epoch.

Each size is measured in its own process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.common import Figures, Setup, isolated, peaks, seconds
from edgemask.config import recipe
from edgemask.data.synthetic import Family, Wiring, domain
from edgemask.enrich import Cache
from edgemask.experiments.plan.probe import Stopwatch
from edgemask.graph import Graph
from edgemask.methods.edgemask import Game
from edgemask.methods.sources import make_sampler, make_source
from edgemask.training.trainer import Trainer

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
DEGREE, FEATURES, CLASSES = 10, 128, 5
WORDS = 5_000  # sparse columns
# If faiss is installed, all sizes use the approximate index, otherwise the exact search.
INDEXED = find_spec("faiss") is not None
RECIPE = recipe("robust", spectral_budget=5, knn_exact_up_to=5_000 if INDEXED else 10**9)
EPOCHS, ENOUGH = 5, 40.0  # largest number of epochs, seconds after which no epoch is started; the last one counts


def part(setup: Setup, sizes: Sequence[int], words: int = 0) -> Figures:
    """Measure synthetic graphs of these sizes and fit the exponents of growth.

    Args:
        setup: Device, threads and folders.
        sizes: Numbers of nodes.
        words: Number of sparse columns; 0 for dense features.
    """
    points = [isolated(setup, point, nodes=n, words=words) for n in sizes]
    costs = ("knn", "spectral", "enrich", "epoch") if len(points) > 1 else ()
    fitted = {name: exponent(sizes, [p[name] for p in points]) for name in costs}
    return {"search": "index" if INDEXED else "exact", "points": points, "exponents": fitted}


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return the exponent of a power law, fitted by least squares in logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


class RecallStopwatch(Stopwatch):
    """A `Stopwatch` that also keeps the recall of the neighbour search."""

    recall = 1.0

    def get(self, kind: str, x: Any, parameters: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """Return the array as `Stopwatch.get` does, and keep the recall."""
        array = super().get(kind, x, parameters, compute)
        if kind == "recall":
            self.recall = float(array)
        return array


def synthetic(nodes: int, words: int) -> Graph:
    """Return a synthetic graph with `words` sparse columns, or with dense features if it is 0."""
    features = {"features": words, "kind": "words"} if words else {"features": FEATURES}
    return domain(Family(nodes=nodes, classes=CLASSES, **features), Wiring(degree=DEGREE), f"synthetic-{nodes}")


def point(setup: Setup, nodes: int, words: int) -> Figures:
    """Measure enrichment and epochs of one size, after a small graph that loads and compiles on first use.

    Args:
        setup: Device, threads and data of the measurement.
        nodes: Number of nodes.
        words: Number of sparse columns; 0 for dense features.
    """
    measure(setup, synthetic(2_000, words))
    graph = synthetic(nodes, words)
    return {"nodes": nodes, "edges": graph.num_edges, **measure(setup, graph)}


def measure(setup: Setup, graph: Graph) -> Figures:
    """Measure the enrichment of a graph by kind, then epochs of training on it."""
    device = setup.where
    with tempfile.TemporaryDirectory() as folder:
        with peaks(device) as enriching:
            cache = RecallStopwatch(folder)
            enrich = seconds(lambda: make_sampler(RECIPE, graph, device, cache), device)
        with peaks(device) as training:
            source = make_source(RECIPE, graph, np.flatnonzero(graph.labelled), device, Cache(folder))
            trainer = Trainer(Game(RECIPE, graph.num_features, CLASSES, 0, device), [source])
            taken = [seconds(trainer.step, device)]
            while len(taken) < EPOCHS and sum(taken) < ENOUGH:
                taken.append(seconds(trainer.step, device))
    return {
        **cache.seconds,
        "enrich": enrich,
        "knn_recall": cache.recall,
        "epoch": taken[-1],
        "first_epoch": taken[0],
        "epochs_run": len(taken),
        "epoch_edges": trainer.method.sample(source, 0).num_real,
        "peak": {"enrich": enriching["block"], "train": training["block"], "process": training["process"]},
    }
