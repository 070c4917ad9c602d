"""Shared behaviour of methods: training in batches, steps on the mean of the shards, records that are means."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.enrich import Sampler, enrich
from edgemask.methods import sources as sources_module
from edgemask.methods.edgemask import Game
from edgemask.methods.erm import ERM
from edgemask.methods.execution import seeded
from edgemask.methods.sources import Source, make_source
from edgemask.nn.tensors import GraphTensors, skeleton
from edgemask.training.fit import Fit

CPU = torch.device("cpu")
A, B, _ = demo_family(80).values()
TINY = Recipe(
    backbone="gcn", hidden=8, mask_projection=8, mask_hidden=8, k=3, clusters=5, knn_ratio=0.5, spectral_ratio=0.1,
    lr=0.01, mask_lr=0.01, n_descent=2, n_ascent=2, bound="budget", rho=0.7, epochs=3, batch_size=30,
)  # fmt: skip
NO_DROPOUT = TINY.replace(dropout=0.0, attention_dropout=0.0)


def source(graph, *, batch=True, nodes=80) -> Source:
    domain = skeleton(graph, CPU) if batch else GraphTensors.of(graph)
    return Source(domain, torch.arange(nodes), Sampler(enrich(graph, k=3, clusters=5), CPU))


def weights(method, *names: str) -> torch.Tensor:
    networks = [method.networks[name] for name in names or method.networks]
    return torch.cat([p.detach().flatten() for network in networks for p in network.parameters()])


def trained(recipe: Recipe, make=Game, graphs=(A, B), epochs=2):
    method, sources = make(recipe, 64, 5, 0, CPU), [source(g, batch=recipe.batch_size is not None) for g in graphs]
    records = []
    for epoch in range(epochs):
        with seeded(epoch, CPU):
            records.append(method.update(sources, epoch))
    return method, records


# ---- one step on the mean of the shards ------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 3])
def test_a_step_of_risk_minimisation_is_on_the_mean_over_shards_of_the_mean_over_sources(shards):
    recipe = NO_DROPOUT.replace(shards=shards, batch_size=80)
    method, by_hand, sources = ERM(recipe, 64, 5, 0, CPU), ERM(recipe, 64, 5, 0, CPU), [source(A), source(B)]
    batches, task = by_hand.batches(sources, 0), by_hand.networks["task"]
    assert batches.rounds == 1
    losses = []
    for shard in range(shards):
        for i in range(2):
            part, edges = batches.part(i, 0, shard)
            losses.append(F.cross_entropy(task(part.domain.x, edges)[part.train], part.domain.y[part.train]))
    (sum(losses) / (2 * shards)).backward()
    by_hand.optimisers["task"].step()
    record = method.update(sources, 0)
    torch.testing.assert_close(weights(method), weights(by_hand))
    assert record["loss alpha"] == pytest.approx(np.mean([v.item() for v in losses[::2]]))


@pytest.mark.parametrize("make", [ERM, Game])
@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_a_batch_of_all_nodes_with_all_neighbours_is_the_whole_graph(make, backbone):
    recipe = NO_DROPOUT.replace(batch_size=80, backbone=backbone, heads=2)
    batched, records = trained(recipe, make)
    whole, expected = trained(recipe.replace(batch_size=None), make)
    torch.testing.assert_close(weights(batched), weights(whole), rtol=1e-3, atol=1e-4)
    for mine, theirs in zip(records, expected, strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            assert value == pytest.approx(theirs[name], rel=1e-2, abs=1e-3), name


def test_in_the_game_every_step_of_either_network_is_on_the_mean_of_the_shards():
    recipe = NO_DROPOUT.replace(shards=2, batch_size=80, bound="penalty", lam=0.3)
    game, by_hand = Game(recipe, 64, 5, 0, CPU), Game(recipe, 64, 5, 0, CPU)
    parts = [by_hand.batches([source(A)], 0).part(0, 0, shard) for shard in range(2)]
    task, mask = by_hand.networks["task"], by_hand.networks["mask"]

    def loss(part, edges, s):
        return F.cross_entropy(task(part.domain.x, edges, mask=s)[part.train], part.domain.y[part.train])

    for _ in range(recipe.n_descent):
        by_hand.optimisers["task"].zero_grad()
        sum(loss(p, e, mask(p.domain.x, e).sigmoid().detach()) for p, e in parts).div(2).backward()
        by_hand.optimisers["task"].step()
    for _ in range(recipe.n_ascent):
        by_hand.optimisers["mask"].zero_grad()
        masks = [mask(p.domain.x, e).sigmoid() for p, e in parts]
        sum(-loss(p, e, s) + 0.3 * s.mean() for (p, e), s in zip(parts, masks, strict=True)).div(2).backward()
        by_hand.optimisers["mask"].step()
    game.update([source(A)], 0)
    torch.testing.assert_close(weights(game), weights(by_hand), rtol=1e-4, atol=1e-5)


def test_the_dual_variable_moves_by_the_mean_of_the_shards():
    recipe = NO_DROPOUT.replace(shards=2, batch_size=80, bound="dual", rho=0.2, n_ascent=1)
    game = Game(recipe, 64, 5, 0, CPU)
    parts = [game.batches([source(A)], 0).part(0, 0, shard) for shard in range(2)]
    means = [game.networks["mask"](p.domain.x, e).sigmoid().mean().item() for p, e in parts]
    game.update([source(A)], 0)
    assert float(game.lam) == pytest.approx(recipe.lam + recipe.dual_lr * (np.mean(means) - 0.2), abs=1e-6)


@pytest.mark.parametrize("bound", ["penalty", "dual", "budget"])
def test_a_shard_without_edges_takes_part_and_leaves_the_masknet_alone(bound):
    bare = A.replace(edges=np.empty((2, 0), dtype=int))
    recipe = TINY.replace(shards=2, bound=bound, k=0, clusters=0)
    game = Game(recipe, 64, 5, 0, CPU)
    before, task = weights(game, "mask"), weights(game, "task")
    record = game.update([Source(skeleton(bare, CPU), torch.arange(80), None)], 0)
    assert record.keys() == {"loss alpha"}
    assert torch.equal(weights(game, "mask"), before)
    assert not torch.equal(weights(game, "task"), task)


def test_a_shard_without_edges_halves_the_others_gradient():
    game = Game(NO_DROPOUT.replace(shards=2, n_ascent=1, lr=1e-12), 64, 5, 0, CPU)
    part, bare = (
        game.batches([Source(skeleton(g, CPU), torch.arange(80), None)], 0).part(0, 0, 0)
        for g in (A, A.replace(edges=np.empty((2, 0), dtype=int)))
    )
    gradients = []
    for other in (part, bare):
        mask = copy.deepcopy(game.networks["mask"].state_dict())
        game.train_on_batch({0: part, 1: other}, 0, 0)
        gradients.append(torch.cat([p.grad.flatten() for p in game.networks["mask"].parameters() if p.requires_grad]))
        game.networks["mask"].load_state_dict(mask)
    assert gradients[0].abs().max() > 1e-5
    torch.testing.assert_close(gradients[1], gradients[0] / 2, rtol=1e-3, atol=1e-6)


# ---- an epoch --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [ERM, Game])
def test_an_epochs_record_is_the_mean_over_its_batches(make, monkeypatch):
    losses = []
    risk = make.risk

    def listen(self, src, edges, s=None):
        found = risk(self, src, edges, s)
        losses.append((src.domain.name, found.item(), len(src.train), src.batch))
        return found

    monkeypatch.setattr(make, "risk", listen)
    _, (record,) = trained(TINY.replace(n_descent=1), make, epochs=1)
    assert len(losses) == 6  # 80 nodes in batches of at most 30, from two sources
    assert {size for _, _, size, _ in losses} == {26, 27}
    assert all(batch for *_, batch in losses)
    for name in ("alpha", "beta"):
        assert record[f"loss {name}"] == pytest.approx(np.mean([v for n, v, *_ in losses if n == name]))


@pytest.mark.parametrize("make", [ERM, Game])
@pytest.mark.parametrize("changes", [{}, {"backbone": "gat", "heads": 2, "fan_out": 3}])
def test_a_seed_decides_everything_and_the_callers_random_state_nothing(make, changes):
    runs = []
    for state in (0, 1):
        torch.manual_seed(state)
        runs.append(trained(TINY.replace(shards=2, **changes), make)[0])
    assert torch.equal(weights(runs[0]), weights(runs[1]))


@pytest.mark.slow
@pytest.mark.parametrize(("make", "backbone"), [(ERM, "gcn"), (ERM, "gat"), (ERM, "gin"), (ERM, "sgc"), (Game, "gcn")])
def test_the_loss_falls_under_sampling(make, backbone):
    recipe = NO_DROPOUT.replace(backbone=backbone, heads=2, fan_out=4, shards=2, lr=0.02)
    _, records = trained(recipe, make, epochs=8)
    losses = [r["loss alpha"] for r in records]
    assert np.mean(losses[-2:]) < 0.93 * np.mean(losses[:2])


@pytest.mark.parametrize("inputs", [("origin", "structure", "predictions")])
def test_a_masknet_may_see_edge_inputs_of_a_batch(inputs):
    _, records = trained(TINY.replace(mask_inputs=inputs, inference_batch=7), epochs=1)
    assert all(np.isfinite(v) for v in records[0].values())


@pytest.mark.slow
def test_a_fit_in_batches_resumes_to_the_bit(tmp_path):
    recipe = TINY.replace(shards=2, fan_out=5, average=0.2, inference_batch=25, select="source-val", epochs=4)
    whole, choice = Fit(Game, recipe, [A, B]).run()
    path = tmp_path / "run.ckpt"

    def stop(trainer, stage):
        if trainer.epoch == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        Fit(Game, recipe, [A, B], checkpoint_path=path, checkpoint_every=2, on_epoch=stop).run()
    resumed, again = Fit(Game, recipe, [A, B], checkpoint_path=path).run()
    assert again == choice
    assert resumed.history == whole.history
    assert torch.equal(weights(resumed.method), weights(whole.method))


def test_shards_only_save_memory_when_nothing_is_random():
    """Without dropout, two shards of half the nodes each equal one batch, up to the weight of a single node."""
    one = trained(NO_DROPOUT.replace(batch_size=80, bound="penalty"), ERM)[0]
    two = trained(NO_DROPOUT.replace(batch_size=80, bound="penalty", shards=2), ERM)[0]
    torch.testing.assert_close(weights(one), weights(two), rtol=1e-3, atol=1e-4)


def test_optimisers_do_not_move_before_the_last_shard():
    method = ERM(TINY.replace(shards=3, dropout=0.0), 64, 5, 0, CPU)
    before, moved = copy.deepcopy(weights(method)), []
    for part in method.iter_batches([source(A)], 0):
        ((src, edges),) = part
        method.step("task", method.risk(src, edges))
        moved.append(not torch.equal(weights(method), before))
        before = weights(method)
    assert moved == [False, False, True] * 3


# ---- a large source, relabelled --------------------------------------------------------------------------

WHOLE = NO_DROPOUT.replace(batch_size=None, knn_ratio=1.0, spectral_ratio=1.0, bound="penalty")


def both_sources(recipe: Recipe, monkeypatch, nodes) -> tuple[Source, Source]:
    """Return a graph as a source in its own order, and as a relabelled source."""
    monkeypatch.setattr(sources_module, "RELABELLED", A.num_nodes + 1)
    own = make_source(recipe, A, nodes, CPU, None)
    monkeypatch.setattr(sources_module, "RELABELLED", A.num_nodes)
    return own, make_source(recipe, A, nodes, CPU, None)


def test_a_relabelled_source_holds_its_nodes_cluster_by_cluster_and_their_labels_follow(monkeypatch):
    nodes = np.arange(3, 80, 7)
    own, moved = both_sources(WHOLE, monkeypatch, nodes)
    assert own.domain.graph is A
    assert torch.equal(own.train, torch.tensor(nodes))
    clusters = enrich(A, k=3, clusters=5).clusters
    order = np.argsort(clusters, kind="stable")
    assert moved.domain.graph == A.reordered(order)
    assert sorted(order[moved.train]) == nodes.tolist()
    assert (np.diff(moved.train) > 0).all()
    pairs = {(int(i), int(order[i])) for i in moved.train}
    assert all(moved.domain.y[i] == A.y[j] and np.allclose(moved.domain.x[i], A.x[j]) for i, j in pairs)


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_a_relabelled_source_has_the_loss_and_the_gradients_of_its_own_order(backbone, monkeypatch):
    method = Game(WHOLE.replace(backbone=backbone, heads=2), 64, 5, 0, CPU)
    found = []
    for src in both_sources(method.recipe, monkeypatch, np.arange(0, 80, 3)):
        edges = method.sample(src, 0)
        s = method.mask(method.networks["mask"](src.domain.x, edges), edges)
        loss = method.risk(src, edges, s) + edges.mean(s)
        used = [p for p in method.networks.parameters() if p.requires_grad]
        grads = torch.autograd.grad(loss, used, allow_unused=True)
        found.append((edges.num_real, loss, torch.cat([g.flatten() for g in grads if g is not None])))
    (count, loss, grads), (moved_count, moved_loss, moved_grads) = found
    assert count == moved_count
    torch.testing.assert_close(moved_loss, loss, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(moved_grads, grads, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("changes", [{"batch_size": 30}, {"k": 0, "clusters": 0}])
def test_batches_and_graphs_as_they_are_keep_their_own_order(changes, monkeypatch):
    _, src = both_sources(WHOLE.replace(**changes), monkeypatch, np.arange(80))
    assert src.domain.graph is A
    assert torch.equal(src.train, torch.arange(80))
