"""EGC: compared with PyTorch Geometric, with a mask, on sparse features, and in blocks."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch_geometric.nn import EGConv

from edgemask.graph import Graph
from edgemask.nn.blocks import logits_in_blocks
from edgemask.nn.egc import EGC
from edgemask.nn.tensors import Edges, GraphTensors, SparseMatrix
from tests.nn.graphs import INPUTS, N, pairs_of, random_edges, randomise

HIDDEN, CLASSES = 8, 3


pytestmark = pytest.mark.usefixtures("float64")


def make(layers=2, heads=4, bases=3, hidden=HIDDEN) -> EGC:
    return randomise(EGC(INPUTS, hidden, CLASSES, layers, heads=heads, bases=bases))


def by_definition(net: EGC, x: torch.Tensor, edges: Edges, s: torch.Tensor) -> torch.Tensor:
    """Compute the logits node by node and head by head, on a dense adjacency matrix."""
    a = torch.eye(N).index_put((edges.dst[edges.real], edges.src[edges.real]), s)
    d = a.sum(1)
    a = a / (d[:, None] * d[None, :]).sqrt()
    h, width = x, net.width
    for bases, coefficients, bias, norm in zip(net.bases, net.coefficients, net.biases, net.norms, strict=True):
        w = h @ coefficients.weight + coefficients.bias
        rows = []
        for v in range(N):
            heads = []
            for j in range(net.heads):
                parts = [
                    w[v, j * net.num_bases + b] * (a[v] @ h @ bases.weight[:, b * width : (b + 1) * width])
                    for b in range(net.num_bases)
                ]
                heads.append(sum(parts))
            rows.append(torch.cat(heads))
        h = F.relu(norm(torch.stack(rows) + bias))
    return net.out(h)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("heads", "bases"), [(8, 4), (4, 3), (1, 1), (2, 5)])
def test_a_layer_equals_pyg_without_a_mask(seed, heads, bases):
    net, edges, x = make(1, heads, bases), random_edges(seed), torch.randn(N, INPUTS)
    conv = EGConv(INPUTS, HIDDEN, aggregators=["symnorm"], num_heads=heads, num_bases=bases)
    conv.bases_lin.weight.data = net.bases[0].weight.data.t()
    conv.comb_lin.weight.data = net.coefficients[0].weight.data.t()
    conv.comb_lin.bias.data, conv.bias.data = net.coefficients[0].bias.data, net.biases[0].data
    ours = net.collect(0, edges, net.weigh(edges, None), net.at_nodes(0, x)) + net.biases[0]
    torch.testing.assert_close(ours, conv(x, pairs_of(edges)))


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_logits_and_the_gradient_of_the_mask_equal_the_definition(layers):
    net, edges, x = make(layers), random_edges(), torch.randn(N, INPUTS)
    s = torch.rand(edges.num_real).requires_grad_()
    out, expected = net(x, edges, mask=s), by_definition(net, x, edges, s)
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    torch.testing.assert_close(torch.autograd.grad(out, s, grad), torch.autograd.grad(expected, s, grad))


def test_a_mask_of_zero_equals_the_graph_without_the_edge():
    net, edges, x, cut = make(), random_edges(), torch.randn(N, INPUTS), torch.arange(3, 12)
    s = torch.rand(edges.num_real).index_fill(0, cut, 0)
    kept = torch.ones(edges.num_real, dtype=torch.bool).index_fill(0, cut, False)
    smaller = Edges.build(edges.src[edges.real][kept], edges.dst[edges.real][kept], N)
    torch.testing.assert_close(net(x, edges, mask=s), net(x, smaller, mask=s[kept]))


def test_no_mask_equals_a_mask_of_ones():
    net, edges, x = make(), random_edges(), torch.randn(N, INPUTS)
    torch.testing.assert_close(net(x, edges), net(x, edges, mask=torch.ones(edges.num_real)))


def test_reading_the_representation_gives_the_logits():
    net, edges, x, s = make(3), random_edges(), torch.randn(N, INPUTS), torch.rand(random_edges().num_real)
    h = net.embed(x, edges, s)
    assert h.shape == (N, HIDDEN)
    torch.testing.assert_close(net.read(h, edges, s), net(x, edges, mask=s))


def test_a_width_that_the_heads_do_not_divide_is_rounded_up():
    net = make(heads=4, hidden=9)
    assert net.embed(torch.randn(N, INPUTS), random_edges()).shape == (N, 12)


def test_sparse_and_dense_features_give_the_same_logits():
    x = sp.random_array((N, INPUTS), density=0.4, rng=np.random.default_rng(0), dtype=np.float32)
    net, edges = make().float(), random_edges()
    s = torch.rand(edges.num_real, dtype=torch.float32)
    sparse = net(SparseMatrix(x, torch.device("cpu")), edges, mask=s)
    torch.testing.assert_close(sparse, net(torch.tensor(x.toarray()), edges, mask=s))


def test_blocks_of_nodes_give_the_logits_of_the_whole_graph():
    pairs = np.random.default_rng(1).integers(0, 30, (2, 90))
    graph = Graph("g", np.random.default_rng(2).normal(size=(30, INPUTS)), pairs, duplicates="merge", self_loops="drop")
    net, domain = make(), GraphTensors.of(graph)
    with torch.no_grad():
        torch.testing.assert_close(
            logits_in_blocks(net, graph, domain.edges, None, 7), net(domain.x.double(), domain.edges)
        )
