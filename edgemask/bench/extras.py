"""What a record holds beside scores: the mask's behaviour, and on demand the theory's checks or a view of the mask.

All of it is measured once training and selection have ended.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from edgemask import inference
from edgemask.enrich import Cache, Origin
from edgemask.game import Game
from edgemask.graph import Array, Graph
from edgemask.methods.base import Method
from edgemask.nn.tensors import Domain
from edgemask.theory_report import report
from edgemask.training import Choice, Fit, Trainer

if TYPE_CHECKING:
    from edgemask.bench.run import Run

NAMES = ("oracle", "theory", "explorer")
PRUNED = 0.5  # an edge whose mask is below this counts as pruned
THEORY_STEPS = 20  # of each ascent of the theory's report


def after(
    run: Run, fit: Fit, trainer: Trainer, choice: Choice, domains: Mapping[str, Graph], cache: Cache | None
) -> dict[str, Any]:
    """The extras of a fit that has ended, its networks those that were chosen; "oracle" is looked at along the way."""
    method, found = trainer.method, dict[str, Any]()
    if not isinstance(method, Game) or not method.recipe.mask:
        if asked := set(run.also) - {"oracle"}:
            raise ValueError(f"{', '.join(sorted(asked))}: {run.method} has no MaskNet under this recipe")
        return found
    found["mask"] = {g.name: mask_shares(method, g, run.seed, cache) for g in fit.sources}
    if "theory" in run.also:
        graph = fit.sources[0]
        domain = Domain.of(graph, method.device)
        edges = inference.mask_edges(method, domain, run.seed, cache)
        found["theory"] = report(method, domain, edges, seed=run.seed, steps=THEORY_STEPS).to_json()
    if "explorer" in run.also:
        targets = [domains[name] for name in run.protocol.targets if name in domains]
        found["explorer"] = explore(run, fit, method, choice.alpha, targets, cache)
    return found


def mask_shares(method: Method, graph: Graph, seed: int, cache: Cache | None) -> dict[str, dict[str, float]]:
    """By origin of a graph's edges, and of all that enrichment added: how many, their mean mask, the share pruned."""
    mask = inference.edge_mask(method, graph, seed=seed, cache=cache)
    groups = {origin.name.lower(): mask.origin == origin.name.lower() for origin in Origin}
    groups["augmented"] = ~groups["original"]
    return {
        name: {"edges": int(held.sum()), "mean": float(s.mean()), "pruned": float((s < PRUNED).mean())}
        for name, held in groups.items()
        if len(s := mask.s[held])
    }


def explore(
    run: Run, fit: Fit, after: Method, alpha: float, graphs: list[Graph], cache: Cache | None
) -> dict[str, Any]:
    """Every edge's mask and every node's class of some graphs, true and predicted: before the game, by the same recipe
    without an adversary, under which every mask is 1, and after it. Arrays are packed by `pack`."""
    alone = run.recipe.with_(mask=False, test_mask="ones", select="last", alpha=(alpha,))
    before, _ = Fit(fit.make, alone, fit.sources, seed=run.seed, device=fit.device, cache=cache).run()
    views = {}
    for graph in graphs:
        mask = inference.edge_mask(after, graph, seed=run.seed, cache=cache)
        origins = [origin.name.lower() for origin in Origin]
        order = np.lexsort((mask.edges[0], mask.edges[1]))
        classes = {
            name: inference.probabilities(method, graph, alpha, seed=run.seed, cache=cache).argmax(1)
            for name, method in (("before", before.method), ("after", after))
        }
        views[graph.name] = {
            "nodes": graph.num_nodes,
            "classes": [str(c) for c in graph.classes],
            "origins": origins,
            "alpha": alpha,
            "true": pack(graph.first_labels, np.int16),  # -1: not known
            "before": pack(classes["before"], np.int16),
            "after": pack(classes["after"], np.int16),
            "src": pack(mask.edges[0][order], np.uint32),
            "dst": pack(mask.edges[1][order], np.uint32),
            "origin": pack(np.array([origins.index(o) for o in mask.origin])[order], np.uint8),
            "mask": pack(np.round(255 * mask.s[order]), np.uint8),
        }
    return views


def pack(values: Array, kind: type, effort: int = 9) -> str:
    """Little-endian numbers, deflated, in base64: what a page can unpack with nothing but a browser."""
    data = np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<")).tobytes()
    return base64.b64encode(zlib.compress(data, effort)).decode()


def unpack(text: str, kind: type) -> Array:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.dtype(kind).newbyteorder("<"))
