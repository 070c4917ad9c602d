"""Mix: compared with its definition, with PyTorch Geometric's normalisation of the graph."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCNConv

from edgemask.nn.mix import Mix
from tests.nn.graphs import INPUTS, N, pairs_of, random_edges, randomise

HIDDEN, CLASSES = 5, 3

pytestmark = pytest.mark.usefixtures("float64")


def by_definition(net: Mix, x: torch.Tensor, pairs: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    h = x
    for linear, gate, bias, norm in zip(net.channels, net.gates, net.biases, net.norms, strict=True):
        smooth = []
        for weight in linear.weight.split(HIDDEN, 1)[:2]:
            conv = GCNConv(len(weight), HIDDEN, bias=False)
            conv.lin.weight = torch.nn.Parameter(weight.t())
            smooth.append(conv(h, pairs, s))
        _, high, own = (h @ weight for weight in linear.weight.split(HIDDEN, 1))
        channels = [F.relu(smooth[0]), F.relu(high - smooth[1]), F.relu(own)]
        scores = torch.stack([c @ g + b for c, g, b in zip(channels, gate, bias, strict=True)], dim=1)
        h = norm(sum(a[:, None] * c for a, c in zip(scores.softmax(1).T, channels, strict=True)))
    return net.out(h)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_logits_and_the_gradient_of_the_mask_equal_the_definition(layers):
    net, edges, x = randomise(Mix(INPUTS, HIDDEN, CLASSES, layers)), random_edges(), torch.randn(N, INPUTS)
    s = torch.rand(edges.num_real).requires_grad_()
    out, expected = net(x, edges, mask=s), by_definition(net, x, pairs_of(edges), s)
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    torch.testing.assert_close(torch.autograd.grad(out, s, grad), torch.autograd.grad(expected, s, grad))


def test_gates_can_make_the_network_ignore_the_graph():
    net, edges, x = randomise(Mix(INPUTS, HIDDEN, CLASSES)), random_edges(), torch.randn(N, INPUTS)
    for gate, bias in zip(net.gates, net.biases, strict=True):
        gate.data.zero_()
        bias.data.copy_(torch.tensor([-1e3, -1e3, 0.0]))
    torch.testing.assert_close(net(x, edges, mask=torch.zeros(edges.num_real)), net(x, edges))
