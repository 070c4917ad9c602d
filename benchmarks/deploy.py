"""The cost of using a model, and of small fits with all threads and with one."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from benchmarks.common import Figures, Setup, isolated, repeated
from edgemask import EdgeMaskClassifier, load_model
from edgemask.data.synthetic import Family, Wiring, domain
from edgemask.graph import Graph

MODELS = ("erm-gcn", "erm-mix", "erm-gat", "robust")
AVERAGED = ("erm-gcn", "erm-mix", "robust")
NODES, SMALL = 10_000, 400
FITS = {"erm-gcn": 100, "robust": 20}  # epochs of the small fits


def part(setup: Setup) -> Figures:
    """Measure predictions of a loaded model, and small fits with all threads and with one."""
    isolated(setup, train)
    threads = {str(count): isolated(replace(setup, threads=count), fits) for count in (setup.threads, 1)}
    return {"predict": isolated(setup, predictions), "threads": threads}


def graph(nodes: int, name: str) -> Graph:
    """Return a synthetic graph with 64 features, 5 classes and average degree 10."""
    return domain(Family(nodes=nodes, features=64, classes=5), Wiring(degree=10), name)


def sources() -> list[Graph]:
    """Return two small graphs to train on."""
    return [graph(SMALL, name) for name in ("alpha", "beta")]


def train(setup: Setup) -> Figures:
    """Write the models to the folder that all processes share. Their speed does not depend on how well they fit."""
    for name in MODELS:
        model = EdgeMaskClassifier(name, epochs=2, select="last", alpha=0.5, device=setup.device).fit(sources())
        model.save(Path(setup.folder) / name)
    return {}


def predictions(setup: Setup) -> Figures:
    """Time `predict_proba` of loaded models: the first call, and later ones."""
    target = graph(NODES, "target")
    models = {name: load_model(Path(setup.folder) / name, device=setup.device) for name in MODELS}
    together = [member for name in AVERAGED for member in models[name].members]
    models[f"average of {', '.join(AVERAGED)}"] = replace(models[AVERAGED[0]], members=together)
    first = {}
    for name, model in models.items():
        start = time.perf_counter()
        model.predict_proba(target)
        first[name] = time.perf_counter() - start
    calls = {name: lambda model=model: model.predict_proba(target) for name, model in models.items()}  # type: ignore[misc]
    later = repeated(calls, setup.where, least=20, most=200, within=75.0)
    return {
        "nodes": target.num_nodes,
        "edges": target.num_edges,
        "models": {name: {"first": first[name], **later[name]} for name in models},
    }


def fits(setup: Setup) -> Figures:
    """Time fits on two small graphs."""

    def fit(name: str, epochs: int) -> None:
        EdgeMaskClassifier(name, epochs=epochs, select="last", alpha=0.5, device=setup.device).fit(graphs)

    graphs = sources()
    calls = {name: lambda name=name, epochs=epochs: fit(name, epochs) for name, epochs in FITS.items()}  # type: ignore[misc]
    return dict(repeated(calls, setup.where, least=5, most=20, within=15.0))
