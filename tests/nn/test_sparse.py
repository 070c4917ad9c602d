"""Products of a constant sparse matrix and a dense one."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from edgemask.nn.sparse import csr_product
from edgemask.nn.tensors import SparseMatrix


def matrix(rows, columns, density=0.2):
    values = sp.random_array((rows, columns), density=density, rng=0, format="csr", dtype=np.float32)
    return SparseMatrix(values, torch.device("cpu")).forward


@pytest.mark.parametrize("shape", [(60, 40), (1, 500), (200, 3), (300, 70), (0, 4)])
@pytest.mark.parametrize("width", [1, 5, 64, 192])
def test_products_are_those_of_a_plain_loop_to_the_bit(shape, width):
    """Add up the entries of each row in float32, one after another."""
    m, w = matrix(*shape), torch.randn(shape[1], width, generator=torch.Generator().manual_seed(1))
    starts, columns, values = m.crow_indices(), m.col_indices(), m.values()
    expected = torch.zeros(shape[0], width)
    for i in range(shape[0]):
        for q in range(int(starts[i]), int(starts[i + 1])):
            expected[i] += values[q] * w[columns[q]]
    assert torch.equal(csr_product(m, w), expected)
    torch.testing.assert_close(expected, m.to_dense() @ w)


def test_products_are_close_to_those_of_torch():
    m, stream = matrix(300, 80), torch.Generator().manual_seed(2)
    for width in (3, 64, 64, 3, 64):
        w = torch.randn(80, width, generator=stream)
        torch.testing.assert_close(csr_product(m, w), m @ w)


def test_the_result_is_the_same_for_any_number_of_threads():
    m, w, before = matrix(500, 90), torch.randn(90, 33), torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(csr_product(m, w))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


def test_a_matrix_that_is_not_contiguous():
    m, w = matrix(40, 30), torch.randn(8, 30).T
    torch.testing.assert_close(csr_product(m, w), m @ w)
