"""Growth laws: extrapolate the costs of a fit from measurements on levels of growing size."""

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
    """A cost as a linear function of the sizes it depends on, with no negative coefficient.

    The law is exact at the last measured point.

    Attributes:
        scale: Sizes at the last point. All sizes are divided by them.
        shares: Share of each size in the cost at the last point.
    """

    scale: Array
    shares: Array

    @classmethod
    def of(cls, sizes: Sequence[Sequence[float]], costs: Sequence[float]) -> Law:
        """Fit a law by non-negative least squares of relative errors, so that small levels count as much as large ones.

        Args:
            sizes: For each level, the sizes that the cost depends on.
            costs: The measured cost of each level.
        """
        values = np.maximum(costs, 1e-9)
        scale = np.maximum(sizes[-1], 1e-9)
        basis = np.asarray(sizes) / scale
        shares = nnls(basis / values[:, None], np.ones(len(values)))[0]
        return cls(scale, shares * values[-1] / (basis[-1] @ shares))

    def __call__(self, size: Sequence[float]) -> float:
        return float((np.asarray(size) / self.scale) @ self.shares)


@dataclass(frozen=True)
class Sizes:
    """The sizes that costs depend on.

    Attributes:
        nodes: Nodes of each source.
        edges: Edges that an epoch uses in each source.
        train: Nodes of each source that the loss uses.
        share: These sources as a share of all sources.
    """

    nodes: Array
    edges: Array
    train: Array
    share: float = 1.0

    def only(self, kept: Array) -> Sizes:
        """Return the sizes of some sources, given by a Boolean mask."""
        return Sizes(self.nodes[kept], self.edges[kept], self.train[kept], float(kept.mean()))

    def whole(self) -> list[float]:
        """Return the share of sources, and the total nodes and edges."""
        return [self.share, self.nodes.sum(), self.edges.sum()]

    def reached(self, recipe: Recipe) -> float:
        """Return the expected number of nodes in the sampled neighbourhoods of one batch of every source.

        If a batch samples s neighbours, and they are spread over n nodes at random, it reaches n (1 - exp(-s / n)) of
        them.
        """
        seeds = np.minimum(self.train, recipe.batch_size or 0)
        degree = self.edges / self.nodes
        fans = recipe.fan_out if isinstance(recipe.fan_out, tuple) else (recipe.fan_out or -1,) * recipe.hops
        steps = frontier = seeds.astype(np.float64)
        for fan in fans:
            frontier = frontier * (degree if fan < 0 else np.minimum(fan, degree))
            steps = steps + frontier
        return float((self.nodes * -np.expm1(-steps / self.nodes)).sum())


class Costs:
    """The costs of a fit, extrapolated from the measurements of the levels.

    With batches, an epoch consists of rounds, each a step on a batch of every source, and of the work that the rounds
    share: drawing and sorting the sample of edges. Without batches, an epoch is a single round.

    Args:
        recipe: The settings of the fit.
        measured: Measurements of each level (`probe.measure`).
    """

    def __init__(self, recipe: Recipe, measured: Sequence[dict[str, Any]]):
        self.recipe, self.measured = recipe, measured
        self.levels = [Sizes(np.array(m["nodes"]), np.array(m["edges"]), np.array(m["train"])) for m in measured]

    def of(self, name: str, sizes: Sizes) -> float:
        """Return the seconds of a cost that depends on nodes and edges: `build`, `round`, `shared` or `score`."""
        return Law.of([level.whole() for level in self.levels], [m[name] for m in self.measured])(sizes.whole())

    def epoch(self, sizes: Sizes) -> float:
        """Return the seconds of an epoch."""
        if self.recipe.batch_size is None:
            return self.of("round", sizes)
        points = [[1.0, level.reached(self.recipe)] for level in self.levels]
        step = Law.of(points, [m["round"] for m in self.measured])([sizes.share, sizes.reached(self.recipe)])
        rounds = ceil(int(sizes.train.max()) / self.recipe.batch_size)
        return self.of("shared", sizes) + rounds * step

    def peak(self, where: str, sizes: Sizes) -> float:
        """Return the peak memory in MiB on the `host` or the `device`, over enrichment and training."""

        def variables(s: Sizes) -> list[float]:
            return s.whole() if self.recipe.batch_size is None else [*s.whole(), s.reached(self.recipe)]

        points = [variables(level) for level in self.levels]
        phases = [[m["peaks"][phase][where] for m in self.measured] for phase in range(2)]
        return max(Law.of(points, phase)(variables(sizes)) for phase in phases)


def enrichment(recipe: Recipe, nodes: int, measured: Sequence[dict[str, Any]]) -> float:
    """Predict the seconds to enrich one graph from the measurements of its stand-ins.

    The exact neighbour search compares all pairs of nodes, so it grows with n². Everything else grows with n log n. A
    stand-in can be too small for the index that its graph is searched with; it is not used then.

    Args:
        recipe: The settings of the fit.
        nodes: Number of nodes of the graph.
        measured: For each stand-in, its number of nodes and the seconds of each part of the enrichment.
    """
    total = 0.0
    measured = [m for m in measured if m["seconds"].keys() == measured[-1]["seconds"].keys()]
    for kind in measured[-1]["seconds"]:
        terms: list[Callable[[float], float]] = [lambda n: 1.0, lambda n: n * log(n)]
        if kind == "knn" and nodes <= recipe.knn_exact_up_to:
            terms.append(lambda n: n * n)
        law = Law.of([[term(m["nodes"]) for term in terms] for m in measured], [m["seconds"][kind] for m in measured])
        total += law([term(nodes) for term in terms])
    return total


def epoch_edges(recipe: Recipe, graph: Graph, measured: dict[str, Any], i: int) -> float:
    """Predict the edges that an epoch uses in a graph.

    Neighbours grow in proportion to the nodes, and pairs inside clusters with their square.

    Args:
        recipe: The settings of the fit.
        graph: The whole graph.
        measured: Measurements of a level.
        i: Index of the graph's stand-in in that level.

    Raises:
        InputError: The spectral ratio would draw too many pairs per node.
    """
    n, ratio = measured["nodes"][i], graph.num_nodes / measured["nodes"][i]
    knn, spectral = measured["knn_pairs"][i], measured["spectral_pairs"][i]

    def expected(original: int, nodes: float, knn: float, spectral: float, spectral_ratio: float) -> float:
        knn_drawn = recipe.knn_ratio * knn
        spectral_drawn = min(spectral_ratio * spectral, nodes * upper_limit(recipe.spectral_budget))
        return original + 2 * (knn_drawn + spectral_drawn)

    drawn = recipe.spectral_ratio * spectral * ratio / n  # pairs per node
    if recipe.spectral_budget is None and drawn > MOST_PAIRS:
        raise InputError(
            f"graph {graph.name!r}: spectral_ratio = {recipe.spectral_ratio:g} would draw some {drawn:,.0f} pairs per "
            f"node inside clusters, above the limit of {MOST_PAIRS}: set spectral_budget (pairs per node, such as 5)"
        )
    whole = expected(graph.num_edges, graph.num_nodes, knn * ratio, spectral * ratio**2, recipe.spectral_ratio)
    part = expected(measured["original"][i], n, knn, spectral, min(1.0, recipe.spectral_ratio * ratio))
    return float(measured["edges"][i] * whole / max(part, 1.0))


def upper_limit(budget: float | None) -> float:
    """Return a budget as an upper limit: infinity if there is no budget."""
    return inf if budget is None else budget
