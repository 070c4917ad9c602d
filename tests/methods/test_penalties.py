"""Statistics for penalties: each compared with a plain loop, and cases in which it must be 0."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from edgemask.methods.penalties import WIDTHS, coral, covariance, irm, mmd, over_pairs, squared_distances


def rows(n: int, d: int, seed: int, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def plain_mmd(x, y) -> float:
    """Compute the definition in a loop over pairs."""
    x, y = x.tolist(), y.tolist()
    pool = x + y

    def squared(a, b):
        return sum((p - q) ** 2 for p, q in zip(a, b, strict=True))

    between = sorted(squared(a, b) for i, a in enumerate(pool) for j, b in enumerate(pool) if i != j)
    median = between[(len(between) - 1) // 2]

    def k(a, b):
        return sum(math.exp(-squared(a, b) / (2 * w * median)) for w in WIDTHS) / len(WIDTHS)

    def mean(p, q):
        return sum(k(a, b) for a in p for b in q) / (len(p) * len(q))

    return mean(x, x) + mean(y, y) - 2 * mean(x, y)


@pytest.mark.parametrize(("n", "m", "d"), [(7, 7, 3), (12, 5, 4), (1, 6, 2), (2, 1, 1)])
def test_mmd_is_the_double_loop_of_its_definition(n, m, d):
    x, y = rows(n, d, n), 1.5 * rows(m, d, m + 100) + 0.3
    assert mmd(x, y).item() == pytest.approx(plain_mmd(x, y), rel=1e-10, abs=1e-12)


def test_mmd_is_0_for_the_same_sample_and_grows_with_the_shift():
    x, y = rows(60, 5, 0), rows(60, 5, 1)
    assert mmd(x, x).item() == pytest.approx(0, abs=1e-12)
    shifted = [mmd(x, y + shift).item() for shift in (0, 1, 2, 4)]
    assert 0 < shifted[0] < 0.1
    assert shifted == sorted(shifted)
    assert mmd(x, y + 2).item() == pytest.approx(mmd(y + 2, x).item())


def test_mmd_does_not_depend_on_scale():
    x, y = rows(30, 4, 0), rows(20, 4, 1) + 1
    assert mmd(1e-3 * x, 1e-3 * y).item() == pytest.approx(mmd(x, y).item())


def test_mmd_sees_more_than_the_mean():
    x = rows(200, 3, 0)
    assert mmd(x, 3 * rows(200, 3, 1)) > 10 * mmd(x, rows(200, 3, 2))


def test_mmd_of_rows_that_are_all_the_same_is_0_with_a_gradient_of_0():
    x = torch.ones(6, 3, requires_grad=True)
    value = mmd(x[:4], x[4:])
    value.backward()
    assert value.item() == 0
    assert torch.equal(x.grad, torch.zeros(6, 3))


def test_the_gradient_of_mmd_is_that_of_finite_differences_at_a_fixed_median():
    x, y = rows(4, 2, 0).requires_grad_(), rows(5, 2, 1)
    mmd(x, y).backward()
    median = squared_distances(torch.cat([x, y])).detach()
    median = median[~torch.eye(9, dtype=torch.bool)].median()

    def at(moved):
        d = squared_distances(torch.cat([moved, y]))
        k = torch.stack([(-d / (2 * w * median)).exp() for w in WIDTHS]).mean(0)
        return (k[:4, :4].mean() + k[4:, 4:].mean() - 2 * k[:4, 4:].mean()).item()

    step = torch.zeros(4, 2, dtype=torch.float64)
    step[1, 0] = 1e-6
    slope = (at(x.detach() + step) - at(x.detach() - step)) / 2e-6
    assert x.grad[1, 0].item() == pytest.approx(slope, rel=1e-5)


def test_squared_distances_are_exact_far_from_the_origin():
    x = rows(10, 3, 0, torch.float32)
    torch.testing.assert_close(squared_distances(x + 1000), torch.cdist(x, x) ** 2, rtol=1e-2, atol=1e-2)
    assert (squared_distances(x) >= 0).all()


def test_coral_is_the_frobenius_distance_of_the_covariances():
    x, y = rows(20, 4, 0), 2 * rows(30, 4, 1) + 5
    difference = torch.cov(x.T) - torch.cov(y.T)
    assert coral(x, y).item() == pytest.approx((difference**2).sum().item() / (4 * 4**2))


def test_coral_is_0_for_the_same_covariance_whatever_the_mean():
    x = rows(20, 4, 0)
    assert coral(x, x + 7).item() == pytest.approx(0, abs=1e-12)
    assert coral(x, 2 * x) > 0


def test_the_covariance_of_a_single_row_is_0():
    assert torch.equal(covariance(rows(1, 3, 0)), torch.zeros(3, 3, dtype=torch.float64))


def test_irm_is_the_squared_derivative_by_the_scale_of_the_logits():
    logits, y = 2 * rows(40, 5, 0), torch.arange(40) % 5
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(F.cross_entropy(scale * logits, y), scale)
    assert irm(logits, y).item() == pytest.approx(slope.item() ** 2)


def test_the_gradient_of_irm_is_that_of_the_second_derivative():
    logits, y = rows(12, 3, 0).requires_grad_(), torch.arange(12) % 3
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(F.cross_entropy(scale * logits, y), scale, create_graph=True)
    (expected,) = torch.autograd.grad(slope**2, logits)
    (got,) = torch.autograd.grad(irm(logits, y), logits)
    torch.testing.assert_close(got, expected)


def test_over_pairs_is_the_mean_over_all_pairs_and_0_for_one_part():
    parts = [rows(6, 2, i) for i in range(3)]
    expected = (coral(parts[0], parts[1]) + coral(parts[0], parts[2]) + coral(parts[1], parts[2])) / 3
    torch.testing.assert_close(over_pairs(coral, parts), expected)
    assert over_pairs(coral, parts[:1]).item() == 0
