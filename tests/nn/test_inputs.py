"""Features to which something is added: products compared with those of the dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from edgemask.nn.backbone import InputLinear
from edgemask.nn.inputs import Appended, Shifted
from edgemask.nn.tensors import SparseMatrix

N, F = 9, 7
X = sp.random_array((N, F), density=0.5, rng=np.random.default_rng(0), dtype=np.float32)


@pytest.fixture(params=["sparse", "dense"])
def x(request):
    torch.manual_seed(0)
    return SparseMatrix(X, torch.device("cpu")) if request.param == "sparse" else torch.tensor(X.toarray())


def same_with_gradients(features, dense, leaves):
    """Compare a linear map of the features, and its gradients, with those of the dense matrix."""
    linear = InputLinear(dense.shape[1], 4)
    out, expected = linear(features), dense @ linear.weight + linear.bias
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    for actual, wanted in zip(
        torch.autograd.grad(out, [linear.weight, *leaves], grad),
        torch.autograd.grad(expected, [linear.weight, *leaves], grad),
        strict=True,
    ):
        torch.testing.assert_close(actual, wanted)


def test_an_appended_context_follows_the_features_of_every_node(x):
    context = torch.randn(3).requires_grad_()
    same_with_gradients(
        Appended(x, context), torch.cat([torch.tensor(X.toarray()), context.expand(N, 3)], 1), [context]
    )


def test_a_shift_of_low_rank_is_added(x):
    a, b = torch.randn(N, 2).requires_grad_(), torch.randn(2, F).requires_grad_()
    same_with_gradients(Shifted(x, a, b), torch.tensor(X.toarray()) + a @ b, [a, b])


def test_shifts_can_be_stacked(x):
    a, b, c, d = torch.randn(N, 2), torch.randn(2, F), torch.randn(N, 3), torch.randn(3, F)
    same_with_gradients(Shifted(Shifted(x, a, b), c, d), torch.tensor(X.toarray()) + a @ b + c @ d, [])
