"""A race: candidates that fall behind stop, ties are averaged, and a race that is killed continues to the bit."""

from __future__ import annotations

import os
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edgemask.errors import CheckpointError, FileError, GraphError, InputError, RaceWarning, WorkerLostError
from edgemask.graph import Graph
from edgemask.inference import mean_probabilities
from edgemask.model import Model
from edgemask.runtime import checkpoint
from edgemask.runtime.processes import process_pool
from edgemask.training import contender, heat, trainer
from edgemask.training import race as race_module
from edgemask.training.candidates import choose_candidates
from edgemask.training.heat import Result
from edgemask.training.race import FALLBACK, MAJORITY, Race
from edgemask.training.trainer import Trainer
from tests.training.toys import A, B, C, domain

SETTINGS = {"epochs": 20, "eval_every": 2, "hidden": 8, "lr": 0.02}
NAMES = ("erm-mlp", "erm-gcn", "edgemask-dg:backbone=sage:rho=0.7:mask_projection=4:mask_hidden=4")


def candidates(*names: str, sources=(A, B), **more):
    return choose_candidates(names or NAMES, sources, **SETTINGS | more)


def run(*names: str, sources=(A, B), validation=(), **options) -> Model:
    return Race(candidates(*names), sources, validation, **options).run()


def predictions(outcome: Model, graph: Graph = C) -> np.ndarray:
    return mean_probabilities(outcome.members, graph)


def without_times(outcome: Model):
    return [replace(s, seconds=0.0) for s in outcome.leaderboard]


@pytest.fixture(scope="module")
def plain() -> Model:
    return run()


# ---- the result ------------------------------------------------------------------------------------------------


def test_every_candidate_and_the_majority_class_are_on_the_leaderboard(plain):
    assert {s.name for s in plain.leaderboard} == {*NAMES, MAJORITY}
    assert plain.rule == "auto, leave-one-source-out"
    for standing in plain.leaderboard:
        assert standing.score is not None
        assert standing.error is not None
        assert 0 < standing.score <= 1
    assert sum(s.weight for s in plain.leaderboard) == pytest.approx(1)
    assert [s.name for s in plain.leaderboard if s.weight] == [m.name for m in plain.members]
    assert plain.leaderboard[0].score == max(s.score for s in plain.leaderboard if s.score is not None)


def test_finished_rounds_are_reported():
    heats = []
    run("erm-mlp", "erm-gcn", on_heat=lambda name, number: heats.append((name, number)))
    assert {("erm-mlp", 1), ("erm-gcn", 1)} <= set(heats)
    assert max(number for _, number in heats) <= 3


def test_the_mean_of_the_members_is_predicted(plain):
    p = predictions(plain)
    np.testing.assert_allclose(p, np.mean([mean_probabilities([m], C) for m in plain.members], axis=0))
    np.testing.assert_allclose(p.sum(1), 1)


def test_members_are_trained_on_all_sources_to_the_chosen_epoch(plain):
    standings = {s.name: s for s in plain.leaderboard}
    for name, history in plain.histories.items():
        assert history[-1]["epoch"] == standings[name].epoch
        assert {"loss a", "loss b"} <= set(history[-1])  # the names that the user gave


def test_the_expected_score_lies_between_those_of_the_sources(plain):
    assert plain.expected is not None
    values = plain.expected.by_graph
    assert set(values) == {"a", "b"}
    assert plain.expected.score == pytest.approx(np.mean(list(values.values())))
    assert 0 <= plain.expected.low <= min(values.values()) <= max(values.values()) <= plain.expected.high <= 1


def test_names_and_order_of_the_sources_do_not_matter(plain):
    other = run(sources=(B.replace(name="zebra"), A.replace(name="yak")))
    assert np.array_equal(predictions(other), predictions(plain))
    assert without_times(other) == without_times(plain)


def test_the_labels_of_the_target_are_not_read(plain):
    p = predictions(plain, C.without_labels())
    assert np.array_equal(p, predictions(plain))


def test_validation_graphs_choose_if_there_are_any():
    outcome = run("erm-mlp", "erm-gcn", validation=[C])
    assert outcome.rule == "auto, validation"
    assert outcome.expected is not None
    assert set(outcome.expected.by_graph) == {"c"}


def test_a_single_source_withholds_nodes():
    big = domain("big", 5, n=240)
    outcome = run("erm-mlp", "erm-gcn", sources=[big])
    assert outcome.rule == "auto, source-val"
    assert len(mean_probabilities(outcome.members[:1], C)) == C.num_nodes


# ---- who stops and who is averaged --------------------------------------------------------------------------------


def test_a_candidate_that_is_clearly_behind_stops_after_the_first_round():
    fast, slow = "erm-gcn:epochs=100", "erm-gcn:epochs=100:lr=1e-12"
    outcome = run(fast, slow)
    standing = next(s for s in outcome.leaderboard if s.name == slow)
    assert standing.rounds == 1
    assert f"points behind {fast}" in standing.note
    assert [m.name for m in outcome.members] == [fast]


@pytest.mark.parametrize(("gain", "kept"), [(0.0, False), (0.01, False), (0.05, True)])
def test_a_candidate_whose_score_still_rises_fast_enough_goes_on(gain, kept):
    race = Race(candidates("erm-mlp", "erm-gcn", epochs=1000), [A, B])
    ends = {"a": np.linspace(0.79, 0.81, 50)}
    race.results["erm-mlp"] = Result(0.8, 50, replicates=ends, trained=100)
    race.results["erm-gcn"] = Result(0.7, 100, replicates=ends, trained=100, gain=gain)
    assert ("erm-gcn" in race._keep(["erm-mlp", "erm-gcn"])) is kept  # log2(1000 / 100) = 3.3 doublings are left


def test_candidates_that_cannot_be_told_apart_are_averaged_up_to_a_limit():
    names = ["erm-gcn", *(f"erm-gcn:weight_decay={w}" for w in (1e-5, 1e-4, 1e-3))]
    assert len(run(*names).members) == 4
    few = run(*names, max_members=2)
    assert len(few.members) == 2
    assert sum("more than 2 members" in s.note for s in few.leaderboard) == 2


@pytest.mark.parametrize("scored", [True, False], ids=["while it is scored", "in its final training"])
def test_a_candidate_whose_weights_are_no_longer_finite_leaves(monkeypatch, scored):
    other = "erm-gcn:weight_decay=1e-05"

    def destroy(one: Trainer) -> dict[str, float]:
        record = step(one)
        if one.method.recipe.weight_decay == 1e-5 and bool(one.eval_graphs) is scored:
            for average in (one.average or {}).values():
                average.fill_(torch.nan)
        return record

    step = Trainer.step
    monkeypatch.setattr(Trainer, "step", destroy)
    outcome = run("erm-gcn", other)
    assert [m.name for m in outcome.members] == ["erm-gcn"]
    (note,) = (s.note for s in outcome.leaderboard if s.name == other)
    assert note.startswith("failed: ")
    assert ("prediction of node 0 is not finite" if scored else "weights are no longer finite") in note


def test_a_candidate_that_diverges_leaves_with_its_reason():
    outcome = run("erm-mlp", "erm-gcn:lr=1e30:average=0")
    failed = next(s for s in outcome.leaderboard if "1e30" in s.name)
    assert failed.note.startswith("failed: epoch")
    assert failed.score is None
    assert any("left the race" in note for note in outcome.notes)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory")],
    ids=["numpy", "torch"],
)
def test_a_candidate_that_does_not_fit_in_memory_leaves_with_its_reason(monkeypatch, error):
    step = Trainer.step

    def hungry(trainer):
        if trainer.method.recipe.backbone == "gcn":
            raise error
        return step(trainer)

    monkeypatch.setattr(Trainer, "step", hungry)
    outcome = run("erm-mlp", "erm-gcn")
    assert [s.note for s in outcome.leaderboard if s.name == "erm-gcn"] == [
        "failed: not enough memory; a smaller batch_size needs less"
    ]
    assert [m.name for m in outcome.members] == ["erm-mlp"]


@pytest.mark.parametrize("error", [FileError("disk full"), RuntimeError("a bug")], ids=["disk", "bug"])
def test_errors_that_are_not_the_candidates_end_the_race(monkeypatch, error):
    def broken(trainer):
        raise error

    monkeypatch.setattr(Trainer, "step", broken)
    with pytest.raises(type(error), match=str(error)):
        run("erm-mlp", "erm-gcn")


def test_a_setting_that_a_race_cannot_use_takes_out_only_that_candidate():
    outcome = run("erm-mlp:patience=3", "erm-gcn")
    assert [m.name for m in outcome.members] == ["erm-gcn"]
    assert any("patience needs a rule" in s.note for s in outcome.leaderboard)


def test_if_all_candidates_fail_each_is_named():
    with pytest.raises(InputError, match=r"every candidate failed: erm-gcn:lr=1e30.*erm-mlp:lr=1e30"):
        run("erm-gcn:lr=1e30:average=0", "erm-mlp:lr=1e30:average=0")


def test_a_model_that_is_no_better_than_a_guess_warns():
    rng = np.random.default_rng(0)
    one, two = (g.replace(y=rng.integers(0, 3, g.num_nodes), x=rng.normal(size=(g.num_nodes, 3))) for g in (A, B))
    with pytest.warns(RaceWarning, match="hardly more than the most frequent class"):
        run("erm-mlp", sources=(one, two))


# ---- scores that mean nothing, and bad input -----------------------------------------------------------------------


def test_a_source_with_one_class_falls_back_to_a_named_candidate():
    single = B.replace(y=np.zeros(B.num_nodes, dtype=int))
    with pytest.warns(RaceWarning, match=rf"all labels of graph 'b' are the same.*{FALLBACK}"):
        outcome = run(sources=(A, single))
    assert [m.name for m in outcome.members] == [FALLBACK]
    assert outcome.expected is None


def test_few_labels_fall_back_to_a_named_candidate():
    y = np.where(np.arange(60) < 8, A.first_labels, -1)
    with pytest.warns(RaceWarning, match="only 1 nodes"):
        outcome = run(sources=[A.replace(y=y)])
    assert outcome.rule == "auto, none"


def test_sources_with_one_class_altogether_are_refused():
    zeros = [g.replace(y=np.zeros(g.num_nodes, dtype=int)) for g in (A, B)]
    with pytest.raises(GraphError, match="every label is 'a'; a source needs at least 2 classes"):
        run(sources=zeros)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "budget must be a positive number of seconds, got 0"),
        ({"max_members": 0}, "max_members must be at least 1, got 0"),
        ({"jobs": 0}, "jobs must be at least 1, got 0"),
    ],
)
def test_illegal_parameters_are_named(options, message):
    with pytest.raises(InputError, match=message):
        Race(candidates(), [A, B], **options)


# ---- the budget -----------------------------------------------------------------------------------------------------


class Clock:
    """A clock on which every epoch takes a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = 0.0
        monkeypatch.setattr(race_module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(contender.time, "monotonic", lambda: self.now)
        step = trainer.Trainer.step

        def slow(own):
            self.now += 1.0
            return step(own)

        monkeypatch.setattr(trainer.Trainer, "step", slow)


@pytest.mark.parametrize("budget", [60, 600])
def test_the_budget_bounds_the_race_and_its_final_training(monkeypatch, budget):
    clock = Clock(monkeypatch)
    outcome = run("erm-mlp", "erm-gcn", budget=budget)
    assert clock.now <= budget
    assert outcome.members
    assert any("budget" in note for note in outcome.notes) == (budget == 60)


def test_an_expensive_candidate_may_use_half_of_the_rounds_time_until_its_first_score(monkeypatch):
    Clock(monkeypatch)
    cheap = [f"erm-mlp:weight_decay={w}" for w in (1e-5, 1e-4, 1e-3)]
    outcome = run(*cheap, "erm-gcn:eval_every=8", budget=200)  # an equal share would be 15 s, and it needs 16
    assert all(s.score is not None for s in outcome.leaderboard)


def test_a_budget_that_is_too_small_says_how_much_the_cheapest_needs(monkeypatch):
    Clock(monkeypatch)
    with pytest.raises(
        InputError, match=r"budget = 5 s is too small .* erm-mlp, needs about 4 s until its first score"
    ):
        run("erm-mlp", "erm-gcn", budget=5)


# ---- resume ----------------------------------------------------------------------------------------------------------


class StopError(Exception):
    pass


def killed_after(epochs: int, folder: Path) -> Race:
    left = [epochs]

    def on_epoch(trainer, stage):
        left[0] -= 1
        if left[0] < 0:
            raise StopError

    return Race(candidates(), [A, B], folder=folder, on_epoch=on_epoch)


@pytest.mark.parametrize("seed", range(4))
def test_a_race_that_is_killed_continues_to_the_bit(plain, tmp_path, seed, monkeypatch):
    if seed % 2:  # save after every evaluation and every epoch of the final training, not only after each round
        for module in (heat, contender):
            monkeypatch.setattr(module, "SAVE_SECONDS", -1.0)
    rng, kills = np.random.default_rng(seed), 0
    while True:
        try:
            outcome = killed_after(int(rng.integers(1, 60)), tmp_path).run()
            break
        except StopError:
            kills += 1
    assert kills >= 1
    assert np.array_equal(predictions(outcome), predictions(plain))
    assert without_times(outcome) == without_times(plain)


@pytest.fixture
def one_thread():
    """Compute with one thread, as each of two worker processes does on two cores. Matrix products depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_candidates_that_run_in_other_processes_give_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (temporary := tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    here = run()
    with process_pool(2) as pool:
        for options in ({"folder": tmp_path / "race"}, {"shared_disk": False}):
            outcome = Race(candidates(), [A, B], executor=pool, jobs=2, **options).run()
            assert np.array_equal(predictions(outcome), predictions(here))
            assert without_times(outcome) == without_times(here)
        assert not list(temporary.iterdir())  # a process that is killed would leave its sockets there


def test_a_process_that_dies_ends_the_race_with_a_clear_error():
    with process_pool(1) as pool:
        race = Race(candidates("erm-mlp"), [A, B], executor=pool)
        race.candidates = {"erm-mlp": Deadly("erm-mlp")}
        with pytest.raises(WorkerLostError, match="a process of the race died"):
            race.run()


class Deadly:
    """A candidate that kills the process that reads it."""

    def __init__(self, name: str):
        self.name, self.recipe = name, candidates("erm-mlp")[0].recipe

    def __reduce__(self):
        return os._exit, (1,)


def test_the_state_of_another_race_is_refused(tmp_path):
    with pytest.raises(StopError):
        killed_after(50, tmp_path).run()
    with pytest.raises(CheckpointError, match="another"):
        Race(candidates(), [A, B], seed=1, folder=tmp_path).run()


def test_no_warning_is_raised_in_a_usual_race():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RaceWarning)
        run("erm-gcn")


# ---- damaged states --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> Path:
    """The folder of a race that was stopped in its last round."""
    folder = tmp_path_factory.mktemp("race")
    with pytest.raises(StopError):
        killed_after(70, folder).run()
    assert {p.name for p in folder.iterdir()} >= {"race.ckpt", "race-00.ckpt"}
    return folder


def changed(value, place, change):
    """Return a JSON value in which the part at a place is replaced."""
    if not place:
        return change
    copy = list(value) if isinstance(value, list) else dict(value)
    copy[place[0]] = changed(
        copy[place[0]] if place[0] in value or isinstance(value, list) else None, place[1:], change
    )
    return copy


def refused(stopped: Path, folder: Path, name: str, change) -> str:
    """Continue a race after a change of one of its files, and return the message."""
    shutil.copytree(stopped, folder, dirs_exist_ok=True)
    kind = "race" if name == "race.ckpt" else "contender"
    tensors, meta = change(*checkpoint.read(folder / name, kind))
    checkpoint.write(folder / name, kind, tensors, meta)
    with pytest.raises(CheckpointError) as caught:
        Race(candidates(), [A, B], folder=folder).run()
    said = str(caught.value)
    assert said.startswith(str(folder / name))
    assert "\n" not in said
    assert len(said) < 1000
    return said


@pytest.mark.parametrize(
    ("place", "change"),
    [
        ((), 5),
        (("round",), -1),
        (("round",), 4),
        (("racing",), ["nobody"]),
        (("racing",), 5),
        (("standings",), []),
        (("standings", 0, "score"), "x"),
        (("standings", 0, "name"), "nobody"),
        (("results",), []),
        (("results", "nobody"), {}),
        (("results", "erm-mlp"), {}),
        (("results", "erm-mlp", "trained"), 0),
        (("results", "erm-mlp", "score"), None),
        (("results", "erm-mlp", "propagation"), [1.5, "logits"]),
        (("notes",), [5]),
        (("spent",), "long"),
        (("spent",), -1e9),
    ],
    ids=str,
)
def test_a_race_whose_state_does_not_fit_is_refused(stopped, tmp_path, place, change):
    refused(stopped, tmp_path, "race.ckpt", lambda tensors, meta: (tensors, changed(meta, place, change)))


@pytest.mark.parametrize(
    ("place", "change"),
    [
        ((), []),
        (("epoch",), -(2**63)),
        (("epoch",), 1),
        (("seconds",), "x"),
        (("since_best",), None),
        (("curve",), []),
        (("curve",), [[1]]),
        (("trainers",), []),
        (("trainers",), 5),
        (("trainers", 0, "epoch"), 10**9),
        (("best",), None),
        (("best",), [0.5, 10**9, 0.0, "logits"]),
        (("best",), [0.5, 2, 0.123, "logits"]),
        (("best",), [0.5, 2, 0.0, "labels"]),
    ],
    ids=str,
)
def test_a_candidate_whose_state_does_not_fit_is_refused(stopped, tmp_path, place, change):
    refused(stopped, tmp_path, "race-00.ckpt", lambda tensors, meta: (tensors, changed(meta, place, change)))


@pytest.mark.parametrize(
    ("name", "part"),
    [("race.ckpt", "predictions/"), ("race.ckpt", "replicates/"), ("race-00.ckpt", "best-predictions/")],
)
@pytest.mark.parametrize(
    "change", [lambda t: t[:1], lambda t: t.to(torch.int64), lambda t: t * torch.nan, lambda t: t[None], lambda t: None]
)
def test_saved_arrays_that_do_not_fit_are_refused(stopped, tmp_path, name, part, change):
    def damage(tensors, meta):
        first = next(own for own in sorted(tensors) if part in own)
        new = change(tensors.pop(first))
        return tensors | ({} if new is None else {first: new}), meta

    refused(stopped, tmp_path, name, damage)


def test_a_race_without_the_state_of_a_candidate_is_refused(stopped, tmp_path):
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    (tmp_path / "race-00.ckpt").unlink()
    with pytest.raises(CheckpointError, match=r"race-00\.ckpt, the state of erm-mlp, is missing"):
        Race(candidates(), [A, B], folder=tmp_path).run()
