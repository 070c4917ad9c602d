"""The enriched graph, original ∪ kNN ∪ spectral edges (section 4.1): what is found in a graph's features."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from edgemask.enrich.cache import Cache
from edgemask.enrich.index import INDEX, approximate_knn, recall
from edgemask.enrich.knn import knn
from edgemask.enrich.spectral import Affinity, spectral_clusters
from edgemask.errors import EnrichWarning, InputError
from edgemask.graph import Graph

Array = npt.NDArray[Any]

EXACT_UP_TO = 200_000  # nodes whose neighbours are found exactly in a minute or two on two cores
LEAST_INDEXED = 1000  # nodes: fewer are not worth an index, nor enough to make one of


@dataclass(frozen=True, eq=False)
class EnrichedGraph:
    """A graph with its feature-based edges: `enrich` makes it, `Sampler` draws from it.

    `knn_pairs`  2 × P node pairs i < j, distinct: j is among the k nearest of i, or i of j.
    `clusters`   N cluster indices (-1 = none). Every pair inside a cluster is a spectral pair; they are
                 counted and drawn by number, never listed.
    `knn_recall` share of the nearest neighbours that were found, 1 by the exact search.
    """

    graph: Graph
    knn_pairs: Array
    clusters: Array
    knn_recall: float = 1.0

    @property
    def cluster_sizes(self) -> Array:
        """Nodes in each cluster."""
        return np.bincount(self.clusters[self.clusters >= 0])

    @property
    def num_knn_pairs(self) -> int:
        return int(self.knn_pairs.shape[1])

    @property
    def num_spectral_pairs(self) -> int:
        sizes = self.cluster_sizes
        return int((sizes * (sizes - 1) // 2).sum())

    def reordered(self, order: Array) -> EnrichedGraph:
        """The same with the nodes in another order: node i is what was node `order[i]`."""
        graph, place, clusters = self.graph.reordered(order), np.argsort(order), self.clusters[order]
        clusters.setflags(write=False)
        return replace(self, graph=graph, knn_pairs=_pairs(place[self.knn_pairs], len(place)), clusters=clusters)


def enrich(
    graph: Graph,
    *,
    k: int = 10,
    clusters: int = 100,
    affinity: Affinity = "cosine",
    gamma: float | None = None,
    knn_exact_up_to: int = EXACT_UP_TO,
    seed: int = 0,
    cache: Cache | None = None,
    device: str | torch.device = "cpu",
) -> EnrichedGraph:
    """Find the kNN pairs and the spectral clusters of a graph's features.

    `k` neighbours per node and a number of `clusters` (0 = none of that kind); `affinity`, `gamma` and
    `seed` as in `spectral_clusters`; `device` is where dense neighbour search runs, and changes nothing
    else. With a `cache`, results are read from it and stored in it. A graph too small for `k` or `clusters`
    gets fewer, with an `EnrichWarning`.

    Up to `knn_exact_up_to` nodes with features the neighbours are exact. Above, they come from an approximate
    index (the extra `edgemask[scale]`), and an `EnrichWarning` says its measured recall.
    """
    x, n = graph.x, graph.num_nodes
    if k < 0:
        raise InputError(f"graph {graph.name!r}: k must be at least 0, got {k}")
    if clusters < 0 or clusters == 1:
        raise InputError(f"graph {graph.name!r}: clusters must be 0 or at least 2, got {clusters}")
    if knn_exact_up_to < LEAST_INDEXED:
        raise InputError(
            f"graph {graph.name!r}: knn_exact_up_to must be at least {LEAST_INDEXED:,} nodes, got {knn_exact_up_to}"
        )
    k = _fitting(graph, "k", k, n - 1, n - 1)
    featured = int((abs(x).sum(axis=1) > 0).sum())
    most = featured if affinity == "cosine" else n
    clusters = _fitting(graph, "clusters", clusters, most, most // 2 if most > 3 else 0)
    lists, assignment, found = np.empty((n, 0), dtype=np.int64), np.full(n, -1, dtype=np.int64), 1.0

    def get(kind: str, settings: dict[str, Any], compute: Callable[[], Array]) -> Array:
        return cache.get(kind, x, settings, compute) if cache else compute()

    if k != 0 and featured <= knn_exact_up_to:
        lists = get("knn", {"k": k}, lambda: knn(x, k, device=device))
    elif k != 0:
        how = {"k": k, "index": INDEX, "seed": seed}
        lists = get("knn", how, lambda: approximate_knn(x, k, seed=seed))
        found = float(get("recall", how, lambda: np.array(recall(x, lists, seed=seed, device=device))))
        warnings.warn(
            f"graph {graph.name!r}: {featured:,} nodes are more than knn_exact_up_to = {knn_exact_up_to:,}; their "
            f"neighbours are approximate, with a measured recall of {found:.3f}",
            EnrichWarning,
            stacklevel=2,
        )
    if clusters != 0:
        settings = {"clusters": clusters, "affinity": affinity, "gamma": gamma, "seed": seed}
        assignment = get(
            "spectral",
            settings,
            lambda: spectral_clusters(x, clusters, affinity=affinity, seed=seed, gamma=gamma),
        )
    i, j = np.repeat(np.arange(n), lists.shape[1]), lists.ravel()
    assignment.setflags(write=False)
    return EnrichedGraph(graph, _pairs(np.stack([i, j])[:, j >= 0], n), assignment, found)


def _pairs(ends: Array, num_nodes: int) -> Array:
    """Node pairs (2 × any number) as columns i < j, sorted, each once."""
    key = np.sort(np.minimum(*ends) * num_nodes + np.maximum(*ends))
    pairs = np.stack(np.divmod(key[np.diff(key, prepend=-1) > 0], num_nodes))
    pairs.setflags(write=False)
    return pairs


def _fitting(graph: Graph, name: str, value: int, most: int, instead: int) -> int:
    """`value`, or what a graph too small for it gets `instead`, said aloud: one recipe serves graphs of any size."""
    if value <= most:
        return value
    warnings.warn(
        f"graph {graph.name!r}: {name} = {value} is more than its {most} nodes with features allow; {instead} is used",
        EnrichWarning,
        stacklevel=3,
    )
    return instead
