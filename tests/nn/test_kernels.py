"""The CPU backend of masked attention: plain torch reference, finite differences, dropout and threads."""

from __future__ import annotations

import numba
import numpy as np
import pytest
import torch

from edgemask.config import GATES
from edgemask.nn.attention import attend
from edgemask.nn.kernels import cpu, reference
from edgemask.nn.tensors import Edges


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def build(pairs, nodes):
    """Return the edges of (source, destination) pairs."""
    pairs = sorted(set(pairs), key=lambda e: (e[1], e[0]))
    src, dst = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    return Edges.build(src, dst, nodes)


def random_pairs(nodes, count):
    pairs = np.random.default_rng(nodes).integers(nodes, size=(count, 2)).tolist()
    return [(u, v) for u, v in pairs if u != v]


GRAPHS = {
    "no node": build([], 0),
    "one node": build([], 1),
    "no edge": build([], 5),
    "one edge": build([(0, 1)], 2),
    "hub in and out": build([(u, 3) for u in range(300) if u != 3] + [(3, v) for v in range(0, 300, 2) if v != 3], 300),
    "random": build(random_pairs(40, 200), 40),
    "random, half without edges": build(random_pairs(90, 300), 180),
}


def inputs(edges, heads, width, dtype=torch.float64):
    """Return z, logit_src, logit_dst, s and c as leaf tensors; every tenth mask value is 0."""
    n = edges.num_nodes
    s = torch.rand(edges.num_real, dtype=dtype)
    s[::10] = 0
    logits = (3 * torch.randn(n, heads, dtype=dtype) for _ in range(2))
    given = (torch.randn(n, heads, width, dtype=dtype), *logits, s, torch.randn(heads, dtype=dtype))
    return [t.requires_grad_() for t in given]


def results(operator, edges, given, gate, masked=True):
    """Return the output and the gradients of a fixed weighted sum of it."""
    z, src, dst, s, c = given
    out = operator(edges, z, src, dst, s if masked else None, c, gate=gate)
    up = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(1))
    return [out, *torch.autograd.grad(out, given, up, allow_unused=True)]


def assert_same(given, expected, tolerance):
    for a, b in zip(given, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("graph", [g for g in GRAPHS if g != "no node"])
def test_output_and_gradients_equal_the_reference(graph, gate, masked):
    given = inputs(GRAPHS[graph], heads=3, width=5)
    ours = results(cpu.attend, GRAPHS[graph], given, gate, masked)
    assert_same(ours, results(reference.attend, GRAPHS[graph], given, gate, masked), 1e-10)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize(("heads", "width"), [(1, 1), (1, 64), (2, 33), (5, 7), (8, 3)])
def test_any_number_of_heads_and_any_width(heads, width, gate):
    edges = GRAPHS["random"]
    given = inputs(edges, heads, width)
    assert_same(results(cpu.attend, edges, given, gate), results(reference.attend, edges, given, gate), 1e-10)


@pytest.mark.parametrize("gate", GATES)
def test_single_precision_equals_the_reference_up_to_rounding(gate):
    edges = GRAPHS["hub in and out"]
    given = inputs(edges, heads=4, width=9, dtype=torch.float32)
    ours = results(cpu.attend, edges, given, gate)
    assert all(t.dtype == torch.float32 for t in ours if t is not None)
    assert_same(ours, results(reference.attend, edges, given, gate), 1e-4)


def test_a_graph_without_nodes_gives_an_empty_result():
    out, *grads = results(cpu.attend, GRAPHS["no node"], inputs(GRAPHS["no node"], 2, 3), "message")
    assert out.shape == (0, 2, 3)
    assert grads[-1].tolist() == [0, 0]


def test_tensors_need_not_be_contiguous():
    edges = GRAPHS["random"]
    given = inputs(edges, heads=4, width=4)
    flipped = [t.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_() for t in given[:3]]
    ours = results(cpu.attend, edges, [*flipped, *given[3:]], "message")
    assert_same(ours, results(reference.attend, edges, given, "message"), 1e-10)


@pytest.mark.parametrize("gate", GATES)
def test_large_logits_equal_the_reference(gate):
    edges = GRAPHS["random"]
    z, src, dst, s, c = inputs(edges, heads=2, width=3)
    given = [z, *((2000 * t).detach().requires_grad_() for t in (src, dst)), s, c]
    ours = results(cpu.attend, edges, given, gate)
    assert all(torch.isfinite(t).all() for t in ours if t is not None)
    assert_same(ours, results(reference.attend, edges, given, gate), 1e-8)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("wanted", range(5))
def test_each_gradient_is_the_same_when_requested_alone(wanted, gate):
    edges = GRAPHS["random"]
    given = inputs(edges, heads=2, width=3)
    expected = results(cpu.attend, edges, given, gate)[1 + wanted]
    if expected is None:
        pytest.skip("the softmax gate has no logit term")
    one = [t.detach().requires_grad_(i == wanted) for i, t in enumerate(given)]
    out = cpu.attend(edges, *one, gate=gate)
    out.backward(torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(1)))
    torch.testing.assert_close(one[wanted].grad, expected)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("which", range(3))
def test_a_nan_propagates_to_every_node_it_reaches(which, gate):
    edges = GRAPHS["random"]
    given = [t.detach() for t in inputs(edges, heads=2, width=3)]
    given[3].fill_(0.5)
    given[which][7] = torch.nan
    reached = edges.dst[edges.src == 7].unique() if which < 2 else torch.tensor([7])
    bad = cpu.attend(edges, *given, gate=gate, dropout=0.3).isnan().flatten(1).any(1).nonzero().flatten()
    assert set(reached.tolist()) & set(bad.tolist())
    assert (
        cpu.attend(edges, *given, gate=gate).isnan().flatten(1).all(1).nonzero().flatten().tolist() == reached.tolist()
    )


def test_the_gradient_of_the_mask_does_not_sort_edges_by_source():
    edges = build(random_pairs(40, 200), 40)
    z, src, dst, s, c = (t.detach() for t in inputs(edges, 2, 3))
    attend(edges, z, src, dst, s.requires_grad_(), c, gate="message").sum().backward()
    assert "by_source" not in vars(edges)


def test_padding_does_not_change_results():
    edges = GRAPHS["random"]
    z, src, dst, s, c = given = inputs(edges, 2, 3)
    longer = torch.cat([s.detach(), torch.full((9,), 0.5)]).requires_grad_()
    ours = results(cpu.attend, edges.padded(len(edges.src) + 9), [z, src, dst, longer, c], "message")
    expected = results(cpu.attend, edges, given, "message")
    assert not ours[4][-9:].any()
    ours[4] = ours[4][:-9]
    assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))


def test_only_the_requested_gradients_are_computed():
    edges = GRAPHS["random"]
    z, src, dst, s, c = (t.detach() for t in inputs(edges, 2, 3))
    s.requires_grad_()
    attend(edges, z, src, dst, s, c, gate="message").sum().backward()
    assert s.grad is not None
    assert all(t.grad is None for t in (z, src, dst, c))


def test_cpu_tensors_use_the_fused_kernel(monkeypatch):
    monkeypatch.setattr(reference, "attend", None)
    z, src, dst, s, c = inputs(GRAPHS["random"], 2, 3)
    assert attend(GRAPHS["random"], z, src, dst, s, c, gate="message").grad_fn.name() == "_AttendBackward"


def test_mixed_precision_raises_an_error_that_names_the_tensors():
    z, src, dst, s, c = inputs(GRAPHS["random"], 2, 3)
    with pytest.raises(TypeError, match=r"all be float32 or all float64, got .*'logit_src': torch.float32"):
        attend(GRAPHS["random"], z, src.float(), dst, s, c, gate="message")


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_an_illegal_dropout_raises_an_error(dropout):
    z, src, dst, s, c = inputs(GRAPHS["random"], 2, 3)
    with pytest.raises(ValueError, match=rf"dropout must be a number in \[0, 1\), got {dropout}"):
        attend(GRAPHS["random"], z, src, dst, s, c, gate="message", dropout=dropout)


# ---- dropout ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_gradcheck_with_a_fixed_dropout_mask(gate, dropout):
    """With the same seed in every call the operator is a fixed function.

    Finite differences use the dropout mask of the forward pass, and the gradient uses that of the backward pass.
    """
    edges = build(random_pairs(8, 20), 8)
    z, src, dst, s, c = inputs(edges, heads=2, width=3)
    s = (s.detach() + 0.1).requires_grad_()  # away from 0, so that a step down stays in the domain
    if gate == "softmax":
        c = c.detach()  # no logit term

    def operator(z, src, dst, s, c):
        torch.manual_seed(5)
        return cpu.attend(edges, z, src, dst, s, c, gate=gate, dropout=dropout)

    assert torch.autograd.gradcheck(operator, (z, src, dst, s, c))


def coefficients(nodes, heads, dropout, seed):
    """Return the dropout factors (N × H) of a graph of self-loops, where every coefficient is 1 before dropout."""
    torch.manual_seed(seed)
    zero, edges = torch.zeros(nodes, heads), build([], nodes)
    return attend(edges, torch.ones(nodes, heads, 1), zero, zero, None, zero[0], gate="message", dropout=dropout)[
        ..., 0
    ]


@pytest.mark.parametrize("dropout", [0.1, 0.6, 0.999])
def test_dropout_has_the_right_rate_and_keeps_the_expectation(dropout):
    factors = coefficients(25_000, 8, dropout, seed=0)
    torch.testing.assert_close(factors.unique(), torch.tensor([0, 1 / (1 - dropout)]))
    error = (dropout * (1 - dropout) / factors.numel()) ** 0.5  # standard error of the share
    assert (factors > 0).double().mean().item() == pytest.approx(1 - dropout, abs=5 * error)


def test_heads_and_neighbouring_edges_are_dropped_independently():
    kept = (coefficients(50_000, 4, 0.5, seed=0) > 0).double()
    columns = torch.cat([kept[1:], kept[:-1]], dim=1)
    others = torch.corrcoef(columns.T) - torch.eye(8)
    assert others.abs().max() < 5 / 50_000**0.5


def test_dropout_depends_on_the_torch_seed():
    assert torch.equal(coefficients(500, 4, 0.5, seed=3), coefficients(500, 4, 0.5, seed=3))
    differing = (coefficients(500, 4, 0.5, seed=3) != coefficients(500, 4, 0.5, seed=4)).double().mean()
    assert 0.4 < differing.item() < 0.6


def test_each_call_draws_a_new_mask():
    edges = GRAPHS["random"]
    z, src, dst, s, c = inputs(edges, 2, 3)
    first, second = (attend(edges, z, src, dst, s, c, gate="message", dropout=0.5) for _ in range(2))
    assert not torch.equal(first, second)


def test_without_dropout_the_generator_does_not_change():
    z, src, dst, s, c = (t.detach() for t in inputs(GRAPHS["one edge"], 2, 3))
    before = torch.random.get_rng_state()
    attend(GRAPHS["one edge"], z, src, dst, s, c, gate="message")
    assert torch.equal(torch.random.get_rng_state(), before)


# ---- threads ----------------------------------------------------------------------------------------


@pytest.fixture
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="needs two cores")
@pytest.mark.parametrize("gate", GATES)
def test_results_are_bitwise_equal_for_any_number_of_threads(gate):
    edges = build(random_pairs(400, 4000), 400)
    given = inputs(edges, heads=4, width=9, dtype=torch.float32)

    def run(threads):
        torch.set_num_threads(threads)  # the kernels use torch's number of threads
        torch.manual_seed(7)

        def operator(*args, **settings):
            return cpu.attend(*args, **settings, dropout=0.3)

        return results(operator, edges, given, gate)

    for one, two in zip(run(1), run(2), strict=True):
        assert one is two is None or torch.equal(one, two)


@pytest.mark.usefixtures("_threads")
def test_torchs_number_of_threads_does_not_change():
    torch.set_num_threads(1)
    results(cpu.attend, GRAPHS["random"], inputs(GRAPHS["random"], 2, 3), "message")
    assert torch.get_num_threads() == 1
