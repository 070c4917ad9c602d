"""Algorithm 1: what each step updates, the bounds on the adversary, and an epoch against a plain version."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from edgemask.config import EDGE_INPUTS, Recipe
from edgemask.enrich import Sampler, enrich
from edgemask.graph import Graph
from edgemask.methods.edgemask import Game, collapsed
from edgemask.methods.execution import seeded
from edgemask.methods.sources import Source
from edgemask.nn.budget import budget_shift
from edgemask.nn.gat import MaskedGAT
from edgemask.nn.masknet import MaskNet
from edgemask.nn.tensors import Edges, GraphTensors
from edgemask.seeds import derive, torch_stream

CPU = torch.device("cpu")
N, INPUTS = 30, 4
TINY = Recipe(
    k=3, clusters=2, knn_ratio=0.5, heads=2, hidden=4, mask_projection=6, mask_hidden=4, n_descent=2, n_ascent=2
)


def homophilous(name="g", seed=0):
    """Return a graph with two classes, 90 % of edges inside a class, and weakly informative features."""
    rng = np.random.default_rng(seed)
    y = np.arange(N) % 2
    src, dst = rng.integers(0, N, (2, 400))
    kept = (src != dst) & ((y[src] == y[dst]) | (rng.random(400) < 0.1))
    edges = np.stack([src, dst])[:, kept][:, :120]
    x = rng.normal(size=(N, INPUTS)) + 0.5 * y[:, None]
    return Graph(name, x, edges, y, undirected=True, duplicates="merge")


def source(graph, recipe=None):
    """Return a source. With a recipe, its edges are sampled from the enriched graph."""
    sampler = Sampler(enrich(graph, k=recipe.k, clusters=recipe.clusters), CPU) if recipe else None
    return Source(GraphTensors.of(graph), torch.arange(0, N, 3), sampler)


def train_epochs(game, sources, epochs):
    records = []
    for epoch in range(epochs):
        with seeded(derive(game.seed, "epoch", epoch), CPU):
            records.append(game.update(sources, epoch))
    return records


def game(recipe=TINY, seed=0):
    return Game(recipe, INPUTS, 2, seed, CPU)


def weights(network):
    return copy.deepcopy(network.state_dict())


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


# ---- the two kinds of step ----------------------------------------------------------------------------


def mask_gradient(recipe, y):
    """Return the MaskNet's gradient in one ascent step on the homophilous graph with labels `y`."""
    g, src = game(recipe), source(homophilous().replace(y=y))
    edges = src.domain.edges
    g.mask_step(src, edges, g.mask(g.networks["mask"](src.domain.x, edges), edges))
    return torch.cat([p.grad.flatten() for p in g.networks["mask"].parameters()])


@pytest.mark.parametrize("gate", ["message", "attention", "softmax"])
@pytest.mark.parametrize("adversarial", [True, False])
def test_the_labels_reach_the_masknet_only_in_an_adversarial_game(gate, adversarial):
    recipe, y = TINY.replace(gate=gate, adversarial=adversarial), np.arange(N) % 2
    before, after = (mask_gradient(recipe, labels) for labels in (y, np.random.default_rng(0).permutation(y)))
    assert before.abs().max() > 0
    assert torch.equal(before, after) != adversarial


@pytest.mark.parametrize("bound", ["penalty", "budget"])
def test_the_adversary_raises_the_loss(bound):
    g, src = game(TINY.replace(bound=bound, lam=0.0, lr=0.02, mask_lr=0.02)), source(homophilous())
    edges, losses = src.domain.edges, []
    with seeded(0, CPU):
        for _ in range(30):
            g.task_step(src, edges, None)
    for _ in range(15):  # the TaskNet does not change
        s = g.mask(g.networks["mask"](src.domain.x, edges), edges)
        losses.append(float(g.mask_step(src, edges, s)))
    assert losses[-1] > losses[0] + 0.02


def test_an_ascent_step_moves_the_masknet_alone():
    g, src = game(), source(homophilous())
    train_epochs(g, [src], 1)
    task, mask = (weights(g.networks[name]) for name in ("task", "mask"))
    gradients = [p.grad.clone() for p in g.networks["task"].parameters()]
    edges = src.domain.edges
    g.mask_step(src, edges, g.mask(g.networks["mask"](src.domain.x, edges), edges))
    assert same(weights(g.networks["task"]), task)
    assert not same(weights(g.networks["mask"]), mask)
    assert all(torch.equal(p.grad, old) for p, old in zip(g.networks["task"].parameters(), gradients, strict=True))
    assert all(p.requires_grad for p in g.networks["task"].parameters())


def test_a_descent_step_moves_the_tasknet_alone():
    g, src = game(), source(homophilous())
    task, mask = (weights(g.networks[name]) for name in ("task", "mask"))
    g.task_step(src, src.domain.edges, torch.rand(src.domain.edges.num_real))
    assert not same(weights(g.networks["task"]), task)
    assert same(weights(g.networks["mask"]), mask)


@pytest.mark.parametrize("rho", [0.05, 0.95])
def test_the_dual_variable_follows_the_constraint_and_may_turn_negative(rho):
    g, src = game(TINY.replace(bound="dual", rho=rho, dual_lr=0.1, lam=0.001)), source(homophilous())
    edges = src.domain.edges
    s = g.mask(g.networks["mask"](src.domain.x, edges), edges)
    g.mask_step(src, edges, s)
    assert g.lam == pytest.approx(0.001 + 0.1 * (s.mean().item() - rho))
    assert (g.lam < 0) == (rho == 0.95)


# ---- one epoch ----------------------------------------------------------------------------------------


def algorithm_1(recipe, sources, seed, epochs):
    """Run the paper's Algorithm 1 with both kinds of sampled edges, without using code of `Game`."""
    with seeded(derive(seed, "init"), CPU):
        task = MaskedGAT(INPUTS, recipe.hidden, 2, recipe.layers, recipe.dropout, heads=recipe.heads)
        mask = MaskNet(INPUTS, recipe.mask_projection, recipe.mask_hidden)
    opt_task = torch.optim.Adam(task.parameters(), recipe.lr, weight_decay=recipe.weight_decay)
    opt_mask = torch.optim.Adam(mask.parameters(), recipe.mask_lr)
    for epoch in range(epochs):
        with seeded(derive(seed, "epoch", epoch), CPU):
            for i in sources:
                x, y, train = i.domain.x, i.domain.y, i.train
                stream = torch_stream(seed, "sample", i.domain.name, epoch)
                drawn = i.sampler.sample(stream, knn_ratio=recipe.knn_ratio, spectral_ratio=recipe.spectral_ratio)
                edges = Edges.build(drawn.src, drawn.dst, N, drawn.origin)
                task.train()
                for _ in range(recipe.n_descent):
                    s = torch.sigmoid(mask(i.domain.x, edges)).detach()
                    loss = F.cross_entropy(task(x, edges, mask=s)[train], y[train])
                    opt_task.zero_grad()
                    loss.backward()
                    opt_task.step()
                task.eval()
                for _ in range(recipe.n_ascent):
                    s = torch.sigmoid(mask(i.domain.x, edges))
                    loss = F.cross_entropy(task(x, edges, mask=s)[train], y[train])
                    opt_mask.zero_grad()
                    (-loss + recipe.lam * s.mean()).backward(inputs=list(mask.parameters()))
                    opt_mask.step()
    return task, mask


def test_an_epoch_is_algorithm_1_to_the_bit():
    sources = [source(homophilous("a", 0), TINY), source(homophilous("b", 1), TINY)]
    g = game(seed=3)
    train_epochs(g, sources, 2)
    task, mask = algorithm_1(TINY, sources, seed=3, epochs=2)
    assert same(g.networks["task"].state_dict(), task.state_dict())
    assert same(g.networks["mask"].state_dict(), mask.state_dict())


def test_a_seed_decides_everything():
    sources = [source(homophilous(), TINY)]
    runs = [game(TINY, seed) for seed in (0, 0, 1)]
    records = [train_epochs(g, sources, 3) for g in runs]
    assert records[0] == records[1] != records[2]
    assert same(weights(runs[0].networks), weights(runs[1].networks))


def test_a_record_tells_losses_masks_by_origin_gradients_and_lambda():
    (record,) = train_epochs(game(), [source(homophilous(), TINY)], 1)
    assert record.keys() == {
        *("loss g", "adversary g", "lambda", "gradient task g", "gradient mask g"),
        *("mask original g", "mask knn g", "mask spectral g"),
    }
    assert all(np.isfinite(value) for value in record.values())
    assert all(0 < value < 1 for key, value in record.items() if key.startswith("mask "))


def test_clipping_bounds_the_gradients_of_both_networks():
    (record,) = train_epochs(game(TINY.replace(clip=1e-4)), [source(homophilous())], 1)
    for network in ("task", "mask"):
        assert 0 < record[f"gradient {network} g"] <= 1.0001e-4


def test_collapse_is_read_from_the_record():
    record = {"mask original a": 0.019, "mask original b b": 0.01, "mask original c": 0.02, "mask knn d": 0.0}
    assert collapsed(record) == ["a", "b b"]


def test_without_a_mask_the_schedule_stays():
    g, src = game(TINY.replace(mask=False)), source(homophilous())
    assert list(g.networks) == list(g.optimisers) == ["task"]
    assert train_epochs(g, [src], 1)[0].keys() == {"loss g"}


def test_a_masknet_may_see_all_edge_inputs():
    recipe = TINY.replace(mask_inputs=EDGE_INPUTS)
    g, src = game(recipe), source(homophilous(), TINY)
    before = weights(g.networks["mask"])
    train_epochs(g, [src], 1)
    after = weights(g.networks["mask"])
    assert after["from_edge.weight"].shape == (4, 9)
    assert not torch.equal(before["from_edge.weight"], after["from_edge.weight"])


@pytest.mark.parametrize("bound", ["penalty", "dual", "budget"])
def test_a_source_without_edges_leaves_nothing_to_mask(bound):
    bare = homophilous().replace(edges=np.empty((2, 0), dtype=int))
    g = game(TINY.replace(bound=bound))
    before = weights(g.networks["mask"])
    assert train_epochs(g, [source(bare)], 1)[0].keys() == {"loss g"}
    assert same(weights(g.networks["mask"]), before)
    assert g.lam == TINY.lam


def test_a_backbone_that_ignores_edges_is_refused():
    with pytest.raises(ValueError, match=r"backbone = 'mlp' ignores edges.*mask = False"):
        game(TINY.replace(backbone="mlp"))


def test_the_mask_of_a_graph_is_without_randomness():
    g, src = game(TINY), source(homophilous())
    first, second = (g.mask_of(src.domain, src.domain.edges) for _ in range(2))
    assert torch.equal(first, second)
    assert not first.requires_grad


# ---- bounds on the adversary --------------------------------------------------------------------------

LONG = TINY.replace(lr=0.02, mask_lr=0.05, dropout=0.0, attention_dropout=0.0)


def test_with_the_message_gate_the_fixed_penalty_collapses():
    records = train_epochs(game(LONG), [source(homophilous())], 15)
    assert records[0]["mask original g"] > 0.3
    assert collapsed(records[-1]) == ["g"]


def test_the_budget_keeps_the_mean_while_the_adversary_moves_the_mass():
    g, src = game(LONG.replace(bound="budget", rho=0.6)), source(homophilous())
    first = g.mask_of(src.domain, src.domain.edges)
    for record in train_epochs(g, [src], 15):
        assert record["mask original g"] == pytest.approx(0.6, abs=1e-5)
    assert (g.mask_of(src.domain, src.domain.edges) - first).abs().max() > 0.2


def test_the_dual_variable_brings_a_collapsed_mask_back():
    g, src = game(TINY.replace(bound="dual", rho=0.6, mask_lr=0.05, adversarial=False)), source(homophilous())
    torch.nn.init.constant_(g.networks["mask"].score.bias, -5.0)
    edges, means = src.domain.edges, []
    for _ in range(60):
        s = g.mask(g.networks["mask"](src.domain.x, edges), edges)
        g.mask_step(src, edges, s)
        means.append(s.mean().item())
    assert means[0] < 0.02
    assert max(means) > 0.6


RHOS = [0.01, 0.3, 0.5, 0.9, 0.999]


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("count", [1, 2, 1000])
@pytest.mark.parametrize("scale", [0.0, 1.0, 20.0])
def test_the_budget_is_met(rho, count, scale):
    logits = scale * torch.randn(count, generator=torch.Generator().manual_seed(0))
    s = (logits + budget_shift(logits, rho)).sigmoid()
    assert s.double().mean().item() == pytest.approx(rho, abs=1e-6)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize(
    "logits",
    [
        torch.tensor([-1e4, 1e4]).repeat(50),  # no values in between: the mean is flat over a wide range of b
        torch.tensor([*[-1e4] * 99, 1e4]),
        1e4 * torch.randn(100, generator=torch.Generator().manual_seed(0)),
        -torch.linspace(0, 9, 100).exp(),
    ],
    ids=["two heaps", "one above", "wide", "skewed"],
)
def test_the_budget_is_met_by_extreme_logits(logits, rho):
    logits = logits.double().requires_grad_()
    s = (logits + budget_shift(logits, rho)).sigmoid()
    assert s.mean().item() == pytest.approx(rho, abs=1e-6)
    s[0].backward()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("logit", [-50.0, 0.0, 50.0])
def test_a_budget_of_one_keeps_every_edge(logit):
    logits = torch.tensor([logit, -1.0, 2.0])
    assert torch.equal((logits + budget_shift(logits, 1.0)).sigmoid(), torch.ones(3))


def budgeted(logits):
    return (logits + budget_shift(logits, 0.4)).sigmoid()


def test_the_gradient_through_the_budget_is_that_of_finite_differences():
    logits = 3 * torch.randn(12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(budgeted, logits.requires_grad_())


def test_the_mean_of_a_budgeted_mask_has_no_gradient():
    logits = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (grad,) = torch.autograd.grad(budgeted(logits).mean(), logits)
    torch.testing.assert_close(grad, torch.zeros_like(grad), rtol=0, atol=1e-12)
