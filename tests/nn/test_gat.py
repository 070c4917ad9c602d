"""The TaskNet: shapes, the equations of Section 4.3 written out, sparse features and equivariance."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from edgemask.config import GATES
from edgemask.nn.gat import MaskedGAT
from edgemask.nn.tensors import Edges, SparseMatrix

N, INPUTS, HIDDEN, CLASSES, HEADS = 8, 6, 4, 3, 2


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def edges():
    keys = np.sort(np.random.default_rng(0).choice(N * N, 25, replace=False))
    keys = torch.tensor(keys[keys % N != keys // N])
    return Edges.build(keys % N, keys // N, N)


def model(layers=2, **settings):
    net = MaskedGAT(INPUTS, HIDDEN, CLASSES, layers, heads=HEADS, **settings).eval()
    for parameter in net.parameters():  # biases start at zero, where an error in them would not show
        torch.nn.init.normal_(parameter)
    return net


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_any_depth_gives_one_row_of_logits_per_node(edges, layers):
    net = model(layers)
    assert len(net.layers) == layers
    assert net(torch.randn(N, INPUTS), edges, mask=torch.rand(edges.num_real)).shape == (N, CLASSES)


def test_heads_are_concatenated_inside_and_averaged_at_the_end():
    net = model(3)
    assert [tuple(layer.linear.weight.shape) for layer in net.layers] == [
        (INPUTS, HEADS * HIDDEN),
        (HEADS * HIDDEN, HEADS * HIDDEN),
        (HEADS * HIDDEN, HEADS * HIDDEN),
    ]
    assert net.out.weight.shape == (CLASSES, HIDDEN)


def section_4_3(net, x, edges, s, sigma):
    """Compute the paper's equations node by node.

    u receives from its neighbours v, and from itself with s = 1. A bias is added to each head before σ, as in the
    standard GAT.
    """
    mask = torch.zeros(N, N)
    mask[edges.dst[edges.real], edges.src[edges.real]] = s
    mask.fill_diagonal_(1.0)
    linked = torch.zeros(N, N, dtype=torch.bool)
    linked[edges.dst, edges.src] = True
    h = x
    for depth, (layer, bias) in enumerate(zip(net.layers, net.biases, strict=True)):
        heads = []
        for k in range(HEADS):
            z = h @ layer.linear.weight[:, k * HIDDEN : (k + 1) * HIDDEN]
            rows = []
            for u in range(N):
                neighbours = [v for v in range(N) if linked[u, v]]
                logits = [layer.a_dst[k] @ z[u] + layer.a_src[k] @ z[v] + layer.c[k] * mask[u, v] for v in neighbours]
                e = torch.stack([torch.where(logit > 0, logit, 0.2 * logit) for logit in logits])
                alpha = e.exp() / e.exp().sum()
                rows.append(sum(mask[u, v] * a * z[v] for v, a in zip(neighbours, alpha, strict=True)))
            heads.append(sigma(torch.stack(rows) + bias[k]))
        last = depth == len(net.layers) - 1
        h = sum(heads) / HEADS if last else torch.cat(heads, dim=1)
    return h @ net.out.weight.t() + net.out.bias


@pytest.mark.parametrize("activation", ["elu", "relu"])
@pytest.mark.parametrize("layers", [1, 2])
def test_the_message_gate_equals_section_4_3(edges, layers, activation):
    net, x, s = model(layers, activation=activation), torch.randn(N, INPUTS), torch.rand(edges.num_real)
    sigma = {"elu": torch.nn.ELU(), "relu": torch.nn.ReLU()}[activation]
    torch.testing.assert_close(net(x, edges, mask=s), section_4_3(net, x, edges, s, sigma), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gate", GATES)
def test_sparse_and_dense_features_give_the_same_logits(edges, gate):
    net, s = model(gate=gate), torch.rand(edges.num_real)
    x = sp.random_array((N, INPUTS), density=0.4, rng=np.random.default_rng(0), dtype=np.float32)
    sparse = net(SparseMatrix(x, torch.device("cpu")), edges, mask=s)
    torch.testing.assert_close(sparse, net(torch.tensor(x.toarray()), edges, mask=s))


@pytest.mark.parametrize("gate", GATES)
def test_permuting_the_nodes_permutes_the_rows(edges, gate):
    net, x, s = model(gate=gate), torch.randn(N, INPUTS), torch.rand(edges.num_real)
    new = torch.randperm(N)  # node v becomes new[v]
    src, dst = new[edges.src[edges.real]], new[edges.dst[edges.real]]
    order = torch.argsort(dst * N + src)
    renamed = Edges.build(src[order], dst[order], N)
    out = net(x[new.argsort()], renamed, mask=s[order])
    torch.testing.assert_close(out[new], net(x, edges, mask=s), rtol=1e-4, atol=1e-5)


def test_evaluation_is_deterministic_and_training_is_not(edges):
    net, x = model(), torch.randn(N, INPUTS)
    assert torch.equal(net(x, edges), net(x, edges))
    net.train()
    assert not torch.equal(net(x, edges), net(x, edges))
