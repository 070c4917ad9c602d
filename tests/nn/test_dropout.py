"""Dropout with the random numbers of torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from edgemask.nn import dropout as module
from edgemask.nn.dropout import dropout
from edgemask.nn.kernels.cpu import dropout as kernel

RATES = [0.5, 0.3, 0.999, 1e-4]
SHAPES = [(1,), (3, 7), (2000, 3), (1190, 64), (7, 5, 31), (0, 4)]


def drawn(function, h, rate, before):
    """Return the result of dropout, its gradient, and the state of the generator afterwards."""
    torch.manual_seed(3)
    torch.rand(before)  # an odd number of values starts in the middle of a pair of random numbers
    out = function(h, rate, True)
    (grad,) = torch.autograd.grad(out.square().sum(), h)
    return out, grad, torch.get_rng_state()


@pytest.mark.parametrize("before", [0, 1, 624])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rate", RATES)
def test_values_gradients_and_generator_are_those_of_torch_to_the_bit(rate, shape, before, monkeypatch):
    monkeypatch.setattr(module, "SMALL", 1)
    h = torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for ours, theirs in zip(drawn(dropout, h, rate, before), drawn(F.dropout, h, rate, before), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("rate", RATES)
def test_noise_follows_from_the_numbers_of_the_generator(rate):
    """Compare with a plain loop over NumPy's numbers of the same generator."""
    values = kernel._drawn(torch.empty(700), rate, torch.Generator().manual_seed(8))
    words = np.random.RandomState(8).randint(0, 2**32, 1400, dtype=np.uint32).tolist()
    for i, value in enumerate(values.tolist()):
        bits = (words[2 * i] << 32 | words[2 * i + 1]) % 2**53
        assert value == (pytest.approx(1 / (1 - rate)) if bits / 2**53 < 1 - rate else 0)


@pytest.mark.parametrize(
    "h",
    [torch.ones(80, 40, dtype=torch.float64), torch.ones(80, 40).T, torch.ones(80, 40)[:, ::2]],
    ids=["float64", "transposed", "strided"],
)
def test_other_tensors_are_left_to_torch(h):
    results = []
    for function in (dropout, F.dropout):
        torch.manual_seed(0)
        results.append(function(h, 0.4, True))
    assert torch.equal(*results)


def test_torch_draws_where_its_numbers_are_others(monkeypatch):
    def bernoulli(self, p, *, generator):
        return self.fill_(1)

    monkeypatch.setattr(torch.Tensor, "bernoulli_", bernoulli)
    assert not kernel._agrees.__wrapped__(0.5)
    monkeypatch.setattr(kernel, "_agrees", lambda rate: False)
    h = torch.ones(100, 100)
    assert kernel.noise(h, 0.5) is None
    torch.manual_seed(0)
    expected = F.dropout(h, 0.5, True)
    torch.manual_seed(0)
    assert torch.equal(dropout(h, 0.5, True), expected)


def test_nothing_is_drawn_without_need():
    h = torch.ones(100, 100)
    before = torch.get_rng_state()
    assert dropout(h, 0.5, False) is h
    assert torch.equal(dropout(h, 0.0, True), h)
    assert torch.equal(torch.get_rng_state(), before)
