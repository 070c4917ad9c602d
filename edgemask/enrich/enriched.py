"""The enriched graph (section 4.1): original ∪ kNN ∪ spectral edges, computed from a graph's features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from edgemask.enrich.cache import Cache, Declared
from edgemask.enrich.index import INDEX, approximate_knn, recall
from edgemask.enrich.knn import knn
from edgemask.enrich.spectral import Affinity, spectral_clusters
from edgemask.errors import EnrichWarning, InputError, warn
from edgemask.graph import Graph

Array = npt.NDArray[Any]

EXACT_UP_TO = 200_000  # nodes; the exact search of a graph of this size takes a minute or two on two cores
LEAST_INDEXED = 1000  # nodes; smaller graphs do not need an index and are too small to train one


@dataclass(frozen=True, eq=False)
class EnrichedGraph:
    """A graph with its kNN pairs and spectral clusters.

    `enrich` builds it, and `Sampler` draws edges from it.

    Args:
        graph: The original graph.
        knn_pairs: 2 × P distinct node pairs i < j, where j is among the k nearest neighbours of i or i among those
            of j.
        clusters: N cluster indices (-1 = no cluster). Every pair of nodes in the same cluster is a spectral pair.
            These pairs are numbered, and drawn by number, but never listed.
        knn_recall: Share of the nearest neighbours that were found. It is 1 for the exact search.
    """

    graph: Graph
    knn_pairs: Array
    clusters: Array
    knn_recall: float = 1.0

    @property
    def cluster_sizes(self) -> Array:
        """Number of nodes in each cluster."""
        return np.bincount(self.clusters[self.clusters >= 0])

    @property
    def num_knn_pairs(self) -> int:
        """Number of kNN pairs."""
        return int(self.knn_pairs.shape[1])

    @property
    def num_spectral_pairs(self) -> int:
        """Number of node pairs inside clusters."""
        sizes = self.cluster_sizes
        return int((sizes * (sizes - 1) // 2).sum())

    def reordered(self, order: Array) -> EnrichedGraph:
        """Return the enriched graph with relabelled nodes: new node i is old node `order[i]`."""
        graph, new_index, clusters = self.graph.reordered(order), np.argsort(order), self.clusters[order]
        clusters.setflags(write=False)
        pairs = _pairs(new_index[self.knn_pairs], len(new_index))
        return replace(self, graph=graph, knn_pairs=pairs, clusters=clusters)


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
    """Compute the kNN pairs and the spectral clusters of a graph's features.

    A graph that is too small for `k` or `clusters` gets fewer, with an `EnrichWarning`.

    Args:
        graph: The graph.
        k: Neighbours per node; 0 for no kNN pairs.
        clusters: Number of spectral clusters; 0 for no spectral pairs.
        affinity: Affinity of the spectral clustering (see `spectral_clusters`).
        gamma: Width of the RBF affinity (see `spectral_clusters`).
        knn_exact_up_to: Largest number of nodes with features for the exact neighbour search. Above it, the neighbours
            come from an approximate index (the extra `edgemask[scale]`), and an `EnrichWarning` gives its measured
            recall.
        seed: Seed of the clustering and of the approximate index.
        cache: Where results are read from and stored.
        device: Where the dense neighbour search runs. It does not change the result of the exact search.

    Returns:
        The enriched graph. Its arrays are read-only.

    Raises:
        InputError: A setting is out of range.
        MissingDependencyError: The approximate index is needed, but faiss is not installed.

    >>> import numpy as np
    >>> from edgemask import Graph
    >>> enriched = enrich(Graph("g", np.array([[1.0, 0], [1, 1], [0, 1]]), [[0], [1]]), k=1, clusters=0)
    >>> enriched.knn_pairs.tolist()
    [[0, 1], [1, 2]]
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
    k = _clamped(graph, "k", k, n - 1, n - 1)
    with_features = int((abs(x).sum(axis=1) > 0).sum())
    most = with_features if affinity == "cosine" else n
    clusters = _clamped(graph, "clusters", clusters, most, most // 2 if most > 3 else 0)
    lists, assignment, knn_recall = np.empty((n, 0), dtype=np.int64), np.full(n, -1, dtype=np.int64), 1.0

    def get(kind: str, settings: dict[str, Any], declared: Declared, compute: Callable[[], Array]) -> Array:
        return cache.get(kind, x, settings, declared, compute) if cache else compute()

    neighbours = Declared((n, k), -1, n - 1)
    if k != 0 and with_features <= knn_exact_up_to:
        lists = get("knn", {"k": k}, neighbours, lambda: knn(x, k, device=device))
    elif k != 0:
        settings = {"k": k, "index": INDEX, "seed": seed}
        lists = get("knn", settings, neighbours, lambda: approximate_knn(x, k, seed=seed))
        share = Declared((), 0, 1, torch.float64)
        knn_recall = float(get("recall", settings, share, lambda: np.array(recall(x, lists, seed=seed, device=device))))
        warn(
            f"graph {graph.name!r}: {with_features:,} nodes are more than knn_exact_up_to = {knn_exact_up_to:,}; their "
            f"neighbours are approximate, with a measured recall of {knn_recall:.3f}",
            EnrichWarning,
        )
    if clusters != 0:
        settings = {"clusters": clusters, "affinity": affinity, "gamma": gamma, "seed": seed}
        assignment = get(
            "spectral",
            settings,
            Declared((n,), -1, clusters - 1),
            lambda: spectral_clusters(x, clusters, affinity=affinity, seed=seed, gamma=gamma),
        )
    i, j = np.repeat(np.arange(n), lists.shape[1]), lists.ravel()
    assignment.setflags(write=False)
    return EnrichedGraph(graph, _pairs(np.stack([i, j])[:, j >= 0], n), assignment, knn_recall)


def _pairs(ends: Array, num_nodes: int) -> Array:
    """Return node pairs (2 × any number) as sorted, distinct columns with i < j."""
    key = np.sort(np.minimum(*ends) * num_nodes + np.maximum(*ends))
    pairs = np.stack(np.divmod(key[np.diff(key, prepend=-1) > 0], num_nodes))
    pairs.setflags(write=False)
    return pairs


def _clamped(graph: Graph, name: str, value: int, most: int, fallback: int) -> int:
    """Return `value`, or `fallback` with a warning if it is above `most`: a recipe must work on graphs of any size."""
    if value <= most:
        return value
    warn(
        f"graph {graph.name!r}: {name} = {value} is too large for its nodes with features (at most {most}); "
        f"using {fallback} instead",
        EnrichWarning,
    )
    return fallback
