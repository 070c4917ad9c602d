"""The networks as plain modules: edges in any order, masks in that order, sparse features, errors, public names."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn
from torch_geometric.nn import GCNConv

import edgemask.nn
from edgemask.errors import InputError
from edgemask.nn import GCN, MLP, Edges, MaskNet, SparseMatrix, budget_mask
from edgemask.nn.masknet import EdgeFacts
from tests.nn.graphs import INPUTS, N, pairs_of, random_edges, randomise

BACKBONES = ["EGC", "GAT", "GCN", "GIN", "GPR", "MLP", "SAGE", "SGC", "Mix"]

pytestmark = pytest.mark.numerical


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def shuffled():
    """Edges in random order, with weights, a mask, and features."""
    edge_index = pairs_of(random_edges())
    edge_index = edge_index[:, torch.randperm(edge_index.shape[1])]
    count = edge_index.shape[1]
    return torch.randn(N, INPUTS), edge_index, torch.rand(count) + 0.1, torch.rand(count)


# ---- the order of the edges ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BACKBONES)
def test_shuffled_edges_give_the_logits_of_prebuilt_ones(name):
    net, (x, edge_index, weight, mask) = randomise(getattr(edgemask.nn, name)(INPUTS, 8, 3)), shuffled()
    edges = Edges.of(edge_index, N, weight)
    assert torch.equal(edge_index[:, edges.order], edges.edge_index)
    assert torch.equal(edges.edge_index, pairs_of(random_edges()))
    expected = net(x, edges, mask=mask[edges.order])
    assert torch.equal(net(x, edge_index, weight, mask), expected)
    assert torch.equal(net(x, edge_index, edge_weight=weight * mask), net(x, Edges.of(edge_index, N, weight * mask)))
    assert torch.equal(net(x, edge_index), net(x, random_edges()))
    if name != "MLP":
        assert not torch.allclose(expected, net(x, edges, mask=mask))  # the mask is not in the order of the edges


@pytest.mark.parametrize("name", [name for name in BACKBONES if name != "MLP"])
def test_the_gradient_of_a_mask_has_the_order_of_the_given_edges(name):
    net, (x, edge_index, weight, mask) = randomise(getattr(edgemask.nn, name)(INPUTS, 8, 3)), shuffled()
    perm = torch.randperm(edge_index.shape[1])
    grads = []
    for order in (torch.arange(len(perm)), perm):
        m = mask[order].requires_grad_()
        grads.append(torch.autograd.grad(net(x, edge_index[:, order], weight[order], m).square().sum(), m)[0])
    torch.testing.assert_close(grads[0][perm], grads[1])


def test_the_logits_of_a_masknet_have_the_order_of_the_given_edges():
    net, (x, edge_index, _, _) = randomise(MaskNet(INPUTS, 8, 8)), shuffled()
    logits = net(x, edge_index)
    for column in range(0, edge_index.shape[1], 5):
        torch.testing.assert_close(net(x, edge_index[:, [column]]), logits[[column]])
    edges = Edges.of(edge_index, N)
    assert torch.equal(net(x, edges), logits[edges.order])


def test_a_gcn_equals_a_stack_of_pyg_layers_with_edge_weight():
    net, (x, edge_index, weight, _) = randomise(GCN(INPUTS, 8, 3)), shuffled()
    first, second = GCNConv(INPUTS, 8), GCNConv(8, 3)
    for conv, linear, bias in zip((first, second), net.linears, net.biases, strict=True):
        conv.lin.weight.data, conv.bias.data = linear.weight.data.t(), bias.data
    torch.testing.assert_close(
        net(x, edge_index, weight),
        second(first(x, edge_index, weight).relu(), edge_index, weight),
        rtol=1e-4,
        atol=1e-4,
    )


def test_an_edge_that_occurs_twice_counts_twice():
    net, (x, edge_index, _, _) = randomise(GCN(INPUTS, 8, 3)), shuffled()
    weight = torch.ones(edge_index.shape[1])
    weight[4] = 2
    torch.testing.assert_close(net(x, torch.cat([edge_index, edge_index[:, [4]]], 1)), net(x, edge_index, weight))


# ---- features and precision ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["coo", "csr", "matrix", "scipy"])
def test_sparse_features_give_the_logits_of_dense_ones(kind):
    net, mask_net, (x, edge_index, _, _) = randomise(GCN(INPUTS, 8, 3)), randomise(MaskNet(INPUTS)), shuffled()
    x = x * (x > 0)
    forms = {
        "coo": x.to_sparse_coo,
        "csr": x.to_sparse_csr,
        "matrix": lambda: SparseMatrix(x.to_sparse()),
        "scipy": lambda: SparseMatrix(sp.csr_array(x.numpy())),
    }
    sparse = forms[kind]()
    torch.testing.assert_close(net(sparse, edge_index), net(x, edge_index))
    torch.testing.assert_close(mask_net(sparse, edge_index), mask_net(x, edge_index))


@pytest.mark.parametrize("name", BACKBONES)
def test_networks_work_in_double_precision(name):
    net, (x, edge_index, weight, _) = randomise(getattr(edgemask.nn, name)(INPUTS, 8, 3)), shuffled()
    single = net(x, edge_index, weight)
    net = net.double()
    torch.testing.assert_close(net(x.double(), edge_index, weight).float(), single, rtol=1e-3, atol=1e-3)
    weight = weight.double().requires_grad_()
    if name != "MLP":
        assert torch.autograd.gradcheck(lambda w: net(x.double(), edge_index, w), weight)


def test_a_mask_with_a_budget_has_its_mean_and_its_gradient():
    logits = torch.randn(30, dtype=torch.float64, requires_grad=True)
    assert budget_mask(logits, 0.7).mean().item() == pytest.approx(0.7)
    assert torch.autograd.gradcheck(lambda z: budget_mask(z, 0.7), logits)
    assert budget_mask(logits, 1.0).tolist() == [1.0] * 30
    assert len(budget_mask(logits[:0], 0.5)) == 0
    for rho in (0, -0.5, 1.5):
        with pytest.raises(InputError, match="rho must be"):
            budget_mask(logits, rho)


# ---- errors ----------------------------------------------------------------------------------------------------------

X, PAIRS = torch.ones(4, 3), torch.tensor([[0, 1], [1, 2]])
EDGES = Edges.of(PAIRS, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X, torch.tensor([[0, 2], [1, 2]])), "edge 1 is a self-loop.*remove_self_loops"),
        ((X, torch.tensor([[0, 4], [1, 2]])), r"edge 1 is 4 → 2, but the nodes are 0 … 3"),
        ((X, torch.tensor([[0, -1], [1, 2]])), r"edge 1 is -1 → 2"),
        ((X, PAIRS.float()), r"dtype torch.int64, got torch.float32.*edge_index.long\(\)"),
        ((X, torch.zeros(5, 2, dtype=torch.int64)), r"shape 2 × M.*got \(5, 2\).*edge_index.t\(\)"),
        ((X, torch.zeros(3, dtype=torch.int64)), r"shape 2 × M.*got \(3,\)"),
        ((X, [[0], [1]]), "2 × M LongTensor or Edges, got list"),
        ((X, PAIRS, torch.ones(3)), r"edge_weight must have one value for each of the 2 edges, got shape \(3,\)"),
        ((X, PAIRS, torch.ones(2, 1)), r"edge_weight must have one value.*got shape \(2, 1\)"),
        ((X, PAIRS, torch.tensor([1, 2])), r"edge_weight must be floating-point, got torch.int64"),
        ((X, PAIRS, torch.tensor([1.0, -2.0])), r"weight of edge 1 \(1 → 2\) must be a finite number.*got -2.0"),
        ((X, PAIRS, torch.tensor([1.0, torch.nan])), "got nan"),
        ((X, PAIRS, [1.0, 2.0]), "edge_weight must be a tensor, got list"),
        ((X, PAIRS, None, torch.ones(3)), r"mask must have one value for each of the 2 edges, got shape \(3,\)"),
        ((X, PAIRS, None, torch.ones(2, dtype=torch.bool)), r"mask must be floating-point.*mask.float\(\)"),
        ((X, PAIRS, None, torch.ones(2).double()), r"mask must have the dtype of.*mask.to\(torch.float32\)"),
        ((X, EDGES, torch.ones(2)), "edge_weight must be None with Edges"),
        ((X, EDGES, None, torch.ones(3)), "mask must have one value for each of the 2 edges"),
        ((torch.ones(5, 3), EDGES), "x has 5 rows, but the edges have num_nodes = 4"),
        ((torch.ones(4, 2), PAIRS), "x has 2 columns, but the network has inputs = 3"),
        ((X.double(), PAIRS), r"x must have the dtype.*got torch.float64; convert it with x.to\(torch.float32\)"),
        ((X.long(), PAIRS), "x must have the dtype.*got torch.int64"),
        ((torch.ones(4), PAIRS), r"x must have shape N × features, got \(4,\)"),
        ((np.ones((4, 3)), PAIRS), r"x must be a tensor or a SparseMatrix, got ndarray.*torch.as_tensor\(x\)"),
        ((np.ones((4, 3)), EDGES), "x must be a tensor or a SparseMatrix, got ndarray"),
        ((X.to_sparse().requires_grad_(), PAIRS), r"sparse features are constant.*x.detach\(\)"),
    ],
)
def test_wrong_arguments_are_input_errors(arguments, message):
    with pytest.raises(InputError, match=message):
        GCN(3, 8, 2)(*arguments)


@pytest.mark.parametrize("edges", [PAIRS, EDGES])
def test_wrong_arguments_of_a_masknet_are_input_errors(edges):
    with pytest.raises(InputError, match="x has 2 columns, but the network has inputs = 3"):
        MaskNet(3)(X[:, :2], edges)
    with pytest.raises(InputError, match="takes the edge inputs origin, but none were given"):
        MaskNet(3, inputs_per_edge=("origin",))(X, edges)
    with pytest.raises(InputError, match="dtype"):
        MaskNet(3)(X.double(), edges)


def test_inputs_per_edge_need_prebuilt_edges():
    net, facts = MaskNet(3, inputs_per_edge=("origin",)), EdgeFacts.of(EDGES, ("origin",))
    assert net(X, EDGES, facts).shape == (2,)
    with pytest.raises(InputError, match=r"need Edges: use Edges.of"):
        net(X, PAIRS, facts)


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize(("setting", "value"), [("layers", 0), ("hidden", 0), ("classes", 1.5), ("dropout", 1.0)])
def test_wrong_settings_are_input_errors(name, setting, value):
    with pytest.raises(InputError, match=f"{setting} must be"):
        getattr(edgemask.nn, name)(**{"inputs": 3, "hidden": 8, "classes": 2, setting: value})


# ---- public names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", edgemask.nn.__all__)
def test_a_public_name_is_its_modules(name):
    module, _, attribute = edgemask.nn._PATHS[name].rpartition(".")
    assert getattr(edgemask.nn, name) is getattr(import_module(f"edgemask.nn.{module}"), attribute)
    assert name in dir(edgemask.nn)


def test_type_checkers_see_the_same_names():
    source = ast.parse(Path(edgemask.nn.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in source.body if isinstance(node, ast.If))
    imported = {a.asname or a.name: f"{node.module}.{a.name}" for node in block.body for a in node.names}
    assert imported == {name: f"edgemask.nn.{path}" for name, path in edgemask.nn._PATHS.items()}
    assert sorted(edgemask.nn.__all__) == sorted(imported)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'edgemask.nn' has no attribute 'nope'"):
        edgemask.nn.nope  # noqa: B018


@pytest.mark.slow
def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, edgemask.nn; sys.exit(any(n in sys.modules for n in ('torch', 'numpy', 'scipy', 'numba')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_modules_learn_in_a_plain_loop():
    x, edge_index, weight, _ = shuffled()
    net, y = MLP(INPUTS, 8, 3), torch.arange(N) % 3
    optimiser, losses = torch.optim.Adam(net.parameters(), 0.05), []
    for _ in range(60):
        loss = nn.functional.cross_entropy(net(x, edge_index, weight), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
