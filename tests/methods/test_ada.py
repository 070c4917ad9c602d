"""ADA: added graphs are harder and close, come from exact ascent in feature space, and do not change later."""

from __future__ import annotations

from pathlib import Path

import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.methods.ada import ADA
from edgemask.methods.execution import seeded
from edgemask.methods.sources import Source
from edgemask.nn.tensors import GraphTensors
from edgemask.training.fit import Fit

CPU = torch.device("cpu")
TINY = Recipe(mask=False, backbone="gcn", hidden=8, dropout=0.0, k=0, clusters=0, lr=0.01, epochs=40)
A, B, C = demo_family(80).values()


@pytest.fixture(autouse=True)
def fixed_seed():
    with seeded(0, CPU):
        yield


def ada(recipe: Recipe = TINY, **hyper: float) -> ADA:
    return ADA(recipe.replace(hyper=tuple(sorted(hyper.items()))), 64, 5, 0, CPU)


def source(graph, nodes=80) -> Source:
    return Source(GraphTensors.of(graph), torch.arange(nodes), None)


def pretrained(method: ADA, s: Source, epochs=9) -> ADA:
    for epoch in range(epochs):  # before the first round
        method.update([s], epoch)
    return method


def augmentation_effect(method: ADA, s: Source) -> tuple[float, float]:
    """Return how much a round raises the sum of the losses, and the squared distance of the added graph."""
    edges, task = s.domain.edges, method.networks["task"].eval()
    method.added["alpha"] = [method.augment(s, edges)]
    before, after = method.graphs(s)
    with torch.no_grad():
        losses = [len(s.train) * method.risk(g, edges).item() for g in (before, after)]
        z = [task.embed(g.domain.x, edges) for g in (before, after)]
    return losses[1] - losses[0], (z[1] - z[0]).square().sum().item()


@pytest.mark.parametrize("backbone", ["gcn", "gin", "sgc", "egc", "mlp"])
@pytest.mark.parametrize("gamma", [0.1, 10.0])
def test_a_round_raises_the_loss_by_more_than_the_distance_costs(backbone, gamma):
    s = source(A, nodes=60)
    raised, distance = augmentation_effect(pretrained(ada(TINY.replace(backbone=backbone), gamma=gamma), s), s)
    assert distance > 0
    assert raised > gamma / 2 * distance > 0


def test_a_dearer_distance_keeps_what_is_added_nearer():
    s = source(A)
    effects = [augmentation_effect(pretrained(ada(gamma=gamma), s), s) for gamma in (0.1, 1.0, 10.0, 100.0)]
    assert effects == sorted(effects, reverse=True)
    assert effects[0][1] > 100 * effects[-1][1]


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("backbone", ["gcn", "egc"])  # backbones with one and with two first maps
def test_a_round_is_gradient_ascent_on_the_features_themselves(backbone, kind):
    s, dense = source(A.replace(x=sp.csr_array(A.x)) if kind == "sparse" else A), source(A)
    method = pretrained(ada(TINY.replace(backbone=backbone), gamma=2.0, ascents=6), s)
    a, b = method.augment(s, s.domain.edges)
    task, edges, x = method.networks["task"].eval(), dense.domain.edges, dense.domain.x
    z0 = task.embed(x, edges).detach()

    def objective(at):
        at = at.clone().requires_grad_()
        z = task.embed(at, edges)
        goal = F.cross_entropy(task.read(z, edges), dense.domain.y, reduction="sum") - (z - z0).square().sum()
        return goal.item(), torch.autograd.grad(goal, at)[0]

    rate, now = 0.5, x
    goal, up = objective(now)
    for _ in range(6):
        value, gradient = objective(now + rate * up)
        if value > goal:
            now, goal, up = now + rate * up, value, gradient
        else:
            rate /= 4
    assert not torch.allclose(now, x)
    torch.testing.assert_close(x + a @ b, now, atol=1e-4, rtol=1e-3)


def test_each_round_adds_a_graph_to_every_source_and_leaves_the_others_as_they_are():
    trainer, _ = Fit(ADA, TINY.replace(epochs=9, hyper=(("augmentations", 2),)), [A, B]).run()
    seen = ["augmented alpha" in r for r in trainer.history]
    assert seen == [False] * 3 + [True] * 6
    method = trainer.method
    assert {name: len(rounds) for name, rounds in method.added.items()} == {"alpha": 2, "beta": 2}
    longer, _ = Fit(ADA, TINY.replace(epochs=6, hyper=(("augmentations", 1),)), [A, B]).run()  # identical up to epoch 3
    assert torch.equal(longer.method.added["alpha"][0][0], method.added["alpha"][0][0])


def test_the_step_is_on_the_mean_over_a_source_and_what_was_added():
    s = source(A)
    method, by_hand = pretrained(ada(), s), pretrained(ada(), s)
    for m in (method, by_hand):
        m.added["alpha"] = [m.augment(s, s.domain.edges)]
        m.added["alpha"].append(m.augment(s, s.domain.edges))
    (a, b), (c, d) = by_hand.added["alpha"]
    task, x = by_hand.networks["task"].train(), s.domain.x
    losses = [F.cross_entropy(task(v, s.domain.edges), s.domain.y) for v in (x, x + a @ b, x + a @ b + c @ d)]
    by_hand.optimisers["task"].zero_grad()
    (sum(losses) / 3).backward()
    by_hand.optimisers["task"].step()
    record = method.update([s], 9)
    assert record["loss alpha"] == pytest.approx(losses[0].item(), rel=1e-4)
    assert record["augmented alpha"] == pytest.approx((losses[1] + losses[2]).item() / 2, rel=1e-4)
    for mine, theirs in zip(method.networks.parameters(), by_hand.networks.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("epochs", [1, 2, 3, 10])
def test_all_rounds_are_held_however_few_the_epochs(epochs):
    trainer, _ = Fit(ADA, TINY.replace(epochs=epochs), [A]).run()
    assert len(trainer.method.added["alpha"]) == 3


def test_a_stopped_run_takes_what_was_added_along(tmp_path: Path):
    class Stopped(Exception):
        pass

    def stop(trainer, stage):
        if trainer.epoch == 7:
            raise Stopped

    recipe = TINY.replace(epochs=10)
    whole, _ = Fit(ADA, recipe, [A, B]).run()
    again, _ = Fit(ADA, recipe, [A, B]).run()
    with pytest.raises(Stopped):
        Fit(ADA, recipe, [A, B], checkpoint_path=tmp_path / "c", checkpoint_every=6, on_epoch=stop).run()
    resumed, _ = Fit(ADA, recipe, [A, B], checkpoint_path=tmp_path / "c").run()
    assert whole.history == again.history == resumed.history
    for mine, theirs in zip(whole.method.networks.parameters(), resumed.method.networks.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"batch_size": 20}, "batch_size must be None, got 20"), ({"layers": 1}, "at least 2, got 1")],
)
def test_what_it_cannot_do_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        ada(TINY.replace(**change))
