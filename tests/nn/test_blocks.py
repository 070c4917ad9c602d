"""Layer-wise inference in blocks gives the logits and masks of the whole graph."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from edgemask.config import BACKBONES, EDGE_INPUTS, Recipe
from edgemask.graph import Graph
from edgemask.nn.blocks import blocks, logits_in_blocks, mask_logits_in_blocks
from edgemask.nn.gcn import GCN
from edgemask.nn.masknet import EdgeFacts, MaskNet
from edgemask.nn.tasknet import tasknet
from edgemask.nn.tensors import GraphTensors

N, INPUTS, CLASSES = 60, 5, 3
CPU = torch.device("cpu")
SIZES = [1, 7, 60, 1000]

pytestmark = pytest.mark.usefixtures("float64")


def graph(sparse=False) -> Graph:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, INPUTS)) * (rng.random((N, INPUTS)) < 0.5)
    edges = rng.integers(0, N - 3, (2, 4 * N))  # the last nodes have no edges
    return Graph("g", sp.csr_array(x) if sparse else x, edges, duplicates="merge", self_loops="drop")


def network(backbone="gcn", layers=2, **settings):
    net = tasknet(Recipe(backbone=backbone, layers=layers, hidden=4, heads=2, **settings), INPUTS, CLASSES).eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter)
    return net


@pytest.mark.parametrize("size", SIZES)
def test_blocks_contain_every_node_and_edge_once(size):
    edges = GraphTensors.of(graph()).edges
    rows, pairs = [], []
    for block in blocks(edges, size, CPU):
        assert torch.equal(block.ends[block.own], torch.arange(N)[block.rows])
        assert len(block.own) <= size
        src, dst = block.ends[block.edges.src], block.ends[block.edges.dst]
        assert torch.equal(src, edges.src[block.span])
        assert torch.equal(dst, edges.dst[block.span])
        assert torch.equal(block.edges.real + block.span.start, edges.real[block.real])
        rows += range(N)[block.rows]
        pairs += zip(src.tolist(), dst.tolist(), strict=True)
    assert rows == list(range(N))
    assert pairs == list(zip(edges.src.tolist(), edges.dst.tolist(), strict=True))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mask", ["none", "zeros", "random"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_logits_equal_those_of_the_whole_graph(backbone, mask, size):
    g, net = graph(), network(backbone)
    domain = GraphTensors.of(g)
    s = {"none": None, "zeros": torch.zeros(domain.edges.num_real), "random": torch.rand(domain.edges.num_real)}[mask]
    with torch.no_grad():
        expected = net(domain.x.double(), domain.edges, mask=s)
        out = logits_in_blocks(net, g, domain.edges, s, size)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("gate", ["message", "attention", "softmax"])
@pytest.mark.parametrize("layers", [1, 3])
def test_every_gate_and_depth(gate, layers):
    g, net = graph(), network("gat", layers, gate=gate)
    domain, s = GraphTensors.of(g), torch.rand(GraphTensors.of(g).edges.num_real)
    with torch.no_grad():
        expected = net(domain.x.double(), domain.edges, mask=s)
        torch.testing.assert_close(logits_in_blocks(net, g, domain.edges, s, 9), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_sparse_features_stay_sparse(backbone):
    g, net = graph(sparse=True), network(backbone).float()
    domain = GraphTensors.of(g)
    s = torch.rand(domain.edges.num_real, dtype=torch.float32)
    with torch.no_grad():
        expected = net(domain.x, domain.edges, mask=s)
        torch.testing.assert_close(logits_in_blocks(net, g, domain.edges, s, 9), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("inputs", [(), EDGE_INPUTS])
@pytest.mark.parametrize("size", SIZES)
def test_mask_logits_equal_those_of_the_whole_graph(inputs, size):
    g, net = graph(), MaskNet(INPUTS, 6, 4, inputs)
    domain = GraphTensors.of(g)
    facts = EdgeFacts.of(domain.edges, inputs, torch.rand(N, CLASSES).softmax(1)) if inputs else None
    facts = EdgeFacts({name: t.double() for name, t in facts.blocks.items()}) if facts else None
    with torch.no_grad():
        whole = GraphTensors(g.name, domain.x.double(), domain.edges, None, domain.labelled, g)
        out = mask_logits_in_blocks(net, g, domain.edges, facts, size)
        torch.testing.assert_close(out, net(whole.x, domain.edges, facts), rtol=0, atol=1e-10)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("backbone", BACKBONES)
def test_blocks_are_computed_on_the_gpu_and_returned_to_the_host(backbone):
    g, net = graph(), network(backbone)
    domain, s = GraphTensors.of(g), torch.rand(GraphTensors.of(g).edges.num_real)
    with torch.no_grad():
        expected = net(domain.x.double(), domain.edges, mask=s)
        out = logits_in_blocks(net.cuda(), g, domain.edges, s, 9)
    assert out.device == CPU
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)


def test_a_graph_without_edges():
    bare, net = graph().replace(edges=np.empty((2, 0), dtype=int)), network()
    domain = GraphTensors.of(bare)
    with torch.no_grad():
        expected = net(domain.x.double(), domain.edges)
        torch.testing.assert_close(logits_in_blocks(net, bare, domain.edges, None, 9), expected)
        assert len(mask_logits_in_blocks(MaskNet(INPUTS, 6, 4), bare, domain.edges, None, 9)) == 0


def test_only_a_block_and_its_neighbours_are_in_memory(monkeypatch):
    """At any depth, only a block's nodes and the nodes with an edge into it are in memory."""
    g, net, sizes = graph(), network("gcn", layers=4), []
    edges = GraphTensors.of(g).edges
    collect = GCN.collect

    def watch(self, i, edges, weight, z):
        sizes.append(len(z))
        return collect(self, i, edges, weight, z)

    monkeypatch.setattr(GCN, "collect", watch)
    with torch.no_grad():
        logits_in_blocks(net, g, edges, None, 2)
    expected = [len(torch.unique(edges.src[edges.indptr[v] : edges.indptr[v + 2]])) for v in range(0, N, 2)]
    assert sizes == expected * 4
    assert max(sizes) < N / 2
