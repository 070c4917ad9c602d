"""The CPU loops of the operators on single nodes: plain torch, finite differences and dropout."""

from __future__ import annotations

import numba
import pytest
import torch

from edgemask.nn.kernels import ACTIVATIONS, cpu, reference
from edgemask.nn.nodes import activate, head_logits, head_mean

N, HEADS, WIDTH = 150, 3, 7

pytestmark = pytest.mark.usefixtures("float64")


def draw(*shape):
    return torch.randn(*shape).requires_grad_()


def assert_same_function(function, expected, given):
    """Compare the outputs (one or several) and all gradients of two functions."""
    a, b = (f(*given) for f in (function, expected))
    a, b = (x if isinstance(x, tuple) else (x,) for x in (a, b))
    up = [torch.randn_like(x) for x in a]
    torch.testing.assert_close(a, b)
    torch.testing.assert_close(torch.autograd.grad(a, given, up), torch.autograd.grad(b, given, up))


@pytest.mark.parametrize("shape", [(N, WIDTH), (N, HEADS, WIDTH), (1, 1), (0, 4)])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activation_after_a_bias_equals_torch(activation, shape):
    given = draw(*shape), draw(*shape[1:])
    assert_same_function(
        lambda h, b: cpu.activate(h, b, activation), lambda h, b: reference.activate(h, b, activation), given
    )


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activation_at_exactly_zero_has_torchs_slope(activation):
    h = torch.zeros(3, 2, requires_grad=True)
    for dropout in (0.0, 0.5):
        out = cpu.activate(h, None, activation, dropout)
        (grad,) = torch.autograd.grad(out.sum(), h)
        torch.manual_seed(1)
        slope = 0.0 if activation == "relu" else 1 / (1 - dropout)
        assert set(grad.flatten().tolist()) <= {0.0, slope}
    assert (grad == slope).any() or activation == "relu"


def test_head_logits_are_two_inner_products():
    given = draw(N, HEADS, WIDTH), draw(HEADS, WIDTH), draw(HEADS, WIDTH)
    assert_same_function(cpu.head_logits, reference.head_logits, given)


@pytest.mark.parametrize("heads", [1, 4])
def test_the_mean_over_heads_equals_torch(heads):
    assert_same_function(cpu.head_mean, reference.head_mean, [draw(N, heads, WIDTH)])


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_gradient_that_all_heads_share_equals_separate_gradients(dropout):
    """`head_mean` returns one gradient for all heads, and `activate` reads it without expanding it."""
    h, bias, up = draw(N, HEADS, WIDTH), draw(HEADS, WIDTH), torch.randn(N, WIDTH)

    def gradients(mean):
        torch.manual_seed(4)
        return torch.autograd.grad(mean(cpu.activate(h, bias, "elu", dropout)), (h, bias), up)

    torch.testing.assert_close(gradients(cpu.head_mean), gradients(reference.head_mean))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_gradcheck_with_a_fixed_dropout_mask(activation, dropout):
    def function(h, bias):
        torch.manual_seed(5)
        return head_mean(activate(h, bias, activation, dropout))

    assert torch.autograd.gradcheck(function, (draw(6, 2, 3), draw(2, 3)))


def test_gradcheck_of_head_logits():
    assert torch.autograd.gradcheck(head_logits, (draw(5, 2, 3), draw(2, 3), draw(2, 3)))


def test_only_the_requested_gradients_are_computed():
    z, a, b = draw(N, HEADS, WIDTH), torch.randn(HEADS, WIDTH), torch.randn(HEADS, WIDTH)
    sum(t.sum() for t in head_logits(z, a, b)).backward()
    torch.testing.assert_close(z.grad, (a + b).expand_as(z))
    assert a.grad is b.grad is None
    z, a = z.detach(), a.requires_grad_()
    activate(z, a, "elu").sum().backward()
    assert z.grad is None
    assert a.grad is not None


def test_tensors_need_not_be_contiguous():
    h, bias = torch.randn(HEADS, N, WIDTH).transpose(0, 1).requires_grad_(), draw(WIDTH, HEADS).T
    assert_same_function(
        lambda h, b: cpu.activate(h, b, "elu"), lambda h, b: reference.activate(h, b, "elu"), [h, bias]
    )
    assert_same_function(cpu.head_logits, reference.head_logits, [h, bias, bias])


# ---- dropout ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.999])
def test_dropout_has_the_right_rate_and_keeps_the_expectation(dropout):
    factors = activate(torch.ones(25_000, 8), None, "none", dropout)
    torch.testing.assert_close(factors.unique(), torch.tensor([0, 1 / (1 - dropout)]))
    error = (dropout * (1 - dropout) / factors.numel()) ** 0.5
    assert (factors > 0).double().mean().item() == pytest.approx(1 - dropout, abs=5 * error)


def test_dropout_depends_on_the_torch_seed_and_each_call_draws_a_new_mask():
    def run(seed):
        torch.manual_seed(seed)
        return [activate(torch.ones(500, 4), None, "none", 0.5) for _ in range(2)]

    first, second = run(3)
    assert torch.equal(first, run(3)[0])
    for other in (second, run(4)[0]):
        assert 0.4 < (first != other).double().mean().item() < 0.6


def test_without_dropout_the_generator_does_not_change():
    before = torch.random.get_rng_state()
    activate(torch.ones(3, 2), None, "elu")
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_an_illegal_dropout_raises_an_error(dropout):
    with pytest.raises(ValueError, match=rf"dropout must be a number in \[0, 1\), got {dropout}"):
        activate(torch.ones(3, 2), None, "elu", dropout)


def test_mixed_precision_raises_an_error_that_names_the_tensors():
    with pytest.raises(TypeError, match=r"h, bias must all be float32 or all float64, got .*torch.float32"):
        activate(torch.ones(3, 2), torch.ones(2, dtype=torch.float32), "elu")


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="needs two cores")
def test_results_are_bitwise_equal_for_any_number_of_threads():
    h, bias, up = draw(N, HEADS, WIDTH), draw(HEADS, WIDTH), torch.randn(N, HEADS)
    before = torch.get_num_threads()

    def run(threads):
        torch.set_num_threads(threads)
        torch.manual_seed(2)
        out = activate(h, bias, "elu", 0.3)
        at_src, _ = head_logits(out, bias, bias)
        return [out, *torch.autograd.grad(at_src, (h, bias), up)]

    try:
        assert all(torch.equal(a, b) for a, b in zip(run(1), run(2), strict=True))
    finally:
        torch.set_num_threads(before)
