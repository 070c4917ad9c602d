"""Explanations: the effect of each edge on a prediction, and the mask that a trained MaskNet gives to edges."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from edgemask.enrich import Cache, Origin
from edgemask.errors import InputError
from edgemask.graph import Array, Graph
from edgemask.inference import (
    Member,
    activated,
    enriched_edges,
    mask_of,
    masked,
    propagated,
    raw_logits,
    sampled_edges,
    tempered,
)
from edgemask.methods.base import Method
from edgemask.methods.batches import Neighbours
from edgemask.methods.edgemask import Game
from edgemask.methods.flood import FLOOD
from edgemask.methods.sources import Prepared, enriched, reading_domain
from edgemask.nn.aggregate import aggregate
from edgemask.nn.backbone import Backbone
from edgemask.nn.gat import MaskedGAT, MaskedGATLayer
from edgemask.nn.kernels import LARGEST, SLOPE
from edgemask.nn.kernels.reference import segment_max, segment_sum
from edgemask.nn.nodes import head_logits
from edgemask.nn.propagation import propagate_weighted
from edgemask.nn.tensors import Edges, GraphTensors, SparseMatrix, features, rows
from edgemask.seeds import numpy_stream

SAMPLE = 20  # nodes that are explained if none are named
TINY = torch.finfo(torch.float64).tiny


# ---- the adversary's mask --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EdgeMask:
    """The adversary's mask of a graph's edges.

    The mask is the worst case that the MaskNet learned to present to the classifier during training. It does not say
    why the classifier predicts a class; `explain_prediction` does.

    Attributes:
        edges: 2 × M directed (source, destination) pairs.
        origin: Where each edge comes from: `original`, `knn` or `spectral`.
        s: Mask value of each edge, from 0 (dropped) to 1 (kept).
    """

    edges: Array
    origin: Array
    s: Array


def mask_edges(method: Method, domain: GraphTensors, seed: int, cache: Cache | None = None) -> Edges:
    """Return the edges on which the adversary's mask is shown.

    They are the edges that the adversary would mask if it were trained on this graph: the original ones and, if the
    recipe enriches, a seeded sample of enriched ones. Predictions use the original edges by default.

    Args:
        method: A trained method.
        domain: Tensors of the graph.
        seed: Seed of the sample.
        cache: Where enrichment is cached.
    """
    return enriched_edges(method.recipe, domain, seed, cache) if method.recipe.enriched else domain.edges


def edge_mask(method: Method, graph: Graph, *, seed: int = 0, cache: Cache | None = None) -> EdgeMask:
    """Return the trained MaskNet's value for every edge of a graph, or of its enriched graph if the recipe enriches.

    The mask is the adversary's worst case during training, and not a reason for a prediction: by default predictions do
    not use it. `explain_prediction` explains predictions.

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


# ---- the effect of an edge on a prediction ---------------------------------------------------------------------------


def explain_prediction(
    members: Sequence[Member],
    graph: Graph,
    nodes: Sequence[int] | Array | None = None,
    *,
    seed: int = 0,
    drops: int = 3,
    cache: Cache | None = None,
) -> pd.DataFrame:
    """Explain predictions by the effect of each edge on the predicted class of the node that it ends in.

    The explained prediction is the one that is made: the mean of the members' calibrated probabilities, each computed
    on the edges and with the test mask of its recipe, and propagated over the graph. An edge has a factor w, which acts
    wherever the edge is used: in the network and in the propagation. w = 1 gives the prediction, and w = 0 gives the
    prediction without the edge. If the graph holds both directions of an edge, they count as one edge, with one factor.
    In a graph with edge weights, w is relative to the weight that the graph gives to the edge.

    There is one row for each explained node and each edge of the graph that ends in it, in the order of `nodes`, and
    for each node from the largest |derivative| to the smallest:

    `node`         the explained node
    `neighbour`    the other end of the edge
    `class`        index of the node's predicted class c
    `probability`  p, the predicted probability of class c
    `derivative`   ∂p/∂w at w = 1. A positive value means that the edge supports the prediction; to first order,
                   p falls by this value if the edge is removed. It is the mean over the members, and 0 for members
                   that do not use edges.
    `change`       p without the edge minus p with it, exactly. It is computed for the `drops` edges of each node with
                   the largest |derivative|, and NaN for the others. A negative value means that the edge supports the
                   prediction.
    `mask`         the adversary's value s for this edge, averaged over the members that have a MaskNet. NaN if no
                   member has one. It is a worst case of training and not a reason for the prediction. It is computed
                   on the original edges only; `edge_mask` computes it on the enriched graph if the recipe enriches.

    Edges that end elsewhere can affect a node as well, but have no row. A test mask of the MaskNet
    (`test_mask = "masknet"`) is constant in `derivative`, and computed again without the edge in `change`. If a pair of
    nodes is both an original edge and an enriched edge on which a member predicts (`test_graph = "enriched"`), the
    enriched edge stays, with weight 1, when the original one is removed.

    The effects are computed in double precision. A member without propagation costs a backward pass over the
    neighbourhood of each node; a member with propagation costs one over the whole graph. Every removed edge costs a
    forward pass.

    Args:
        members: Trained methods with their propagation and temperature.
        graph: The graph to explain. Its labels are not used.
        nodes: Nodes to explain. By default a random sample of 20 nodes, or all nodes if there are fewer.
        seed: Seed of the sample of nodes, and of the sample of enriched edges if a member predicts on them. Use the
            seed of the prediction.
        drops: Number of edges of each node for which `change` is computed.
        cache: Where enrichment is cached.

    Returns:
        The table. It is empty if no edge ends in an explained node.

    Raises:
        InputError: There are no members, a node is not an integer or not in the graph, `drops` is not an integer of at
            least 0, or a member's prediction cannot be explained because it trains on the graph or computes its logits
            in its own way.
        PredictionError: The prediction of a node is not finite.

    Example:
        >>> from edgemask.config import recipe
        >>> from edgemask.data import benchmark
        >>> from edgemask.inference import Propagation
        >>> from edgemask.methods.erm import ERM
        >>> from edgemask.training.fit import Fit
        >>> graphs = benchmark("synthetic").load(nodes=100)
        >>> fit = Fit(ERM, recipe(backbone="gcn", epochs=2, k=0, clusters=0, alpha=(0.9,)), [graphs["alpha"]])
        >>> member = Member("gcn", fit.run()[0].method, Propagation(0.9))
        >>> table = explain_prediction([member], graphs["gamma"], nodes=[0])
        >>> list(table.columns)
        ['node', 'neighbour', 'class', 'probability', 'derivative', 'change', 'mask']
    """
    if not members:
        raise InputError("members must hold at least one trained member, got none")
    if not _is_integer(drops) or drops < 0:
        raise InputError(f"drops must be an integer of at least 0, got {drops!r}")
    for member in members:
        _check_explainable(member)
    chosen, pairs, prepared = _checked_nodes(nodes, graph, seed), _Pairs(graph), Prepared(cache, keep=True)
    functions = []
    for member in members:
        domain = prepared.reading(member.method.recipe, graph, member.method.device)
        functions.append(_EdgeFunction(member, domain, seed, cache))
    p = np.mean([f.probabilities[chosen] for f in functions], axis=0)
    classes = p.argmax(1)

    edges = [pairs.into(node) for node in chosen]
    targets = [(i, int(chosen[i]), int(classes[i])) for i, own in enumerate(edges) if len(own)]
    derivative = [np.zeros(len(own)) for own in edges]
    present = np.zeros((len(functions), len(chosen)))  # probabilities with all edges
    for f, values in zip(functions, present, strict=True):
        for i, node, label in targets:
            values[i], gradient = f.derivative(node, label)
            derivative[i] += pairs.total(gradient, edges[i]) / len(functions)
        f.forget()

    change = [np.full(len(own), np.nan) for own in edges]
    for i, node, label in targets:
        order = np.argsort(-np.abs(derivative[i]), kind="stable")
        edges[i], derivative[i] = edges[i][order], derivative[i][order]
        for k, edge in enumerate(edges[i][:drops]):
            absent = [f.without(node, label, pairs.both(edge)) for f in functions]
            change[i][k] = np.mean(absent - present[:, i])

    counts, positions = [len(own) for own in edges], np.concatenate([*edges, np.empty(0, dtype=np.int64)])
    return pd.DataFrame(
        {
            "node": np.repeat(chosen, counts),
            "neighbour": graph.edges[0, positions],
            "class": np.repeat(classes, counts),
            "probability": np.repeat(p.max(1), counts),
            "derivative": np.concatenate([*derivative, np.empty(0)]),
            "change": np.concatenate([*change, np.empty(0)]),
            "mask": _mean_mask(functions, graph.num_edges)[positions],
        }
    )


def _mean_mask(functions: Sequence[_EdgeFunction], count: int) -> Array:
    """Return the mean of the adversaries' masks of the original edges, or NaN if there is no adversary."""
    games = [(f.method, f.domain) for f in functions if isinstance(f.method, Game) and f.method.recipe.mask]
    masks = [mask_of(game, domain, domain.edges).double().cpu().numpy() for game, domain in games]
    return np.asarray(np.mean(masks, axis=0)) if masks else np.full(count, np.nan)


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _checked_nodes(nodes: Sequence[int] | Array | None, graph: Graph, seed: int) -> Array:
    """Return the distinct nodes to explain, in the given order, or a sorted random sample if none are given.

    Raises:
        InputError: A node is not an integer or not in the graph.
    """
    if nodes is None:
        size = min(SAMPLE, graph.num_nodes)
        return np.sort(numpy_stream(seed, "explain").choice(graph.num_nodes, size, replace=False))
    if not isinstance(nodes, Iterable):
        raise InputError(f"nodes must be a sequence of integers, got {nodes!r}")
    nodes = list(nodes)
    for node in nodes:
        if not _is_integer(node):
            raise InputError(f"nodes must be integers, got {node!r}")
        if not 0 <= node < graph.num_nodes:
            raise InputError(f"graph {graph.name!r} has no node {node}: its nodes are 0 … {graph.num_nodes - 1}")
    return np.array(list(dict.fromkeys(map(int, nodes))), dtype=np.int64)


def _check_explainable(member: Member) -> None:
    """Check that a member's logits are its network's output and depend on the graph through this output only."""
    method = member.method
    if isinstance(method, FLOOD) and method.hparams["refine"]:
        raise InputError(
            f"member {member.name!r} trains on the graph before it predicts it (refine = {method.hparams['refine']}), "
            "so the effect of a single edge cannot be computed"
        )
    if type(method).logits not in (Method.logits, FLOOD.logits):
        raise InputError(
            f"member {member.name!r} computes its logits in its own way ({type(method).__name__}.logits), which cannot "
            "be explained"
        )


class _Pairs:
    """The directed edges of a graph, and the opposite direction of each."""

    def __init__(self, graph: Graph):
        (src, dst), n = graph.edges, graph.num_nodes
        self.starts = np.searchsorted(dst, np.arange(n + 1))
        keys, opposite = dst * n + src, src * n + dst
        at = np.searchsorted(keys, opposite)
        found = keys[np.minimum(at, len(keys) - 1)] == opposite if len(keys) else np.zeros(0, dtype=bool)
        self.opposite = np.where(found, at, -1)

    def into(self, node: int) -> Array:
        """Return the positions of the edges into a node."""
        return np.arange(self.starts[node], self.starts[node + 1])

    def both(self, edge: int) -> Array:
        """Return the positions of an edge and, if the graph has it, of the opposite one."""
        return np.array([e for e in (edge, self.opposite[edge]) if e >= 0])

    def total(self, gradient: Tensor, edges: Array) -> Array:
        """Return the derivatives by the common weight of both directions of the given edges."""
        opposite = self.opposite[edges]
        ends = torch.tensor(np.concatenate([edges, opposite.clip(0)]), device=gradient.device)
        forth, back = np.split(gradient[ends].cpu().numpy(), 2)
        return np.asarray(forth + np.where(opposite >= 0, back, 0))


@dataclass(frozen=True, eq=False)
class _ReadingEdges:
    """The edges on which a network predicts a graph, and where the original edges are among them.

    Attributes:
        edges: The edges.
        position: Position of each original edge among the real edges.
        added: Whether the enrichment has drawn an edge between the same nodes, which stays if the original is removed.
        origin: The origin that each original edge has in that case.
    """

    edges: Edges
    position: Tensor
    added: Tensor
    origin: Tensor

    @classmethod
    def of(cls, method: Method, domain: GraphTensors, seed: int, cache: Cache | None) -> _ReadingEdges:
        """Return the edges on which a method predicts a graph, as `edgemask.inference.reading_edges` does."""
        original, recipe, device = domain.edges, method.recipe, domain.edges.src.device
        if recipe.test_graph == "original":
            position = torch.arange(original.num_real, device=device)
            return cls(original, position, torch.zeros_like(position, dtype=torch.bool), original.origin)
        whole = enriched(recipe, domain.graph, device, cache)
        no_edges = domain.graph.replace(edges=np.empty((2, 0), dtype=np.int64), weights=None)
        bare = dataclasses.replace(whole, graph=no_edges)
        edges, added = (sampled_edges(recipe, graph, seed, device) for graph in (whole, bare))
        position, _ = _find(original, edges)
        at, found = _find(original, added)
        origin = torch.where(found, added.origin[at], original.origin) if added.num_real else original.origin
        return cls(edges, position, found, origin)

    def without(self, removed: Tensor) -> tuple[Edges, Tensor]:
        """Return the edges of the graph without some original edges, and which of the real edges they are."""
        edges, stays = self.edges, self.added[removed]
        kept = torch.ones(edges.num_real, dtype=torch.bool, device=edges.src.device)
        kept[self.position[removed[~stays]]] = False
        origin = edges.origin.index_copy(0, self.position[removed[stays]], self.origin[removed[stays]])
        real, weight = edges.real[kept], edges.weight
        if weight is not None:
            weight = weight.index_fill(0, self.position[removed[stays]], 1)[kept]
        return Edges.build(edges.src[real], edges.dst[real], edges.num_nodes, origin[kept], weight), kept


def _find(edges: Edges, among: Edges) -> tuple[Tensor, Tensor]:
    """Return the position of each real edge among other real edges, and whether it is there."""
    keys, wanted = (e.dst[e.real] * e.num_nodes + e.src[e.real] for e in (among, edges))
    if not len(keys):
        return torch.zeros_like(wanted), torch.zeros_like(wanted, dtype=torch.bool)
    at = torch.searchsorted(keys, wanted).clamp_max(len(keys) - 1)
    return at, keys[at] == wanted


@dataclass(frozen=True, eq=False)
class _Part:
    """The nodes and edges on which a network is run: a whole graph, or the neighbourhood of a node.

    Attributes:
        x: Features of the nodes.
        edges: Edges among them.
        real: Positions of the real edges among those of the whole graph.
    """

    x: _Products
    edges: Edges
    real: Tensor


class _EdgeFunction:
    """The probabilities that a member predicts for a graph, as a function of the factors of its original edges.

    Args:
        member: The member.
        domain: Tensors of the graph, as the member reads it.
        seed: Seed of the sample of enriched edges.
        cache: Where enrichment is cached.

    Attributes:
        method: The member's method.
        domain: Tensors of the graph.
        probabilities: The N × C probabilities that the member predicts.
    """

    def __init__(self, member: Member, domain: GraphTensors, seed: int, cache: Cache | None):
        method, self.domain, self.member = member.method, domain, member
        self.method, self.recipe, self.device = method, method.recipe, method.device
        self.reading = _ReadingEdges.of(method, domain, seed, cache)
        logits = raw_logits(method, domain, self.reading.edges)
        (p,) = propagated(method, domain, logits, [member.propagation])
        self.probabilities = tempered(p, member.temperature)

        self.network = _with_presence(method.networks["task"].eval())
        state = self.network.state_dict()  # parameters, and the statistics of normalisations
        self.parameters = {name: t.double() for name, t in state.items()}
        self.edges = _on_device(self.reading.edges, self.device)  # members that predict in blocks have them on the host
        self.neighbours: Neighbours | None = None
        if isinstance(self.network, Backbone) and (member.propagation.alpha == 0 or self.recipe.steps == 0):
            self.neighbours = Neighbours(self.edges, None)
        self.mask = self._test_mask(torch.empty(0, dtype=torch.int64))
        self.forget()

    def forget(self) -> None:
        """Free the forward pass over the whole graph, which `derivative` keeps for the next node."""
        self._forward: tuple[Tensor, Tensor] | None = None

    def derivative(self, node: int, label: int) -> tuple[float, Tensor]:
        """Return a node's probability of a class, and its derivative by the factor of each directed original edge."""
        part, row = self._part(node)
        if part is not self._whole or self._forward is None:
            factor = torch.ones(self.domain.edges.num_real, dtype=torch.float64, device=self.device, requires_grad=True)
            out = self._outputs(factor, self.mask, part)
            if part is self._whole:
                self._forward = factor, out
        else:
            factor, out = self._forward
        p = self._probabilities(out, row)[label]
        gradient = None
        if p.requires_grad:  # a network that uses no edges has no gradient
            (gradient,) = torch.autograd.grad(p, factor, retain_graph=part is self._whole, allow_unused=True)
        return float(p.detach()), torch.zeros_like(factor) if gradient is None else gradient

    def without(self, node: int, label: int, removed: Array) -> float:
        """Return a node's probability of a class if some directed original edges are removed."""
        part, row = self._part(node)
        gone = torch.from_numpy(removed)
        factor = torch.ones(self.domain.edges.num_real, dtype=torch.float64, device=self.device)
        factor[gone.to(self.device)] = 0
        with torch.no_grad():
            return float(self._probabilities(self._outputs(factor, self._test_mask(gone), part), row)[label])

    @cached_property
    def _original(self) -> Edges:
        """The original edges on the device."""
        return _on_device(self.domain.edges, self.device)

    @cached_property
    def _whole(self) -> _Part:
        """The whole graph."""
        domain, nodes = self.domain, torch.arange(self.domain.num_nodes, device=self.device)
        x = domain.x if self.recipe.inference_batch is None else features(domain.graph, nodes)
        return _Part(_Products(x), self.edges, torch.arange(self.edges.num_real, device=self.device))

    def _part(self, node: int) -> tuple[_Part, int]:
        """Return the part of the graph that a node's prediction depends on, and the row of the node in it.

        This is the neighbourhood of the node if its prediction is not propagated, and if the neighbourhood has at most
        half of the edges. Otherwise it is the whole graph.
        """
        if self.neighbours is not None:
            assert isinstance(self.network, Backbone)
            hops = self.network.rounds + 1  # one more for the degrees of the outermost senders
            nodes, chosen = self.neighbours.around(torch.tensor([node], device=self.device), (-1,) * hops)
            if 2 * len(chosen) <= self.edges.num_real:
                x = _Products(features(self.domain.graph, nodes))
                part = _Part(x, self.neighbours.among(nodes, chosen), chosen.sort().values)
                return part, int(torch.searchsorted(nodes, node))
        return self._whole, node

    def _test_mask(self, removed: Tensor) -> Tensor:
        """Return the test mask of the network's edges if some original edges are removed, whose mask is then 0."""
        edges, kind = self.reading.edges, self.recipe.test_mask
        mask = torch.full((edges.num_real,), float(kind == "ones"), dtype=torch.float64, device=edges.src.device)
        if kind == "masknet":
            rest, kept = self.reading.without(removed.to(edges.src.device))
            mask[kept] = mask_of(masked(self.method), self.domain, rest).double()
        return mask.to(self.device)

    def _outputs(self, factor: Tensor, mask: Tensor, part: _Part) -> Tensor:
        """Return the propagated logits or probabilities of a part of the graph.

        Args:
            factor: Factor of each original edge.
            mask: Test mask of each edge of the network.
            part: The part of the graph. If predictions are propagated, it must be the whole graph.
        """
        position, stays = self.reading.position.to(self.device), self.reading.added.to(self.device)
        presence = torch.ones_like(mask).index_copy(0, position, torch.where(stays, 1.0, factor))
        if self.edges.weight is not None:
            weight = self.edges.weight.double()
            own = weight[
                position
            ]  # where an enriched edge stays, the weight moves to 1 as the original edge is removed
            mask = mask * weight.index_copy(0, position, torch.where(stays, 1 + factor * (own - 1), own))
        edges = part.edges.with_weight(presence[part.real])
        out: Tensor = functional_call(self.network, self.parameters, (part.x, edges), {"mask": mask[part.real]})
        how = self.member.propagation
        if how.of == "probabilities":
            out = activated(self.recipe, out)
        return propagate_weighted(self._original, out, how.alpha, self.recipe.steps, factor)

    def _probabilities(self, out: Tensor, row: int) -> Tensor:
        """Return the calibrated probabilities of one node from the result of `_outputs`."""
        p = out[row : row + 1]
        if self.member.propagation.of == "logits":
            p = activated(self.recipe, p)
        p = p[0] / p.sum().clamp_min(TINY)
        return p if self.member.temperature == 1 else (p.clamp_min(TINY).log() / self.member.temperature).softmax(0)


def _on_device(edges: Edges, device: torch.device) -> Edges:
    """Return edges on a device."""
    if edges.src.device == device:
        return edges
    weight = None if edges.weight is None else edges.weight.to(device)
    src, dst = edges.edge_index.to(device)
    return Edges.build(src, dst, edges.num_nodes, edges.origin.to(device), weight)


class _Products:
    """Features whose product with each weight matrix is computed once, because neither depends on the edges.

    The products are computed in single precision, as for a prediction.
    """

    def __init__(self, x: Tensor | SparseMatrix):
        self.x = x
        self.products: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}

    def __matmul__(self, weight: Tensor) -> Tensor:
        key = (weight.data_ptr(), *weight.shape, *weight.stride())
        if key not in self.products:  # the weights are kept so that their memory is not used for others
            self.products[key] = weight, (self.x @ weight.float()).to(weight.dtype)
        return self.products[key][1]


def _with_presence(network: nn.Module) -> nn.Module:
    """Return a network in which an edge of weight 0 is removed, and an edge of weight 1 has the mask alone.

    In almost all networks a mask of 0 removes the edge, and the weight multiplies the mask. The exception is a GAT with
    the gates `message` and `attention`, where the mask is also a term of the attention. In the returned copy the weight
    acts separately from the mask.
    """
    if not any(isinstance(m, MaskedGATLayer) and m.gate != "softmax" for m in network.modules()):
        return network
    network = copy.deepcopy(network)
    for module in list(network.modules()):
        if isinstance(module, MaskedGAT):
            module.layers = nn.ModuleList(_WeightedGATLayer(layer) for layer in module.layers)
    return network


class _WeightedGATLayer(nn.Module):
    """A masked GAT layer in which an edge of weight w counts like w equal edges.

    With the notation of `edgemask.nn.attention`, where s is the mask alone, α_k(e) = w_e exp(e_k(e)) / Σ w exp(e_k),
    summed over the edges into v.
    """

    def __init__(self, layer: nn.Module):
        super().__init__()
        assert isinstance(layer, MaskedGATLayer)
        self.layer = layer
        self.send = layer.send

    def collect(self, edges: Edges, s: Tensor, z: Tensor) -> Tensor:
        """Return the attention-weighted sum of the messages, with the weights of the edges and the mask `s`."""
        at_src, at_dst = head_logits(z, self.layer.a_src, self.layer.a_dst)
        weight, mask = (edges.beside_loops(values).unsqueeze(1) for values in (edges.weight, s))
        logits = F.leaky_relu(rows(at_src, edges.src) + rows(at_dst, edges.dst) + mask * self.layer.c, SLOPE)
        # An edge of weight 0 is removed, so it must not set the scale of the others.
        largest = segment_max(edges, logits.detach().masked_fill(weight == 0, -torch.inf))
        exp = (logits - rows(largest, edges.dst)).clamp_max(LARGEST).exp() * weight
        alpha = exp / rows(segment_sum(edges, exp), edges.dst)
        if self.layer.gate == "message":
            alpha = alpha * mask
        sums = [aggregate(edges, alpha[:, k].contiguous(), z[:, k].contiguous()) for k in range(z.shape[1])]
        return torch.stack(sums, dim=1)
