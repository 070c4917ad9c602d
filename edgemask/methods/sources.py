"""Source domains as methods see them: tensors, training nodes, and a sampler of the enriched graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgemask.config import Recipe
from edgemask.enrich import Cache, EnrichedGraph, Sampler, enrich
from edgemask.errors import GraphError
from edgemask.graph import Array, Graph
from edgemask.nn.tensors import Edges, GraphTensors, skeleton

# On a CPU, graphs with at least this many nodes are relabelled. The rows of smaller graphs stay in the CPU's caches.
RELABELLED = 20_000
LARGEST = 1e15  # largest magnitude of a feature: sums of squares of many such values do not overflow in float32
ENRICHING = ("k", "clusters", "affinity", "knn_exact_up_to")  # settings that decide the enriched graph


@dataclass(frozen=True)
class Source:
    """A domain to train on.

    Args:
        domain: Features, edges and labels on the device.
        train: Nodes whose labels the loss may use.
        sampler: Draws edges of the enriched graph; None trains on the original graph.
        batch: Whether this is a batch of a source, with only its neighbourhood.
    """

    domain: GraphTensors
    train: Tensor
    sampler: Sampler | None
    batch: bool = False


Pairs = Sequence[tuple[Source, Edges]]


def enriched(recipe: Recipe, graph: Graph, device: torch.device, cache: Cache | None) -> EnrichedGraph:
    """Enrich a graph with a recipe's settings."""
    settings = {name: getattr(recipe, name) for name in ENRICHING}
    return enrich(graph, **settings, cache=cache, device=device)


def make_sampler(recipe: Recipe, graph: Graph, device: torch.device, cache: Cache | None) -> Sampler:
    """Enrich a graph with a recipe's settings and return a sampler of its edges."""
    return Sampler(enriched(recipe, graph, device, cache), device)


def make_source(recipe: Recipe, graph: Graph, nodes: Array, device: torch.device, cache: Cache | None) -> Source:
    """Prepare a graph for training, with the loss on the given nodes.

    On a CPU a large graph is relabelled cluster by cluster: the ends of most edges are then close in memory. Training
    on an isomorphic graph gives the same networks.
    """
    sampler = None
    if recipe.enriched:
        augmented = enriched(recipe, graph, device, cache)
        if device.type == "cpu" and recipe.batch_size is None and graph.num_nodes >= RELABELLED:
            order = np.argsort(augmented.clusters, kind="stable")
            augmented, nodes = augmented.reordered(order), np.flatnonzero(np.isin(order, nodes))
        graph, sampler = augmented.graph, Sampler(augmented, device)
    domain = GraphTensors.of(graph, device) if recipe.batch_size is None else skeleton(graph, device)
    return Source(domain, torch.tensor(nodes, device=device), sampler)


def check_magnitude(graph: Graph) -> None:
    """Check that no feature is so large that computations with it overflow.

    Raises:
        GraphError: A feature is too large. The message names the column, the node and the value.
    """
    values = graph.x.data if graph.is_sparse else graph.x
    if values.size and max(values.max(), -values.min()) > LARGEST:
        raise GraphError(
            f"graph {graph.name!r}, x: {largest_feature(graph)}; a feature must be between -{LARGEST:g} and "
            f"{LARGEST:g}, so that computations in float32 do not overflow: rescale its column"
        )


def largest_feature(graph: Graph) -> str:
    """Return a text about the feature of the largest magnitude: its column, node and value."""
    x = graph.x.tocoo() if graph.is_sparse else graph.x
    values = x.data if graph.is_sparse else x
    first = int(np.argmax(np.abs(values)))
    row, column = (x.row[first], x.col[first]) if graph.is_sparse else divmod(first, x.shape[1])
    name = graph.feature_names[column] if graph.feature_names else int(column)
    return f"the largest feature is {name!r} of node {graph.node_name(int(row))!r}, {values.flat[first]:g}"


def reading_domain(recipe: Recipe, graph: Graph, device: torch.device) -> GraphTensors:
    """Return a graph's tensors for prediction: on the device or, for prediction in blocks, on the host.

    Raises:
        GraphError: A feature is too large.
    """
    check_magnitude(graph)
    return GraphTensors.of(graph, device) if recipe.inference_batch is None else skeleton(graph, torch.device("cpu"))


class Prepared:
    """Prepared graphs. Fits that share this object share their tensors and enrichment.

    Args:
        cache: Where enrichment is cached on disk.
        keep: Whether graphs are kept for other fits. If False, every request prepares its graph anew.
    """

    def __init__(self, cache: Cache | None = None, *, keep: bool = False):
        self.cache, self.keep = cache, keep
        self._sources: dict[tuple[Any, ...], Source] = {}
        self._domains: dict[tuple[Any, ...], GraphTensors] = {}

    @property
    def has_enriched(self) -> bool:
        """Whether an enriched source has been kept."""
        return any(source.sampler is not None for source in self._sources.values())

    def source(self, recipe: Recipe, graph: Graph, nodes: Array, device: torch.device) -> Source:
        """Return a graph prepared for training with the loss on the given nodes; see `make_source`."""
        if not self.keep:
            return make_source(recipe, graph, nodes, device, self.cache)
        settings = [recipe.enriched, recipe.batch_size is None]
        settings += [getattr(recipe, name) for name in ENRICHING] if recipe.enriched else []
        key = (graph.name, graph.hash, nodes.tobytes(), str(device), *settings)
        if key not in self._sources:
            self._sources[key] = make_source(recipe, graph, nodes, device, self.cache)
        return self._sources[key]

    def reading(self, recipe: Recipe, graph: Graph, device: torch.device) -> GraphTensors:
        """Return a graph's tensors for prediction; see `reading_domain`."""
        if not self.keep:
            return reading_domain(recipe, graph, device)
        key = (graph.name, graph.hash, str(device), recipe.inference_batch is None)
        if key not in self._domains:
            self._domains[key] = reading_domain(recipe, graph, device)
        return self._domains[key]


def ratios(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe's ratios and budget as keyword arguments of a sampler."""
    return {name: getattr(recipe, name) for name in ("knn_ratio", "spectral_ratio", "spectral_budget")}


def draw_edges(recipe: Recipe, sampler: Sampler, stream: torch.Generator) -> Edges:
    """Draw one sample of an enriched graph with the recipe's ratios and budget."""
    drawn = sampler.sample(stream, **ratios(recipe))
    return Edges.build(drawn.src, drawn.dst, drawn.num_nodes, drawn.origin, drawn.weight)
