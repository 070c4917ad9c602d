"""Samples of an enriched graph (section 4.1): its original edges and random draws of kNN and spectral pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edgemask.enrich.enriched import EnrichedGraph
from edgemask.errors import InputError
from edgemask.legal import Legal
from edgemask.runtime.loops import Loop

Array = npt.NDArray[Any]

MOST_PAIRS = 100  # largest number of spectral pairs per node that can be drawn without a budget


class Origin(IntEnum):
    """The origin of an edge. An edge with several origins keeps the smallest."""

    ORIGINAL = 0
    KNN = 1
    SPECTRAL = 2


@dataclass(frozen=True, eq=False)
class EdgeSample:
    """Distinct directed edges, sorted by destination, then by source.

    Args:
        src: Source nodes (int64).
        dst: Destination nodes (int64).
        origin: Values of `Origin` (uint8).
        num_nodes: Number of nodes of the graph.
        weight: Weights of the edges: those of the graph for original edges, and 1 for others. None means ones.
    """

    src: Tensor
    dst: Tensor
    origin: Tensor
    num_nodes: int
    weight: Tensor | None = None

    @property
    def counts(self) -> dict[Origin, int]:
        """Number of edges of each origin."""
        counts = torch.bincount(self.origin.int(), minlength=len(Origin)).tolist()
        return {origin: counts[origin] for origin in Origin}


class Sampler:
    """A sampler of edge sets of one enriched graph on one device.

    Args:
        enriched: The enriched graph.
        device: Where edges are drawn and returned.
    """

    def __init__(self, enriched: EnrichedGraph, device: str | torch.device = "cpu"):
        def put(array: Array) -> Tensor:
            return torch.tensor(array, dtype=torch.int64, device=device)

        graph, sizes = enriched.graph, enriched.cluster_sizes
        self.num_nodes = graph.num_nodes
        self.num_knn_pairs, self.num_spectral_pairs = enriched.num_knn_pairs, enriched.num_spectral_pairs
        self.original = self.keys(put(graph.edges[0]), put(graph.edges[1]), Origin.ORIGINAL)
        self.weights = None if graph.weights is None else torch.tensor(graph.weights, device=device)
        self.knn_pairs = put(enriched.knn_pairs)
        self._with_knn: Tensor | None = None
        # `_members` lists the nodes cluster by cluster, without the nodes that have no cluster. Cluster c begins there
        # at `_starts[c]`. When the pairs of all clusters are numbered, its pairs are `_first[c]` … `_past[c]` - 1.
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
        spectral_budget: float | None = None,
    ) -> EdgeSample:
        """Return the original edges and a uniform draw, without replacement, of kNN and spectral pairs.

        Both directions of each pair are added.

        Args:
            generator: Source of randomness on the sampler's device. It alone determines the draw.
            knn_ratio: Share of all kNN pairs to draw, in [0, 1].
            spectral_ratio: Share of all spectral pairs to draw, in [0, 1].
            spectral_budget: Largest number of spectral pairs to draw, as an average per node.

        Raises:
            InputError: A ratio or the budget is out of range, or the ratio draws too many pairs without a budget.
        """
        knn_count, spectral_count = self.counts(knn_ratio, spectral_ratio, spectral_budget)
        constant, drawn = self.original, []
        if knn_count == self.num_knn_pairs:
            constant = self.with_knn
        else:
            pairs = self.knn_pairs[:, draw_distinct(self.num_knn_pairs, knn_count, generator)]
            drawn = self.both_ways(pairs[0], pairs[1], Origin.KNN)
        number = draw_distinct(self.num_spectral_pairs, spectral_count, generator)
        drawn += self.both_ways(*self.spectral_pairs(number), Origin.SPECTRAL)
        src, dst, origin = merge(constant, in_order(torch.cat(drawn)), self.num_nodes)
        return EdgeSample(src, dst, origin, self.num_nodes, self.sample_weights(origin))

    def sample_weights(self, origin: Tensor) -> Tensor | None:
        """Return the weights of a sample's edges, or None if the graph has none.

        A sample has all original edges, in the order of the graph. No value is read on the host.

        Args:
            origin: Origin of each edge of the sample.
        """
        if self.weights is None:
            return None
        ones = torch.ones(len(origin), dtype=self.weights.dtype, device=origin.device)
        return ones.masked_scatter(origin == int(Origin.ORIGINAL), self.weights)

    @property
    def with_knn(self) -> Tensor:
        """Sorted keys of the original and all kNN edges, computed once for samples with all kNN pairs."""
        if self._with_knn is None:
            near = torch.cat(self.both_ways(self.knn_pairs[0], self.knn_pairs[1], Origin.KNN))
            src, dst, origin = merge(self.original, in_order(near), self.num_nodes)
            self._with_knn = self.keys(src, dst, origin.long())
        return self._with_knn

    def both_ways(self, i: Tensor, j: Tensor, origin: Origin) -> list[Tensor]:
        """Return the keys of the edges i → j and of the edges j → i.

        Args:
            i: One end of each edge.
            j: The other end.
            origin: Origin of all these edges.

        Returns:
            Two tensors of keys.
        """
        return [self.keys(i, j, origin), self.keys(j, i, origin)]

    def counts(self, knn_ratio: float, spectral_ratio: float, spectral_budget: float | None) -> tuple[int, int]:
        """Return the numbers of kNN and spectral pairs that `sample` draws with these ratios and this budget.

        Args:
            knn_ratio: Share of all kNN pairs, in [0, 1].
            spectral_ratio: Share of all spectral pairs, in [0, 1].
            spectral_budget: Largest number of spectral pairs, as an average per node. None means no limit.

        Raises:
            InputError: A ratio or the budget is out of range, or the ratio draws too many pairs without a budget.
        """
        for name, ratio in (("knn_ratio", knn_ratio), ("spectral_ratio", spectral_ratio)):
            Legal(0, 1).check(name, ratio)
        Legal(0, optional=True).check("spectral_budget", spectral_budget)
        knn, total = round(knn_ratio * self.num_knn_pairs), self.num_spectral_pairs
        spectral = round(spectral_ratio * total)
        if spectral_budget is not None:
            return knn, min(spectral, round(spectral_budget * self.num_nodes))
        if spectral > MOST_PAIRS * self.num_nodes:
            raise InputError(
                f"spectral_ratio = {spectral_ratio:g} of {total:,} pairs inside clusters is "
                f"{spectral / self.num_nodes:,.0f} pairs per node, more than {MOST_PAIRS}: set spectral_budget "
                "(pairs per node, for example 5), or lower the ratio"
            )
        return knn, spectral

    def keys(self, src: Tensor, dst: Tensor, origin: int | Tensor) -> Tensor:
        """Return one number per edge. It sorts by destination, then source, then origin (in the low two bits).

        Args:
            src: Source nodes.
            dst: Destination nodes.
            origin: Values of `Origin`: one for all edges, or one per edge.
        """
        return ((dst * self.num_nodes + src) << 2) + origin

    def spectral_pairs(self, number: Tensor) -> tuple[Tensor, Tensor]:
        """Return the node pairs with these numbers among the pairs of all clusters."""
        cluster = torch.searchsorted(self._past, number, right=True)
        a, b = unrank(number - self._first[cluster])
        start = self._starts[cluster]
        return self._members[start + a], self._members[start + b]


def unrank(rank: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pair a < b of rank r = b(b - 1)/2 + a, in the order (0,1), (0,2), (1,2), (0,3), …

    b = ⌊(1 + √(1 + 8r))/2⌋. In float64 the rounded root can make b too large or too small by one, depending on the
    CPU's instructions. Two comparisons of integers correct this, up to 3·10⁹ nodes.

    >>> [t.tolist() for t in unrank(torch.arange(4))]
    [[0, 0, 1, 0], [1, 2, 2, 3]]
    """
    b = ((1 + torch.sqrt(1 + 8 * rank.double())) / 2).long()
    b -= (b * (b - 1) // 2 > rank).long()
    b += (b * (b + 1) // 2 <= rank).long()
    return rank - b * (b - 1) // 2, b


def draw_distinct(total: int, count: int, generator: torch.Generator) -> Tensor:
    """Draw `count` distinct numbers of 0 … total - 1, each subset equally likely, on the generator's device.

    Args:
        total: How many numbers there are.
        count: How many are drawn, at most `total`.
        generator: Source of randomness.

    Returns:
        The numbers in ascending order.
    """
    device = generator.device
    if count == total:
        return torch.arange(total, device=device)
    if 2 * count > total:  # draw the numbers to leave out instead
        kept = torch.ones(total, dtype=torch.bool, device=device)
        kept[draw_distinct(total, total - count, generator)] = False
        return kept.nonzero().squeeze(1)
    # This many draws give `count` distinct numbers on average. With the margin, they nearly always suffice.
    draws = int(-total * math.log1p(-count / total) + 4 * math.sqrt(count)) + 8
    distinct = torch.empty(0, dtype=torch.int64, device=device)
    while len(distinct) < count:
        drawn = torch.randint(total, (draws,), generator=generator, device=device)
        distinct = in_order(torch.cat([distinct, drawn]))
        distinct = distinct[changes(distinct)]
    # Keep a random subset: the first `count` would favour small numbers. They are sorted for faster lookups.
    return distinct[in_order(torch.randperm(len(distinct), generator=generator, device=device)[:count])]


def in_order(numbers: Tensor) -> Tensor:
    """Return the numbers sorted. On the CPU, NumPy sorts them because it is faster."""
    return numbers.sort().values if numbers.is_cuda else torch.from_numpy(np.sort(numbers.numpy()))


def changes(numbers: Tensor) -> Tensor:
    """Return a mask of the numbers that differ from the one before them. The first is always True."""
    first = torch.ones_like(numbers, dtype=torch.bool)
    torch.ne(numbers[1:], numbers[:-1], out=first[1:])
    return first


def merge(constant: Tensor, drawn: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Merge two sorted lists of edge keys (`Sampler.keys`) into distinct edges.

    Args:
        constant: Keys of the constant edges.
        drawn: Keys of the drawn edges.
        num_nodes: Number of nodes of the graph.

    Returns:
        Sources, destinations and origins of the edges, sorted by destination, then by source. An edge that occurs
        several times keeps its smallest origin.
    """
    if constant.is_cuda:
        key = in_order(torch.cat([constant, drawn]))
        key = key[changes(key >> 2)]
        dst = (key >> 2) // num_nodes
        return (key >> 2) - dst * num_nodes, dst, (key & 3).to(torch.uint8)
    most = len(constant) + len(drawn)
    src, dst, origin = (torch.empty(most, dtype=d) for d in (torch.int64, torch.int64, torch.uint8))
    count = _merge(constant.numpy(), drawn.numpy(), num_nodes, src.numpy(), dst.numpy(), origin.numpy())
    return src[:count], dst[:count], origin[:count]


@partial(Loop, parallel=False)
def _merge(constant: Array, drawn: Array, num_nodes: int, src: Array, dst: Array, origin: Array) -> int:
    """Merge in one pass and return the number of edges. Destinations only increase, so no division is needed."""
    c, d, count, last, row = 0, 0, 0, -1, 0
    while c < len(constant) or d < len(drawn):
        if d == len(drawn) or (c < len(constant) and constant[c] < drawn[d]):
            key = constant[c]
            c += 1
        else:
            key = drawn[d]
            d += 1
        edge = key >> 2
        if edge == last:
            continue
        last = edge
        while edge >= (row + 1) * num_nodes:
            row += 1
        src[count], dst[count], origin[count] = edge - row * num_nodes, row, key & 3
        count += 1
    return count
