"""Prediction: on which edges, with which mask, and how far logits are propagated. No label is read here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from edgemask.config import Recipe
from edgemask.enrich import Cache, EnrichedGraph, Sampler
from edgemask.enrich.cache import feature_hash
from edgemask.errors import InputError, PredictionError
from edgemask.graph import Array, Graph
from edgemask.methods.base import Method
from edgemask.methods.edgemask import Game
from edgemask.methods.sources import draw_edges, enriched, largest_feature, reading_domain
from edgemask.nn.blocks import mask_logits_in_blocks
from edgemask.nn.masknet import EdgeFacts, MaskNet
from edgemask.nn.propagation import propagate, propagate_each
from edgemask.nn.tensors import Edges, GraphTensors
from edgemask.runtime.precision import precision
from edgemask.seeds import torch_stream

TOGETHER = 200_000  # nodes of all graphs whose logits are propagated together


@dataclass(frozen=True, order=True)
class Propagation:
    """A way to propagate predictions over the target graph.

    Attributes:
        alpha: Strength α; 0 for none.
        of: What is propagated: `logits` or `probabilities`.
    """

    alpha: float = 0.0
    of: str = "logits"

    def __str__(self) -> str:
        return f"{self.alpha:g}" + (f" of {self.of}" if self.of != "logits" else "")


@dataclass(frozen=True)
class Logits:
    """Logits of a graph and how they become probabilities.

    Attributes:
        method: The method that predicted them.
        domain: Tensors of the graph.
        values: The N × C logits.
        how: How they are propagated.
    """

    method: Method
    domain: GraphTensors
    values: Tensor
    how: Propagation

    def start(self) -> Tensor:
        """Return what is propagated."""
        return self.values if self.how.of == "logits" else activated(self.method.recipe, self.values)

    def finish(self, z: Tensor) -> Array:
        """Return the probabilities, given the propagated values."""
        p = to_probabilities(self.method.recipe, z) if self.how.of == "logits" else normalised(z)
        check_finite(self.method, self.domain.graph, p)
        return p


def propagated(method: Method, domain: GraphTensors, logits: Tensor, how: Sequence[Propagation]) -> list[Array]:
    """Return the N × C class probabilities of a graph for several ways of propagation, computed together.

    Args:
        method: The trained method.
        domain: Tensors of the graph.
        logits: The method's logits.
        how: The ways of propagation.

    Raises:
        PredictionError: A probability is not finite.
    """
    return propagated_together((Logits(method, domain, logits, way) for way in how), len(how))


def propagated_together(several: Iterable[Logits], size: int) -> list[Array]:
    """Return the class probabilities for several logits. Those of the same graph share the passes over its edges.

    Args:
        several: The logits.
        size: How many of them share a pass, and are in memory at a time.

    Raises:
        PredictionError: A probability is not finite.
    """
    results = []
    for (_, steps), same in groupby(several, lambda one: (id(one.domain), one.method.recipe.steps)):
        while part := list(islice(same, size)):
            edges, alphas = part[0].domain.edges, [one.how.alpha for one in part]
            moved = propagate_each(edges, [one.start() for one in part], alphas, steps)
            results += [one.finish(z) for one, z in zip(part, moved, strict=True)]
    return results


@dataclass(frozen=True)
class Member:
    """A trained method and how its predictions are read.

    Attributes:
        name: Name of the candidate.
        method: The trained method.
        propagation: How predictions are propagated over the graph.
        temperature: Temperature of the probabilities; 1 leaves them as they are.
    """

    name: str
    method: Method
    propagation: Propagation
    temperature: float = 1.0

    def logits(self, domain: GraphTensors, seed: int, cache: Cache | None) -> Logits:
        """Return the logits of a graph; see `mean_probabilities`."""
        values = raw_logits(self.method, domain, reading_edges(self.method.recipe, domain, seed, cache))
        return Logits(self.method, domain, values, self.propagation)


def mean_probabilities(members: Sequence[Member], graph: Graph, *, seed: int = 0, cache: Cache | None = None) -> Array:
    """Return the mean of the members' calibrated class probabilities. The members share the tensors of the graph.

    Args:
        members: The members.
        graph: The graph. Its labels are not used.
        seed: Seed of the sample of enriched edges, if a member predicts on the enriched graph.
        cache: Where enrichment is cached.

    Raises:
        PredictionError: A logit or a probability is not finite.
    """
    domains: dict[Any, GraphTensors] = {}

    def logits(member: Member) -> Logits:
        recipe, device = member.method.recipe, member.method.device
        place = device, recipe.inference_batch is None
        if place not in domains:
            domains[place] = reading_domain(recipe, graph, device)
        return member.logits(domains[place], seed, cache)

    size = max(1, TOGETHER // graph.num_nodes)
    parts = propagated_together(map(logits, members), size)
    return np.asarray(np.mean([tempered(p, m.temperature) for p, m in zip(parts, members, strict=True)], axis=0))


def tempered(p: Array, temperature: float) -> Array:
    """Return probabilities with another temperature T: p^(1/T), with rows that sum to 1.

    For a softmax this divides the logits by T.
    """
    if temperature == 1:
        return p
    with np.errstate(divide="ignore"):  # the logarithm of 0 is -inf, whose power is 0 again
        logs = np.log(p) / temperature
    powers = np.exp(logs - logs.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def probabilities(
    method: Method, graph: Graph, alpha: float, *, seed: int = 0, cache: Cache | None = None, of_labels: bool = False
) -> Array:
    """Return the N × C class probabilities of a graph.

    Args:
        method: A trained method.
        graph: The graph to predict. Its labels are not used.
        alpha: Strength of the propagation of logits over the graph; 0 for none.
        seed: Seed of the sample of enriched edges, if the recipe predicts on the enriched graph.
        cache: Where enrichment is cached.
        of_labels: See `to_probabilities`.

    Raises:
        PredictionError: A logit or a probability is not finite.
    """
    domain = reading_domain(method.recipe, graph, method.device)
    logits = raw_logits(method, domain, reading_edges(method.recipe, domain, seed, cache))
    return smoothed(method, domain, logits, alpha, of_labels=of_labels)


def smoothed(method: Method, domain: GraphTensors, logits: Tensor, alpha: float, *, of_labels: bool = False) -> Array:
    """Return the N × C class probabilities of propagated logits; see `probabilities`."""
    z = propagate(domain.edges, logits, alpha, method.recipe.steps)
    p = to_probabilities(method.recipe, z, of_labels=of_labels)
    check_finite(method, domain.graph, p)
    return p


def check_finite(method: Method, graph: Graph, values: Tensor | Array) -> None:
    """Check that the logits or probabilities of all nodes are finite, and that no node has only probabilities of 0.

    Args:
        method: The method that predicts.
        graph: The graph that is predicted.
        values: N × C logits, as a tensor, or probabilities, as an array.

    Raises:
        PredictionError: They are not. The message names the first node and the probable cause.
    """
    if isinstance(values, Tensor):
        wrong: Any = (~values.isfinite().all(1)).cpu().numpy()
    else:
        wrong = ~(np.isfinite(values).all(1) & (values > 0).any(1))
    if wrong.any():
        raise PredictionError(
            f"graph {graph.name!r}: the prediction of node {graph.node_name(int(np.argmax(wrong)))!r} is not finite: "
            f"{_why_not_finite(method, graph)}"
        )


def _why_not_finite(method: Method, graph: Graph) -> str:
    """Return the probable cause of a prediction that is not finite."""
    if not method.finite_weights:
        return "the model's weights are not finite"
    if graph.is_sparse and not graph.x.nnz:
        return "the model's weights are too large"
    return f"the features or the model's weights are too large; {largest_feature(graph)}"


def to_probabilities(recipe: Recipe, logits: Tensor, *, of_labels: bool = False) -> Array:
    """Return class probabilities as a float64 array.

    They are the softmax of the logits or, for networks trained with `loss = "binary"`, their sigmoid, divided by its
    sum over the classes.

    Args:
        recipe: The recipe of the network.
        logits: N × C logits.
        of_labels: Do not divide by the sum, so that each value is the probability of one label, as thresholded metrics
            need it.
    """
    p = activated(recipe, logits.double())
    return normalised(p) if recipe.loss == "binary" and not of_labels else np.asarray(p.cpu().numpy())


def activated(recipe: Recipe, logits: Tensor) -> Tensor:
    """Return the softmax of logits, or their sigmoid for networks trained with `loss = "binary"`."""
    return logits.sigmoid() if recipe.loss == "binary" else logits.softmax(1)


def normalised(p: Tensor) -> Array:
    """Return non-negative values as a float64 array whose rows sum to 1."""
    values = p.double().cpu().numpy()
    return np.asarray(values / np.maximum(values.sum(1, keepdims=True), np.finfo(np.float64).tiny))


def reading_edges(recipe: Recipe, domain: GraphTensors, seed: int, cache: Cache | None = None) -> Edges:
    """Return the edges a graph is predicted on: the original ones, or with a seeded sample of enriched ones."""
    if recipe.test_graph == "original":
        return domain.edges
    return enriched_edges(recipe, domain, seed, cache)


def enriched_edges(recipe: Recipe, domain: GraphTensors, seed: int, cache: Cache | None = None) -> Edges:
    """Return a seeded sample of a graph's enriched edges. It does not depend on the graph's labels and masks."""
    device = domain.edges.src.device
    return sampled_edges(recipe, enriched(recipe, domain.graph, device, cache), seed, device)


def sampled_edges(recipe: Recipe, graph: EnrichedGraph, seed: int, device: torch.device) -> Edges:
    """Return a seeded sample of the edges of an enriched graph. The added edges depend only on its features."""
    stream = torch_stream(seed, "inference", feature_hash(graph.graph.x), device=device)
    return draw_edges(recipe, Sampler(graph, device), stream)


def raw_logits(method: Method, domain: GraphTensors, edges: Edges) -> Tensor:
    """Return the classifier's logits on `edges` with the recipe's test mask, before propagation.

    Raises:
        PredictionError: A logit is not finite.
    """
    kind, s = method.recipe.test_mask, None
    if kind == "masknet":
        s = mask_of(masked(method), domain, edges)
    elif kind == "zeros":
        s = torch.zeros(edges.num_real, device=edges.src.device)
    predict = method.logits if method.recipe.inference_batch is None else method.logits_in_blocks
    logits = predict(domain, edges, s)
    check_finite(method, domain.graph, logits)
    return logits


def mask_of(game: Game, domain: GraphTensors, edges: Edges) -> Tensor:
    """Return the trained MaskNet's mask of a graph's edges, computed at once or in blocks as the recipe says.

    Raises:
        PredictionError: A value is not finite.
    """
    s = _mask_of(game, domain, edges)
    if not s.isfinite().all():
        raise PredictionError(
            f"graph {domain.name!r}: the mask of an edge is not finite: {_why_not_finite(game, domain.graph)}"
        )
    return s


def _mask_of(game: Game, domain: GraphTensors, edges: Edges) -> Tensor:
    size, names = game.recipe.inference_batch, game.recipe.mask_inputs
    if size is None:
        return game.mask_of(domain, edges)
    network = game.networks["mask"].eval()
    p = game.logits_in_blocks(domain, edges).softmax(1) if "predictions" in names else None
    with torch.no_grad(), precision(game.recipe.precision, game.device):
        facts = EdgeFacts.of(edges, names, p) if names else None
        logits = mask_logits_in_blocks(cast(MaskNet, network), domain.graph, edges, facts, size)
        return game.mask(logits, edges)


def masked(method: Method) -> Game:
    """Return the method if it has a MaskNet.

    Raises:
        InputError: It has none.
    """
    if not isinstance(method, Game) or not method.recipe.mask:
        raise InputError("this model was trained without a MaskNet: it has no edge mask")
    return method
