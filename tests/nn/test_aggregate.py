"""Weighted sums over incoming edges, compared with dense matrices, PyTorch Geometric and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from edgemask.nn.aggregate import aggregate, gcn_weights
from edgemask.nn.kernels.reference import segment_max, segment_sum
from edgemask.nn.tensors import Edges

pytestmark = pytest.mark.usefixtures("float64")


def random_edges(n, count, seed=0):
    keys = np.sort(np.random.default_rng(seed).choice(n * n, count, replace=False))
    keys = torch.tensor(keys[keys % n != keys // n])
    return Edges.build(keys % n, keys // n, n)


GRAPHS = {"no edges": (4, 0), "one node": (1, 0), "sparse": (12, 15), "dense": (8, 50)}


@pytest.fixture(params=GRAPHS)
def edges(request):
    return random_edges(*GRAPHS[request.param])


def dense(edges, weight):
    matrix = torch.zeros(edges.num_nodes, edges.num_nodes, dtype=weight.dtype)
    return matrix.index_put((edges.dst, edges.src), weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 5])
def test_aggregate_is_a_product_with_the_weighted_adjacency(edges, width, dtype):
    weight, h = torch.randn(len(edges.src), dtype=dtype), torch.randn(edges.num_nodes, width, dtype=dtype)
    torch.testing.assert_close(aggregate(edges, weight, h), dense(edges, weight) @ h)


def test_gradients_equal_those_of_the_dense_product(edges):
    weight, h = torch.randn(len(edges.src), requires_grad=True), torch.randn(edges.num_nodes, 3, requires_grad=True)
    grad = torch.randn(3, edges.num_nodes).t()  # gradients need not be contiguous
    ours = torch.autograd.grad(aggregate(edges, weight, h), (weight, h), grad)
    torch.testing.assert_close(ours, torch.autograd.grad(dense(edges, weight) @ h, (weight, h), grad))


def test_gradcheck(edges):
    weight, h = torch.randn(len(edges.src), requires_grad=True), torch.randn(edges.num_nodes, 2, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w, x: aggregate(edges, w, x), (weight, h))


def test_strided_values_are_read_correctly(edges):
    """The heads of an attention layer are slices of one tensor."""
    weight, z = (
        torch.randn(len(edges.src), 2, requires_grad=True),
        torch.randn(edges.num_nodes, 2, 3, requires_grad=True),
    )
    out = aggregate(edges, weight[:, 1], z[:, 1])
    expected = dense(edges, weight[:, 1]) @ z[:, 1]
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    torch.testing.assert_close(
        torch.autograd.grad(out, (weight, z), grad), torch.autograd.grad(expected, (weight, z), grad)
    )


def test_only_the_requested_gradients_are_computed(edges):
    weight, h = torch.randn(len(edges.src), requires_grad=True), torch.randn(edges.num_nodes, 2)
    aggregate(edges, weight, h).sum().backward()
    assert weight.grad is not None
    assert h.grad is None


def test_a_second_derivative_raises_an_error(edges):
    weight, h = torch.randn(len(edges.src), requires_grad=True), torch.randn(edges.num_nodes, 2, requires_grad=True)
    (grad,) = torch.autograd.grad(aggregate(edges, weight, h).square().sum(), h, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize(("reduce", "expected"), [(segment_sum, torch.sum), (segment_max, torch.amax)])
def test_segments_are_reduced_per_destination(edges, reduce, expected, shape):
    values = torch.randn(len(edges.src), *shape)
    by_hand = [expected(values[edges.dst == v], dim=0) for v in range(edges.num_nodes)]
    torch.testing.assert_close(reduce(edges, values), torch.stack(by_hand))


def test_segment_sum_gradcheck(edges):
    values = torch.randn(len(edges.src), 2, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: segment_sum(edges, v), values)


def test_gcn_weights_and_their_gradient_equal_pyg(edges):
    s = torch.rand(edges.num_real, requires_grad=True)
    pairs = torch.stack([edges.src, edges.dst])[:, edges.real]
    index, expected = gcn_norm(pairs, s, edges.num_nodes)
    ours = gcn_weights(edges, s)
    grad = torch.randn(edges.num_nodes, edges.num_nodes)
    matrix = torch.zeros_like(grad).index_put((index[1], index[0]), expected)
    torch.testing.assert_close(dense(edges, ours), matrix)
    torch.testing.assert_close(torch.autograd.grad(dense(edges, ours), s, grad), torch.autograd.grad(matrix, s, grad))


def test_gcn_weights_without_a_mask_equal_those_with_a_mask_of_ones(edges):
    assert torch.equal(gcn_weights(edges), gcn_weights(edges, torch.ones(edges.num_real)))
