"""Backbones with a mask, compared with PyTorch Geometric; edge removal, equivariance and sparse features."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCNConv, SGConv, SimpleConv

from edgemask.config import BACKBONES, Recipe
from edgemask.nn.gcn import GCN
from edgemask.nn.gin import GIN
from edgemask.nn.mlp import MLP
from edgemask.nn.sgc import SGC
from edgemask.nn.tasknet import tasknet
from edgemask.nn.tensors import Edges, SparseMatrix

N, INPUTS, HIDDEN, CLASSES = 10, 6, 5, 3


pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture
def edges():
    keys = np.sort(np.random.default_rng(0).choice(N * N, 35, replace=False))
    keys = torch.tensor(keys[keys % N != keys // N])
    return Edges.build(keys % N, keys // N, N)


def make(kind, layers=2):
    net = kind(INPUTS, HIDDEN, CLASSES, layers).eval()
    for parameter in net.parameters():  # biases start at zero, where an error in them would not show
        torch.nn.init.normal_(parameter)
    return net


def registered(backbone):
    """Return a backbone as a recipe builds it, with random parameters. It is wide enough that some units are active."""
    net = tasknet(Recipe(backbone=backbone, hidden=16, heads=2), INPUTS, CLASSES).eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter)
    return net


def pyg_gcn(net, x, pairs, s):
    h = x
    for i, (linear, bias) in enumerate(zip(net.linears, net.biases, strict=True)):
        conv = GCNConv(*linear.weight.shape)
        conv.lin.weight.data, conv.bias.data = linear.weight.data.t(), bias.data
        h = conv(h if i == 0 else F.relu(h), pairs, s)
    return h


def pyg_sgc(net, x, pairs, s):
    conv = SGConv(INPUTS, CLASSES, K=net.rounds)
    conv.lin.weight.data, conv.lin.bias.data = net.linear.weight.data.t(), net.bias.data
    return conv(x, pairs, s)


def pyg_gin(net, x, pairs, s):
    h = x
    for first, bias, second, norm in zip(net.first, net.biases, net.second, net.norms, strict=True):
        h = h + SimpleConv(aggr="sum")(h, pairs, s)  # GINConv takes no edge weights
        h = F.relu(second(F.relu(norm(h @ first.weight + bias))))
    return net.out(h)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize(("kind", "theirs"), [(GCN, pyg_gcn), (SGC, pyg_sgc), (GIN, pyg_gin)])
def test_logits_and_the_gradient_of_the_mask_equal_pyg(edges, kind, theirs, layers):
    net, x = make(kind, layers), torch.randn(N, INPUTS)
    s, t = (torch.rand(edges.num_real, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in range(2))
    out = net(x, edges, mask=s)
    expected = theirs(net, x, torch.stack([edges.src, edges.dst])[:, edges.real], t)
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    torch.testing.assert_close(torch.autograd.grad(out, s, grad), torch.autograd.grad(expected, t, grad))


@pytest.mark.parametrize("kind", [GCN, GIN, SGC])
def test_a_mask_of_zero_equals_the_graph_without_the_edge(edges, kind):
    net, x, s, cut = make(kind), torch.randn(N, INPUTS), torch.rand(edges.num_real), torch.arange(3, 12)
    s[cut] = 0
    kept = torch.ones(edges.num_real, dtype=torch.bool)
    kept[cut] = False
    smaller = Edges.build(edges.src[edges.real][kept], edges.dst[edges.real][kept], N)
    torch.testing.assert_close(net(x, edges, mask=s), net(x, smaller, mask=s[kept]))


@pytest.mark.parametrize("backbone", BACKBONES)
def test_no_mask_equals_a_mask_of_ones(edges, backbone):
    net, x = registered(backbone), torch.randn(N, INPUTS)
    torch.testing.assert_close(net(x, edges), net(x, edges, mask=torch.ones(edges.num_real)))


@pytest.mark.parametrize("backbone", BACKBONES)
def test_permuting_the_nodes_permutes_the_rows(edges, backbone):
    net, x, s = registered(backbone), torch.randn(N, INPUTS), torch.rand(edges.num_real)
    new = torch.randperm(N)  # node v becomes new[v]
    src, dst = new[edges.src[edges.real]], new[edges.dst[edges.real]]
    order = torch.argsort(dst * N + src)
    renamed = Edges.build(src[order], dst[order], N)
    torch.testing.assert_close(net(x[new.argsort()], renamed, mask=s[order])[new], net(x, edges, mask=s))


def test_the_mlp_ignores_edges(edges):
    net, x, none = make(MLP), torch.randn(N, INPUTS), torch.empty(0, dtype=torch.int64)
    out = net(x, edges, mask=torch.rand(edges.num_real))
    assert torch.equal(out, net(x, Edges.build(none, none, N)))
    first, last = net.linears
    torch.testing.assert_close(out, F.relu(x @ first.weight + first.bias) @ last.weight + last.bias)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_sparse_and_dense_features_give_the_same_logits(edges, backbone):
    x = sp.random_array((N, INPUTS), density=0.4, rng=np.random.default_rng(0), dtype=np.float32)
    net, s = registered(backbone).float(), torch.rand(edges.num_real, dtype=torch.float32)
    sparse = net(SparseMatrix(x, torch.device("cpu")), edges, mask=s)
    torch.testing.assert_close(sparse, net(torch.tensor(x.toarray()), edges, mask=s))


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_recipe_selects_its_backbone(edges, backbone):
    net = tasknet(Recipe(backbone=backbone, hidden=4, heads=2, layers=3), INPUTS, CLASSES)
    assert BACKBONES[backbone].path == f"{type(net).__module__}.{type(net).__name__}"
    assert net(torch.randn(N, INPUTS), edges).shape == (N, CLASSES)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_the_logits_of_a_representation_are_those_of_the_features(edges, backbone):
    net, x, s = registered(backbone), torch.randn(N, INPUTS), torch.rand(edges.num_real)
    torch.testing.assert_close(net.read(net.embed(x, edges, s), edges, s), net(x, edges, mask=s))


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_backbone_uses_the_mask_unless_it_ignores_edges(edges, backbone):
    net, x = registered(backbone), torch.randn(N, INPUTS)
    changed = not torch.equal(net(x, edges, mask=torch.zeros(edges.num_real)), net(x, edges))
    assert changed == BACKBONES[backbone].uses_edges


def test_a_recipe_sets_the_parameters_of_the_gat():
    net = tasknet(
        Recipe(gate="softmax", heads=2, hidden=4, layers=3, dropout=0.1, attention_dropout=0.2),
        INPUTS,
        CLASSES,
    )
    assert [(x.gate, x.heads, x.width, x.attention_dropout) for x in net.layers] == [("softmax", 2, 4, 0.2)] * 3
    assert net.dropout == 0.1
