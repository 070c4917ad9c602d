"""The MaskNet and its inputs per edge."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from edgemask.config import EDGE_INPUTS
from edgemask.graph import Graph
from edgemask.nn import masknet
from edgemask.nn.masknet import EdgeFacts, MaskNet, common_neighbours
from edgemask.nn.tensors import Edges, GraphTensors

N, INPUTS = 9, 5


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def random_pairs(n, count, seed, undirected=False):
    keys = np.random.default_rng(seed).choice(n * n, count, replace=False)
    if undirected:
        keys = np.union1d(keys, keys % n * n + keys // n)
    keys = np.sort(keys[keys % n != keys // n])
    return np.stack([keys % n, keys // n])


@pytest.fixture
def domain():
    x = np.random.default_rng(0).random((N, INPUTS))
    return GraphTensors.of(Graph("g", x, random_pairs(N, 30, seed=0)))


def concatenated(net, x, src, dst, facts=None):
    """Compute Eq. mask_gen as written, with the same weights: g_φ of the concatenated ends (and facts)."""
    parts, weights = [], [net.from_src.weight, net.from_dst.weight]
    z = torch.relu(x @ net.project.weight + net.project.bias)
    parts += [z[src], z[dst]]
    if facts is not None:
        parts.append(facts)
        weights.append(net.from_edge.weight)
    hidden = F.linear(torch.cat(parts, dim=1), torch.cat(weights, dim=1), net.from_src.bias)
    return net.score(torch.relu(hidden)).squeeze(1)


@pytest.mark.parametrize("names", [(), ("structure", "origin")])
def test_logits_and_gradients_equal_the_concatenated_form(domain, names):
    net, edges = MaskNet(INPUTS, 6, 4, names), domain.edges
    facts = EdgeFacts.of(edges, names) if names else None
    src, dst = edges.src[edges.real], edges.dst[edges.real]
    logits = net(domain.x, edges, facts)
    expected = concatenated(net, domain.x, src, dst, facts.columns(names) if facts else None)
    torch.testing.assert_close(logits, expected)
    grad, parameters = torch.randn(edges.num_real), list(net.parameters())
    torch.testing.assert_close(
        torch.autograd.grad(logits, parameters, grad), torch.autograd.grad(expected, parameters, grad)
    )


def test_logits_come_in_the_order_of_the_edges(domain):
    net, edges = MaskNet(INPUTS, 6, 4), domain.edges
    logits = net(domain.x, edges)
    for e in (0, 5, edges.num_real - 1):
        src, dst = edges.src[edges.real][e], edges.dst[edges.real][e]
        alone = Edges.build(src.view(1), dst.view(1), N)
        torch.testing.assert_close(net(domain.x, alone), logits[e : e + 1])


def test_the_two_directions_of_an_edge_have_different_logits(domain):
    net = MaskNet(INPUTS, 6, 4)
    forward, backward = (
        net(domain.x, Edges.build(torch.tensor([u]), torch.tensor([v]), N)) for u, v in ((0, 1), (1, 0))
    )
    assert (forward - backward).abs() > 1e-4


def test_sparse_features_give_the_same_logits(domain):
    net = MaskNet(INPUTS, 6, 4)
    sparse = GraphTensors.of(domain.graph.replace(x=sp.csr_array(domain.graph.x)))
    torch.testing.assert_close(net(sparse.x, sparse.edges), net(domain.x, domain.edges))


class Largest(TorchDispatchMode):
    """Records the largest number of elements of any tensor created in this block."""

    numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        made = [t.numel() for t in (out if isinstance(out, tuple | list) else [out]) if isinstance(t, torch.Tensor)]
        self.numel = max(self.numel, *made, 0)
        return out


def test_nothing_of_size_edges_by_hidden_is_formed():
    n, hidden = 100, 64
    dense = GraphTensors.of(Graph("g", np.random.default_rng(0).random((n, INPUTS)), random_pairs(n, 5000, seed=0)))
    net = MaskNet(INPUTS, 6, hidden)
    with Largest() as largest:
        net(dense.x, dense.edges).sum().backward()
    assert dense.edges.num_real <= largest.numel < 2 * n * hidden < dense.edges.num_real * hidden / 20


def test_a_graph_without_edges_has_no_logits():
    domain = GraphTensors.of(Graph("g", np.ones((3, INPUTS)), np.empty((2, 0), dtype=int)))
    facts = EdgeFacts.of(domain.edges, EDGE_INPUTS, torch.ones(3, 2) / 2)
    assert MaskNet(INPUTS, 6, 4, EDGE_INPUTS)(domain.x, domain.edges, facts).shape == (0,)


def test_edge_inputs_must_be_given_when_expected(domain):
    with pytest.raises(ValueError, match="takes the edge inputs origin, but none were given"):
        MaskNet(INPUTS, 6, 4, ("origin",))(domain.x, domain.edges)


def test_predictions_need_probabilities(domain):
    with pytest.raises(ValueError, match="'predictions' needs the TaskNet's class probabilities"):
        EdgeFacts.of(domain.edges, ("predictions",))


def test_edge_facts_by_hand():
    """With the edges 1 → 0, 2 → 0 and 2 → 1, nodes 0 and 1 share the in-neighbour 2."""
    src, dst = torch.tensor([1, 2, 2]), torch.tensor([0, 0, 1])
    edges = Edges.build(src, dst, 3, torch.tensor([0, 2, 1], dtype=torch.uint8))
    p = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], requires_grad=True)
    blocks = EdgeFacts.of(edges, EDGE_INPUTS, p).blocks
    log = np.log
    assert torch.equal(blocks["origin"], torch.eye(3)[[0, 2, 1]])
    degrees = torch.tensor([[log(2), log(3), log(2)], [0, log(3), 0], [0, log(2), 0]], dtype=torch.float32)
    torch.testing.assert_close(blocks["structure"], degrees)
    agreement = torch.tensor([[0.5, log(2), 0], [0, 0, 0], [0.5, 0, log(2)]], dtype=torch.float32)
    torch.testing.assert_close(blocks["predictions"], agreement)
    assert not blocks["predictions"].requires_grad


def test_columns_come_in_the_given_order(domain):
    facts = EdgeFacts.of(domain.edges, EDGE_INPUTS, torch.rand(N, 2))
    expected = torch.cat([facts.blocks["structure"], facts.blocks["origin"]], dim=1)
    assert torch.equal(facts.columns(("structure", "origin")), expected)


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("count", [0, 1, 40, 250])
@pytest.mark.parametrize("work", [1, 7, 1 << 22])
def test_common_neighbours_equal_those_of_the_dense_adjacency(monkeypatch, undirected, count, work):
    monkeypatch.setattr(masknet, "WORK", work)  # few look-ups at a time give many chunks
    n = 20
    src, dst = (torch.tensor(part) for part in random_pairs(n, count, seed=count, undirected=undirected))
    into = torch.zeros(n, n, dtype=torch.int64)
    into[dst, src] = 1
    expected = (into[src] * into[dst]).sum(1)
    assert torch.equal(common_neighbours(Edges.build(src, dst, n)), expected)
