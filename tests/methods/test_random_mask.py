"""Random masks: the share of edges that is kept, new masks in every step, and the schedule of the game."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from edgemask.config import BACKBONES, recipe
from edgemask.data.synthetic import demo_family
from edgemask.errors import InputError
from edgemask.methods.edgemask import Game
from edgemask.methods.execution import seeded
from edgemask.methods.random_mask import RandomMask
from edgemask.methods.registry import method_spec
from edgemask.methods.sources import Source
from edgemask.nn.tasknet import tasknet
from edgemask.nn.tensors import Edges, GraphTensors
from edgemask.seeds import derive
from edgemask.training.fit import Fit

CPU = torch.device("cpu")
A, B, _ = demo_family(80).values()
TINY = method_spec("random-mask").under(None, epochs=3, hidden=8, rho=0.6, n_descent=3, alpha=(0.0,), select="last")
USE_EDGES = [name for name, spec in BACKBONES.items() if spec.uses_edges]
BATCHES = {"batch_size": 20, "fan_out": 3, "shards": 2}


class Watched(RandomMask):
    """A method that keeps its masks and the number of edges behind each."""

    def build(self):
        self.masks, self.counts = [], []
        return super().build()

    def random_mask(self, edges: Edges):
        self.masks.append(super().random_mask(edges))
        self.counts.append(edges.num_real)
        return self.masks[-1]


def method(make=RandomMask, seed=0, **settings):
    return make(TINY.replace(**settings), A.num_features, A.num_classes, seed, CPU)


def source(graph=A):
    return Source(GraphTensors.of(graph), torch.arange(0, 80, 2), None)


def train_epochs(m, sources, epochs=2):
    records = []
    for epoch in range(epochs):
        with seeded(derive(m.seed, "epoch", epoch), CPU):
            records.append(m.update(sources, epoch))
    return records


def same(a, b):
    ours, theirs = a.networks["task"].state_dict(), b.networks["task"].state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in theirs)


# ---- the mask --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
def test_every_edge_is_kept_with_probability_rho_and_independently_of_its_reverse(rho):
    nodes = torch.arange(2000)  # a ring in both directions
    src, dst = torch.cat([nodes, nodes]), torch.cat([nodes.roll(1), nodes.roll(-1)])
    order = (dst * 2000 + src).argsort()
    edges, m = Edges.build(src[order], dst[order], 2000), method(rho=rho)
    with seeded(0, CPU):
        masks = torch.stack([m.random_mask(edges) for _ in range(50)])
    assert set(masks.unique().tolist()) == {0.0, 1.0}
    assert masks.mean().item() == pytest.approx(rho, abs=0.005)  # 200,000 draws
    assert (masks.mean(0) - rho).abs().max() < 5.5 * (rho * (1 - rho) / 50) ** 0.5  # the same for every edge
    position = {(u, v): i for i, (u, v) in enumerate(zip(src[order].tolist(), dst[order].tolist(), strict=True))}
    reverse = [position[v, u] for u, v in position]
    both = (masks * masks[:, reverse]).mean().item()
    assert both == pytest.approx(rho**2, abs=0.01)


def test_masks_differ_from_step_to_step_from_epoch_to_epoch_and_between_sources():
    m = method(Watched)
    train_epochs(m, [source(), source(B)])
    assert len(m.masks) == 2 * 2 * 3  # epochs, sources, steps
    assert m.counts == [A.edges.shape[1]] * 3 + [B.edges.shape[1]] * 3 + [A.edges.shape[1]] * 3 + [B.edges.shape[1]] * 3
    assert len({tuple(mask.tolist()) for mask in m.masks}) == len(m.masks)


def test_a_seed_decides_the_masks():
    runs = [method(Watched, seed) for seed in (0, 0, 1)]
    for m in runs:
        train_epochs(m, [source()], 1)
    first, again, other = (torch.stack(m.masks) for m in runs)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert same(runs[0], runs[1])


def test_a_source_without_edges_has_nothing_to_mask():
    m, bare = method(Watched), A.replace(edges=np.empty((2, 0), dtype=int))
    (record,) = train_epochs(m, [source(bare)], 1)
    assert m.masks == [None] * 3
    assert record.keys() == {"loss alpha"}


# ---- the schedule ----------------------------------------------------------------------------------------


def test_an_epoch_is_a_step_per_source_and_mask_to_the_bit():
    m, seed, sources = method(seed=3), 3, [source(), source(B)]
    train_epochs(m, sources)
    with seeded(derive(seed, "init"), CPU):
        task = tasknet(TINY, A.num_features, A.num_classes)
    adam = torch.optim.Adam(task.parameters(), TINY.lr, weight_decay=TINY.weight_decay)
    for epoch in range(2):
        with seeded(derive(seed, "epoch", epoch), CPU):
            for s in sources:
                for _ in range(TINY.n_descent):
                    mask = (torch.rand(s.domain.edges.num_real) < TINY.rho).float()
                    logits = task.train()(s.domain.x, s.domain.edges, mask=mask)
                    adam.zero_grad()
                    F.cross_entropy(logits[s.train], s.domain.y[s.train]).backward()
                    adam.step()
    expected = task.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in m.networks["task"].state_dict().items())


@pytest.mark.parametrize("batches", [{}, BATCHES], ids=["whole graphs", "batches"])
def test_with_all_edges_it_is_the_game_without_an_adversary_to_the_bit(batches):
    ours, plain = method(rho=1.0, **batches), method(Game, rho=1.0, **batches)
    records = [train_epochs(m, [source(), source(B)]) for m in (ours, plain)]
    assert records[0] == records[1]
    assert same(ours, plain)
    masked = method(rho=0.9, **batches)
    assert train_epochs(masked, [source(), source(B)]) != records[0]


def test_every_shard_of_every_batch_has_its_own_masks():
    m = method(Watched, **BATCHES)
    train_epochs(m, [source()], 1)
    rounds = 2  # 40 training nodes in batches of 20
    assert len(m.masks) == rounds * BATCHES["shards"] * TINY.n_descent
    assert m.counts == [len(mask) for mask in m.masks]
    assert max(m.counts) < A.edges.shape[1]
    assert len({tuple(mask.tolist()) for mask in m.masks}) == len(m.masks)
    assert torch.cat(m.masks).mean().item() == pytest.approx(TINY.rho, abs=0.1)


def test_it_has_no_masknet():
    m = method()
    assert list(m.networks) == list(m.optimisers) == ["task"]
    assert train_epochs(m, [source()], 1)[0].keys() == {"loss alpha"}


# ---- settings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backbone", USE_EDGES)
@pytest.mark.parametrize("loss", ["cross-entropy", "binary"])
def test_every_backbone_and_loss_is_supported(backbone, loss):
    trainer, _ = Fit(RandomMask, TINY.replace(backbone=backbone, loss=loss, heads=2, lr=0.01), [A, B]).run()
    assert trainer.history[-1]["loss alpha"] < trainer.history[0]["loss alpha"]


@pytest.mark.parametrize("backbone", USE_EDGES)
def test_the_loss_is_that_of_the_graph_without_the_dropped_edges(backbone):
    plain = {"heads": 2, "gate": "softmax", "dropout": 0.0, "attention_dropout": 0.0}
    m = method(Watched, backbone=backbone, n_descent=1, **plain)
    before = {name: value.clone() for name, value in m.networks["task"].state_dict().items()}
    (record,) = train_epochs(m, [source()], 1)
    m.networks["task"].load_state_dict(before)
    kept = source(A.replace(edges=A.edges[:, m.masks[0].numpy() > 0]))
    assert m.risk(kept, kept.domain.edges).item() == pytest.approx(record["loss alpha"], rel=1e-5)


def test_the_default_recipe_is_that_of_the_game_on_the_original_graph():
    spec, game = method_spec("random-mask"), method_spec("edgemask-dg")
    assert spec.recipe == game.recipe.replace(mask=False)
    under = spec.under("paper", rho=0.7)
    assert (under.mask, under.enriched, under.rho, under.n_descent) == (False, False, 0.7, 5)


def test_a_backbone_that_ignores_edges_and_a_masknet_are_refused():
    with pytest.raises(InputError, match="backbone = 'mlp' ignores edges, so a random edge mask has no effect"):
        method(backbone="mlp")
    with pytest.raises(InputError, match="mask must be False, got True"):
        method(mask=True)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@needs_gpu
@pytest.mark.parametrize("backbone", ["gcn", "mix"])
def test_captured_steps_learn_what_plain_steps_learn(backbone):
    device, runs = torch.device("cuda"), []
    for replay in (True, False):
        settings = recipe("robust", k=0, clusters=0, mask=False, backbone=backbone, rho=0.6, n_descent=2)
        m = RandomMask(settings, A.num_features, A.num_classes, 0, device)
        if not replay:
            m.replays_on = lambda pairs: False
        domains = [GraphTensors.of(g, device) for g in (A, B)]
        sources, history = [Source(d, d.labelled, None) for d in domains], []
        for epoch in range(9):
            with seeded(epoch, device):
                history.append(m.update(sources, epoch))
        assert bool(m.replays) == replay
        runs.append(history)
    for ours, theirs in zip(*runs, strict=True):
        assert ours == pytest.approx(theirs, rel=2e-3, abs=2e-4)
