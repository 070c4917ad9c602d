"""Edge weights in every method of the registry: they train on weighted graphs, and the weights matter."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from edgemask.config import Recipe, recipe
from edgemask.data.synthetic import demo_family
from edgemask.graph import Graph
from edgemask.inference import Member, Propagation, mean_probabilities
from edgemask.methods.edgemask import Game
from edgemask.methods.registry import METHODS, method_spec
from edgemask.methods.sources import make_source
from edgemask.nn.tensors import GraphTensors
from edgemask.training.fit import Fit
from tests.methods.test_all_methods import small_recipe

CPU = torch.device("cpu")
SOURCES, TARGET = list(demo_family(70).values())[:2], demo_family(90)["gamma"]


def reweighted(graph: Graph, kind: str) -> Graph:
    """The graph without weights, with ones, or with random weights that are equal in both directions."""
    if kind == "none":
        return graph
    at_nodes = np.random.default_rng(0).random(graph.num_nodes)
    ones, random = np.ones(graph.num_edges), 0.1 + at_nodes[graph.edges].sum(0) * 2
    return graph.replace(weights=ones if kind == "ones" else random)


@cache
def trained(name: str, kind: str):
    sources = [reweighted(graph, kind) for graph in SOURCES]
    return Fit(method_spec(name).make, small_recipe(name, epochs=1), sources).run()[0].method


def predicted(name: str, kind: str, target: str = "none", alpha: float = 0.0) -> np.ndarray:
    graph = reweighted(TARGET, target).without_labels()
    return mean_probabilities([Member(name, trained(name, kind), Propagation(alpha))], graph)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_an_epoch_depends_on_the_weights_and_weights_of_one_are_no_weights(name):
    assert np.isfinite(predicted(name, "random")).all()
    np.testing.assert_allclose(predicted(name, "ones"), predicted(name, "none"), rtol=0, atol=1e-4)
    same = np.allclose(predicted(name, "random"), predicted(name, "none"), rtol=0, atol=1e-6)
    assert same == (method_spec(name).recipe.backbone == "mlp")


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_predictions_depend_on_the_weights_of_the_target(name):
    uses_edges = method_spec(name).recipe.backbone != "mlp"
    for alpha, differs in ((0.0, uses_edges), (0.9, True)):
        plain, ones, random = (predicted(name, "none", kind, alpha) for kind in ("none", "ones", "random"))
        np.testing.assert_allclose(ones, plain, rtol=0, atol=1e-5)
        assert np.allclose(random, plain, rtol=0, atol=1e-6) != differs


@pytest.mark.parametrize("batch_size", [None, 30])
def test_the_budget_is_the_mean_of_the_mask_without_the_weights(batch_size):
    settings = {"hidden": 8, "k": 3, "clusters": 4, "rho": 0.6, "bound": "budget", "backbone": "gcn"}
    graph = reweighted(SOURCES[0], "random")
    game = Game(recipe("robust", batch_size=batch_size, **settings), graph.num_features, graph.num_classes, 0, CPU)
    game.update([make_source(game.recipe, graph, np.arange(graph.num_nodes), CPU, None)], 0)
    domain = GraphTensors.of(graph)
    s = game.mask_of(domain, domain.edges)
    assert s.mean().item() == pytest.approx(0.6, abs=1e-5)
    torch.testing.assert_close(s, game.mask_of(domain, domain.edges.with_weight(None)))


def test_a_relabelled_source_has_the_weights_of_its_edges(monkeypatch):
    monkeypatch.setattr("edgemask.methods.sources.RELABELLED", 10)
    graph = reweighted(SOURCES[0], "random")
    small = Recipe(backbone="gcn", k=3, clusters=4)
    source = make_source(small, graph, np.arange(graph.num_nodes), CPU, None)
    edges, x = source.domain.edges, np.asarray(source.domain.x)
    assert not np.array_equal(x, graph.x)
    old = np.array([int(np.flatnonzero((graph.x == row).all(1))[0]) for row in x])
    own = {(u, v): w for u, v, w in zip(*graph.edges.tolist(), graph.weights.tolist(), strict=True)}
    assert edges.weight.tolist() == [own[old[u], old[v]] for u, v in edges.edge_index.T.tolist()]
