"""The trainer: epochs, averaged weights, the best state, divergence and collapse."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from edgemask.config import Recipe
from edgemask.errors import CollapseWarning, DivergenceError, PredictionError
from edgemask.methods.edgemask import Game
from edgemask.methods.erm import ERM
from edgemask.training.fit import Fit
from edgemask.training.trainer import collapse_advice
from tests.training.toys import TINY, A, B, C, same, weights


@pytest.mark.slow
def test_the_loss_falls():
    trainer, _ = Fit(Game, TINY.replace(epochs=60, lr=1e-2), [A, B]).run()
    losses = [r["loss a"] for r in trainer.history]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])


def test_averaged_weights_are_the_moving_average():
    r = TINY.replace(epochs=6, average_from=0.5)
    seen = []
    trainer, _ = Fit(
        ERM, r, [A], on_epoch=lambda t, _: seen.append(t.method.networks.state_dict()["task.biases.0"].clone())
    ).run()
    expected = seen[3]
    for value in seen[4:]:
        expected = 0.8 * expected + 0.2 * value
    torch.testing.assert_close(trainer.method.networks.state_dict()["task.biases.0"], expected)


def test_a_node_with_none_of_several_labels_is_not_trained_on():
    several = np.eye(3, dtype=int)[A.y]
    several[:10] = 0
    single = np.where(np.arange(60) < 10, -1, A.y)
    one, other = (weights(Fit(Game, TINY, [A.replace(y=y)])) for y in (several, single))
    assert same(one, other)


def test_divergence_is_an_error_not_a_model():
    with pytest.raises(DivergenceError, match=r"the loss a is nan; lower lr, now 1e\+30"):
        Fit(ERM, TINY.replace(lr=1e30, epochs=30), [A, B]).run()


def test_the_best_weights_are_copies():
    trainer, choice = Fit(Game, TINY.replace(select="validation", lr=0.3, average=0.0), [A], [C]).run()
    best = trainer.best[choice.alpha]
    assert same(trainer.method.networks.state_dict(), best.weights)
    assert best.epoch == choice.epoch


def test_collapse_is_said_aloud_once():
    r = TINY.replace(bound="penalty", lam=5.0, mask_lr=0.5, epochs=10)
    with pytest.warns(CollapseWarning, match="bound='budget'") as caught:
        Fit(Game, r, [A, B]).run()
    assert len([w for w in caught if w.category is CollapseWarning]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Fit(Game, TINY, [A, B]).run()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bound": "budget", "rho": 0.01}, "raise rho, now 0.01"),
        ({"adversarial": False}, "set adversarial=True"),
        ({"backbone": "gat", "gate": "message"}, "bound='budget', or use gate='attention'"),
        ({"backbone": "gat", "gate": "attention"}, "bound='budget'"),
        ({"backbone": "gcn"}, "bound='budget'"),
    ],
)
def test_the_advice_against_a_collapse_is_possible_and_new(changes, words):
    r = Recipe(**changes)
    assert collapse_advice(r).endswith(words)
    if "budget" in words:
        r.replace(bound="budget")


def test_patience_stops_a_run_that_no_longer_improves():
    r = TINY.replace(select="validation", epochs=200, eval_every=1, patience=4, lr=1e-6, average=0.0)
    trainer, choice = Fit(Game, r, [A], [C]).run()
    assert trainer.epoch < 200
    tops = [record["select 0"] for record in trainer.history]
    assert len(tops) - 1 - int(np.argmax(tops)) == 4
    assert choice.epoch == int(np.argmax(tops)) + 1


def test_weights_that_a_last_step_destroys_are_an_error_not_a_model(monkeypatch):
    def destroy(trainer, _):
        with torch.no_grad():
            next(trainer.method.networks.parameters()).fill_(torch.inf)

    with pytest.raises(DivergenceError, match=r"epoch 1: the weights are no longer finite; lower lr, now 0\.001"):
        Fit(ERM, TINY.replace(epochs=1, average=0.0), [A], on_epoch=destroy).run()


def test_scores_of_predictions_that_are_not_finite_are_an_error():
    trainer = Fit(ERM, TINY.replace(select="validation"), [A], [C]).trainer(None)
    with torch.no_grad():
        next(trainer.method.networks.parameters()).fill_(torch.nan)
    with pytest.raises(PredictionError, match="graph 'c': the prediction of node 0 is not finite"):
        trainer.scores()
