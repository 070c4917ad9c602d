"""Inference: which graph, which mask, propagated how far. Nothing here looks at a label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgemask.enrich import Cache, Origin
from edgemask.enrich.cache import feature_hash
from edgemask.game import Game
from edgemask.graph import Array, Graph
from edgemask.methods.base import Method, draw_edges, make_sampler
from edgemask.nn.propagate import propagate
from edgemask.nn.tensors import Domain, Edges
from edgemask.recipe import Recipe
from edgemask.seeds import torch_stream


@dataclass(frozen=True)
class EdgeMask:
    """The MaskNet's mask of a graph: `edges` (2 × M), `origin` by name, `s`."""

    edges: Array
    origin: Array
    s: Array


def reading_edges(recipe: Recipe, domain: Domain, seed: int, cache: Cache | None = None) -> Edges:
    """The edges a graph is read on: its own, or its own and a seeded sample of feature-derived ones."""
    if recipe.test_graph == "original":
        return domain.edges
    return enriched_edges(recipe, domain, seed, cache)


def enriched_edges(recipe: Recipe, domain: Domain, seed: int, cache: Cache | None = None) -> Edges:
    """A seeded sample of a graph's enrichment under a recipe, the same whatever the graph's labels and masks."""
    device = domain.edges.src.device
    stream = torch_stream(seed, "inference", feature_hash(domain.graph.x), device=device)
    return draw_edges(recipe, make_sampler(recipe, domain.graph, device, cache), stream)


def raw_logits(method: Method, domain: Domain, edges: Edges) -> Tensor:
    """The classifier's logits on `edges` under the recipe's test mask, before propagation."""
    kind = method.recipe.test_mask
    if kind == "masknet":
        return method.logits(domain, edges, masked(method).mask_of(domain, edges))
    if kind == "zeros":
        return method.logits(domain, edges, torch.zeros(edges.num_real, device=edges.src.device))
    return method.logits(domain, edges)


def masked(method: Method) -> Game:
    """The method, if it has a MaskNet to ask."""
    if not isinstance(method, Game) or not method.recipe.mask:
        raise ValueError("this model was trained without a MaskNet: it has no edge mask")
    return method


def probabilities(method: Method, graph: Graph, alpha: float, *, seed: int = 0, cache: Cache | None = None) -> Array:
    """N × C class probabilities of a graph."""
    domain = Domain.of(graph, method.device)
    logits = raw_logits(method, domain, reading_edges(method.recipe, domain, seed, cache))
    return to_probabilities(propagate(domain.edges, logits, alpha, method.recipe.steps))


def to_probabilities(logits: Tensor) -> Array:
    return np.asarray(logits.double().softmax(1).cpu().numpy())


def mask_edges(method: Method, domain: Domain, seed: int, cache: Cache | None = None) -> Edges:
    """The edges a mask is shown on: the graph's own and, where the recipe enriches, a seeded sample of the others."""
    return enriched_edges(method.recipe, domain, seed, cache) if method.recipe.enriched else domain.edges


def edge_mask(method: Method, graph: Graph, *, seed: int = 0, cache: Cache | None = None) -> EdgeMask:
    """The trained MaskNet's mask of every edge of the (enriched, where the recipe enriches) graph."""
    game, domain = masked(method), Domain.of(graph, method.device)
    edges = mask_edges(method, domain, seed, cache)
    s = game.mask_of(domain, edges)
    pairs = torch.stack([edges.src[edges.real], edges.dst[edges.real]])
    names = np.array([origin.name.lower() for origin in Origin])
    return EdgeMask(pairs.cpu().numpy(), names[edges.origin.cpu().numpy()], s.double().cpu().numpy())
