"""The mask that a trained MaskNet gives to the edges of a graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from edgemask.enrich import Cache, Origin
from edgemask.graph import Array, Graph
from edgemask.inference import enriched_edges, mask_of, masked
from edgemask.methods.base import Method
from edgemask.methods.sources import reading_domain
from edgemask.nn.tensors import Edges, GraphTensors


@dataclass(frozen=True)
class EdgeMask:
    """The mask of a graph's edges.

    Attributes:
        edges: 2 × M directed (source, destination) pairs.
        origin: Where each edge comes from: `original`, `knn` or `spectral`.
        s: Mask value of each edge, from 0 (dropped) to 1 (kept).
    """

    edges: Array
    origin: Array
    s: Array


def mask_edges(method: Method, domain: GraphTensors, seed: int, cache: Cache | None = None) -> Edges:
    """Return the edges that a mask is shown on: the original ones and, if the recipe enriches, a seeded sample.

    Args:
        method: A trained method.
        domain: Tensors of the graph.
        seed: Seed of the sample.
        cache: Where enrichment is cached.
    """
    return enriched_edges(method.recipe, domain, seed, cache) if method.recipe.enriched else domain.edges


def edge_mask(method: Method, graph: Graph, *, seed: int = 0, cache: Cache | None = None) -> EdgeMask:
    """Return the trained MaskNet's value for every edge of a graph, or of its enriched graph if the recipe enriches.

    Args:
        method: A trained method.
        graph: The graph. Its labels are not used.
        seed: Seed of the sample of enriched edges, if the recipe enriches.
        cache: Where enrichment is cached.

    Raises:
        InputError: The method was trained without a MaskNet.
    """
    game, domain = masked(method), reading_domain(method.recipe, graph, method.device)
    edges = mask_edges(method, domain, seed, cache)
    s = mask_of(game, domain, edges)
    pairs = torch.stack([edges.src[edges.real], edges.dst[edges.real]])
    names = np.array([origin.name.lower() for origin in Origin])
    return EdgeMask(pairs.cpu().numpy(), names[edges.origin.cpu().numpy()], s.double().cpu().numpy())
