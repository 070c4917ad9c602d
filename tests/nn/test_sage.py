"""GraphSAGE: compared with its definition, with PyTorch Geometric's normalisation of the graph."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCNConv

from edgemask.nn.sage import SAGE
from tests.nn.graphs import INPUTS, N, pairs_of, random_edges, randomise

HIDDEN, CLASSES = 5, 3

pytestmark = pytest.mark.usefixtures("float64")


def by_definition(net: SAGE, x: torch.Tensor, pairs: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    h, outputs = x, []
    for neighbours, own, norm in zip(net.neighbours, net.own, net.norms, strict=True):
        conv = GCNConv(len(neighbours.weight), HIDDEN, bias=False)
        conv.lin.weight = torch.nn.Parameter(neighbours.weight.t())
        h = F.relu(norm(h @ own.weight + conv(h, pairs, s)))
        outputs.append(h)
    return net.out(torch.cat(outputs, dim=1))


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_logits_and_the_gradient_of_the_mask_equal_the_definition(layers):
    net, edges, x = randomise(SAGE(INPUTS, HIDDEN, CLASSES, layers)), random_edges(), torch.randn(N, INPUTS)
    s = torch.rand(edges.num_real).requires_grad_()
    out, expected = net(x, edges, mask=s), by_definition(net, x, pairs_of(edges), s)
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    torch.testing.assert_close(torch.autograd.grad(out, s, grad), torch.autograd.grad(expected, s, grad))


def test_the_representation_holds_the_outputs_of_all_layers():
    net, edges, x = randomise(SAGE(INPUTS, HIDDEN, CLASSES, 3)), random_edges(), torch.randn(N, INPUTS)
    shallow = SAGE(INPUTS, HIDDEN, CLASSES, 1).eval()
    shallow.load_state_dict(
        {k: v for k, v in net.state_dict().items() if ".0." in k} | shallow.out.state_dict(prefix="out.")
    )
    assert net.embed(x, edges).shape == (N, 3 * HIDDEN)
    torch.testing.assert_close(net.embed(x, edges)[:, :HIDDEN], shallow.embed(x, edges))
