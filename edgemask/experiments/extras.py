"""Measures of a record beyond scores: statistics of the mask, and on demand checks of the theory or all mask values.

They are measured after training and selection have ended.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from edgemask import explain, inference
from edgemask.enrich import Cache, Origin
from edgemask.errors import InputError
from edgemask.experiments.record_schema import pack
from edgemask.graph import Graph
from edgemask.methods.base import Method
from edgemask.methods.edgemask import Game
from edgemask.nn.tensors import GraphTensors
from edgemask.theory.report import report
from edgemask.training.fit import Fit
from edgemask.training.selection import Choice
from edgemask.training.trainer import Trainer

NAMES = ("oracle", "theory", "explorer")
PRUNED = 0.5  # an edge whose mask is below this counts as pruned
THEORY_STEPS = 20  # gradient steps of each ascent in the report of the theory


def measure_extras(
    also: Collection[str], fit: Fit, trainer: Trainer, choice: Choice, targets: Sequence[Graph], cache: Cache | None
) -> dict[str, Any]:
    """Return the extras of a fit that has ended and whose networks hold the chosen weights.

    Args:
        also: Names of the extras. `oracle` is measured during training, not here.
        fit: The fit.
        trainer: Its trainer.
        choice: The chosen epoch and strength.
        targets: Labelled target graphs, shown by `explorer`.
        cache: Where enrichment is cached.

    Raises:
        InputError: An extra needs a MaskNet, and the method has none.
    """
    method, extras = trainer.method, dict[str, Any]()
    if not isinstance(method, Game) or not method.recipe.mask:
        if asked := set(also) - {"oracle"}:
            raise InputError(f"{', '.join(sorted(asked))}: {type(method).__name__} has no MaskNet under this recipe")
        return extras
    extras["mask"] = {g.name: mask_shares(method, g, fit.seed, cache) for g in fit.sources}
    if "theory" in also:
        graph = fit.sources[0]
        domain = GraphTensors.of(graph, method.device)
        edges = explain.mask_edges(method, domain, fit.seed, cache)
        extras["theory"] = report(method, domain, edges, seed=fit.seed, steps=THEORY_STEPS).to_json()
    if "explorer" in also:
        extras["explorer"] = explore(fit, method, choice.alpha, targets, cache)
    return extras


def mask_shares(method: Method, graph: Graph, seed: int, cache: Cache | None) -> dict[str, dict[str, float]]:
    """Return the number of edges, their mean mask and the share pruned, by origin of the edges.

    Args:
        method: A trained method with a MaskNet.
        graph: The graph. Its labels are not used.
        seed: Seed of the sample of enriched edges.
        cache: Where enrichment is cached.

    Returns:
        `edges`, `mean` and `pruned` of each group: `original`, `knn`, `spectral`, and `augmented` for all edges that
        enrichment added. Groups without edges are omitted.

    Raises:
        InputError: The method was trained without a MaskNet.
    """
    mask = explain.edge_mask(method, graph, seed=seed, cache=cache)
    groups = {origin.name.lower(): mask.origin == origin.name.lower() for origin in Origin}
    groups["augmented"] = ~groups["original"]
    return {
        name: {"edges": int(members.sum()), "mean": float(s.mean()), "pruned": float((s < PRUNED).mean())}
        for name, members in groups.items()
        if len(s := mask.s[members])
    }


def explore(fit: Fit, after: Method, alpha: float, graphs: Sequence[Graph], cache: Cache | None) -> dict[str, Any]:
    """Return the mask of every edge and the true and predicted class of every node, for the report page.

    The classes `before` are predicted by the same recipe trained without an adversary, where every mask is 1. The
    classes `after` are predicted by the trained game.

    Args:
        fit: The fit.
        after: Its trained method.
        alpha: The chosen strength.
        graphs: The graphs to show.
        cache: Where enrichment is cached.

    Returns:
        A view per graph. Arrays are encoded by `pack`.
    """
    alone = fit.recipe.replace(mask=False, test_mask="ones", select="last", alpha=(alpha,))
    before, _ = Fit(fit.make, alone, fit.sources, seed=fit.seed, device=fit.device, cache=cache).run()
    views = {}
    for graph in graphs:
        mask = explain.edge_mask(after, graph, seed=fit.seed, cache=cache)
        origins = [origin.name.lower() for origin in Origin]
        order = np.lexsort((mask.edges[0], mask.edges[1]))
        classes = {
            name: inference.probabilities(method, graph, alpha, seed=fit.seed, cache=cache).argmax(1)
            for name, method in (("before", before.method), ("after", after))
        }
        views[graph.name] = {
            "nodes": graph.num_nodes,
            "classes": [str(c) for c in graph.classes],
            "origins": origins,
            "alpha": alpha,
            "true": pack(graph.first_labels, np.int16),  # -1: unknown
            "before": pack(classes["before"], np.int16),
            "after": pack(classes["after"], np.int16),
            "src": pack(mask.edges[0][order], np.uint32),
            "dst": pack(mask.edges[1][order], np.uint32),
            "origin": pack(np.array([origins.index(o) for o in mask.origin])[order], np.uint8),
            "mask": pack(np.round(255 * mask.s[order]), np.uint8),
        }
    return views
