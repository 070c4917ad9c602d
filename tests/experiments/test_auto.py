"""A race as a recorded run: what its record holds, and that nothing of the target is used."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edgemask import EdgeMaskClassifier, benchmark
from edgemask.errors import DataError
from edgemask.experiments import auto
from edgemask.experiments.auto import AutoRun
from edgemask.experiments.records import ResultStore, identity
from edgemask.metrics import micro_f1
from edgemask.report.suite import RunSet
from edgemask.training.candidates import AUTO_RECIPE, DEFAULTS
from edgemask.training.race import MAJORITY
from edgemask.training.trainer import Trainer

CPU = torch.device("cpu")
SOURCE = benchmark("synthetic")
PROTOCOL = SOURCE.protocol("alpha+beta→gamma")
DOMAINS = SOURCE.load(nodes=80)
SMALL = AUTO_RECIPE.replace(epochs=20, hidden=8, lr=0.02)
RUN = AutoRun("synthetic", {"nodes": 80}, PROTOCOL, 0, SMALL, ("erm-mlp", "erm-gcn"))


@pytest.fixture(scope="module")
def record():
    return RUN.perform(DOMAINS, device=CPU)


def test_a_record_holds_the_scores_of_all_candidates_and_the_members(record):
    assert record["method"] == "auto"
    assert record["candidates"] == ["erm-mlp", "erm-gcn"]
    select = record["select"]
    assert select["rule"] == "auto, leave-one-source-out"
    assert set(select["scores"]) == {"erm-mlp", "erm-gcn", MAJORITY}
    assert set(select["members"]) <= {"erm-mlp", "erm-gcn"}
    assert {row["name"] for row in record["leaderboard"]} == set(select["scores"])
    assert select["expected"]["low"] <= select["expected"]["score"] <= select["expected"]["high"]
    assert set(record["metrics"]) == set(record["calibration_error"]) == {"gamma"}
    assert 0 <= record["calibration_error"]["gamma"] <= 1
    assert json.loads(json.dumps(record))


def test_the_labels_of_the_target_change_the_metrics_only(record):
    labels = np.random.default_rng(0).permutation(DOMAINS["gamma"].y)
    other = RUN.perform(DOMAINS | {"gamma": DOMAINS["gamma"].replace(y=labels)}, device=CPU)
    assert other["select"] == record["select"]
    assert other["metrics"] != record["metrics"]


def test_a_record_is_stored_and_found_again(record, tmp_path: Path):
    store = ResultStore(tmp_path)
    store.add(RUN, record)
    assert ResultStore(tmp_path).find(RUN)["metrics"] == record["metrics"]
    assert ResultStore(tmp_path).find(replace(RUN, candidates=("erm-mlp",))) is None
    assert ResultStore(tmp_path).find(replace(RUN, seed=1)) is None


def test_candidates_and_settings_decide_the_identity():
    others = [
        replace(RUN, candidates=("erm-gcn",)),
        replace(RUN, recipe=SMALL.replace(epochs=30)),
        replace(RUN, seed=1),
    ]
    assert len({identity(run.describe()) for run in [RUN, *others]}) == 4


def test_settings_apply_to_every_candidate(record):
    assert all(row["epoch"] <= 20 for row in record["leaderboard"])


def test_if_every_candidate_fails_the_record_says_so():
    broken = replace(RUN, candidates=("erm-gcn:lr=1e30:average=0",)).perform(DOMAINS, device=CPU)
    assert broken["failed"]["kind"] == "InputError"
    assert "every candidate failed" in broken["failed"]["message"]
    assert broken["metrics"] == {}


def test_a_protocol_without_targets_is_refused():
    with pytest.raises(DataError, match="there is no data for any target"):
        RUN.perform({n: g for n, g in DOMAINS.items() if n != "gamma"}, device=CPU)


def test_a_run_set_lists_races():
    tasks = list(RunSet("synthetic", "auto", AUTO_RECIPE, ("alpha+beta→gamma",), seeds=2).tasks())
    assert [(type(t), t.seed, t.candidates) for t in tasks] == [(AutoRun, 0, DEFAULTS), (AutoRun, 1, DEFAULTS)]


def test_the_score_is_that_of_the_average(record):
    sources = [DOMAINS["alpha"], DOMAINS["beta"]]
    model = EdgeMaskClassifier(candidates=RUN.candidates, epochs=20, hidden=8, lr=0.02, device="cpu").fit(sources)
    gamma = DOMAINS["gamma"]
    assert record["metrics"]["gamma"]["micro_f1"] == micro_f1(gamma.y, model.model_.probabilities(gamma))


# ---- trainings shared by races ---------------------------------------------------------------------------


RACED = ("erm-mlp", "erm-gcn", "erm-sage")


def _without_times(record):
    board = [{k: v for k, v in row.items() if k != "seconds"} for row in record["leaderboard"]]
    left_out = ("seconds", "peak_memory_mib", "leaderboard", "notes")
    return {k: v for k, v in record.items() if k not in left_out} | {"leaderboard": board}


def test_races_in_one_process_share_trainings_with_the_same_records(monkeypatch):
    runs = [replace(RUN, candidates=(name,)) for name in RACED] + [replace(RUN, candidates=RACED)]
    alone = []
    for run in runs:
        auto._heats.cache_clear()
        alone.append(run.perform(DOMAINS, device=CPU))
    auto._heats.cache_clear()
    steps, step = [0], Trainer.step
    monkeypatch.setattr(Trainer, "step", lambda self: steps.__setitem__(0, steps[0] + 1) or step(self))
    counts, shared, saved = [], [], []
    heats = auto._heats(tuple(sorted((name, g.hash) for name, g in DOMAINS.items())), 0)
    for run in runs:
        shared.append(run.perform(DOMAINS, device=CPU))
        counts.append(steps[0])
        saved.append(heats.saved)
    assert list(map(_without_times, shared)) == list(map(_without_times, alone))
    assert counts[-1] == counts[-2]  # the race of all candidates trains nothing
    assert saved[-2] == 0
    assert shared[-1]["seconds"]["train"] > saved[-1] > 0  # as if nothing was shared


def test_a_training_that_was_not_remembered_to_its_end_is_repeated():
    """The race of all candidates comes first here, so trainings that it stopped or never finished have no state."""
    auto._heats.cache_clear()
    RUN.perform(DOMAINS, device=CPU)
    heats = auto._heats(tuple(sorted((name, g.hash) for name, g in DOMAINS.items())), 0)
    for key in [key for key in heats.results if key[1] in (None, 20)]:
        del heats.results[key]
    again = RUN.perform(DOMAINS, device=CPU)
    for key in [key for key in heats.results if key[1] is None]:
        del heats.results[key]
    once_more = RUN.perform(DOMAINS, device=CPU)
    auto._heats.cache_clear()
    expected = RUN.perform(DOMAINS, device=CPU)
    assert _without_times(again) == _without_times(once_more) == _without_times(expected)


def test_races_with_other_seeds_or_graphs_share_nothing():
    auto._heats.cache_clear()
    first = RUN.perform(DOMAINS, device=CPU)
    other = replace(RUN, seed=1).perform(DOMAINS, device=CPU)
    assert other["select"] != first["select"]
    few = SOURCE.load(nodes=70)
    changed = replace(RUN, options={"nodes": 70}).perform(few, device=CPU)
    assert changed["select"]["scores"] != first["select"]["scores"]
