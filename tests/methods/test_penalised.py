"""Shared behaviour of the general domain generalisation methods: resuming, batches, one source, annealing."""

from __future__ import annotations

import pytest
import torch

from edgemask.config import Recipe
from edgemask.data.synthetic import Family, Wiring, demo_family, make
from edgemask.methods.coral import CORAL
from edgemask.methods.dann import DANN
from edgemask.methods.erm import ERM
from edgemask.methods.execution import seeded
from edgemask.methods.group_dro import GroupDRO
from edgemask.methods.irm import IRM
from edgemask.methods.mixup import Mixup
from edgemask.methods.mmd import MMD
from edgemask.methods.sources import Source, make_sampler
from edgemask.methods.vrex import VREx
from edgemask.nn.tensors import GraphTensors
from edgemask.training.fit import Fit

CPU = torch.device("cpu")
ALL = [GroupDRO, MMD, CORAL, IRM, VREx, DANN, Mixup]
TINY = Recipe(backbone="gcn", hidden=8, mask=False, k=0, clusters=0, lr=0.01, epochs=5)
A, B, _ = demo_family(80).values()
WORDS = make(Family(nodes=60, kind="words", features=64), {"x": Wiring(), "y": Wiring(nodes=50)})


def source(graph, nodes=80) -> Source:
    return Source(GraphTensors.of(graph), torch.arange(nodes), None)


def weights(trainer) -> list[torch.Tensor]:
    return list(trainer.method.networks.state_dict().values())


def same(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


def short(method) -> dict[str, int]:
    """Return hyper-parameters that have a visible effect within a few epochs."""
    return {"anneal": 2} if "anneal" in method.hyper else {"nodes": 40} if "nodes" in method.hyper else {}


def tiny(method, **changes) -> Recipe:
    return TINY.replace(hyper=tuple(sorted(short(method).items())), **changes)


@pytest.mark.parametrize("method", ALL)
def test_the_risks_fall(method):
    trainer, _ = Fit(method, tiny(method, epochs=20, lr=0.02), [A, B]).run()
    first, last = (sum(v for k, v in trainer.history[i].items() if k.startswith("loss")) for i in (0, -1))
    assert last < 0.9 * first


@pytest.mark.parametrize("method", ALL)
def test_a_run_that_was_stopped_where_the_weight_jumps_continues_to_the_same_end(method, tmp_path):
    whole, _ = Fit(method, tiny(method, average=0.1), [A, B]).run()

    def give_up(trainer, stage):
        if trainer.epoch == 3:
            raise KeyboardInterrupt

    fit = {"recipe": tiny(method, average=0.1), "sources": [A, B], "checkpoint_path": tmp_path / "c"}
    with pytest.raises(KeyboardInterrupt):
        Fit(method, **fit, checkpoint_every=1, on_epoch=give_up).run()
    resumed, _ = Fit(method, **fit, checkpoint_every=1).run()
    assert same(whole, resumed)
    assert whole.history == resumed.history


@pytest.mark.parametrize("method", [GroupDRO, MMD, CORAL, VREx])
def test_with_one_source_there_is_nothing_but_its_risk(method):
    recipe = TINY.replace(hyper=(("anneal", 0),) if method is VREx else ())  # a jump of the weight resets Adam
    trainer, plain = Fit(method, recipe, [A]).run()[0], Fit(ERM, TINY, [A]).run()[0]
    for mine, theirs in zip(weights(trainer), weights(plain), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("method", [MMD, CORAL, IRM, VREx, DANN])
def test_a_weight_of_0_is_risk_minimisation(method):
    recipe = TINY.replace(hyper=(("weight", 0.0),))
    trainer, plain = Fit(method, recipe, [A, B]).run()[0], Fit(ERM, TINY, [A, B]).run()[0]
    theirs = plain.method.networks.state_dict()
    for name, value in trainer.method.networks.state_dict().items():
        if name in theirs:
            torch.testing.assert_close(value, theirs[name], msg=name)


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("changes", [{"k": 3, "knn_ratio": 1.0}, {"batch_size": 30, "shards": 2}])
def test_sparse_features_on_the_enriched_graph_and_in_batches(method, changes):
    trainer, _ = Fit(method, tiny(method, epochs=2, **changes), list(WORDS.values())).run()
    assert {"loss x", "loss y"} <= trainer.history[-1].keys()
    assert all(torch.isfinite(w).all() for w in weights(trainer))


@pytest.mark.parametrize("method", [IRM, DANN, Mixup])
def test_one_source_is_enough(method):
    trainer, _ = Fit(method, tiny(method, epochs=2), [A]).run()
    assert all(torch.isfinite(w).all() for w in weights(trainer))


@pytest.mark.parametrize("method", [MMD, CORAL, DANN])
def test_without_a_hidden_layer_there_is_nothing_to_align(method):
    with pytest.raises(ValueError, match="layers = 1 leaves no representation"):
        method(TINY.replace(layers=1), 64, 5, 0, CPU)


@pytest.mark.parametrize("backbone", ["gat", "gcn", "gin", "sgc", "mlp"])
@pytest.mark.parametrize("method", [MMD, CORAL, DANN])
def test_the_representation_of_every_backbone(method, backbone):
    record = method(tiny(method, backbone=backbone), 64, 5, 0, CPU).update([source(A), source(B)], 1)
    assert record["loss alpha"] > 0


@pytest.mark.parametrize("method", [IRM, VREx])
def test_the_weight_is_at_most_1_until_the_annealing_ends(method):
    def course(**hyper):
        made = method(TINY.replace(hyper=tuple(sorted(hyper.items()))), 64, 5, 0, CPU)
        return [made.strength(epoch) for epoch in range(5)]

    assert course(weight=50.0, anneal=3) == [1, 1, 1, 50, 50]
    assert course(weight=0.1, anneal=3) == [0.1] * 5
    assert course(weight=50.0, anneal=0) == [50] * 5


def test_where_the_weight_jumps_adam_starts_anew_in_place():
    method, sources = VREx(TINY.replace(hyper=(("anneal", 2),)), 64, 5, 0, CPU), [source(A), source(B)]
    steps, held = [], None
    for epoch in range(4):
        method.update(sources, epoch)
        states = list(method.optimisers["task"].state.values())
        held = held or [s["exp_avg"] for s in states]
        assert all(s["exp_avg"] is kept for s, kept in zip(states, held, strict=True))
        steps.append(int(states[0]["step"]))
    assert steps == [1, 2, 1, 2]


def on_a_gpu(method, recipe, *, replay) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    device = torch.device("cuda")
    trained, sources, curve = method(recipe, 64, 5, 0, device), [], []
    if not replay:
        trained.replays_on = lambda pairs: False
    for graph in (A, B):
        domain = GraphTensors.of(graph, device)
        sources.append(Source(domain, domain.labelled, make_sampler(recipe, graph, device, None)))
    for epoch in range(9):
        with seeded(epoch, device):
            curve.append(trained.update(sources, epoch))
    assert bool(trained.replays) == replay
    return curve, trained.networks.state_dict()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("backbone", ["gcn", "gin"])
def test_replayed_steps_learn_what_plain_steps_learn(method, backbone):
    """The weight jumps after the capture, and all random draws come from the same generator."""
    hyper = short(method) | ({"anneal": 5} if "anneal" in method.hyper else {})
    recipe = TINY.replace(backbone=backbone, k=3, knn_ratio=0.5, epochs=9, hyper=tuple(sorted(hyper.items())))
    (curve, weights), (plain, expected) = (on_a_gpu(method, recipe, replay=r) for r in (True, False))
    for ours, theirs in zip(curve, plain, strict=True):
        assert ours == pytest.approx(theirs, rel=2e-3, abs=2e-4)
    for name, value in weights.items():
        torch.testing.assert_close(value, expected[name], rtol=2e-2, atol=2e-3)
