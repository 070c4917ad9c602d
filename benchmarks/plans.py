"""Accuracy of `edgemask plan`: predicted and measured time and peak memory of whole fits."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.common import Figures, Setup, isolated, peaks
from edgemask.config import Recipe
from edgemask.data.synthetic import Family, Wiring, domain
from edgemask.enrich import Cache
from edgemask.experiments.plan import plan
from edgemask.graph import Graph
from edgemask.methods.registry import method_spec
from edgemask.training.fit import Fit


@dataclass(frozen=True)
class Case:
    """A fit to plan and to run.

    Args:
        method: Name of the method.
        settings: Settings that differ from the recipe.
        nodes: Nodes of each synthetic graph; 0 for ACMv9 and Citationv1.
        sources: Number of synthetic graphs.
        recipe: Name of the recipe; None for the method's default.
    """

    method: str
    settings: dict[str, Any]
    nodes: int = 0
    sources: int = 1
    recipe: str | None = None

    @property
    def full_recipe(self) -> Recipe:
        """The recipe with all settings."""
        return method_spec(self.method).under(self.recipe, **self.settings)


STAR = "edgemask-dg-star"
CASES = {
    "`robust`, ACMv9 and Citationv1, 3 epochs": Case(STAR, {"epochs": 3}),
    "`paper`, ACMv9 and Citationv1, 2 epochs": Case(STAR, {"epochs": 2}, recipe="paper"),
    "`robust`, 2 × 1,000 nodes, 30 epochs": Case(STAR, {"epochs": 30}, 1_000, 2),
    "`robust`, 50,000 nodes, 4 epochs": Case(STAR, {"epochs": 4, "spectral_budget": 5}, 50_000),
    "`paper` on the original graph, 50,000 nodes, 2 epochs": Case("edgemask-dg", {"epochs": 2}, 50_000, recipe="paper"),
    "ERM-GCN, 200,000 nodes, 20 epochs": Case("erm-gcn", {"epochs": 20}, 200_000),
    "`robust` on the original graph, 200,000 nodes, 5 epochs": Case("edgemask-dg", {"epochs": 5}, 200_000),
    "`robust` in batches, 50,000 nodes, 1 epoch": Case(
        STAR, {"epochs": 1, "spectral_budget": 5, "batch_size": 1024, "fan_out": 5}, 50_000
    ),
}


def part(setup: Setup) -> Figures:
    """Plan and run every case, each in a new process."""
    isolated(setup, prepare)
    return {
        name: {"planned": isolated(setup, planned, name=name), "real": isolated(setup, real, name=name)}
        for name in CASES
    }


def prepare(setup: Setup) -> Figures:
    """Write the citation graphs to the folder that all processes share."""
    return {"nodes": [setup.graph(name).num_nodes for name in ("acmv9", "citationv1")]}


def graphs(setup: Setup, case: Case) -> list[Graph]:
    """Return the source graphs of a case."""
    if not case.nodes:
        return [setup.graph("acmv9"), setup.graph("citationv1")]
    family, wiring = Family(nodes=case.nodes, features=128), Wiring(degree=10)
    return [domain(family, wiring, f"synthetic-{i}") for i in range(case.sources)]


def planned(setup: Setup, name: str) -> Figures:
    """Plan a case."""
    case = CASES[name]
    sources = graphs(setup, case)
    start = time.perf_counter()
    prediction = plan(sources, case.full_recipe, setup.where, method=case.method)
    took = time.perf_counter() - start
    seconds = prediction.enrich_seconds + prediction.train_seconds
    return {
        "seconds": seconds,
        "enrich_seconds": prediction.enrich_seconds,
        "epoch_seconds": prediction.epoch_seconds,
        "peak_mib": prediction.peak_mib,
        "took": took,
        "measured": prediction.measured,
    }


def real(setup: Setup, name: str) -> Figures:
    """Run a case and measure it."""
    case = CASES[name]
    sources, method = graphs(setup, case), method_spec(case.method).make
    # A plan does not include loading and compiling on first use: a small fit does both before the measurement.
    small = [domain(Family(nodes=400, features=128), Wiring(degree=10), g.name) for g in sources]
    Fit(method, case.full_recipe.replace(epochs=2), small, device=setup.where).run()
    with tempfile.TemporaryDirectory() as folder, peaks(setup.where) as peak:
        start = time.perf_counter()
        Fit(method, case.full_recipe, sources, device=setup.where, cache=Cache(folder)).run()
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak_mib": peak["block"]["device"]}
