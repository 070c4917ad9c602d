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
from edgemask.experiments.auto import AutoRun
from edgemask.experiments.records import ResultStore, identity
from edgemask.metrics import micro_f1
from edgemask.report.suite import RunSet
from edgemask.training.candidates import AUTO_RECIPE, DEFAULTS
from edgemask.training.race import MAJORITY

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
