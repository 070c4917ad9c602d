"""Graphs as tensors: edges with self-loops, sparse features and labels."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from edgemask.graph import Graph
from edgemask.nn.tensors import Edges, GraphTensors, SparseMatrix, rows

CPU = torch.device("cpu")


def random_pairs(n, count, seed):
    keys = np.sort(np.random.default_rng(seed).choice(n * n, count, replace=False))
    keys = keys[keys % n != keys // n]
    return keys % n, keys // n


CASES = {
    "no edges": (4, ([], [])),
    "one node": (1, ([], [])),
    "one edge": (5, ([4], [1])),
    "hub of incoming edges": (6, ([1, 2, 3, 4, 5], [0] * 5)),
    "hub of outgoing edges": (6, ([5] * 5, [0, 1, 2, 3, 4])),
    "sparse": (20, random_pairs(20, 30, seed=0)),
    "dense": (9, random_pairs(9, 60, seed=1)),
}


@pytest.fixture(params=CASES)
def given(request):
    """Return the number of nodes, the sources and destinations, and the edges built from them."""
    n, pair = CASES[request.param]
    src, dst = (torch.tensor(np.asarray(part, dtype=np.int64)) for part in pair)
    return n, src, dst, Edges.build(src, dst, n)


def test_edges_are_the_given_edges_and_one_self_loop_per_node(given):
    n, src, dst, edges = given
    expected = [*zip(src.tolist(), dst.tolist(), strict=True), *((v, v) for v in range(n))]
    assert sorted(zip(edges.src.tolist(), edges.dst.tolist(), strict=True)) == sorted(expected)


def test_edges_are_sorted_by_destination_and_indptr_delimits_them(given):
    n, _, _, edges = given
    assert (edges.dst.diff() >= 0).all()
    assert len(edges.indptr) == n + 1
    for v in range(n):
        assert (edges.dst[edges.indptr[v] : edges.indptr[v + 1]] == v).all()
    assert edges.indptr[-1] == len(edges.dst)


def test_real_edges_keep_the_given_order(given):
    _, src, dst, edges = given
    assert edges.num_real == len(src)
    assert torch.equal(edges.src[edges.real], src)
    assert torch.equal(edges.dst[edges.real], dst)


def test_by_source_sorts_by_source(given):
    n, _, _, edges = given
    order, indptr = edges.by_source
    assert torch.equal(order.sort().values, torch.arange(len(edges.src)))
    assert torch.equal(edges.dst_by_source, edges.dst[order])
    for u in range(n):
        assert (edges.src[order[indptr[u] : indptr[u + 1]]] == u).all()


def test_spread_puts_the_mask_on_real_edges_and_one_on_loops(given):
    _, src, _, edges = given
    s = torch.rand(len(src)) + 2
    spread = edges.spread(s)
    assert torch.equal(spread[edges.real], s)
    assert (spread[edges.src == edges.dst] == 1).all()


def test_the_gradient_of_spread_is_that_of_the_real_edges(given):
    _, src, _, edges = given
    s, grad = torch.rand(len(src), requires_grad=True), torch.rand(len(edges.src))
    edges.spread(s).backward(grad)
    assert torch.equal(s.grad, grad[edges.real])


def test_spread_of_no_mask_is_ones(given):
    *_, edges = given
    assert torch.equal(edges.spread(None), torch.ones(len(edges.src)))


def test_spread_keeps_the_dtype_of_the_mask():
    edges = Edges.build(torch.tensor([0]), torch.tensor([1]), 2)
    assert edges.spread(torch.ones(1, dtype=torch.float64)).dtype == torch.float64


def test_origins_are_kept_and_zero_when_not_given():
    src, dst = torch.tensor([1, 0, 2]), torch.tensor([0, 1, 1])
    origin = torch.tensor([2, 0, 1], dtype=torch.uint8)
    assert torch.equal(Edges.build(src, dst, 3, origin).origin, origin)
    assert torch.equal(Edges.build(src, dst, 3).origin, torch.zeros(3, dtype=torch.uint8))


@pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
def test_sparse_product_and_its_gradient_equal_the_dense_ones(density):
    matrix = sp.random_array((7, 5), density=density, rng=np.random.default_rng(0), dtype=np.float32)
    dense = torch.tensor(matrix.toarray())
    a, b = (torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).requires_grad_() for _ in range(2))
    product, expected = SparseMatrix(matrix, CPU) @ a, dense @ b
    torch.testing.assert_close(product, expected)
    grad = torch.randn(3, 7).t()  # gradients need not be contiguous
    product.backward(grad)
    expected.backward(grad)
    torch.testing.assert_close(a.grad, b.grad)


@pytest.fixture
def graph():
    x = np.array([[0.0, 2.0], [0.0, 0.0], [1.0, 3.0]])
    return Graph("g", x, np.array([[0, 2], [1, 0]]), y=np.array([1, -1, 0]), classes=("a", "b"))


def test_a_domain_has_the_graph_as_tensors(graph):
    domain = GraphTensors.of(graph)
    assert torch.equal(domain.x, torch.tensor(graph.x))
    assert domain.num_nodes == 3
    assert torch.equal(domain.edges.src[domain.edges.real], torch.tensor(graph.edges[0]))
    assert torch.equal(domain.labels(), torch.tensor([1, -1, 0]))
    assert torch.equal(domain.labelled, torch.tensor([0, 2]))


def test_sparse_features_stay_sparse(graph):
    domain = GraphTensors.of(graph.replace(x=sp.csr_array(graph.x)))
    assert isinstance(domain.x, SparseMatrix)
    torch.testing.assert_close(domain.x @ torch.eye(2), torch.tensor(graph.x))


def test_the_first_of_several_labels_is_used(graph):
    domain = GraphTensors.of(graph.replace(y=np.array([[0, 1], [1, 1], [-1, -1]])))
    assert torch.equal(domain.labels(), torch.tensor([1, 0, -1]))
    assert torch.equal(domain.labelled, torch.tensor([0, 1]))


def test_the_error_about_missing_labels_names_the_graph(graph):
    with pytest.raises(ValueError, match="graph 'g' has no labels"):
        GraphTensors.of(graph.without_labels()).labels()


@pytest.mark.parametrize("shape", [(40,), (40, 3)])
def test_rows_are_those_of_plain_indexing_and_so_are_their_gradients(shape):
    index = torch.randint(7, shape)
    values = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    assert torch.equal(rows(values, index), values[index])
    weight = torch.randn(*shape, 5, dtype=torch.float64)
    (ours,), (plain,) = (
        torch.autograd.grad((taken * weight).sum(), values) for taken in (rows(values, index), values[index])
    )
    torch.testing.assert_close(ours, plain)
