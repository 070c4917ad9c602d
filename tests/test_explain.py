"""Explanations of predictions: compared with central differences, and with predictions of the graph without an edge."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.config import BACKBONES, GATES, Recipe
from edgemask.explain import edge_mask, explain_prediction
from edgemask.graph import Graph
from edgemask.inference import Member, Propagation, mean_probabilities
from edgemask.methods.arm import ARM
from edgemask.methods.base import Method
from edgemask.methods.canet import CaNet
from edgemask.methods.edgemask import Game
from edgemask.methods.erm import ERM
from edgemask.methods.flood import FLOOD
from edgemask.nn.gat import MaskedGAT
from edgemask.nn.propagation import propagate, propagate_weighted
from edgemask.nn.sgc import SGC
from edgemask.nn.tensors import GraphTensors, features
from edgemask.training.fit import Fit

pytestmark = pytest.mark.numerical

COLUMNS = ["node", "neighbour", "class", "probability", "derivative", "change", "mask"]
TINY = Recipe(
    backbone="gcn", hidden=8, heads=2, mask_projection=8, mask_hidden=8, epochs=2, k=3, clusters=4, knn_ratio=0.5,
    spectral_ratio=0.2, bound="budget", rho=0.6, mask=False, average=0.0,
)  # fmt: skip
PROPAGATIONS = {
    "none": Propagation(),
    "logits": Propagation(0.8),
    "probabilities": Propagation(0.8, "probabilities"),
}
PROPAGATED = pytest.mark.parametrize("how", PROPAGATIONS)
EVERY_BACKBONE = pytest.mark.parametrize("backbone", BACKBONES)


def random_graph(n: int = 24, *, undirected: bool = True, sparse: bool = False) -> Graph:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 4)) * (rng.random((n, 4)) < 0.7)
    pairs = rng.integers(0, n, (2, 2 * n))
    pairs = pairs[:, pairs[0] != pairs[1]]
    y = rng.integers(0, 3, n)
    return Graph("random", sp.csr_array(x) if sparse else x, pairs, y, undirected=undirected, duplicates="merge")


def weighted(graph: Graph) -> Graph:
    """The graph with random weights, the same in both directions of an edge."""
    at_nodes = np.random.default_rng(1).random(graph.num_nodes)
    return graph.replace(weights=0.2 + at_nodes[graph.edges].sum(0))


GRAPH = random_graph()
WEIGHTED = weighted(GRAPH)


def untrained(make: type[Method] = ERM, seed: int = 0, **settings: Any) -> Method:
    """A method with random parameters, which predicts different classes with moderate probabilities."""
    method = make(TINY.replace(**settings), 4, 3, seed, torch.device("cpu"))
    generator = torch.Generator().manual_seed(seed)
    for parameter in method.networks.parameters():
        nn.init.normal_(parameter, std=0.4, generator=generator)
    return method


def member(how: Propagation | str = "none", temperature: float = 1.0, **settings: Any) -> Member:
    settings.setdefault("make", Game if settings.get("mask") else ERM)
    propagation = PROPAGATIONS[how] if isinstance(how, str) else how
    return Member("member", untrained(**settings), propagation, temperature)


def without(graph: Graph, u: int, v: int) -> Graph:
    """The graph without the edge between two nodes, in either direction."""
    ends = np.sort(graph.edges, axis=0)
    kept = (ends != np.sort([[u], [v]], axis=0)).any(0)
    return graph.replace(edges=graph.edges[:, kept], weights=None if graph.weights is None else graph.weights[kept])


# ---- an independent prediction with edge weights, with dense matrices in float64 -------------------------------------


def dense(graph: Graph, w: Tensor) -> Tensor:
    """The weighted adjacency matrix, with entry (v, u) for the edge u → v and ones on the diagonal."""
    a = torch.eye(graph.num_nodes, dtype=torch.float64)
    src, dst = torch.tensor(graph.edges)
    a[dst, src] = w
    return a


def dense_gat(network: MaskedGAT, x: Tensor, a: Tensor, s: Tensor) -> Tensor:
    """A GAT in which the factor `a` of an edge multiplies its exponential, and `s` is its mask times its weight."""
    h = x
    for i, layer in enumerate(network.layers):
        z = (h @ layer.linear.weight).view(len(x), layer.heads, layer.width)
        at_dst, at_src = ((z * vector).sum(2) for vector in (layer.a_dst, layer.a_src))
        logits = at_dst.unsqueeze(1) + at_src.unsqueeze(0) + s.unsqueeze(2) * layer.c
        exp = a.unsqueeze(2) * F.leaky_relu(logits, 0.2).exp()
        alpha = exp / exp.sum(1, keepdim=True) * (s.unsqueeze(2) if layer.gate == "message" else 1)
        out = F.elu(torch.einsum("vuh,uhd->vhd", alpha, z) + network.biases[i])
        h = out.flatten(1) if i + 1 < len(network.layers) else out.mean(1)
    return network.out(h)


def weighted_prediction(members: Sequence[Member], graph: Graph, w: Tensor) -> Tensor:
    """The mean probabilities of a graph whose edges have weights, for members that predict with s = 1."""
    domain, total = GraphTensors.of(graph), torch.zeros(())
    own = torch.ones_like(w) if graph.weights is None else torch.tensor(graph.weights, dtype=torch.float64)
    for m in members:
        network, recipe = copy.deepcopy(m.method.networks["task"]).double().eval(), m.method.recipe
        if isinstance(network, MaskedGAT) and recipe.gate != "softmax":
            s = dense(graph, own * float(recipe.test_mask == "ones"))
            start = dense_gat(network, domain.x.double(), dense(graph, w), s)
        else:
            start = network(domain.x.double(), domain.edges, mask=w)
        probable = (lambda z: z.sigmoid()) if recipe.loss == "binary" else lambda z: z.softmax(1)
        start = z = start if m.propagation.of == "logits" else probable(start)
        a = dense(graph, w * own)
        scale = a.sum(1).rsqrt()
        for _ in range(recipe.steps):
            z = m.propagation.alpha * (scale.unsqueeze(1) * a * scale) @ z + (1 - m.propagation.alpha) * start
        p = probable(z) if m.propagation.of == "logits" else z
        p = (p / p.sum(1, keepdim=True)) ** (1 / m.temperature)
        total = total + p / p.sum(1, keepdim=True) / len(members)
    return total.detach()


def assert_derivatives_are_central_differences(members: Sequence[Member], graph: Graph, nodes: Sequence[int]) -> None:
    table = explain_prediction(members, graph, nodes, drops=0)
    src, dst = graph.edges
    assert len(table) == np.isin(dst, nodes).sum() > 0
    for row in table.to_dict("records"):
        u, v = row["neighbour"], row["node"]
        pair = torch.from_numpy(((src == u) & (dst == v)) | ((src == v) & (dst == u)))
        up, down = (
            weighted_prediction(members, graph, torch.ones(len(src), dtype=torch.float64) + step * pair)[v]
            for step in (1e-4, -1e-4)
        )
        slope = float((up - down)[row["class"]]) / 2e-4
        assert row["derivative"] == pytest.approx(slope, rel=1e-4, abs=1e-7)
    assert table["derivative"].abs().max() > 1e-4


# ---- an edge that decides --------------------------------------------------------------------------------------------


@PROPAGATED
def test_the_edge_that_decides_a_prediction_has_the_largest_effect(how: str) -> None:
    # Nodes 0, 2, 3 and 4 are weakly of class 0. The edge from node 1, which is strongly of class 1, decides node 0.
    x = [[1.0, 0.0], [0.0, 20.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    graph = Graph("star", x, [[1, 2, 3, 3], [0, 0, 0, 4]], undirected=True)
    method = SmallSGC(TINY.replace(backbone="sgc", layers=1), 2, 2, 0, torch.device("cpu"))
    members = [Member("sgc", method, PROPAGATIONS[how])]
    before, after = (mean_probabilities(members, g)[0].argmax() for g in (graph, without(graph, 0, 1)))
    assert (before, after) == (1, 0)
    table = explain_prediction(members, graph, [0])
    assert table["neighbour"].iloc[0] == 1
    assert set(table["class"]) == {1}
    assert table["change"].abs().idxmax() == table["derivative"].abs().idxmax() == 0
    assert table["derivative"].iloc[0] > 0 > table["change"].iloc[0]
    assert table["probability"].iloc[0] + table["change"].iloc[0] < 0.5  # another class wins without the edge
    assert (table["derivative"].iloc[1:] < 0).all()  # the other neighbours speak for class 0
    assert (table["change"].iloc[1:] > 0).all()


class SmallSGC(ERM):
    """A method whose logits are the mean features of a node and its neighbours, as an SGC with one hop weighs them."""

    def build(self) -> dict[str, nn.Module]:
        network = SGC(2, 1, 2, layers=1)
        nn.init.eye_(network.linear.weight)
        return {"task": network}


# ---- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backbone", "how"), [pair for pair in product(BACKBONES, PROPAGATIONS) if pair != ("mlp", "none")]
)
def test_derivatives_are_central_differences(backbone: str, how: str) -> None:
    assert_derivatives_are_central_differences([member(how, backbone=backbone)], GRAPH, [0, 7])


@pytest.mark.parametrize(
    ("gate", "test_mask"), [*product(GATES, ["ones"]), ("message", "zeros"), ("attention", "zeros")]
)
def test_derivatives_of_every_gate_of_a_gat(gate: str, test_mask: str) -> None:
    gat = member(backbone="gat", gate=gate, test_mask=test_mask)
    assert_derivatives_are_central_differences([gat], GRAPH, [0, 7])


@pytest.mark.parametrize("loss", ["cross-entropy", "binary"])
def test_derivatives_of_the_mean_of_calibrated_members(loss: str) -> None:
    members = [
        member("logits", temperature=2.5, make=Game, backbone="gcn", loss=loss),
        member("probabilities", temperature=0.7, make=Game, seed=1, backbone="gin", loss=loss),
    ]
    assert_derivatives_are_central_differences(members, GRAPH, [0, 7])


def test_derivatives_in_a_directed_graph() -> None:
    assert_derivatives_are_central_differences([member("logits")], random_graph(undirected=False), [0, 7])


@EVERY_BACKBONE
def test_derivatives_in_the_neighbourhood_of_a_node(backbone: str) -> None:
    # Without propagation only a neighbourhood is computed, if it has at most half of the edges.
    n = 48
    x = np.random.default_rng(0).normal(size=(n, 4))
    ring = Graph("ring", x, [np.arange(n), (np.arange(n) + 1) % n], undirected=True)
    if backbone != "mlp":
        assert_derivatives_are_central_differences([member(backbone=backbone)], ring, [0, 20])
    table = explain_prediction([member(backbone=backbone)], ring, [0, 20])
    assert_changes_are_exact(table, [member(backbone=backbone)], ring)


def test_members_without_propagation_read_only_the_neighbourhood_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Graph("path", np.ones((30, 4)), [np.arange(29), np.arange(1, 30)], undirected=True)
    read: list[Any] = []
    monkeypatch.setattr("edgemask.explain.features", lambda g, nodes: read.append(nodes.tolist()) or features(g, nodes))
    explain_prediction([member(backbone="gcn", layers=2)], path, [10], drops=1)
    assert read == [list(range(7, 14))] * 2  # two layers, and the degrees of the outermost nodes


@pytest.mark.parametrize("settings", [{"backbone": "mlp"}, {"backbone": "gcn", "test_mask": "zeros"}])
def test_a_prediction_without_edges_has_no_effects(settings: dict[str, Any]) -> None:
    table = explain_prediction([member(**settings)], GRAPH, [0, 7], drops=100)
    assert len(table) > 0
    assert (table["derivative"] == 0).all()
    assert (table["change"] == 0).all()


def test_a_member_that_ignores_edges_halves_the_effects_of_the_other() -> None:
    gcn, mlp = member("logits"), member(backbone="mlp")
    alone, both = (explain_prediction(members, GRAPH) for members in ([gcn], [gcn, mlp]))
    merged = alone.merge(both, on=["node", "neighbour", "class"], suffixes=("_alone", "_both"))
    assert len(merged) > 10
    np.testing.assert_allclose(merged["derivative_both"], merged["derivative_alone"] / 2)


# ---- changes ---------------------------------------------------------------------------------------------------------


def assert_changes_are_exact(table: pd.DataFrame, members: Sequence[Member], graph: Graph) -> None:
    """The table agrees with predictions of the graph, and of the graph without each edge whose change is given."""
    p = mean_probabilities(members, graph)
    for row in table.to_dict("records"):
        assert row["class"] == p[row["node"]].argmax()
        assert row["probability"] == p[row["node"], row["class"]]
        if not np.isnan(row["change"]):
            rest = mean_probabilities(members, without(graph, row["neighbour"], row["node"]))
            change = rest[row["node"], row["class"]] - row["probability"]
            assert row["change"] == pytest.approx(change, abs=2e-6)


@PROPAGATED
@EVERY_BACKBONE
def test_changes_are_those_of_the_graph_without_the_edge(backbone: str, how: str) -> None:
    members = [member(how, temperature=1.5, backbone=backbone)]
    table = explain_prediction(members, GRAPH, [0, 7], drops=100)
    assert not table["change"].isna().any()
    assert_changes_are_exact(table, members, GRAPH)


@pytest.mark.parametrize("test_mask", ["ones", "zeros", "masknet"])
@pytest.mark.parametrize("test_graph", ["original", "enriched"])
@pytest.mark.parametrize(
    ("backbone", "gate"), [("gcn", "message"), *(("gat", gate) for gate in GATES)], ids=["gcn", *GATES]
)
def test_changes_of_every_test_graph_and_mask(backbone: str, gate: str, test_graph: str, test_mask: str) -> None:
    names = ("origin", "structure", "predictions")
    settings = {"backbone": backbone, "gate": gate, "test_graph": test_graph, "test_mask": test_mask}
    members = [member("logits", mask=True, mask_inputs=names, **settings)]
    assert_changes_are_exact(explain_prediction(members, GRAPH, [0, 7], drops=100), members, GRAPH)


@pytest.mark.parametrize("test_mask", ["ones", "masknet"])
def test_an_original_edge_that_the_enrichment_draws_too_stays_in_the_network(test_mask: str) -> None:
    # Both edges of the graph are kNN pairs, and all kNN pairs are drawn.
    x = [[1.0, 0.0, 0.2, 0.0], [1.0, 0.1, 0.0, 0.3], [0.0, 1.0, 0.5, 0.0], [0.1, 1.0, 0.0, 0.0]]
    knn = Graph("knn", x, [[0, 2], [1, 3]], undirected=True)
    settings = {"test_graph": "enriched", "k": 1, "clusters": 0, "knn_ratio": 1.0, "mask_inputs": ("origin",)}
    members = [member(mask=True, bound="penalty", test_mask=test_mask, **settings)]
    table = explain_prediction(members, knn)
    assert len(table) == 4
    assert (table["derivative"] == 0).all()
    assert (table["change"].abs() > 1e-4).any() == (test_mask == "masknet")  # the MaskNet sees another origin
    assert_changes_are_exact(table, members, knn)


def test_only_the_directed_edge_is_removed_if_the_graph_does_not_have_the_opposite_one() -> None:
    graph, members = random_graph(undirected=False), [member("logits")]
    assert_changes_are_exact(explain_prediction(members, graph, drops=100), members, graph)


@pytest.mark.parametrize("drops", [0, 2])
def test_changes_are_given_for_the_edges_with_the_largest_derivatives(drops: int) -> None:
    table = explain_prediction([member("logits")], GRAPH, drops=drops)
    for _, rows in table.groupby("node"):
        assert rows["derivative"].abs().is_monotonic_decreasing
        assert rows["change"].notna().tolist() == [k < drops for k in range(len(rows))]


def test_sparse_features_give_the_same_explanation() -> None:
    members = [member("logits", backbone="sage"), member(backbone="egc")]
    one, other = (explain_prediction(members, random_graph(sparse=sparse)) for sparse in (False, True))
    pd.testing.assert_frame_equal(one, other, rtol=1e-4, atol=1e-6)


@PROPAGATED
@pytest.mark.parametrize("test_mask", ["ones", "masknet"])
def test_members_that_predict_in_blocks_have_the_same_explanation(test_mask: str, how: str) -> None:
    settings = {"mask": True, "test_graph": "enriched", "test_mask": test_mask}
    whole, blocks = (explain_prediction([member(how, inference_batch=size, **settings)], GRAPH) for size in (None, 7))
    pd.testing.assert_frame_equal(whole, blocks, rtol=1e-4, atol=1e-6)


# ---- graphs with edge weights ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backbone", "how"), [pair for pair in product(BACKBONES, PROPAGATIONS) if pair != ("mlp", "none")]
)
def test_derivatives_in_a_weighted_graph(backbone: str, how: str) -> None:
    assert_derivatives_are_central_differences([member(how, backbone=backbone)], WEIGHTED, [0, 7])


@pytest.mark.parametrize("gate", GATES)
def test_derivatives_of_every_gate_in_a_weighted_graph(gate: str) -> None:
    assert_derivatives_are_central_differences([member("logits", backbone="gat", gate=gate)], WEIGHTED, [0, 7])


@PROPAGATED
@EVERY_BACKBONE
def test_changes_in_a_weighted_graph(backbone: str, how: str) -> None:
    members = [member(how, backbone=backbone)]
    table = explain_prediction(members, WEIGHTED, [0, 7], drops=100)
    assert_changes_are_exact(table, members, WEIGHTED)
    if backbone != "mlp" or how != "none":
        assert not np.allclose(table["probability"], explain_prediction(members, GRAPH, [0, 7])["probability"])


@pytest.mark.parametrize("test_mask", ["ones", "masknet"])
@pytest.mark.parametrize("inference_batch", [None, 7])
@pytest.mark.parametrize(
    ("backbone", "gate"), [("gcn", "message"), *(("gat", gate) for gate in GATES)], ids=["gcn", *GATES]
)
def test_changes_of_enriched_predictions_in_a_weighted_graph(
    backbone: str, gate: str, inference_batch: int | None, test_mask: str
) -> None:
    settings = {"backbone": backbone, "gate": gate, "test_graph": "enriched", "test_mask": test_mask}
    names = ("origin", "structure", "predictions")
    members = [member("logits", mask=True, mask_inputs=names, inference_batch=inference_batch, **settings)]
    assert_changes_are_exact(explain_prediction(members, WEIGHTED, [0, 7], drops=100), members, WEIGHTED)


@pytest.mark.parametrize("gate", GATES)
def test_an_enriched_edge_that_stays_has_weight_1(gate: str) -> None:
    x = [[1.0, 0.0, 0.2, 0.0], [1.0, 0.1, 0.0, 0.3], [0.0, 1.0, 0.5, 0.0], [0.1, 1.0, 0.0, 0.0]]
    knn = Graph("knn", x, [[0, 2], [1, 3]], weights=[3.0, 0.2], undirected=True)
    settings = {"test_graph": "enriched", "k": 1, "clusters": 0, "knn_ratio": 1.0, "backbone": "gat", "gate": gate}
    members = [member(**settings)]
    table = explain_prediction(members, knn)
    assert (table["change"].abs() > 1e-5).all()
    assert_changes_are_exact(table, members, knn)


def test_weights_of_one_give_the_explanation_of_no_weights() -> None:
    members = [member("logits"), member(backbone="gat")]
    ones = GRAPH.replace(weights=np.ones(GRAPH.num_edges))
    pd.testing.assert_frame_equal(
        explain_prediction(members, ones), explain_prediction(members, GRAPH), rtol=1e-4, atol=1e-6
    )


# ---- methods with their own networks or logits -----------------------------------------------------------------------


@PROPAGATED
@pytest.mark.parametrize(("make", "backbone"), [(ARM, "gcn"), (ARM, "gat"), (CaNet, "gcn"), (FLOOD, "gcn")])
def test_methods_with_their_own_networks(make: type[Method], backbone: str, how: str) -> None:
    trained = Fit(make, TINY.replace(backbone=backbone, k=0, clusters=0), [GRAPH]).run()[0].method
    members = [Member("trained", trained, PROPAGATIONS[how])]
    assert_changes_are_exact(explain_prediction(members, GRAPH, [0, 7]), members, GRAPH)


def test_a_method_that_trains_on_the_graph_is_refused() -> None:
    refining = Member("flood", untrained(FLOOD, hyper=(("refine", 2),)), Propagation())
    with pytest.raises(ValueError, match=r"'flood' trains on the graph before it predicts it \(refine = 2\)"):
        explain_prediction([refining], GRAPH)


def test_a_method_with_its_own_logits_is_refused() -> None:
    class Constant(ERM):
        def logits(self, domain: GraphTensors, edges: Any, s: Tensor | None = None) -> Tensor:
            return torch.zeros(domain.num_nodes, 3)

    with pytest.raises(ValueError, match=r"'own' computes its logits in its own way \(Constant\.logits\)"):
        explain_prediction([Member("own", untrained(Constant), Propagation())], GRAPH)


# ---- the mask --------------------------------------------------------------------------------------------------------


def test_the_mask_is_that_of_the_adversary() -> None:
    games = [member(mask=True, k=0, clusters=0, seed=seed) for seed in (0, 1)]
    table = explain_prediction([*games, member("logits")], GRAPH, range(GRAPH.num_nodes))
    masks = [edge_mask(game.method, GRAPH) for game in games]
    by_edge = dict(zip(map(tuple, masks[0].edges.T), np.mean([m.s for m in masks], axis=0), strict=True))
    assert len(table) == GRAPH.num_edges
    expected = [by_edge[edge] for edge in zip(table["neighbour"], table["node"], strict=True)]
    np.testing.assert_allclose(table["mask"], expected)
    assert np.ptp(expected) > 0.01


def test_the_mask_is_nan_without_an_adversary() -> None:
    assert explain_prediction([member()], GRAPH, [0])["mask"].isna().all()


# ---- nodes and other arguments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([0, 24], "'random' has no node 24: its nodes are 0 … 23"),
        ([-1], "has no node -1"),
        ([1.5], r"integers, got 1\.5"),
        (["a"], "integers, got 'a'"),
        ([True], "integers, got True"),
        (3, "a sequence of integers, got 3"),
        (np.array([0.0]), r"integers, got .*0\.0"),
    ],
)
def test_bad_nodes_are_refused(nodes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        explain_prediction([member()], GRAPH, nodes)


@pytest.mark.parametrize("drops", [-1, 0.5, None])
def test_bad_drops_are_refused(drops: Any) -> None:
    with pytest.raises(ValueError, match=f"drops must be an integer of at least 0, got {drops}"):
        explain_prediction([member()], GRAPH, drops=drops)


def test_no_members_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one trained member"):
        explain_prediction([], GRAPH)


def test_a_prediction_that_is_not_finite_is_refused() -> None:
    broken = member()
    nn.init.constant_(next(broken.method.networks.parameters()), torch.nan)
    with pytest.raises(ValueError, match=r"'random': the prediction of node 0 is not finite: the model's weights are"):
        explain_prediction([broken], GRAPH, [7])


def test_nodes_keep_their_order_and_are_explained_once() -> None:
    table = explain_prediction([member()], GRAPH, np.array([7, 0, 7]))
    assert list(dict.fromkeys(table["node"])) == [7, 0]
    assert len(table) == GRAPH.degrees[[7, 0]].sum()


@PROPAGATED
def test_a_graph_without_edges_has_an_empty_table(how: str) -> None:
    bare = GRAPH.replace(edges=np.empty((2, 0), dtype=int))
    members = [member(how), member(how, mask=True, test_graph="enriched"), member(how, backbone="gat")]
    for nodes in (None, [0, 7], []):
        table = explain_prediction(members, bare, nodes)
        assert table.columns.tolist() == COLUMNS
        assert len(table) == 0


def test_the_default_nodes_are_a_seeded_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    with_edges = set(np.flatnonzero(GRAPH.degrees))
    monkeypatch.setattr("edgemask.explain.SAMPLE", GRAPH.num_nodes)
    assert set(explain_prediction([member()], GRAPH, drops=0)["node"]) == with_edges
    monkeypatch.setattr("edgemask.explain.SAMPLE", 6)
    one, again, other = (explain_prediction([member()], GRAPH, seed=seed, drops=0) for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(one, again, check_exact=True)
    assert 0 < one["node"].nunique() <= 6
    assert set(one["node"]) != set(other["node"])


@EVERY_BACKBONE
def test_an_explanation_is_deterministic_and_changes_nothing(backbone: str) -> None:
    m = member("logits", backbone=backbone)
    before = {name: value.clone() for name, value in m.method.networks.state_dict().items()}
    torch.manual_seed(1)
    state = torch.get_rng_state()
    pd.testing.assert_frame_equal(*(explain_prediction([m], GRAPH, [0, 7]) for _ in range(2)), check_exact=True)
    assert torch.equal(state, torch.get_rng_state())
    after = m.method.networks.state_dict()
    assert all(torch.equal(value, after[name]) and value.dtype == after[name].dtype for name, value in before.items())
    assert all(p.requires_grad and p.grad is None for p in m.method.networks.parameters())


def test_the_columns_have_the_types_of_their_values() -> None:
    table = explain_prediction([member()], GRAPH)
    assert table.columns.tolist() == COLUMNS
    assert [kind.kind for kind in table.dtypes] == list("iiiffff")


# ---- propagation with edge weights -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "steps"), [(0.8, 5), (0.0, 5), (0.8, 0)])
def test_propagation_with_weights_of_one_is_propagation(alpha: float, steps: int) -> None:
    edges, z = GraphTensors.of(GRAPH).edges, torch.randn(24, 3)
    torch.testing.assert_close(
        propagate_weighted(edges, z, alpha, steps, torch.ones(edges.num_real)), propagate(edges, z, alpha, steps)
    )


def test_propagation_with_a_weight_of_zero_is_propagation_without_the_edge() -> None:
    u, v = GRAPH.edges[:, 0]
    edges, z = GraphTensors.of(GRAPH).edges, torch.randn(24, 3)
    rest = without(GRAPH, u, v)
    w = torch.tensor([float((edge == rest.edges.T).all(1).any()) for edge in GRAPH.edges.T])
    expected = propagate(GraphTensors.of(rest).edges, z, 0.9, 20)
    torch.testing.assert_close(propagate_weighted(edges, z, 0.9, 20, w), expected)
