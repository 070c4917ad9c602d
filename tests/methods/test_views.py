"""Augmented views: the same result as editing the features and edges directly."""

from __future__ import annotations

import pytest
import scipy.sparse as sp
import torch

from edgemask.data.synthetic import demo_family
from edgemask.methods.views import Masked, Perturbed, drop_edges, mask_columns, representation_width
from edgemask.nn.gcn import GCN
from edgemask.nn.gin import GIN
from edgemask.nn.mlp import MLP
from edgemask.nn.sgc import SGC
from edgemask.nn.tensors import GraphTensors, SparseMatrix

CPU = torch.device("cpu")
DOMAIN = GraphTensors.of(demo_family(80)["alpha"])


def sparse(rows=7, columns=5):
    x = sp.random_array((rows, columns), density=0.5, rng=0, dtype="float32")
    return SparseMatrix(x, CPU), torch.tensor(x.toarray())


def test_masked_sparse_features_act_like_features_with_columns_of_zeros():
    x, dense = sparse()
    keep = torch.tensor([True, False, True, True, False])
    weight, other = (torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).requires_grad_() for _ in range(2))
    one, two = Masked(x, keep) @ weight, (dense * keep) @ other
    torch.testing.assert_close(one, two)
    one.square().sum().backward()
    two.square().sum().backward()
    torch.testing.assert_close(weight.grad, other.grad)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_masked_columns_are_masked_for_all_nodes_at_the_rate(kind):
    torch.manual_seed(0)
    x, dense = sparse(3, 4000)
    if kind == "sparse":
        keep = mask_columns(x, 0.3).keep
    else:
        masked = mask_columns(torch.ones(3, 4000), 0.3)
        keep = masked[0] != 0
        assert torch.equal(masked, keep.float().expand(3, -1))
    assert float(keep.float().mean()) == pytest.approx(0.7, abs=0.03)
    assert torch.equal(mask_columns(dense, 0.0), dense)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_a_perturbation_starts_in_its_box_and_shifts_the_image_under_each_first_map(kind):
    torch.manual_seed(0)
    x, dense = sparse()
    weights = torch.randn(5, 3), torch.randn(5, 2)
    perturbed = Perturbed(x if kind == "sparse" else dense, 0.1)
    first = [perturbed @ w for w in weights]
    for image, w, delta in zip(first, weights, perturbed.deltas.values(), strict=True):
        torch.testing.assert_close(image - dense @ w, delta)
        assert 0.05 < delta.abs().max() <= 0.1
        assert torch.equal(perturbed @ w, image)  # the same δ as before


def test_a_perturbation_ascends_by_signed_steps():
    torch.manual_seed(0)
    x, dense = sparse()
    perturbed, weight = Perturbed(x, 0.1), torch.randn(5, 3)
    loss = ((perturbed @ weight) ** 2).sum()
    (before,) = (d.detach().clone() for d in perturbed.deltas.values())
    perturbed.ascend(loss)
    (after,) = perturbed.deltas.values()
    torch.testing.assert_close(after - before, 0.1 * torch.sign(2 * (dense @ weight + before)))
    assert ((perturbed @ weight) ** 2).sum().item() > loss.item()


def test_edges_are_dropped_at_the_rate_and_a_dropped_edge_is_a_mask_of_zero():
    torch.manual_seed(0)
    s = torch.cat([drop_edges(DOMAIN.edges, 0.4) for _ in range(20)])
    assert set(s.tolist()) == {0.0, 1.0}
    assert float(s.mean()) == pytest.approx(0.6, abs=0.02)
    assert bool((drop_edges(DOMAIN.edges, 0.0) == 1).all())


@pytest.mark.parametrize("kind", [MLP, GCN, GIN, SGC])
def test_the_width_of_the_representation_is_found(kind):
    network = kind(64, 8, 5)
    assert representation_width(network, 64) == network.embed(DOMAIN.x, DOMAIN.edges).shape[1]


def test_a_network_without_a_representation_is_refused():
    with pytest.raises(ValueError, match="set layers >= 2"):
        representation_width(GCN(64, 8, 5, layers=1), 64)
    with pytest.raises(ValueError, match="Linear has none"):
        representation_width(torch.nn.Linear(64, 5), 64)
