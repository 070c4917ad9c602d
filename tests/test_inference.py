"""Inference: the edges and the mask that a graph is predicted with, and how far logits are propagated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.enrich import Cache
from edgemask.errors import GraphError, PredictionError
from edgemask.explain import edge_mask, explain_prediction
from edgemask.graph import Graph
from edgemask.inference import (
    Member,
    Propagation,
    enriched_edges,
    mask_of,
    mean_probabilities,
    probabilities,
    raw_logits,
    reading_edges,
    to_probabilities,
)
from edgemask.methods.edgemask import Game
from edgemask.methods.erm import ERM
from edgemask.nn.propagation import propagate, propagate_weighted
from edgemask.nn.tensors import GraphTensors
from edgemask.training.fit import Fit

TINY = Recipe(
    backbone="gcn", hidden=8, mask_projection=8, mask_hidden=8, epochs=5, lr=0.02, mask_lr=0.1,
    k=3, clusters=5, knn_ratio=0.5, bound="budget", rho=0.6,
)  # fmt: skip
A, _, C = demo_family(80).values()
TARGET = GraphTensors.of(C.without_labels())


def trained(**changes) -> Game:
    return Fit(Game, TINY.replace(**changes), [A]).run()[0].method


# ---- edge weights ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"test_graph": "enriched"}, {"inference_batch": 9}, {"test_mask": "masknet"}])
def test_probabilities_are_those_of_the_network_and_propagation_with_weights(settings):
    method = trained(**settings)
    graph = C.replace(weights=np.random.default_rng(0).random(C.num_edges) * 3).without_labels()
    domain = GraphTensors.of(graph)
    edges = reading_edges(method.recipe, domain, 0)
    s = mask_of(method, domain, edges) if settings.get("test_mask") else None
    with torch.no_grad():
        total = edges.weight if s is None else s * edges.weight
        logits = method.networks["task"].eval()(domain.x, edges.with_weight(None), mask=total)
        smooth = propagate_weighted(
            domain.edges.with_weight(None), logits, 0.8, method.recipe.steps, domain.edges.weight
        )
    p = mean_probabilities([Member("m", method, Propagation(0.8))], graph)
    np.testing.assert_allclose(p, smooth.double().softmax(1).numpy(), atol=1e-5)
    np.testing.assert_allclose(probabilities(method, graph, 0.8), p, atol=1e-6)
    assert not np.allclose(
        p, mean_probabilities([Member("m", method, Propagation(0.8))], C.without_labels()), atol=1e-4
    )


# ---- edges -----------------------------------------------------------------------------------------------


def test_a_target_is_predicted_on_its_own_edges_by_default():
    assert reading_edges(TINY, TARGET, 0) is TARGET.edges


def test_enriched_prediction_adds_to_the_edges_of_the_target():
    edges = reading_edges(TINY.replace(test_graph="enriched"), TARGET, 0)
    pairs = {(int(u), int(v)) for u, v in zip(edges.src, edges.dst, strict=True)}
    assert pairs > {(int(u), int(v)) for u, v in C.edges.T}


def test_the_sample_of_enriched_edges_depends_on_the_seed():
    one, again, other = (enriched_edges(TINY, TARGET, seed).src.tolist() for seed in (0, 0, 1))
    assert one == again != other


@pytest.mark.parametrize(
    "same",
    [
        C,
        C.replace(y=np.roll(C.y, 1)),
        C.replace(masks={"eval": np.arange(80) < 9}),
        C.replace(name="other"),
        Graph("bare", C.x, C.edges),
    ],
    ids=["labels", "other labels", "mask", "name", "no classes"],
)
def test_labels_masks_and_names_do_not_change_the_enriched_edges(same):
    assert torch.equal(enriched_edges(TINY, GraphTensors.of(same), 0).src, enriched_edges(TINY, TARGET, 0).src)


def test_a_cache_changes_nothing(tmp_path: Path):
    cache = Cache(tmp_path)
    for _ in range(2):  # computed, then read back
        assert torch.equal(enriched_edges(TINY, TARGET, 0, cache).src, enriched_edges(TINY, TARGET, 0).src)
    assert list(tmp_path.iterdir())


# ---- mask ------------------------------------------------------------------------------------------------


def test_a_mask_of_ones_equals_no_mask():
    method = trained(test_mask="ones")
    ones = torch.ones(TARGET.edges.num_real)
    torch.testing.assert_close(
        raw_logits(method, TARGET, TARGET.edges), method.logits(TARGET, TARGET.edges, ones), rtol=0, atol=1e-6
    )


def test_a_mask_of_zeros_equals_the_graph_without_edges_if_the_mask_gates_messages():
    method = trained(test_mask="zeros", backbone="gat", gate="softmax", heads=2)
    bare = GraphTensors.of(Graph("bare", C.x, np.empty((2, 0), dtype=int)))
    torch.testing.assert_close(raw_logits(method, TARGET, TARGET.edges), method.logits(bare, bare.edges))


def test_the_mask_of_the_masknet_is_used_if_the_recipe_says_so():
    method = trained(test_mask="masknet")
    s = method.mask_of(TARGET, TARGET.edges)
    logits = raw_logits(method, TARGET, TARGET.edges)
    assert torch.equal(logits, method.logits(TARGET, TARGET.edges, s))
    assert not torch.allclose(logits, method.logits(TARGET, TARGET.edges))


# ---- propagation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("test_graph", ["original", "enriched"])
def test_logits_are_propagated_over_the_original_edges(test_graph):
    method = trained(test_graph=test_graph)
    logits = raw_logits(method, TARGET, reading_edges(method.recipe, TARGET, 0))
    spread = propagate(TARGET.edges, logits, 0.9, method.recipe.steps)
    assert np.array_equal(probabilities(method, TARGET.graph, 0.9), to_probabilities(method.recipe, spread))
    assert np.array_equal(probabilities(method, TARGET.graph, 0.0), to_probabilities(method.recipe, logits))


def test_inference_has_no_randomness_and_leaves_the_random_state_alone():
    method = trained(test_graph="enriched", test_mask="masknet")
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = probabilities(method, TARGET.graph, 0.5)
    assert np.array_equal(first, probabilities(method, TARGET.graph, 0.5))
    assert torch.equal(before, torch.get_rng_state())


def test_extreme_logits_are_still_distributions():
    p = to_probabilities(Recipe(), torch.tensor([[1e4, -1e4, 0.0], [-3e38, -3e38, -3e38]]))
    np.testing.assert_allclose(p, [[1, 0, 0], [1 / 3] * 3])


# ---- in blocks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test_mask", ["ones", "zeros", "masknet"])
@pytest.mark.parametrize("test_graph", ["original", "enriched"])
@pytest.mark.parametrize("backbone", ["gcn", "gat", "gin", "sgc"])
def test_a_graph_predicted_in_blocks_has_the_same_probabilities(backbone, test_graph, test_mask):
    method = trained(backbone=backbone, heads=2, test_graph=test_graph, test_mask=test_mask, epochs=2)
    whole = probabilities(method, C, 0.5)
    method.recipe = method.recipe.replace(inference_batch=13)
    np.testing.assert_allclose(probabilities(method, C, 0.5), whole, rtol=0, atol=1e-5)


@pytest.mark.parametrize("mask_inputs", [(), ("origin", "structure", "predictions")])
def test_a_mask_computed_in_blocks_is_the_same(mask_inputs):
    method = trained(mask_inputs=mask_inputs, epochs=2)
    whole = edge_mask(method, C)
    method.recipe = method.recipe.replace(inference_batch=13)
    blocks = edge_mask(method, C)
    assert np.array_equal(blocks.edges, whole.edges)
    assert np.array_equal(blocks.origin, whole.origin)
    np.testing.assert_allclose(blocks.s, whole.s, rtol=0, atol=1e-5)
    assert np.ptp(whole.s) > 0.01


def test_a_graph_predicted_in_blocks_is_never_whole_on_the_device(monkeypatch):
    method = trained(inference_batch=13)
    monkeypatch.setattr(GraphTensors, "of", lambda *_: pytest.fail("the whole graph was put on the device"))
    assert probabilities(method, C, 0.5).shape == (80, 5)
    assert len(edge_mask(method, C).s) >= C.num_edges


# ---- the mask of every edge ------------------------------------------------------------------------------


def test_without_enrichment_the_mask_has_a_value_for_each_edge_in_the_graphs_order():
    mask = edge_mask(trained(k=0, clusters=0), C)
    assert np.array_equal(mask.edges, C.edges)
    assert set(mask.origin) == {"original"}
    assert mask.s.shape == (C.num_edges,)


@pytest.mark.parametrize("graph", [A, C], ids=["source", "target"])
@pytest.mark.parametrize("rho", [0.3, 0.9])
def test_under_a_budget_the_mean_mask_is_rho_on_any_graph(graph, rho):
    assert edge_mask(trained(rho=rho), graph).s.mean() == pytest.approx(rho, abs=1e-5)


def test_a_graph_without_edges_has_an_empty_mask():
    bare = Graph("bare", C.x, np.empty((2, 0), dtype=int))
    assert edge_mask(trained(k=0, clusters=0), bare).s.shape == (0,)


def test_a_method_without_an_adversary_has_no_mask():
    method = Fit(ERM, TINY, [A]).run()[0].method
    with pytest.raises(ValueError, match="without a MaskNet"):
        edge_mask(method, C)


# ---- predictions that are not finite ----------------------------------------------------------------------

NAMED = C.replace(node_ids=[f"n{i}" for i in range(80)]).without_labels()
HUGE = NAMED.replace(x=np.where(np.arange(80)[:, None] == 7, np.float32(3e38), C.x))


def broken(value: float = np.nan, **changes) -> Game:
    method = trained(epochs=1, **changes)
    with torch.no_grad():
        next(method.networks["task"].parameters()).fill_(value)
    return method


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("settings", [{}, {"inference_batch": 9}, {"test_graph": "enriched"}, {"loss": "binary"}])
def test_weights_that_are_not_finite_are_an_error(settings, value):
    method, message = broken(value, **settings), "the prediction of node 'n0' is not finite: the model's weights"
    for predict in (
        lambda: probabilities(method, NAMED, 0.0),
        lambda: probabilities(method, NAMED, 0.9),
        lambda: mean_probabilities([Member("m", method, Propagation(0.5, "probabilities"), 2.0)], NAMED),
        lambda: mean_probabilities([Member("m", method, Propagation())], NAMED),
        lambda: explain_prediction([Member("m", method, Propagation())], NAMED, [3]),
    ):
        with pytest.raises(PredictionError, match=message):
            predict()


@pytest.mark.parametrize("batch", [None, 9])
def test_features_that_overflow_are_an_error_that_names_node_and_column(batch):
    method, graph = (
        trained(epochs=1, inference_batch=batch),
        HUGE.replace(feature_names=[f"word {i}" for i in range(64)]),
    )
    for x in (graph.x, -graph.x, sp.csr_array(graph.x)):
        with pytest.raises(
            GraphError, match=r"'gamma', x: the largest feature is 'word 0' of node 'n7', -?3e\+38; a fea"
        ):
            probabilities(method, graph.replace(x=x), 0.0)
    probabilities(method, graph.replace(x=np.clip(graph.x, -1e15, 1e15)), 0.0)


def test_one_member_that_is_not_finite_is_an_error():
    members = [Member("good", trained(epochs=1), Propagation()), Member("bad", broken(), Propagation())]
    with pytest.raises(PredictionError, match="node 'n0' is not finite"):
        mean_probabilities(members, NAMED)


def test_a_mask_that_is_not_finite_is_an_error():
    method = trained(epochs=1)
    with torch.no_grad():
        next(method.networks["mask"].parameters()).fill_(torch.nan)
    with pytest.raises(PredictionError, match="graph 'gamma': the mask of an edge is not finite"):
        edge_mask(method, NAMED)
    method.recipe = method.recipe.replace(test_mask="masknet")
    with pytest.raises(PredictionError, match="the mask of an edge is not finite"):
        probabilities(method, NAMED, 0.0)


def test_probabilities_that_are_all_zero_are_an_error():
    method = trained(epochs=1, loss="binary")
    with torch.no_grad():
        for weights in method.networks["task"].parameters():
            weights.zero_()
        list(method.networks["task"].parameters())[-1].fill_(-1e4)
    with pytest.raises(PredictionError, match="node 'n0' is not finite"):
        probabilities(method, NAMED, 0.0)
