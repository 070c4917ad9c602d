"""Trainer, selection rules, exact resume."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from edgemask.config import Recipe, recipe
from edgemask.errors import CheckpointError, CollapseWarning, DivergenceError, GraphError
from edgemask.graph import Graph
from edgemask.methods import sources as sources_module
from edgemask.methods.edgemask import Game
from edgemask.methods.erm import ERM
from edgemask.metrics import score
from edgemask.training.fit import Fit
from edgemask.training.selection import resolve_rule, smallest_alpha_near_best, withhold
from edgemask.training.trainer import EvalGraph, collapse_advice

TINY = Recipe(
    backbone="gcn", hidden=8, mask_projection=8, mask_hidden=8, epochs=12, n_descent=1, k=3, clusters=4,
    knn_ratio=0.5, spectral_ratio=0.2, bound="budget", rho=0.8, average=0.2, eval_every=3,
)  # fmt: skip


def domain(name: str, seed: int, n: int = 60, homophily: float = 0.9) -> Graph:
    """A small graph of 3 classes with Gaussian features and mostly same-class edges."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    x = np.eye(3)[y] * 1.5 + rng.standard_normal((n, 3))
    src, dst = rng.integers(0, n, (2, 12 * n))
    keep = (src != dst) & (rng.random(12 * n) < np.where(y[src] == y[dst], homophily, 1 - homophily))
    return Graph(
        name, x, np.stack([src[keep], dst[keep]]), y, undirected=True, duplicates="merge", classes=tuple("abc")
    )


A, B, C = domain("a", 1), domain("b", 2), domain("c", 3, homophily=0.4)


def weights(fit: Fit) -> dict[str, torch.Tensor]:
    trainer, _ = fit.run()
    return trainer.method.networks.state_dict()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


TRAIN = """
import hashlib
from edgemask import EdgeMaskClassifier
from edgemask.data.synthetic import demo_family
alpha, beta, _ = demo_family(70).values()
small = dict(hidden=8, mask_projection=8, mask_hidden=8, k=3, clusters=5, epochs=6)
for recipe in ("robust", "paper"):
    networks = EdgeMaskClassifier(recipe, device="cpu", **small).fit([alpha, beta]).method_.networks
    print(hashlib.sha256(b"".join(t.numpy().tobytes() for t in networks.state_dict().values())).hexdigest())
"""


@pytest.mark.slow
def test_the_process_that_compiles_the_kernels_trains_as_those_that_find_them_compiled(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    command = [sys.executable, "-c", TRAIN]
    first, later = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert any(tmp_path.rglob("*.nbc"))
    assert first == later


@pytest.mark.parametrize("make", [Game, ERM])
def test_training_is_deterministic_in_its_seed(make):
    first, second = (weights(Fit(make, TINY, [A, B], seed=5)) for _ in range(2))
    assert same(first, second)
    assert not same(first, weights(Fit(make, TINY, [A, B], seed=6)))


def test_training_leaves_the_callers_random_state_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    weights(Fit(Game, TINY, [A]))
    assert torch.equal(before, torch.get_rng_state())


def test_the_loss_falls():
    trainer, _ = Fit(Game, TINY.replace(epochs=60, lr=1e-2), [A, B]).run()
    losses = [r["loss a"] for r in trainer.history]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])


class Killed(Exception):
    pass


@pytest.mark.parametrize("select", ["last", "source-val", "leave-one-source-out", "validation"])
@pytest.mark.parametrize("stop", [1, 5, 11, 17])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path, select, stop):
    alpha = (1 / 3,) if select == "last" else (0.0, 1 / 3, 0.9)
    r = TINY.replace(select=select, alpha=alpha)
    validation = [C] if select == "validation" else []
    whole_trainer, whole = Fit(Game, r, [A, B], validation, seed=3).run()
    path, count = tmp_path / "run.ckpt", 0

    def kill(trainer, stage):
        nonlocal count
        count += 1
        if count == stop:
            raise Killed

    total = 12 * (3 if select == "leave-one-source-out" else 1)
    if stop < total:
        with pytest.raises(Killed):
            Fit(Game, r, [A, B], validation, seed=3, checkpoint_path=path, checkpoint_every=2, on_epoch=kill).run()
    trainer, choice = Fit(Game, r, [A, B], validation, seed=3, checkpoint_path=path, checkpoint_every=2).run()
    assert same(trainer.method.networks.state_dict(), whole_trainer.method.networks.state_dict())
    assert choice == whole
    assert trainer.history == whole_trainer.history


def test_the_dual_variable_survives_a_stop(tmp_path: Path):
    r = TINY.replace(bound="dual", rho=0.3)
    whole, _ = Fit(Game, r, [A]).run()
    path = tmp_path / "run.ckpt"

    def kill(trainer, stage):
        if trainer.epoch == 7:
            raise Killed

    with pytest.raises(Killed):
        Fit(Game, r, [A], checkpoint_path=path, checkpoint_every=1, on_epoch=kill).run()
    resumed, _ = Fit(Game, r, [A], checkpoint_path=path).run()
    assert resumed.method.lam == whole.method.lam != r.lam


def test_a_checkpoint_of_another_task_is_refused(tmp_path: Path):
    path = tmp_path / "run.ckpt"
    Fit(Game, TINY, [A, B], checkpoint_path=path).run()
    with pytest.raises(CheckpointError, match="another task: its seed is 0, here 1"):
        Fit(Game, TINY, [A, B], seed=1, checkpoint_path=path).run()
    with pytest.raises(CheckpointError, match="sources"):
        Fit(Game, TINY, [A, C], checkpoint_path=path).run()


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


def test_rules_resolve_by_what_there_is():
    auto = recipe("robust")
    assert resolve_rule(auto, [A, B], [C]) == "validation"
    assert resolve_rule(auto, [A, B], []) == "leave-one-source-out"
    assert resolve_rule(auto, [A], []) == "source-val"
    with pytest.raises(ValueError, match="needs validation domains"):
        resolve_rule(auto.replace(select="validation"), [A], [])
    with pytest.raises(ValueError, match="at least 2 sources, got 1"):
        resolve_rule(auto.replace(select="leave-one-source-out"), [A], [])


def test_patience_is_judged_by_the_rule_that_results():
    with pytest.raises(ValueError, match="here the rule is 'leave-one-source-out'"):
        Fit(Game, TINY.replace(select="auto", patience=3), [A, B])
    with pytest.raises(ValueError, match="here the rule is 'last'"):
        Fit(Game, TINY.replace(patience=3), [A, B])


def test_the_weaker_strength_wins_a_near_tie():
    assert smallest_alpha_near_best({0.0: 0.7, 0.5: 0.701, 0.9: 0.6}) == 0.0
    assert smallest_alpha_near_best({0.0: 0.7, 0.5: 0.71, 0.9: 0.709}) == 0.5


def test_withheld_nodes_are_never_trained_on():
    train, scored = withhold(A, 0)
    held = np.flatnonzero(scored.masks["eval"])
    assert not set(train) & set(held)
    assert len(train) + len(held) == 60
    for c in range(3):  # class by class
        assert sum(A.y[held] == c) == round(0.2 * sum(A.y == c))


def test_too_few_labels_to_withhold_are_refused():
    y = np.full(60, -1)
    y[:2] = 0, 1
    with pytest.raises(GraphError, match="graph 'a', y: too few labels"):
        Fit(Game, TINY.replace(select="source-val"), [A.replace(y=y)]).run()


def test_a_node_with_none_of_several_labels_is_not_trained_on():
    several = np.eye(3, dtype=int)[A.y]
    several[:10] = 0
    single = np.where(np.arange(60) < 10, -1, A.y)
    one, other = (weights(Fit(Game, TINY, [A.replace(y=y)])) for y in (several, single))
    assert same(one, other)


def test_divergence_is_an_error_not_a_model():
    with pytest.raises(DivergenceError, match=r"the loss a is nan; lower lr, now 1e\+30"):
        Fit(ERM, TINY.replace(lr=1e30, epochs=30), [A, B]).run()


def test_selection_finds_that_propagation_hurts_on_a_heterophilous_validation_domain():
    bad = domain("v", 9, homophily=0.05)
    r = TINY.replace(
        select="validation", alpha=(0.0, 0.9), epochs=30, lr=1e-2, backbone="mlp", mask=False, k=0, clusters=0
    )
    _, choice = Fit(ERM, r, [A, B], [bad]).run()
    assert choice.alpha == 0.0
    _, choice = Fit(ERM, r, [A, B], [domain("w", 10, homophily=0.95)]).run()
    assert choice.alpha == 0.9


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


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([], "no source graphs"),
        ([A, domain("w", 1).replace(x=np.ones((60, 4)))], "graph 'w', x: 4 features, but graph 'a' has 3"),
        ([A.without_labels()], "graph 'a', y: training needs labels"),
        ([A.replace(y=np.zeros(60, dtype=int))], "graph 'a', y: every label is 'a'"),
        ([A, A], "two domains are named 'a'"),
    ],
)
def test_bad_sources_are_refused(sources, message):
    with pytest.raises(GraphError, match=message):
        Fit(Game, TINY, sources)


def test_patience_stops_a_run_that_no_longer_improves():
    r = TINY.replace(select="validation", epochs=200, eval_every=1, patience=4, lr=1e-6, average=0.0)
    trainer, choice = Fit(Game, r, [A], [C]).run()
    assert trainer.epoch < 200
    tops = [record["select 0"] for record in trainer.history]
    assert len(tops) - 1 - int(np.argmax(tops)) == 4
    assert choice.epoch == int(np.argmax(tops)) + 1


@pytest.mark.parametrize("select", ["last", "source-val"])
def test_a_fit_on_relabelled_sources_learns_as_well_from_the_same_nodes(monkeypatch, select):
    r = TINY.replace(epochs=60, lr=1e-2, select=select)
    target, scores = domain("d", 4), []
    for threshold in (61, 60):
        monkeypatch.setattr(sources_module, "RELABELLED", threshold)
        trainer, _ = Fit(Game, r, [A, B], seed=1).run()
        p = trainer.probabilities(EvalGraph.of(target, trainer.method, None))[0.0]
        scores.append(score(("micro_f1",), target, p)["micro_f1"])
        for source, graph in zip(trainer.sources, (A, B), strict=True):
            nodes = np.arange(60) if select == "last" else withhold(graph, 1)[0]
            taken = source.domain.graph.x[source.train]
            assert sorted(map(tuple, taken)) == sorted(map(tuple, graph.x[nodes]))
            assert (source.domain.graph == graph) == (threshold == 61)
    assert scores[1] > scores[0] - 0.05 > 0.7
