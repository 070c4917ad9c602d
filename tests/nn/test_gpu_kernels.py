"""The Triton kernels, compared with plain torch in float64. They are compiled on a GPU, and interpreted without one."""

import os
import sys

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a GPU, or Triton's interpreter (TRITON_INTERPRET=1)", allow_module_level=True)

from edgemask.config import GATES
from edgemask.nn.kernels import ACTIVATIONS, gpu, reference
from edgemask.nn.tensors import Edges
from edgemask.seeds import torch_stream

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def graph(kind: str, seed: int = 0) -> Edges:
    """Return random edges without self-loops: with incoming and outgoing hubs, empty rows, one edge or no edge."""
    stream = torch_stream(seed, kind)
    n = 8
    adjacency = (
        torch.rand(n, n, generator=stream) < {"sparse": 0.2, "dense": 0.8, "one": 0, "none": 0, "hub": 0.02}[kind]
    )
    if kind == "hub":
        adjacency[3, :] = adjacency[:, 5] = True
    if kind == "one":
        adjacency[4, 7] = True
    adjacency.fill_diagonal_(False)
    dst, src = adjacency.nonzero().T
    return Edges.build(src.to(DEVICE), dst.to(DEVICE), n)


def draw(*shape: int, seed: int = 1, grad: bool = True) -> Tensor:
    stream = torch_stream(seed, *shape)
    return torch.randn(*shape, generator=stream, dtype=torch.float64).to(DEVICE).requires_grad_(grad)


def agree(ours, plain, inputs: list[Tensor]) -> None:
    """Compare the values and all gradients of two functions of the same inputs."""
    results = []
    for function in (ours, plain):
        out = function()
        up = torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device).view_as(out)
        results.append([out, *torch.autograd.grad(out, inputs, up, allow_unused=True)])
    for a, b, like in zip(*results, [results[0][0], *inputs], strict=True):
        a, b = (torch.zeros_like(like) if g is None else g for g in (a, b))
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


KINDS = ["sparse", "dense", "hub", "one", "none"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [5, 70])
def test_a_weighted_sum_and_its_gradients(kind: str, width: int) -> None:
    edges = graph(kind)
    weight, h = draw(len(edges.src)), draw(edges.num_nodes, width)
    agree(lambda: gpu.aggregate(edges, weight, h), lambda: reference.aggregate(edges, weight, h), [weight, h])


@pytest.mark.parametrize("kind", KINDS)
def test_the_normalisation_of_a_gcn(kind: str) -> None:
    edges = graph(kind)
    s = draw(edges.num_real).detach().sigmoid().requires_grad_()
    agree(lambda: gpu.gcn_weights(edges, s), lambda: reference.gcn_weights(edges, s), [s])
    torch.testing.assert_close(
        gpu.gcn_weights(edges, None), reference.gcn_weights(edges, None).to(torch.get_default_dtype())
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("extra", [False, True])
def test_the_scores_of_edges(kind: str, extra: bool) -> None:
    edges = graph(kind)
    inputs = [draw(edges.num_nodes, 9, seed=i) for i in (2, 3)]
    w, x = draw(9), draw(edges.num_real, 9) if extra else None
    agree(
        lambda: gpu.edge_mlp(edges, *inputs, x, w),
        lambda: reference.edge_mlp(edges, *inputs, x, w),
        [*inputs, w] + ([x] if extra else []),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("masked", [False, True])
def test_masked_attention(kind: str, gate: str, masked: bool) -> None:
    edges, heads, width = graph(kind), 2, 3
    z, a, b = draw(edges.num_nodes, heads, width), draw(edges.num_nodes, heads, seed=4), draw(edges.num_nodes, heads)
    s, c = draw(edges.num_real).detach().sigmoid(), draw(heads)
    s[::3] = 0  # removed edges
    s = s.requires_grad_() if masked else None
    agree(
        lambda: gpu.attend(edges, z, a, b, s, c, gate=gate),
        lambda: reference.attend(edges, z, a, b, s, c, gate=gate),
        [z, a, b, c] + ([s] if masked else []),
    )


@pytest.mark.parametrize("gate", GATES)
def test_dropout_uses_the_same_pattern_forward_and_backward(gate: str) -> None:
    """The operator is linear in z, so ⟨up, out(z)⟩ must equal ⟨∂z, z⟩ when the seed fixes the pattern."""
    edges, heads, width = graph("dense"), 1, 8
    z, a, b = draw(edges.num_nodes, heads, width), draw(edges.num_nodes, heads, seed=4), draw(edges.num_nodes, heads)
    s, c, up = draw(edges.num_real).detach().sigmoid(), draw(heads), draw(edges.num_nodes, heads, width, seed=9)
    torch.manual_seed(3)
    out = gpu.attend(edges, z, a, b, s, c, gate=gate, dropout=0.4)
    (grad,) = torch.autograd.grad(out, z, up, retain_graph=True)
    torch.testing.assert_close((up * out).sum(), (grad * z).sum())
    whole = gpu.attend(edges, z, a, b, s, c, gate=gate)
    assert not torch.allclose(out, whole)
    torch.manual_seed(3)
    assert torch.equal(out, gpu.attend(edges, z, a, b, s, c, gate=gate, dropout=0.4))


@pytest.mark.slow
def test_dropout_keeps_the_mean() -> None:
    edges = graph("dense")
    n = edges.num_nodes
    z, zero = torch.ones(n, 1, 1, device=DEVICE), torch.zeros(n, 1, device=DEVICE)
    torch.manual_seed(0)
    draws = [
        gpu.attend(edges, z, zero, zero, None, torch.zeros(1, device=DEVICE), gate="attention", dropout=0.6)
        for _ in range(12)
    ]
    assert torch.stack(draws).mean().item() == pytest.approx(1, abs=0.15)


@pytest.mark.slow
def test_the_gradient_of_dropped_attention_by_finite_differences() -> None:
    edges = graph("sparse")
    inputs = [draw(edges.num_nodes, 1, 2), draw(edges.num_nodes, 1, seed=4), draw(edges.num_nodes, 1, seed=5)]
    s, c = draw(edges.num_real).detach().sigmoid().requires_grad_(), draw(1)

    def call(z: Tensor, a: Tensor, b: Tensor, s: Tensor, c: Tensor) -> Tensor:
        torch.manual_seed(7)
        return gpu.attend(edges, z, a, b, s, c, gate="message", dropout=0.3)

    assert torch.autograd.gradcheck(call, (*inputs, s, c), fast_mode=True)


def test_padding_changes_nothing_and_gets_no_gradient() -> None:
    edges = graph("sparse")
    padded = edges.padded(len(edges.src) + 11)
    a, b, w = draw(edges.num_nodes, 4), draw(edges.num_nodes, 4, seed=8), draw(4)
    h = draw(edges.num_nodes, 5)

    def out(which: Edges) -> list[Tensor]:
        logits = gpu.edge_mlp(which, a, b, None, w)
        s = logits.sigmoid()
        y = gpu.aggregate(which, gpu.gcn_weights(which, s), h)
        grads = torch.autograd.grad(y.square().sum() + which.mean(s), [logits, a, b, w, h])
        return [y, *grads]

    plain, filled = out(edges), out(padded)
    real = edges.num_real
    assert torch.count_nonzero(filled[1][real:]) == 0
    filled[1] = filled[1][:real]
    for x, y in zip(plain, filled, strict=True):
        torch.testing.assert_close(x, y)


@pytest.mark.parametrize(("rho", "spread"), [(0.05, 3.0), (0.5, 0.1), (0.9, 3.0), (0.9, 30.0), (0.999, 3.0)])
def test_the_budget_is_met(rho: float, spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE.type == "cpu":  # the interpreter runs programs one after another, so use few
        module = sys.modules["edgemask.nn.kernels.gpu.budget"]
        monkeypatch.setattr(module, "PROGRAMS", 2)
        monkeypatch.setattr(module, "TILE", 256)
    logits = (spread * draw(1000).detach()).float()
    count = torch.tensor([900], device=DEVICE)
    b = gpu.budget_root(logits, count, rho)
    assert (logits[:900].double() + b.double()).sigmoid().mean().item() == pytest.approx(rho, abs=2e-6)


def test_only_the_requested_gradients_are_computed() -> None:
    edges = graph("sparse")
    z, a, b = draw(edges.num_nodes, 2, 4, grad=False), draw(edges.num_nodes, 2), draw(edges.num_nodes, 2, seed=3)
    s, c = draw(edges.num_real).detach().sigmoid().requires_grad_(), draw(2, grad=False)
    args = (z, a.detach(), b.detach(), s, c)
    (ours,) = torch.autograd.grad(gpu.attend(edges, *args, gate="message").square().sum(), s)
    (plain,) = torch.autograd.grad(reference.attend(edges, *args, gate="message").square().sum(), s)
    torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("biased", [False, True])
def test_bias_and_nonlinearity(activation: str, biased: bool) -> None:
    h, bias = draw(19, 2, 70), draw(2, 70) if biased else None
    inputs = [h, bias] if biased else [h]
    agree(lambda: gpu.activate(h, bias, activation), lambda: reference.activate(h, bias, activation), inputs)


def test_dropout_at_nodes_is_one_fixed_pattern() -> None:
    h = draw(40, 30)
    torch.manual_seed(1)
    out = gpu.activate(h, None, "none", 0.3)
    kept = out != 0
    torch.testing.assert_close(out[kept], h[kept] / 0.7)
    assert kept.double().mean().item() == pytest.approx(0.7, abs=0.05)
    (grad,) = torch.autograd.grad(out.sum(), h)
    torch.testing.assert_close(grad, kept / torch.tensor(0.7, dtype=h.dtype))


def test_the_logits_of_heads() -> None:
    inputs = [draw(11, 3, 5), draw(3, 5), draw(3, 5, seed=2)]
    for part in (0, 1):
        agree(lambda: gpu.head_logits(*inputs)[part], lambda: reference.head_logits(*inputs)[part], inputs)  # noqa: B023
