"""Samples of an enriched graph (section 4.1): its original edges, and kNN and spectral pairs drawn afresh."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edgemask.errors import InputError

if TYPE_CHECKING:
    from edgemask.enrich.enriched import EnrichedGraph

Array = npt.NDArray[Any]

MOST_PAIRS = 100  # spectral pairs per node that a ratio alone may draw


class Origin(IntEnum):
    """Where an edge comes from; the smallest wins when an edge comes from several."""

    ORIGINAL = 0
    KNN = 1
    SPECTRAL = 2


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

    def __init__(self, enriched: EnrichedGraph, device: str | torch.device = "cpu"):
        def put(array: Array) -> Tensor:
            return torch.tensor(array, dtype=torch.int64, device=device)

        graph, sizes = enriched.graph, enriched.cluster_sizes
        self.num_nodes = graph.num_nodes
        self.num_knn_pairs, self.num_spectral_pairs = enriched.num_knn_pairs, enriched.num_spectral_pairs
        self.original = self.keys(put(graph.edges[0]), put(graph.edges[1]), Origin.ORIGINAL)
        self.knn_pairs = put(enriched.knn_pairs)
        self._with_knn: Tensor | None = None
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
        spectral_budget: float | None = None,
    ) -> EdgeSample:
        """The original edges and a fresh uniform draw, without replacement, of kNN and spectral pairs.

        A ratio in [0, 1] is the share of all pairs of that kind; a budget caps the number drawn at so many
        pairs per node on average. Both directions of a pair are added. `generator` lives on the sampler's
        device and alone decides the draw.
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
        return EdgeSample(*merge(constant, in_order(torch.cat(drawn)), self.num_nodes), self.num_nodes)

    @property
    def with_knn(self) -> Tensor:
        """Keys of the original and all kNN edges, sorted: found once, for samples that take all kNN pairs."""
        if self._with_knn is None:
            near = torch.cat(self.both_ways(self.knn_pairs[0], self.knn_pairs[1], Origin.KNN))
            src, dst, origin = merge(self.original, in_order(near), self.num_nodes)
            self._with_knn = self.keys(src, dst, origin.long())
        return self._with_knn

    def both_ways(self, i: Tensor, j: Tensor, origin: Origin) -> list[Tensor]:
        return [self.keys(i, j, origin), self.keys(j, i, origin)]

    def counts(self, knn_ratio: float, spectral_ratio: float, spectral_budget: float | None) -> tuple[int, int]:
        """Return the numbers of kNN and spectral pairs in a sample with these ratios and this budget."""
        for name, ratio in (("knn_ratio", knn_ratio), ("spectral_ratio", spectral_ratio)):
            if not 0 <= ratio <= 1:
                raise InputError(f"{name} must be in [0, 1], got {ratio}")
        knn, total = round(knn_ratio * self.num_knn_pairs), self.num_spectral_pairs
        spectral = round(spectral_ratio * total)
        if spectral_budget is not None:
            if not 0 <= spectral_budget < math.inf:
                raise InputError(
                    f"spectral_budget must be a finite number of pairs per node, at least 0, got {spectral_budget}"
                )
            return knn, min(spectral, round(spectral_budget * self.num_nodes))
        if spectral > MOST_PAIRS * self.num_nodes:
            raise InputError(
                f"spectral_ratio = {spectral_ratio:g} of {total:,} pairs inside clusters is "
                f"{spectral / self.num_nodes:,.0f} pairs per node, more than {MOST_PAIRS}: set spectral_budget "
                "(pairs per node, such as 5), or lower the ratio"
            )
        return knn, spectral

    def keys(self, src: Tensor, dst: Tensor, origin: int | Tensor) -> Tensor:
        """One number per edge: sorted, it goes by destination, source, then origin (in the low two bits)."""
        return ((dst * self.num_nodes + src) << 2) + origin

    def spectral_pairs(self, number: Tensor) -> tuple[Tensor, Tensor]:
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
        found = in_order(torch.cat([found, drawn]))
        found = found[changes(found)]
    # Not the first ones: that would favour small numbers. In order, for what is looked up by them lies in order.
    return found[in_order(torch.randperm(len(found), generator=generator, device=device)[:count])]


def in_order(numbers: Tensor) -> Tensor:
    """Sorted; on the CPU by NumPy, which is faster at it."""
    return numbers.sort().values if numbers.is_cuda else torch.from_numpy(np.sort(numbers.numpy()))


def changes(numbers: Tensor) -> Tensor:
    """Which of these differ from the one before; the first always does."""
    first = torch.ones_like(numbers, dtype=torch.bool)
    torch.ne(numbers[1:], numbers[:-1], out=first[1:])
    return first


def merge(constant: Tensor, drawn: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sources, destinations and origins of the edges of two sorted lists of keys, each edge once by its first key."""
    if constant.is_cuda:
        key = in_order(torch.cat([constant, drawn]))
        key = key[changes(key >> 2)]
        dst = (key >> 2) // num_nodes
        return (key >> 2) - dst * num_nodes, dst, (key & 3).to(torch.uint8)
    most = len(constant) + len(drawn)
    src, dst, origin = (torch.empty(most, dtype=d) for d in (torch.int64, torch.int64, torch.uint8))
    count = _merge(constant.numpy(), drawn.numpy(), num_nodes, src.numpy(), dst.numpy(), origin.numpy())
    return src[:count], dst[:count], origin[:count]


@numba.njit(cache=True, nogil=True)
def _merge(constant: Array, drawn: Array, num_nodes: int, src: Array, dst: Array, origin: Array) -> int:
    """One walk along both lists; how many edges there are. Destinations only rise: no division is needed."""
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
