"""Laws of growth: the costs of a fit, carried over from what was measured on levels of growing size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf, log
from typing import Any

import numpy as np
from scipy.optimize import nnls

from edgemask.config import Recipe
from edgemask.enrich.sampler import MOST_PAIRS
from edgemask.errors import InputError
from edgemask.graph import Array, Graph


@dataclass(frozen=True)
class Law:
    """A cost as a sum of shares, none negative, in proportion to what it depends on; exact at the last point."""

    scale: Array
    shares: Array

    @classmethod
    def of(cls, sizes: Sequence[Sequence[float]], costs: Sequence[float]) -> Law:
        """Fitted to the relative errors: the small levels count as much as the large."""
        values = np.maximum(costs, 1e-9)
        scale = np.maximum(sizes[-1], 1e-9)
        basis = np.asarray(sizes) / scale
        shares = nnls(basis / values[:, None], np.ones(len(values)))[0]
        return cls(scale, shares * values[-1] / (basis[-1] @ shares))

    def __call__(self, size: Sequence[float]) -> float:
        return float((np.asarray(size) / self.scale) @ self.shares)


@dataclass(frozen=True)
class Sizes:
    """What costs depend on: of every source the nodes, the edges of an epoch, the nodes trained on; and which share of
    all sources they are."""

    nodes: Array
    edges: Array
    train: Array
    share: float = 1.0

    def only(self, kept: Array) -> Sizes:
        return Sizes(self.nodes[kept], self.edges[kept], self.train[kept], float(kept.mean()))

    def whole(self) -> list[float]:
        return [self.share, self.nodes.sum(), self.edges.sum()]

    def reached(self, recipe: Recipe) -> float:
        """Nodes in the neighbourhoods of a batch of every source. A batch's s steps outwards, falling on n nodes at
        random, reach n (1 - exp(-s / n)) of them."""
        seeds = np.minimum(self.train, recipe.batch_size or 0)
        degree = self.edges / self.nodes
        fans = recipe.fan_out if isinstance(recipe.fan_out, tuple) else (recipe.fan_out or -1,) * recipe.hops
        steps = frontier = seeds.astype(np.float64)
        for fan in fans:
            frontier = frontier * (degree if fan < 0 else np.minimum(fan, degree))
            steps = steps + frontier
        return float((self.nodes * -np.expm1(-steps / self.nodes)).sum())


class Costs:
    """The costs of a fit, by laws of what was measured on the levels.

    An epoch is rounds of steps and, with batches, what all of them share: the sample of edges and its sorting.
    """

    def __init__(self, recipe: Recipe, measured: Sequence[dict[str, Any]]):
        self.recipe, self.measured = recipe, measured
        self.levels = [Sizes(np.array(m["nodes"]), np.array(m["edges"]), np.array(m["train"])) for m in measured]

    def of(self, name: str, sizes: Sizes) -> float:
        """A cost that depends on nodes and edges."""
        return Law.of([level.whole() for level in self.levels], [m[name] for m in self.measured])(sizes.whole())

    def epoch(self, sizes: Sizes) -> float:
        if self.recipe.batch_size is None:
            return self.of("round", sizes)
        points = [[1.0, level.reached(self.recipe)] for level in self.levels]
        step = Law.of(points, [m["round"] for m in self.measured])([sizes.share, sizes.reached(self.recipe)])
        rounds = ceil(int(sizes.train.max()) / self.recipe.batch_size)
        return self.of("shared", sizes) + rounds * step

    def peak(self, where: str, sizes: Sizes) -> float:
        """MiB at most, while enriching or training."""

        def size(of: Sizes) -> list[float]:
            return of.whole() if self.recipe.batch_size is None else [*of.whole(), of.reached(self.recipe)]

        points = [size(level) for level in self.levels]
        phases = [[m["peaks"][phase][where] for m in self.measured] for phase in range(2)]
        return max(Law.of(points, phase)(size(sizes)) for phase in phases)


def enrichment(recipe: Recipe, nodes: int, measured: Sequence[dict[str, Any]]) -> float:
    """Seconds to enrich one graph, from its stand-ins. The exact search for neighbours compares every pair of nodes;
    all else is in proportion to them, but for a logarithm."""
    total = 0.0
    for kind in measured[-1]["seconds"]:
        grows: list[Callable[[float], float]] = [lambda n: 1.0, lambda n: n * log(n)]
        if kind == "knn" and nodes <= recipe.knn_exact_up_to:
            grows.append(lambda n: n * n)
        law = Law.of([[g(m["nodes"]) for g in grows] for m in measured], [m["seconds"][kind] for m in measured])
        total += law([g(nodes) for g in grows])
    return total


def epoch_edges(recipe: Recipe, graph: Graph, measured: dict[str, Any], i: int) -> float:
    """The edges of one epoch on a graph, from those of the i-th stand-in: neighbours grow with the nodes, pairs inside
    clusters with their square."""
    n, ratio = measured["nodes"][i], graph.num_nodes / measured["nodes"][i]
    knn, spectral = measured["knn_pairs"][i], measured["spectral_pairs"][i]

    def of(original: int, nodes: float, knn: float, spectral: float, share: float) -> float:
        near = recipe.knn_ratio * knn
        far = min(share * spectral, nodes * cap(recipe.spectral_budget))
        return original + 2 * (near + far)

    drawn = recipe.spectral_ratio * spectral * ratio / n  # pairs per node
    if recipe.spectral_budget is None and drawn > MOST_PAIRS:
        raise InputError(
            f"graph {graph.name!r}: spectral_ratio = {recipe.spectral_ratio:g} would draw some {drawn:,.0f} pairs per "
            f"node inside clusters, more than {MOST_PAIRS}: set spectral_budget (pairs per node, such as 5)"
        )
    whole = of(graph.num_edges, graph.num_nodes, knn * ratio, spectral * ratio**2, recipe.spectral_ratio)
    part = of(measured["original"][i], n, knn, spectral, min(1.0, recipe.spectral_ratio * ratio))
    return float(measured["edges"][i] * whole / max(part, 1.0))


def cap(budget: float | None) -> float:
    return inf if budget is None else budget
