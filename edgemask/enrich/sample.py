"""The enriched graph, original ∪ kNN ∪ spectral edges (section 4.1), and samples of it with origins."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edgemask.enrich.cache import Cache
from edgemask.enrich.knn import EnrichWarning, knn
from edgemask.enrich.spectral import Affinity, spectral_clusters
from edgemask.graph import Graph

Array = npt.NDArray[Any]


class Origin(IntEnum):
    """Where an edge comes from; the smallest wins when an edge comes from several."""

    ORIGINAL = 0
    KNN = 1
    SPECTRAL = 2


@dataclass(frozen=True, eq=False)
class EnrichedGraph:
    """A graph with its feature-based edges: `enrich` makes it, `sampler` draws from it.

    `knn_pairs`  2 × P node pairs i < j, distinct: j is among the k nearest of i, or i of j.
    `clusters`   N cluster indices (-1 = none). Every pair inside a cluster is a spectral pair; they are
                 counted and drawn by number, never listed.
    """

    graph: Graph
    knn_pairs: Array
    clusters: Array

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

    def sampler(self, device: str | torch.device = "cpu") -> Sampler:
        """A sampler with its tables on `device`."""
        return Sampler(self, device)


def enrich(
    graph: Graph,
    *,
    k: int = 10,
    clusters: int = 100,
    affinity: Affinity = "cosine",
    gamma: float | None = None,
    seed: int = 0,
    cache: Cache | None = None,
    device: str | torch.device = "cpu",
) -> EnrichedGraph:
    """Find the kNN pairs and the spectral clusters of a graph's features.

    `k` neighbours per node and a number of `clusters` (0 = none of that kind); `affinity`, `gamma` and
    `seed` as in `spectral_clusters`; `device` is where dense neighbour search runs, and changes nothing
    else. With a `cache`, results are read from it and stored in it. A graph too small for `k` or `clusters`
    gets fewer, with an `EnrichWarning`.
    """
    x, n = graph.x, graph.num_nodes
    if k < 0:
        raise ValueError(f"graph {graph.name!r}: k must be at least 0, got {k}")
    if clusters < 0 or clusters == 1:
        raise ValueError(f"graph {graph.name!r}: clusters must be 0 or at least 2, got {clusters}")
    k = _fitting(graph, "k", k, n - 1, n - 1)
    usable = int((abs(x).sum(axis=1) > 0).sum()) if affinity == "cosine" else n
    clusters = _fitting(graph, "clusters", clusters, usable, usable // 2 if usable > 3 else 0)
    lists, assignment = np.empty((n, 0), dtype=np.int64), np.full(n, -1, dtype=np.int64)

    def find_neighbours() -> Array:
        return knn(x, k, device=device)

    def find_clusters() -> Array:
        return spectral_clusters(x, clusters, affinity=affinity, seed=seed, gamma=gamma)

    if k != 0:
        lists = cache.get("knn", x, {"k": k}, find_neighbours) if cache else find_neighbours()
    if clusters != 0:
        settings = {"clusters": clusters, "affinity": affinity, "gamma": gamma, "seed": seed}
        assignment = cache.get("spectral", x, settings, find_clusters) if cache else find_clusters()
    i, j = np.repeat(np.arange(n), lists.shape[1]), lists.ravel()
    i, j = i[j >= 0], j[j >= 0]
    low, high = np.divmod(np.unique(np.minimum(i, j) * n + np.maximum(i, j)), n)
    pairs = np.stack([low, high])
    pairs.setflags(write=False)
    assignment.setflags(write=False)
    return EnrichedGraph(graph, pairs, assignment)


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


@dataclass(frozen=True, eq=False)
class EdgeSample:
    """Directed edges `src` → `dst` (int64, sorted by destination, then source), each once, with its
    `origin` (uint8, values of `Origin`)."""

    src: Tensor
    dst: Tensor
    origin: Tensor
    num_nodes: int

    @property
    def counts(self) -> dict[Origin, int]:
        """Edges of each origin."""
        counts = torch.bincount(self.origin.int(), minlength=len(Origin)).tolist()
        return {origin: counts[origin] for origin in Origin}


class Sampler:
    """Draws edge sets of one enriched graph on one device."""

    def __init__(self, enriched: EnrichedGraph, device: str | torch.device):
        def put(array: Array) -> Tensor:
            return torch.tensor(array, dtype=torch.int64, device=device)

        graph, sizes = enriched.graph, enriched.cluster_sizes
        self.num_nodes = graph.num_nodes
        self.num_knn_pairs, self.num_spectral_pairs = enriched.num_knn_pairs, enriched.num_spectral_pairs
        self._original = self._keys(put(graph.edges[0]), put(graph.edges[1]), Origin.ORIGINAL)
        self._knn_pairs = put(enriched.knn_pairs)
        # Members listed cluster by cluster (those without a cluster left out), where each cluster's members
        # begin, and the numbers its pairs begin and end at when the pairs of all clusters are numbered.
        order = np.argsort(enriched.clusters, kind="stable")
        self._members = put(order[len(order) - sizes.sum() :])
        self._starts = put(np.cumsum(sizes) - sizes)
        pairs = sizes * (sizes - 1) // 2
        self._first = put(np.cumsum(pairs) - pairs)
        self._past = put(np.cumsum(pairs))

    def sample(
        self,
        generator: torch.Generator,
        *,
        knn_ratio: float,
        spectral_ratio: float,
        knn_budget: float | None = None,
        spectral_budget: float | None = None,
    ) -> EdgeSample:
        """The original edges and a fresh uniform draw, without replacement, of kNN and spectral pairs.

        A ratio in [0, 1] is the share of all pairs of that kind; a budget caps the number drawn at so many
        pairs per node on average. Both directions of a pair are added. `generator` lives on the sampler's
        device and alone decides the draw.
        """
        knn_count = self._count("knn", self.num_knn_pairs, knn_ratio, knn_budget)
        spectral_count = self._count("spectral", self.num_spectral_pairs, spectral_ratio, spectral_budget)
        i, j = self._knn_pairs[:, draw_distinct(self.num_knn_pairs, knn_count, generator)]
        a, b = self._spectral_pairs(draw_distinct(self.num_spectral_pairs, spectral_count, generator))
        near, spectral = Origin.KNN, Origin.SPECTRAL
        added = (
            self._keys(i, j, near),
            self._keys(j, i, near),
            self._keys(a, b, spectral),
            self._keys(b, a, spectral),
        )
        key = torch.cat([self._original, *added]).sort().values
        edge = key >> 2
        first = torch.ones_like(edge, dtype=torch.bool)
        torch.ne(edge[1:], edge[:-1], out=first[1:])
        key, edge = key[first], edge[first]
        dst = edge // self.num_nodes
        return EdgeSample(edge - dst * self.num_nodes, dst, (key & 3).to(torch.uint8), self.num_nodes)

    def _count(self, kind: str, total: int, ratio: float, budget: float | None) -> int:
        if not 0 <= ratio <= 1:
            raise ValueError(f"{kind}_ratio must be in [0, 1], got {ratio}")
        if budget is not None and not 0 <= budget < math.inf:
            raise ValueError(f"{kind}_budget must be a finite number of pairs per node, at least 0, got {budget}")
        count = round(ratio * total)
        return count if budget is None else min(count, round(budget * self.num_nodes))

    def _keys(self, src: Tensor, dst: Tensor, origin: Origin) -> Tensor:
        """One number per edge: sorted, it goes by destination, source, then origin (in the low two bits)."""
        return ((dst * self.num_nodes + src) << 2) + int(origin)

    def _spectral_pairs(self, number: Tensor) -> tuple[Tensor, Tensor]:
        """The node pairs with these numbers among the pairs of all clusters."""
        cluster = torch.searchsorted(self._past, number, right=True)
        a, b = unrank(number - self._first[cluster])
        start = self._starts[cluster]
        return self._members[start + a], self._members[start + b]


def unrank(rank: Tensor) -> tuple[Tensor, Tensor]:
    """The pair a < b of a rank r = b(b - 1)/2 + a: pairs in the order (0,1), (0,2), (1,2), (0,3), …

    b = ⌊(1 + √(1 + 8r))/2⌋. Rounded to float64 the root is never below a whole value it should reach, and
    may reach the next one too early: one comparison of integers puts b right, up to 3·10⁹ nodes.
    """
    b = ((1 + torch.sqrt(1 + 8 * rank.double())) / 2).long()
    b -= (b * (b - 1) // 2 > rank).long()
    return rank - b * (b - 1) // 2, b


def draw_distinct(total: int, count: int, generator: torch.Generator) -> Tensor:
    """`count` distinct numbers of 0 … total - 1, every subset equally likely, on the generator's device."""
    device = generator.device
    if count == total:
        return torch.arange(total, device=device)
    if 2 * count > total:  # most of them: list all but a few
        kept = torch.ones(total, dtype=torch.bool, device=device)
        kept[draw_distinct(total, total - count, generator)] = False
        return kept.nonzero().squeeze(1)
    # So many draws give `count` distinct numbers on average, and a margin nearly always enough of them.
    draws = int(-total * math.log1p(-count / total) + 4 * math.sqrt(count)) + 8
    found = torch.empty(0, dtype=torch.int64, device=device)
    while len(found) < count:
        drawn = torch.randint(total, (draws,), generator=generator, device=device)
        found = torch.unique(torch.cat([found, drawn]))
    # The distinct numbers come sorted: cutting the tail would favour the small ones.
    return found[torch.randperm(len(found), generator=generator, device=device)[:count]]
