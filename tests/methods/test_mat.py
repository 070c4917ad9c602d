"""MAT: low-rank perturbations inside their ball raise the loss and persist from step to step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.methods.execution import seeded
from edgemask.methods.mat import MAT, project
from edgemask.methods.sources import Source
from edgemask.nn.tensors import GraphTensors
from edgemask.training.fit import Fit

CPU = torch.device("cpu")
TINY = Recipe(mask=False, backbone="gcn", hidden=8, dropout=0.0, k=0, clusters=0, lr=0.01, epochs=20)
A, B, C = demo_family(80).values()


@pytest.fixture(autouse=True)
def fixed_seed():
    with seeded(0, CPU):
        yield


def mat(recipe: Recipe = TINY, **hyper: float) -> MAT:
    return MAT(recipe.replace(hyper=tuple(sorted(hyper.items()))), 64, 5, 0, CPU)


def source(graph, nodes=80) -> Source:
    return Source(GraphTensors.of(graph), torch.arange(nodes), None)


def loss(method: MAT, s: Source) -> float:
    with torch.no_grad():
        return method.risk(s, s.domain.edges).item()


@pytest.mark.parametrize("backbone", ["gcn", "gin", "sgc", "egc", "mlp"])
def test_attacks_raise_the_loss_more_than_what_they_start_from(backbone):
    method, s = mat(TINY.replace(backbone=backbone), radius=2.0, ascent_step=1.0), source(A)
    for epoch in range(10):
        method.update([s], epoch)
    method.deltas["alpha"].copy_(method.start("alpha"))
    clean, rows = loss(method, s), []
    for _ in range(5):
        rows.append(loss(method, method.attack(s, s.domain.edges)))
    assert rows[0] < rows[-1]
    assert clean < rows[-1]


def test_the_perturbations_stay_in_their_ball_and_are_mixed_by_weights_that_sum_to_one():
    method, s = mat(radius=0.5, ascent_step=0.7, perturbations=3), source(A)
    for epoch in range(6):
        method.update([s], epoch)
        assert method.deltas["alpha"].norm(dim=1).max() <= 0.5 + 1e-6
    x = method.attack(s, s.domain.edges).domain.x
    torch.testing.assert_close(x.a.sum(1), torch.ones(80))
    assert (x.a >= 0).all()
    moved = x @ torch.eye(64) - s.domain.x
    assert torch.linalg.matrix_rank(moved, rtol=1e-4) <= 3
    assert moved.norm(dim=1).max() <= 0.5 + 1e-5


def test_an_attack_is_one_step_along_the_gradients():
    method, s = mat(radius=0.5, ascent_step=0.2, mix_lr=3.0), source(A, nodes=50)
    task, edges = method.networks["task"], s.domain.edges
    method.deltas["alpha"] = method.start("alpha")
    delta = method.deltas["alpha"].clone().requires_grad_()
    with seeded(7, CPU):
        mix = torch.randn(80, 8).requires_grad_()
    logits = task(s.domain.x + mix.softmax(1) @ delta, edges)
    total = F.cross_entropy(logits[:50], s.domain.y[:50], reduction="sum")
    d_up, m_up = torch.autograd.grad(total, [delta, mix])
    moved = delta + 0.2 * d_up / d_up.norm()
    expected = torch.stack([row * min(1.0, 0.5 / row.norm().item()) for row in moved])
    with seeded(7, CPU):
        x = method.attack(s, edges).domain.x
    torch.testing.assert_close(method.deltas["alpha"], expected)
    torch.testing.assert_close(x @ torch.eye(64), s.domain.x + (mix + 3 * m_up).softmax(1) @ expected)


def test_projection_shortens_long_rows_alone():
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    torch.testing.assert_close(project(rows, 1.0), torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))


def test_sparse_features_are_perturbed_as_dense_ones():
    dense, sparse = source(A), source(A.replace(x=sp.csr_array(A.x)))
    one, other = mat(), mat()
    for epoch in range(3):
        with seeded(epoch, CPU):
            one.update([dense], epoch)
        with seeded(epoch, CPU):
            other.update([sparse], epoch)
    torch.testing.assert_close(one.deltas["alpha"], other.deltas["alpha"], atol=1e-4, rtol=1e-3)


def test_a_stopped_run_takes_its_perturbations_along(tmp_path: Path):
    class Stopped(Exception):
        pass

    def stop(trainer, stage):
        if trainer.epoch == 5:
            raise Stopped

    recipe = TINY.replace(epochs=8)
    whole, _ = Fit(MAT, recipe, [A, B]).run()
    again, _ = Fit(MAT, recipe, [A, B]).run()
    with pytest.raises(Stopped):
        Fit(MAT, recipe, [A, B], checkpoint_path=tmp_path / "c", checkpoint_every=3, on_epoch=stop).run()
    resumed, _ = Fit(MAT, recipe, [A, B], checkpoint_path=tmp_path / "c").run()
    assert whole.history == again.history == resumed.history
    for name, delta in whole.method.deltas.items():
        assert torch.equal(delta, resumed.method.deltas[name])


def test_batches_are_attacked_and_shards_refused():
    trainer, _ = Fit(MAT, TINY.replace(epochs=3, batch_size=20), [A, B]).run()
    assert np.isfinite([v for r in trainer.history for v in r.values()]).all()
    with pytest.raises(ValueError, match="shards must be 1, got 2"):
        mat(TINY.replace(batch_size=20, shards=2))
