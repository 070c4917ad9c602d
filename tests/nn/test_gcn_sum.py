"""The GCN of EERM's code, compared with PyTorch Geometric's layer and batch normalisation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GCNConv

from edgemask.config import Recipe
from edgemask.errors import InputError
from edgemask.methods.erm import ERM
from edgemask.nn.gcn_sum import GCNSum
from tests.nn.graphs import INPUTS, N, pairs_of, random_edges, randomise

pytestmark = pytest.mark.usefixtures("float64")


def theirs(net: GCNSum) -> nn.ModuleList:
    """Return convolutions and normalisations of PyTorch Geometric and torch with copies of the network's parameters."""
    layers = nn.ModuleList()
    for i, (linear, bias) in enumerate(zip(net.linears, net.biases, strict=True)):
        conv = GCNConv(*linear.weight.shape, normalize=False, add_self_loops=False)
        conv.lin.weight.data, conv.bias.data = linear.weight.data.t().clone(), bias.data.clone()
        layers.append(conv)
        if i < len(net.norms):
            norm = nn.BatchNorm1d(len(bias))
            norm.weight.data, norm.bias.data = net.norms[i].scale.data.clone(), net.norms[i].shift.data.clone()
            layers.append(norm)
    return layers


def run(layers: nn.ModuleList, x: torch.Tensor, pairs: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    h = x
    for layer in layers:
        h = layer(h, pairs, s) if isinstance(layer, GCNConv) else F.relu(layer(h))
    return h


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_logits_gradients_and_running_statistics_equal_pyg(layers):
    net, edges = randomise(GCNSum(INPUTS, 5, 3, layers, dropout=0.0)), random_edges()
    reference = theirs(net)
    x, s = torch.randn(N, INPUTS), torch.rand(edges.num_real)
    for training in (True, True, False):
        net.train(training)
        reference.train(training)
        mine, other = (s.clone().requires_grad_() for _ in range(2))
        out, expected = net(x, edges, mask=mine), run(reference, x, pairs_of(edges), other)
        torch.testing.assert_close(out, expected)
        grad = torch.randn_like(out)
        torch.testing.assert_close(torch.autograd.grad(out, mine, grad), torch.autograd.grad(expected, other, grad))
    norms = [layer for layer in reference if isinstance(layer, nn.BatchNorm1d)]
    for mine, other in zip(net.norms, norms, strict=True):
        torch.testing.assert_close(mine.mean, other.running_mean)
        torch.testing.assert_close(mine.variance, other.running_var)


def test_the_state_holds_only_floating_point_numbers():
    """Averaged weights interpolate every tensor of the state."""
    state = GCNSum(INPUTS, 5, 3).state_dict()
    assert {"norms.0.mean", "norms.0.variance"} <= state.keys()
    assert all(t.is_floating_point() for t in state.values())


def test_a_single_node_can_be_trained_on():
    net = GCNSum(INPUTS, 5, 3).train()
    assert net(torch.randn(1, INPUTS), torch.empty(2, 0, dtype=torch.int64)).isfinite().all()


def test_batches_are_refused():
    recipe = Recipe(backbone="gcn-sum", mask=False, k=0, clusters=0)
    ERM(recipe, INPUTS, 3, 0, torch.device("cpu"))
    with pytest.raises(InputError, match="'gcn-sum' normalises with statistics of all nodes: batch_size must be None"):
        ERM(recipe.replace(batch_size=4), INPUTS, 3, 0, torch.device("cpu"))
