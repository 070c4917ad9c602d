"""GPR-GNN: compared with PyTorch Geometric's personalised PageRank, and with powers of a dense matrix."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import APPNP

from edgemask.config import GPR_HOPS, Recipe
from edgemask.nn.gpr import GPR, RESTART
from tests.nn.graphs import INPUTS, N, pairs_of, random_edges, randomise

HIDDEN, CLASSES = 5, 3

pytestmark = pytest.mark.usefixtures("float64")


def mlp(net: GPR, x: torch.Tensor) -> torch.Tensor:
    *hidden, last = net.linears
    for linear in hidden:
        x = F.relu(x @ linear.weight + linear.bias)
    return x @ last.weight + last.bias


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_initial_weights_are_a_personalised_pagerank(layers):
    net, edges, x = GPR(INPUTS, HIDDEN, CLASSES, layers).eval(), random_edges(), torch.randn(N, INPUTS)
    s = torch.rand(edges.num_real).requires_grad_()
    out, expected = net(x, edges, mask=s), APPNP(GPR_HOPS, RESTART)(mlp(net, x), pairs_of(edges), s)
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    torch.testing.assert_close(torch.autograd.grad(out, s, grad), torch.autograd.grad(expected, s, grad))


def test_any_weights_give_the_sum_of_powers():
    net, edges, x = randomise(GPR(INPUTS, HIDDEN, CLASSES)), random_edges(), torch.randn(N, INPUTS)
    s = torch.rand(edges.num_real)
    a = torch.eye(N).index_put((edges.dst[edges.real], edges.src[edges.real]), s)
    a = a / (a.sum(1)[:, None] * a.sum(1)[None, :]).sqrt()
    expected = sum(g * torch.linalg.matrix_power(a, k) @ mlp(net, x) for k, g in enumerate(net.gamma))
    torch.testing.assert_close(net(x, edges, mask=s), expected)


def test_a_batch_needs_the_neighbourhood_of_all_hops():
    assert Recipe(backbone="gpr", layers=3).hops == GPR_HOPS + 1
