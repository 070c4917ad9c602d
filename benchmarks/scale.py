"""Growth from 10⁴ to 10⁶ synthetic nodes: enrichment and one epoch of the game, each size in a process of its own;
and a million nodes with sparse features."""

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
# All sizes search by the index, where it is installed; else exactly.
INDEXED = find_spec("faiss") is not None
RECIPE = recipe("robust", spectral_budget=5, knn_exact_up_to=5_000 if INDEXED else 10**9)
EPOCHS, ENOUGH = 5, 40.0  # epochs at most, seconds of them after which none is begun; the last one is the figure


def part(setup: Setup, sizes: Sequence[int], words: int = 0) -> Figures:
    """With `words`, nodes have that many sparse columns instead of dense ones."""
    points = [isolated(setup, point, nodes=n, words=words) for n in sizes]
    costs = ("knn", "spectral", "enrich", "epoch") if len(points) > 1 else ()
    fitted = {name: exponent(sizes, [p[name] for p in points]) for name in costs}
    return {"search": "index" if INDEXED else "exact", "points": points, "exponents": fitted}


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """The slope of least squares in logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


class Watch(Stopwatch):
    """Notes the recall of the search, too."""

    recall = 1.0

    def get(self, kind: str, x: Any, parameters: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        answer = super().get(kind, x, parameters, compute)
        if kind == "recall":
            self.recall = float(answer)
        return answer


def synthetic(nodes: int, words: int) -> Graph:
    features = {"features": words, "kind": "words"} if words else {"features": FEATURES}
    return domain(Family(nodes=nodes, classes=CLASSES, **features), Wiring(degree=DEGREE), f"synthetic-{nodes}")


def point(setup: Setup, nodes: int, words: int) -> Figures:
    """Enrichment by kind, then epochs; a small graph first, for what is loaded or compiled on first use."""
    play(setup, synthetic(2_000, words))
    graph = synthetic(nodes, words)
    return {"nodes": nodes, "edges": graph.num_edges, **play(setup, graph)}


def play(setup: Setup, graph: Graph) -> Figures:
    device = setup.where
    with tempfile.TemporaryDirectory() as folder:
        with peaks(device) as enriching:
            cache = Watch(folder)
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
