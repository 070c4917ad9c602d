"""The CPU loops of sums, GCN weights and edge scores: plain torch, finite differences, threads and padding."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numba
import numpy as np
import pytest
import scipy.sparse as sp
import torch

from edgemask.nn import backend, order
from edgemask.nn.aggregate import aggregate, gcn_weights
from edgemask.nn.budget import bracketed_newton
from edgemask.nn.compiled import blocks, exp
from edgemask.nn.edge_mlp import edge_mlp
from edgemask.nn.kernels import cpu, reference
from edgemask.nn.kernels.cpu import budget
from edgemask.nn.order import SourceOrder
from edgemask.nn.tensors import Edges
from edgemask.seeds import torch_stream

WIDTH = 5


def graph(nodes, density, hub=False):
    """Return random edges. With `hub`, node 3 also has an edge from every other node, and node 5 an edge to each."""
    into = torch.rand(nodes, nodes, generator=torch_stream(nodes, "edges")) < density
    if hub:
        into[3] = into[:, 5] = True
    into.fill_diagonal_(False)
    dst, src = into.nonzero().T
    return Edges.build(src, dst, nodes)


GRAPHS = {
    "no node": graph(0, 0),
    "one node": graph(1, 0),
    "no edge": graph(6, 0),
    "one edge": Edges.build(torch.tensor([4]), torch.tensor([1]), 6),
    "hub": graph(150, 0.001, hub=True),
    "sparse, most rows empty": graph(120, 0.004),
    "random": graph(40, 0.2),
    "complete": graph(9, 1.1),
}


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch_stream(seed, *shape), dtype=dtype).requires_grad_()


def mask(edges, dtype=torch.float64):
    """Return one value per real edge; every seventh value is 0."""
    s = torch.rand(edges.num_real, generator=torch_stream(0, "mask"), dtype=dtype)
    s[::7] = 0
    return s.requires_grad_()


def arguments(name, edges, dtype=torch.float64, width=WIDTH):
    """Return the arguments of an operator that follow the edges."""
    n, m = edges.num_nodes, edges.num_real
    ends = [draw(n, width, seed=i, dtype=dtype) for i in (1, 2)]
    return {
        "aggregate": lambda: [draw(len(edges.src), dtype=dtype), ends[0]],
        "gcn_weights": lambda: [mask(edges, dtype)],
        "edge_mlp": lambda: [*ends, draw(width, seed=4, dtype=dtype)],
        "edge_mlp with extra": lambda: [*ends, draw(m, width, seed=3, dtype=dtype), draw(width, seed=4, dtype=dtype)],
    }[name]()


def call(module, name, edges, given):
    if name == "edge_mlp":
        return module.edge_mlp(edges, given[0], given[1], None, given[2])
    return getattr(module, name.split()[0])(edges, *given)


OPERATORS = ("aggregate", "gcn_weights", "edge_mlp", "edge_mlp with extra")


def results(module, name, edges, given):
    """Return the output and the gradients of a fixed weighted sum of it."""
    out = call(module, name, edges, given)
    up = torch.randn(out.shape, generator=torch_stream(9, *out.shape), dtype=out.dtype)
    return [out, *torch.autograd.grad(out, given, up)]


def assert_same(ours, expected, tolerance):
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("kind", [g for g in GRAPHS if g != "no node"])
def test_output_and_gradients_equal_the_reference(kind, name):
    edges = GRAPHS[kind]
    given = arguments(name, edges)
    assert_same(results(cpu, name, edges, given), results(reference, name, edges, given), 1e-12)


@pytest.mark.parametrize("name", OPERATORS)
def test_a_graph_without_nodes_gives_an_empty_result(name):
    edges = GRAPHS["no node"]
    out, *grads = results(cpu, name, edges, arguments(name, edges))
    assert out.numel() == 0
    assert all(g.abs().sum() == 0 for g in grads)


@pytest.mark.parametrize("name", ["aggregate", "edge_mlp", "edge_mlp with extra"])
@pytest.mark.parametrize("width", [1, 3, 8, 64, 67])
def test_any_width(name, width):
    edges = GRAPHS["random"]
    given = arguments(name, edges, width=width)
    assert_same(results(cpu, name, edges, given), results(reference, name, edges, given), 1e-12)


@pytest.mark.parametrize("name", OPERATORS)
def test_single_precision_stays_single_and_equals_the_reference_up_to_rounding(name):
    edges = GRAPHS["hub"]
    given = arguments(name, edges, torch.float32)
    ours = results(cpu, name, edges, given)
    assert all(t.dtype == torch.float32 for t in ours)
    assert_same(ours, results(reference, name, edges, given), 1e-4)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("kind", ["one edge", "complete"])
def test_gradcheck(kind, name):
    edges = GRAPHS[kind]
    given = arguments(name, edges, width=2)
    if name == "gcn_weights":
        given = [(given[0].detach() + 0.1).requires_grad_()]
    assert torch.autograd.gradcheck(lambda *tensors: call(cpu, name, edges, tensors), given)


@pytest.mark.parametrize("name", OPERATORS)
def test_tensors_and_gradients_need_not_be_contiguous(name):
    edges = GRAPHS["random"]
    given = arguments(name, edges)
    apart = [torch.stack([t, t], dim=-1).detach()[..., 0].requires_grad_() for t in given]
    transposed = [t.detach().T.contiguous().T.requires_grad_() if t.dim() == 2 else t for t in given]
    expected = results(reference, name, edges, given)
    for strided in (apart, transposed):
        out = call(cpu, name, edges, strided)
        up = torch.randn(out.shape, generator=torch_stream(9, *out.shape), dtype=out.dtype)
        up = torch.stack([up, up], dim=-1)[..., 1]
        assert_same([out, *torch.autograd.grad(out, strided, up)], expected, 1e-12)


@pytest.mark.parametrize("name", OPERATORS)
def test_each_gradient_is_the_same_when_requested_alone(name):
    edges = GRAPHS["random"]
    given = arguments(name, edges)
    together = results(cpu, name, edges, given)[1:]
    for i, expected in enumerate(together):
        one = [t.detach().requires_grad_(i == j) for j, t in enumerate(given)]
        out = call(cpu, name, edges, one)
        up = torch.randn(out.shape, generator=torch_stream(9, *out.shape), dtype=out.dtype)
        out.backward(up)
        assert all((t.grad is not None) == (i == j) for j, t in enumerate(one))
        torch.testing.assert_close(one[i].grad, expected)


@pytest.mark.parametrize(("name", "wanted"), [("aggregate", 0), ("edge_mlp", 1)])
def test_edges_are_not_sorted_by_source_for_gradients_that_do_not_need_it(name, wanted):
    edges = graph(30, 0.2)
    given = [t.detach().requires_grad_(i == wanted) for i, t in enumerate(arguments(name, edges))]
    call(cpu, name, edges, given).sum().backward()
    assert "by_source" not in vars(edges)


@pytest.mark.parametrize("name", OPERATORS)
def test_padding_does_not_change_results(name):
    edges = GRAPHS["random"]
    padded = edges.padded(len(edges.src) + 13)
    given = arguments(name, edges)
    per_edge = {"aggregate": [0], "gcn_weights": [0], "edge_mlp with extra": [2]}.get(name, [])
    longer = list(given)
    for i in per_edge:
        filling = torch.full((13, *given[i].shape[1:]), 7.0, dtype=given[i].dtype)
        longer[i] = torch.cat([given[i].detach(), filling]).requires_grad_()
    out = call(cpu, name, edges, given)
    got = call(cpu, name, padded, longer)
    assert torch.equal(got[: len(out)], out)
    up = torch.randn(got.shape, generator=torch_stream(9, *got.shape), dtype=got.dtype)
    ours, expected = torch.autograd.grad(got, longer, up), torch.autograd.grad(out, given, up[: len(out)])
    for a, b in zip(ours, expected, strict=True):
        assert torch.equal(a[: len(b)], b)
        assert not a[len(b) :].any()


@pytest.mark.parametrize("name", OPERATORS)
def test_mixed_or_unsupported_precision_raises_an_error_that_names_the_tensors(name):
    edges = GRAPHS["random"]
    given = arguments(name, edges)
    if len(given) > 1:
        with pytest.raises(TypeError, match=r"must all be float32 or all float64, got .*torch.float32"):
            call(cpu, name, edges, [given[0].float(), *given[1:]])
    with pytest.raises(TypeError, match=r"must all be float32 or all float64, got .*torch.bfloat16"):
        call(cpu, name, edges, [t.bfloat16() for t in given])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize(("shape", "width"), [((7, 4), 3), ((1, 50), 8), ((30, 9), 1), ((0, 4), 2)])
def test_a_sparse_product_equals_the_dense_one(shape, width, index, dtype):
    matrix = sp.random_array(shape, density=0.5, rng=0, format="csr")
    parts = torch.tensor(matrix.indptr, dtype=index), torch.tensor(matrix.indices, dtype=index)
    values, w = torch.tensor(matrix.data, dtype=dtype), draw(shape[1], width, dtype=dtype).detach()
    dense = torch.tensor(matrix.toarray(), dtype=dtype) @ w
    torch.testing.assert_close(cpu.product(*parts, values, w), dense)
    torch.testing.assert_close(reference.product(*parts, values, w), dense)


@pytest.mark.parametrize("count", [1, 7, 200, 5000])  # the last has several keys per bucket
@pytest.mark.parametrize("entries", [0, 1, 500, 20_000])
@pytest.mark.parametrize("small", [0, order.SMALL], ids=["in buckets", "directly"])
def test_source_order_is_a_stable_sort(count, entries, small, monkeypatch):
    monkeypatch.setattr(order, "SMALL", small)
    keys = torch.randint(count, (entries,), generator=torch_stream(count, "keys"))
    source_order = SourceOrder.of(keys, count)
    expected = torch.sort(keys, stable=True).indices
    assert torch.equal(source_order.order, expected)
    assert torch.equal(source_order.starts.diff(), torch.bincount(keys, minlength=count))
    assert source_order.starts[0] == 0
    for values in (torch.arange(entries), torch.rand(entries), torch.rand(entries, 3, dtype=torch.float64)):
        assert torch.equal(source_order(values), values[expected])
    longer = torch.rand(entries + 3)  # rows beyond the entries are padding
    assert torch.equal(source_order(longer)[:entries], longer[:entries][expected])


@pytest.mark.parametrize("name", ["random", "hub", "no edge"])
def test_weights_without_a_mask_are_computed_once_for_each_precision(name):
    edges = Edges(*(getattr(GRAPHS[name], f) for f in ("num_nodes", "src", "dst", "real", "origin")))
    first, h = gcn_weights(edges), draw(edges.num_nodes, WIDTH, dtype=torch.float32)
    assert gcn_weights(edges) is first
    ones = torch.ones(edges.num_real)
    torch.testing.assert_close(first, gcn_weights(edges, ones))
    for _ in range(2):  # the second gradient uses the weights that the first one sorted
        (grad,) = torch.autograd.grad(aggregate(edges, first, h).square().sum(), h)
        (expected,) = torch.autograd.grad(aggregate(edges, first.clone(), h).square().sum(), h)
        assert torch.equal(grad, expected)
    torch.set_default_dtype(torch.float64)
    try:
        assert gcn_weights(edges).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert gcn_weights(edges) is first


def test_weights_of_padded_edges_are_not_kept():
    padded = GRAPHS["random"].padded(len(GRAPHS["random"].src) + 5)
    assert gcn_weights(padded) is not gcn_weights(padded)
    assert "derived" not in padded.__dict__


def test_blocks_follow_a_change_in_place():
    indptr = torch.arange(0, 400, 2)
    first = blocks(indptr)
    assert blocks(indptr) is first
    indptr[100:] += 1000
    assert np.array_equal(blocks(indptr), blocks(indptr.clone()))
    assert not np.array_equal(blocks(indptr), first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rho", [0.01, 0.5, 0.7, 0.999])
@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("size", [1, 2, 5000])
def test_the_root_of_the_budget_is_that_of_the_plain_loop_to_the_bit(size, spread, rho, dtype):
    logits = spread * torch.randn(size, generator=torch_stream(size, "logits"), dtype=dtype)
    assert torch.equal(budget.root(logits, rho), bracketed_newton(logits, rho))


@numba.njit
def exps(x):
    out = np.empty_like(x)
    for i in range(len(x)):
        out[i] = exp(x[i])
    return out


def test_the_exponential_is_correct_up_to_rounding():
    x = np.linspace(-87, 80, 1_000_001)
    exact = np.exp(x.astype(np.longdouble))  # the last bit of NumPy's own float64 result depends on the CPU
    assert (np.abs(exps(x) - exact) <= np.spacing(exact.astype(float))).all()
    single = x.astype(np.float32)
    np.testing.assert_allclose(exps(single), np.exp(single.astype(float)), rtol=3e-7)
    assert exps(np.array([-87.1, -1e30, -np.inf], np.float32)).tolist() == [0, 0, 0]
    assert np.isnan(exps(np.array([np.nan], np.float32))).all()


# ---- threads ----------------------------------------------------------------------------------------


@pytest.fixture
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="needs two cores")
@pytest.mark.parametrize("name", OPERATORS)
def test_results_are_bitwise_equal_for_any_number_of_threads(name):
    edges = graph(300, 0.04, hub=True)
    given = arguments(name, edges, torch.float32, width=33)

    def run(threads):
        torch.set_num_threads(threads)
        return results(cpu, name, edges, given)

    for one, two in zip(run(1), run(2), strict=True):
        assert torch.equal(one, two)


# ---- which backend ----------------------------------------------------------------------------------


def test_cpu_tensors_use_the_loops():
    edges = GRAPHS["random"]
    assert aggregate(edges, *arguments("aggregate", edges)).grad_fn.name() == "_AggregateBackward"
    assert gcn_weights(edges, mask(edges)).grad_fn.name() == "_GCNWeightsBackward"
    a, b, w = arguments("edge_mlp", edges)
    assert edge_mlp(edges, a, b, None, w).grad_fn.name() == "_EdgeMLPBackward"
    assert backend.backend(a) is cpu


def on(device, dtype=torch.float32):
    """Return an object with the attributes of a tensor that `backend` reads."""
    return SimpleNamespace(device=torch.device(device), dtype=dtype)


@pytest.fixture
def _clear_triton_cache():
    backend._has_triton.cache_clear()
    yield
    backend._has_triton.cache_clear()


@pytest.mark.usefixtures("_clear_triton_cache")
def test_a_gpu_uses_triton_except_in_double_precision(monkeypatch):
    monkeypatch.setattr(backend, "import_module", lambda name: name)
    assert backend.backend(on("cuda")).endswith(".gpu")
    assert backend.backend(on("cuda", torch.float64)).endswith(".reference")
    assert backend.backend(on("mps")).endswith(".reference")


@pytest.mark.usefixtures("_clear_triton_cache")
def test_without_triton_a_gpu_uses_plain_torch_and_warns_once(monkeypatch, recwarn):
    monkeypatch.setitem(sys.modules, "triton", None)  # importing it fails
    assert [backend.backend(on("cuda")) for _ in range(3)] == [reference] * 3
    (warning,) = recwarn.list
    assert warning.category is RuntimeWarning
    assert "Triton cannot be imported" in str(warning.message)
