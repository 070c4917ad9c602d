"""Enrichment of ACMv9 with 10 neighbours and 100 spectral clusters: edgemask and scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import SpectralClustering
from sklearn.neighbors import kneighbors_graph

from benchmarks.common import Figures, Setup, isolated, peaks, repeated
from edgemask.data.synthetic import Family, Wiring, domain
from edgemask.enrich import enrich, knn
from edgemask.graph import Array, Graph

K, CLUSTERS = 10, 100


def part(setup: Setup) -> Figures:
    """Measure the four jobs, each in its own process, and the quality of their results."""
    isolated(setup, prepare)
    kinds = {"knn": ("our_neighbours", "stock_neighbours"), "spectral": ("our_clusters", "stock_clusters")}
    figures = {
        kind: {
            who: isolated(setup, measured, job=job) for who, job in zip(("edgemask", "scikit-learn"), jobs, strict=True)
        }
        for kind, jobs in kinds.items()
    }
    return figures | {"quality": isolated(setup, quality)}


def prepare(setup: Setup) -> Figures:
    """Write the graph to the folder that all processes share."""
    return {"nodes": setup.graph().num_nodes}


def our_neighbours(setup: Setup, graph: Graph) -> Array:
    """Find neighbours with edgemask."""
    return knn(graph.x, K, device=setup.where)


def stock_neighbours(setup: Setup, graph: Graph) -> Array:
    """Find neighbours with scikit-learn."""
    neighbours = kneighbors_graph(graph.x, K, mode="distance", metric="cosine")
    return neighbours.indices.reshape(-1, K)


def our_clusters(setup: Setup, graph: Graph) -> Array:
    """Find clusters with edgemask."""
    return enrich(graph, k=0, clusters=CLUSTERS, device=setup.where).clusters


def stock_clusters(setup: Setup, graph: Graph) -> Array:
    """Find clusters with scikit-learn."""
    return SpectralClustering(n_clusters=CLUSTERS, affinity="rbf", random_state=0).fit_predict(graph.x)


JOBS: dict[str, Callable[[Setup, Graph], Array]] = {
    f.__name__: f for f in (our_neighbours, stock_neighbours, our_clusters, stock_clusters)
}


def measured(setup: Setup, job: str) -> Figures:
    """Measure time and peak memory of one job and save its result.

    The job first runs on a small graph, so that loading and compiling are not measured.
    """
    call = JOBS[job]
    call(setup, domain(Family(nodes=2 * CLUSTERS, kind="words", features=500), Wiring(), "small"))
    graph, results = setup.graph(), []
    calls = {job: lambda: results.append(call(setup, graph))}
    with peaks(setup.where) as peak:
        taken = repeated(calls, setup.where, warm_up=0, least=1, most=7, within=6.0)[job]
    np.save(Path(setup.folder) / f"{job}.npy", results[-1])
    return taken | {"peak": peak}


def quality(setup: Setup) -> Figures:
    """Return the purity of both clusterings, and the share of places in the neighbour lists with equal similarity."""
    graph = setup.graph()
    results = {job: np.load(Path(setup.folder) / f"{job}.npy") for job in JOBS}
    x: Any = graph.x.astype(np.float64)
    x = x.multiply(1 / np.sqrt(x.multiply(x).sum(axis=1))[:, None]).tocsr()

    def similarities(lists: Array) -> Array:
        rows = np.repeat(np.arange(len(lists)), K)
        return np.sort(np.asarray(x[rows].multiply(x[lists.ravel()]).sum(axis=1)).reshape(-1, K), axis=1)

    ours, stock = similarities(results["our_neighbours"]), similarities(results["stock_neighbours"])
    return {
        "purity": {
            "edgemask": purity(graph.first_labels, results["our_clusters"]),
            "scikit-learn": purity(graph.first_labels, results["stock_clusters"]),
        },
        "same_similarity": float(np.isclose(ours, stock, atol=1e-6).mean()),
    }


def purity(labels: Array, clusters: Array) -> float:
    """Return the share of clustered nodes that belong to the most frequent class of their cluster."""
    clustered = clusters >= 0
    counts = np.zeros((clusters.max() + 1, labels.max() + 1))
    np.add.at(counts, (clusters[clustered], labels[clustered]), 1)
    return float(counts.max(axis=1).sum() / clustered.sum())
