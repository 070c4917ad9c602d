"""Inference: which graph, which mask, propagated how far. Nothing here looks at a label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from edgemask.batches import skeleton
from edgemask.enrich import Cache, Origin
from edgemask.enrich.cache import feature_hash
from edgemask.game import Game
from edgemask.graph import Array, Graph
from edgemask.methods.base import Method, draw_edges, make_sampler
from edgemask.nn.blocks import mask_logits_in_blocks
from edgemask.nn.masknet import EdgeFacts, MaskNet
from edgemask.nn.precision import precision
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


def reading_domain(recipe: Recipe, graph: Graph, device: torch.device) -> Domain:
    """A graph to be read: whole on the device, or, in blocks, without its features on the host."""
    return Domain.of(graph, device) if recipe.inference_batch is None else skeleton(graph, torch.device("cpu"))


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
    kind, s = method.recipe.test_mask, None
    if kind == "masknet":
        s = mask_of(masked(method), domain, edges)
    elif kind == "zeros":
        s = torch.zeros(edges.num_real, device=edges.src.device)
    read = method.logits if method.recipe.inference_batch is None else method.logits_in_blocks
    return read(domain, edges, s)


def mask_of(game: Game, domain: Domain, edges: Edges) -> Tensor:
    """The trained MaskNet's mask of a graph's edges, whole or in blocks as the recipe has it."""
    size, names = game.recipe.inference_batch, game.recipe.mask_inputs
    if size is None:
        return game.mask_of(domain, edges)
    network = game.networks["mask"].eval()
    p = game.logits_in_blocks(domain, edges).softmax(1) if "predictions" in names else None
    with torch.no_grad(), precision(game.recipe.precision, game.device):
        facts = EdgeFacts.of(edges, names, p) if names else None
        logits = mask_logits_in_blocks(cast(MaskNet, network), domain.graph, edges, facts, size)
        return game.mask(logits, edges, sample=False)


def masked(method: Method) -> Game:
    """The method, if it has a MaskNet to ask."""
    if not isinstance(method, Game) or not method.recipe.mask:
        raise ValueError("this model was trained without a MaskNet: it has no edge mask")
    return method


def probabilities(method: Method, graph: Graph, alpha: float, *, seed: int = 0, cache: Cache | None = None) -> Array:
    """N × C class probabilities of a graph."""
    domain = reading_domain(method.recipe, graph, method.device)
    logits = raw_logits(method, domain, reading_edges(method.recipe, domain, seed, cache))
    return to_probabilities(propagate(domain.edges, logits, alpha, method.recipe.steps))


def to_probabilities(logits: Tensor) -> Array:
    return np.asarray(logits.double().softmax(1).cpu().numpy())


def mask_edges(method: Method, domain: Domain, seed: int, cache: Cache | None = None) -> Edges:
    """The edges a mask is shown on: the graph's own and, where the recipe enriches, a seeded sample of the others."""
    return enriched_edges(method.recipe, domain, seed, cache) if method.recipe.enriched else domain.edges


def edge_mask(method: Method, graph: Graph, *, seed: int = 0, cache: Cache | None = None) -> EdgeMask:
    """The trained MaskNet's mask of every edge of the (enriched, where the recipe enriches) graph."""
    game, domain = masked(method), reading_domain(method.recipe, graph, method.device)
    edges = mask_edges(method, domain, seed, cache)
    s = mask_of(game, domain, edges)
    pairs = torch.stack([edges.src[edges.real], edges.dst[edges.real]])
    names = np.array([origin.name.lower() for origin in Origin])
    return EdgeMask(pairs.cpu().numpy(), names[edges.origin.cpu().numpy()], s.double().cpu().numpy())
