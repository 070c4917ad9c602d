"""Propagation of logits: fixed point, first step, and settings that change nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgemask.nn.propagation import propagate, propagate_each
from edgemask.nn.tensors import Edges

N = 12


pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture
def edges():
    keys = np.random.default_rng(0).choice(N * N, 30, replace=False)
    keys = np.union1d(keys, keys % N * N + keys // N)
    keys = torch.tensor(keys[keys % N != keys // N])
    return Edges.build(keys % N, keys // N, N)


@pytest.fixture
def normalised(edges):
    """Return Â = D^{-1/2}(A + I)D^{-1/2} as a dense matrix."""
    a = torch.eye(N)
    a[edges.dst, edges.src] = 1
    scale = a.sum(1).rsqrt()
    return scale.unsqueeze(1) * a * scale


@pytest.mark.parametrize("alpha", [0.3, 0.9])
def test_many_steps_reach_the_fixed_point(edges, normalised, alpha):
    z = torch.randn(N, 3)
    expected = (1 - alpha) * torch.linalg.solve(torch.eye(N) - alpha * normalised, z)
    torch.testing.assert_close(propagate(edges, z, alpha, steps=400), expected)


def test_one_step_is_the_recurrence(edges, normalised):
    z = torch.randn(N, 3)
    torch.testing.assert_close(propagate(edges, z, 0.8, steps=1), 0.8 * normalised @ z + 0.2 * z)


@pytest.mark.parametrize(("alpha", "steps"), [(0.0, 20), (0.9, 0)])
def test_zero_strength_or_zero_steps_change_nothing(edges, alpha, steps):
    z = torch.randn(N, 3)
    assert torch.equal(propagate(edges, z, alpha, steps), z)


def test_a_node_without_neighbours_keeps_its_logits():
    none, z = torch.empty(0, dtype=torch.int64), torch.randn(4, 2)
    torch.testing.assert_close(propagate(Edges.build(none, none, 4), z, 0.9, steps=20), z)


@pytest.mark.parametrize("steps", [0, 7])
def test_several_strengths_at_once_equal_one_at_a_time(edges, steps):
    z, alphas = torch.randn(N, 3), (0.5, 0.0, 0.95, 0.8)
    for alpha, together in zip(alphas, propagate_each(edges, [z] * len(alphas), alphas, steps), strict=True):
        torch.testing.assert_close(together, propagate(edges, z, alpha, steps))
