"""Edge weights in every backbone, compared with dense formulas, PyTorch Geometric, and the graph without an edge."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import APPNP, GATConv, GCNConv, SGConv, SimpleConv

from edgemask.config import BACKBONES, GATES, GPR_HOPS, Recipe
from edgemask.graph import Graph
from edgemask.nn.aggregate import gcn_weights
from edgemask.nn.blocks import logits_in_blocks
from edgemask.nn.gpr import RESTART
from edgemask.nn.propagation import propagate, propagate_each, propagate_weighted
from edgemask.nn.tasknet import tasknet
from edgemask.nn.tensors import Edges, GraphTensors, skeleton
from tests.nn.graphs import INPUTS, N, pairs_of, random_edges, randomise

CLASSES = 3
KINDS = [*((name, "softmax") for name in BACKBONES if name != "gat"), *(("gat", gate) for gate in GATES)]
USING_EDGES = [kind for kind in KINDS if kind[0] != "mlp"]

pytestmark = [pytest.mark.usefixtures("float64"), pytest.mark.numerical]


def network(backbone: str, gate: str, layers: int = 2):
    recipe = Recipe(backbone=backbone, gate=gate, hidden=8, heads=2, layers=layers)
    return randomise(tasknet(recipe, INPUTS, CLASSES))


def random_weights(count: int, seed: int = 0) -> Tensor:
    return 2 * torch.rand(count, generator=torch.Generator().manual_seed(seed)) + 0.1


def weighted_edges(weight: Tensor | None = None) -> Edges:
    edges = random_edges()
    return edges.with_weight(random_weights(edges.num_real) if weight is None else weight)


# ---- dense formulas --------------------------------------------------------------------------------------------------


def adjacency(edges: Edges, s: Tensor) -> Tensor:
    """A[v, u] = s_uv w_uv, with ones on the diagonal."""
    a = torch.eye(edges.num_nodes)
    src, dst = pairs_of(edges)
    a[dst, src] = s * edges.weight
    return a


def normalised(a: Tensor) -> Tensor:
    scale = a.sum(1).rsqrt()
    return scale[:, None] * a * scale


def dense_gcn(net, x, a):
    for i, (linear, bias) in enumerate(zip(net.linears, net.biases, strict=True)):
        x = normalised(a) @ ((x if i == 0 else F.relu(x)) @ linear.weight) + bias
    return x


def dense_gcn_sum(net, x, a):
    a = a - torch.eye(N)
    for i, (linear, bias) in enumerate(zip(net.linears, net.biases, strict=True)):
        x = a @ (x @ linear.weight) + bias
        if i < len(net.norms):
            norm = net.norms[i]
            x = F.relu((x - norm.mean) * (norm.variance + 1e-5).rsqrt() * norm.scale + norm.shift)
    return x


def dense_sgc(net, x, a):
    return torch.linalg.matrix_power(normalised(a), net.rounds) @ x @ net.linear.weight + net.bias


def dense_gin(net, x, a):
    for first, bias, second, norm in zip(net.first, net.biases, net.second, net.norms, strict=True):
        x = F.relu(second(F.relu(norm((a @ x) @ first.weight + bias))))
    return net.out(x)


def dense_egc(net, x, a):
    for bases, coefficients, bias, norm in zip(net.bases, net.coefficients, net.biases, net.norms, strict=True):
        filtered = (normalised(a) @ (x @ bases.weight)).view(N, net.num_bases, -1)
        shares = (x @ coefficients.weight + coefficients.bias).view(N, net.heads, net.num_bases)
        x = F.relu(norm(torch.einsum("vhb,vbd->vhd", shares, filtered).flatten(1) + bias))
    return net.out(x)


def dense_mix(net, x, a):
    for channels, gate, bias, norm in zip(net.channels, net.gates, net.biases, net.norms, strict=True):
        low, high, own = (x @ channels.weight).chunk(3, 1)
        parts = torch.stack([normalised(a) @ low, high - normalised(a) @ high, own], 1).relu()
        x = norm((parts * ((parts * gate).sum(2) + bias).softmax(1)[:, :, None]).sum(1))
    return net.out(x)


def dense_sage(net, x, a):
    outputs = []
    for neighbours, own, norm in zip(net.neighbours, net.own, net.norms, strict=True):
        x = F.relu(norm(normalised(a) @ x @ neighbours.weight + x @ own.weight))
        outputs.append(x)
    return net.out(torch.cat(outputs, 1))


def dense_mlp(net, x, a=None):
    *hidden, last = net.linears
    for linear in hidden:
        x = F.relu(x @ linear.weight + linear.bias)
    return x @ last.weight + last.bias


def dense_gpr(net, x, a):
    hop = dense_mlp(net, x)
    total = net.gamma[0] * hop
    for gamma in net.gamma[1:]:
        hop = normalised(a) @ hop
        total = total + gamma * hop
    return total


def dense_gat(net, x, a):
    present = (adjacency(random_edges().with_weight(torch.ones(random_edges().num_real)), torch.ones(1)) > 0)[
        :, :, None
    ]
    s = a[:, :, None]
    for i, layer in enumerate(net.layers):
        z = (x @ layer.linear.weight).view(N, layer.heads, layer.width)
        logits = (z * layer.a_dst).sum(2)[:, None] + (z * layer.a_src).sum(2)[None]
        if layer.gate == "softmax":
            exp = s * F.leaky_relu(logits, 0.2).exp()
        else:
            exp = present * F.leaky_relu(logits + s * layer.c, 0.2).exp()
        alpha = exp / exp.sum(1, keepdim=True) * (s if layer.gate == "message" else 1)
        out = F.elu(torch.einsum("vuh,uhd->vhd", alpha, z) + net.biases[i])
        x = out.flatten(1) if i + 1 < len(net.layers) else out.mean(1)
    return net.out(x)


@pytest.mark.parametrize(("backbone", "gate"), KINDS)
def test_logits_equal_the_dense_formula_with_mask_times_weight(backbone, gate):
    net, edges, x = network(backbone, gate), weighted_edges(), torch.randn(N, INPUTS)
    s = torch.rand(edges.num_real)
    dense = globals()[f"dense_{backbone.replace('-', '_')}"]
    for mask in (None, s):
        expected = dense(net, x, adjacency(edges, torch.ones_like(s) if mask is None else mask))
        torch.testing.assert_close(net(x, edges, mask=mask), expected)
        torch.testing.assert_close(net.read(net.embed(x, edges, mask), edges, mask), expected)


# ---- PyTorch Geometric -----------------------------------------------------------------------------------------------


def test_a_gcn_sgc_gin_and_gpr_equal_pyg_with_edge_weight():
    edges, x = weighted_edges(), torch.randn(N, INPUTS)
    pairs, w = pairs_of(edges), edges.weight
    net = network("gcn", "softmax")
    h = x
    for i, (linear, bias) in enumerate(zip(net.linears, net.biases, strict=True)):
        conv = GCNConv(*linear.weight.shape)
        conv.lin.weight.data, conv.bias.data = linear.weight.data.t(), bias.data
        h = conv(h if i == 0 else F.relu(h), pairs, w)
    torch.testing.assert_close(net(x, edges), h)
    net = network("sgc", "softmax")
    conv = SGConv(INPUTS, CLASSES, K=2)
    conv.lin.weight.data, conv.lin.bias.data = net.linear.weight.data.t(), net.bias.data
    torch.testing.assert_close(net(x, edges), conv(x, pairs, w))
    net, h = network("gin", "softmax", layers=1), x
    h = h + SimpleConv(aggr="sum")(h, pairs, w)
    h = F.relu(net.second[0](F.relu(net.norms[0](h @ net.first[0].weight + net.biases[0]))))
    torch.testing.assert_close(net(x, edges), net.out(h))
    net = network("gpr", "softmax")
    decay = (1 - RESTART) ** torch.arange(GPR_HOPS + 1.0)
    net.gamma.data = torch.cat([RESTART * decay[:-1], decay[-1:]])
    torch.testing.assert_close(net(x, edges), APPNP(GPR_HOPS, RESTART)(dense_mlp(net, x), pairs, w))


def test_an_unweighted_gat_equals_pyg():
    net, edges, x = network("gat", "softmax", layers=1), random_edges(), torch.randn(N, INPUTS)
    layer, conv = net.layers[0], GATConv(INPUTS, 8, heads=2)
    conv.lin.weight.data, conv.bias.data = layer.linear.weight.data.t(), net.biases[0].data.flatten()
    conv.att_src.data, conv.att_dst.data = layer.a_src.data[None], layer.a_dst.data[None]
    expected = net.out(F.elu(conv(x, pairs_of(edges))).view(N, 2, 8).mean(1))
    torch.testing.assert_close(net(x, edges.with_weight(torch.ones(edges.num_real))), expected)


@pytest.mark.parametrize("alpha", [0.3, 0.9])
def test_propagation_equals_pyg_with_edge_weight(alpha):
    edges, z = weighted_edges(), torch.randn(N, CLASSES)
    expected = APPNP(5, 1 - alpha)(z, pairs_of(edges), edges.weight)
    torch.testing.assert_close(propagate(edges, z, alpha, 5), expected)
    torch.testing.assert_close(propagate_each(edges, [z, z], [0.0, alpha], 5)[1], expected)
    torch.testing.assert_close(propagate_weighted(edges, z, alpha, 5, torch.ones(edges.num_real)), expected)
    factor = torch.rand(edges.num_real)
    torch.testing.assert_close(
        propagate_weighted(edges, z, alpha, 5, factor), APPNP(5, 1 - alpha)(z, pairs_of(edges), factor * edges.weight)
    )


# ---- special weights -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backbone", "gate"), KINDS)
def test_weights_of_one_equal_no_weights(backbone, gate):
    net, edges, x = network(backbone, gate), random_edges(), torch.randn(N, INPUTS)
    s, ones = torch.rand(edges.num_real), edges.with_weight(torch.ones(edges.num_real))
    torch.testing.assert_close(net(x, ones), net(x, edges))
    torch.testing.assert_close(net(x, ones, mask=s), net(x, edges, mask=s))


@pytest.mark.parametrize(("backbone", "gate"), [k for k in KINDS if k[1] == "softmax"])
def test_a_weight_of_zero_equals_the_graph_without_the_edge(backbone, gate):
    net, edges, x = network(backbone, gate), weighted_edges(), torch.randn(N, INPUTS)
    kept = torch.arange(edges.num_real) % 3 != 0
    src, dst = pairs_of(edges)[:, kept]
    smaller = Edges.build(src, dst, N, weight=edges.weight[kept])
    torch.testing.assert_close(net(x, edges.with_weight(edges.weight * kept)), net(x, smaller))


@pytest.mark.parametrize(("backbone", "gate"), USING_EDGES)
def test_the_gradient_by_the_weights_is_right(backbone, gate):
    net, edges, x = network(backbone, gate), random_edges(), torch.randn(N, INPUTS)
    weight, s = random_weights(edges.num_real).requires_grad_(), torch.rand(edges.num_real).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: net(x, edges.with_weight(w)), weight)
    assert torch.autograd.gradcheck(lambda w, m: net(x, edges.with_weight(w), mask=m), (weight, s))


def test_normalised_weights_are_kept_unless_they_have_a_gradient():
    edges = weighted_edges()
    assert gcn_weights(edges) is gcn_weights(edges)
    learned = edges.with_weight(edges.weight.clone().requires_grad_())
    for _ in range(2):  # a kept result would be differentiated twice
        gcn_weights(learned).sum().backward()


# ---- other forms of the same edges -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("backbone", "gate"), USING_EDGES)
def test_padded_edges_give_the_same_logits(backbone, gate):
    net, edges, x = network(backbone, gate), weighted_edges(), torch.randn(N, INPUTS)
    padded, s = edges.padded(len(edges.src) + 7), torch.rand(edges.num_real)
    torch.testing.assert_close(net(x, padded), net(x, edges))
    torch.testing.assert_close(net(x, padded, mask=F.pad(s, (0, 7))), net(x, edges, mask=s))
    other = weighted_edges(random_weights(edges.num_real, seed=1))
    padded.copy_(other.padded(len(edges.src) + 7))
    torch.testing.assert_close(net(x, padded), net(x, other))


def test_weights_cannot_be_copied_to_edges_without_weights():
    edges = weighted_edges()
    with pytest.raises(ValueError, match="edges with weights and edges without weights"):
        edges.with_weight(None).padded(60).copy_(edges.padded(60))


@pytest.mark.parametrize(("backbone", "gate"), USING_EDGES)
def test_blocks_give_the_same_logits(backbone, gate):
    net, rng, pairs = network(backbone, gate).float(), np.random.default_rng(0), pairs_of(random_edges()).numpy()
    torch.set_default_dtype(torch.float32)
    graph = Graph("g", rng.normal(size=(N, INPUTS)), pairs, weights=rng.random(pairs.shape[1]))
    domain, s = GraphTensors.of(graph), torch.rand(pairs.shape[1])
    assert domain.edges.weight.tolist() == graph.weights.tolist()
    for mask in (None, s):
        with torch.no_grad():
            blocked = logits_in_blocks(net, graph, skeleton(graph, torch.device("cpu")).edges, mask, 5)
            torch.testing.assert_close(blocked, net(domain.x, domain.edges, mask=mask))
            assert not torch.allclose(blocked, net(domain.x, domain.edges.with_weight(None), mask=mask))
