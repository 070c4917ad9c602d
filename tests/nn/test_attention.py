"""The masked attention operator, compared with PyTorch Geometric's GATConv, edge removal and finite differences.

The meaning of a mask of 0 on an edge e = u → v depends on the gate:

`softmax`    The edge is removed: v's output is that of the graph without e, to the bit.
`message`    The edge sends nothing but stays in v's softmax: the other weights are (1 - α_e) times those of the graph
             without e.
`attention`  The edge sends its message like any other edge; only its logit loses the term c s.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.nn import GATConv

from edgemask.config import GATES
from edgemask.nn.attention import attend
from edgemask.nn.gat import MaskedGATLayer
from edgemask.nn.kernels.reference import edge_softmax
from edgemask.nn.tensors import Edges

N, HEADS, WIDTH, INPUTS = 10, 3, 4, 5


pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture
def edges():
    """Return a directed graph in which node 9 has no incoming edge."""
    keys = np.sort(np.random.default_rng(0).choice(N * (N - 1), 30, replace=False))
    keys = torch.tensor(keys[keys % N != keys // N])
    return Edges.build(keys % N, keys // N, N)


@pytest.fixture
def inputs():
    """Return z, a_src·z, a_dst·z and c."""
    return torch.randn(N, HEADS, WIDTH), torch.randn(N, HEADS), torch.randn(N, HEADS), torch.randn(HEADS)


def pair(gate, concat):
    """Return our layer and PyG's layer with the same weights.

    PyG's self-loops have the edge attribute `fill_value`, ours have s = 1. Its logit term lin_edge(s)·att_edge is c s.
    """
    ours = MaskedGATLayer(INPUTS, HEADS, WIDTH, gate, attention_dropout=0.0)
    theirs = GATConv(INPUTS, WIDTH, HEADS, concat=concat, edge_dim=1, fill_value=1.0, bias=False)
    with torch.no_grad():
        ours.linear.weight.copy_(theirs.lin.weight.t())
        ours.a_src.copy_(theirs.att_src[0])
        ours.a_dst.copy_(theirs.att_dst[0])
        ours.c.copy_((theirs.lin_edge.weight.view(HEADS, WIDTH) * theirs.att_edge[0]).sum(1))
    return ours, theirs


def assert_same_layer(ours, theirs, edges, s, concat):
    """Compare the outputs and the gradients of every weight and of the input; return both gradients of the mask."""
    x, y = (torch.randn(N, INPUTS, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in range(2))
    s, t = (s.clone().requires_grad_() for _ in range(2))
    out = ours(x, edges, s)
    out = out.flatten(1) if concat else out.mean(1)
    expected = theirs(y, torch.stack([edges.src, edges.dst])[:, edges.real], t.unsqueeze(1))
    grad = torch.randn_like(out)
    out.backward(grad)
    expected.backward(grad)
    term = theirs.lin_edge.weight.view(HEADS, WIDTH)
    for a, b in [
        (out, expected),
        (ours.linear.weight.grad, theirs.lin.weight.grad.t()),
        (ours.a_src.grad, theirs.att_src.grad[0]),
        (ours.a_dst.grad, theirs.att_dst.grad[0]),
        (ours.c.grad.unsqueeze(1) * term, theirs.att_edge.grad[0]),
        (ours.c.grad.unsqueeze(1) * theirs.att_edge[0], theirs.lin_edge.weight.grad.view(HEADS, WIDTH)),
        (x.grad, y.grad),
    ]:
        torch.testing.assert_close(a, b, rtol=0, atol=1e-8)
    return s.grad, t.grad


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("gate", ["message", "attention"])
def test_with_a_mask_of_ones_a_layer_is_a_standard_gat_layer(edges, gate, concat):
    assert_same_layer(*pair(gate, concat), edges, torch.ones(edges.num_real), concat)


@pytest.mark.parametrize("concat", [True, False])
def test_the_attention_gate_is_a_gat_layer_with_the_mask_as_edge_attribute(edges, concat):
    ours, theirs = assert_same_layer(*pair("attention", concat), edges, torch.rand(edges.num_real), concat)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-8)


@pytest.mark.parametrize("gate", GATES)
def test_no_mask_is_a_mask_of_ones(edges, inputs, gate):
    z, src, dst, c = inputs
    ones = attend(edges, z, src, dst, torch.ones(edges.num_real), c, gate=gate)
    assert torch.equal(attend(edges, z, src, dst, None, c, gate=gate), ones)


@pytest.mark.parametrize("gate", GATES)
def test_the_equations_edge_by_edge(edges, inputs, gate):
    z, src, dst, c = inputs
    s = torch.rand(edges.num_real)
    weight, expected = edges.spread(s), torch.zeros(N, HEADS, WIDTH)
    for v in range(N):
        incoming = (edges.dst == v).nonzero().flatten().tolist()
        for k in range(HEADS):
            term = {e: 0.0 if gate == "softmax" else c[k] * weight[e] for e in incoming}
            raw = {e: src[edges.src[e], k] + dst[v, k] + term[e] for e in incoming}
            exp = {e: torch.exp(raw[e] if raw[e] > 0 else 0.2 * raw[e]) for e in incoming}
            if gate == "softmax":
                exp = {e: weight[e] * exp[e] for e in incoming}
            for e in incoming:
                alpha = exp[e] / sum(exp.values())
                expected[v, k] += (weight[e] if gate == "message" else 1) * alpha * z[edges.src[e], k]
    torch.testing.assert_close(attend(edges, z, src, dst, s, c, gate=gate), expected)


@pytest.mark.parametrize("gate", GATES)
def test_gradcheck(edges, inputs, gate):
    given = [t.requires_grad_() for t in (*inputs, torch.rand(edges.num_real))]
    if gate == "softmax":
        given[3].requires_grad_(False)  # the softmax gate has no logit term

    def operator(z, src, dst, c, s):
        return attend(edges, z, src, dst, s, c, gate=gate)

    assert torch.autograd.gradcheck(operator, given)


def without(edges, e):
    """Return the graph without its e-th real edge."""
    src, dst = (torch.cat([t[edges.real][:e], t[edges.real][e + 1 :]]) for t in (edges.src, edges.dst))
    return Edges.build(src, dst, edges.num_nodes)


E_CUT = 7


@pytest.fixture
def cut(edges):
    """Return a mask that is 0 on one edge, the ends of that edge, and the graph and the mask without it."""
    s = torch.rand(edges.num_real)
    s[E_CUT] = 0
    u, v = edges.src[edges.real][E_CUT], edges.dst[edges.real][E_CUT]
    return s, u, v, without(edges, E_CUT), torch.cat([s[:E_CUT], s[E_CUT + 1 :]])


def test_softmax_gate_at_zero_equals_the_graph_without_the_edge(edges, inputs, cut):
    z, src, dst, c = inputs
    s, _, _, smaller, rest = cut
    out = attend(edges, z, src, dst, s, c, gate="softmax")
    assert torch.equal(out, attend(smaller, z, src, dst, rest, c, gate="softmax"))


def test_softmax_gate_at_zero_ignores_the_source_completely(edges, inputs, cut):
    z, src, dst, c = inputs
    s, u, v, *_ = cut
    before = attend(edges, z, src, dst, s, c, gate="softmax")
    z[u] += 100
    src[u] -= 100
    assert torch.equal(attend(edges, z, src, dst, s, c, gate="softmax")[v], before[v])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softmax_gate_at_zero_is_exact_for_any_logit(edges, inputs, cut, dtype):
    """The removed edge would dominate the softmax by e^5000, but must not affect the other edges or the gradient."""
    z, src, dst, c = (t.to(dtype) for t in inputs)
    s, u, v, smaller, rest = cut
    src[u] += 5000
    s = s.to(dtype).requires_grad_()
    out = attend(edges, z, src, dst, s, c, gate="softmax")
    assert torch.equal(out[v], attend(smaller, z, src, dst, rest.to(dtype), c, gate="softmax")[v])
    out.sum().backward()
    assert torch.isfinite(s.grad).all()


def test_message_gate_at_zero_sends_nothing(edges, inputs, cut):
    z, src, dst, c = inputs
    s, u, v, *_ = cut
    before = attend(edges, z, src, dst, s, c, gate="message")
    z[u] += 100  # only the features change, not the logits and the softmax
    assert torch.equal(attend(edges, z, src, dst, s, c, gate="message")[v], before[v])


def test_message_gate_at_zero_keeps_the_edge_in_the_softmax(edges, inputs, cut):
    z, src, dst, c = inputs
    s, _, v, smaller, rest = cut
    logits = torch.nn.functional.leaky_relu(
        src[edges.src] + dst[edges.dst] + edges.spread(s).unsqueeze(1) * c, negative_slope=0.2
    )
    alpha = edge_softmax(edges, logits)[edges.real[E_CUT]]
    removed = attend(smaller, z, src, dst, rest, c, gate="message")
    out = attend(edges, z, src, dst, s, c, gate="message")
    torch.testing.assert_close(out[v], (1 - alpha).unsqueeze(1) * removed[v])


def test_attention_gate_at_zero_still_sends_its_message(edges, inputs, cut):
    z, src, dst, c = inputs
    s, u, v, *_ = cut
    before = attend(edges, z, src, dst, s, c, gate="attention")
    z[u] += 100
    assert (attend(edges, z, src, dst, s, c, gate="attention")[v] - before[v]).abs().min() > 0.01


def test_edge_softmax_sums_to_one_at_extreme_logits(edges):
    logits = 1e4 * torch.randn(len(edges.src), HEADS)
    total = torch.zeros(N, HEADS).index_add(0, edges.dst, edge_softmax(edges, logits))
    torch.testing.assert_close(total, torch.ones(N, HEADS))


def test_dropout_keeps_the_expectation():
    """On nodes with only a self-loop, each coefficient 1 becomes 0 or 1 / (1 - p), which is 1 on average."""
    n, p = 20_000, 0.6
    none = torch.empty(0, dtype=torch.int64)
    edges, z, zero = Edges.build(none, none, n), torch.ones(n, 1, 1), torch.zeros(n, 1)
    out = attend(edges, z, zero, zero, None, torch.zeros(1), gate="message", dropout=p)
    torch.testing.assert_close(out.unique(), torch.tensor([0, 1 / (1 - p)]))
    assert out.mean().item() == pytest.approx(1, abs=0.05)


def test_a_layer_uses_attention_dropout_only_in_training(edges):
    layer, x = MaskedGATLayer(INPUTS, HEADS, WIDTH, "message", attention_dropout=0.6), torch.randn(N, INPUTS)
    assert not torch.equal(layer(x, edges, None), layer(x, edges, None))
    layer.eval()
    assert torch.equal(layer(x, edges, None), layer(x, edges, None))
