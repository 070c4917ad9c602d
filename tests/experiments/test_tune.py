"""The search: a seed determines all trials, only sources are used, failures are stored, and no trial runs twice."""

import json

import numpy as np
import pytest
import torch

from edgemask.config import COMMON, HyperParameter
from edgemask.data.synthetic import demo_family
from edgemask.errors import DivergenceError, InputError
from edgemask.experiments.tune import Search, Trial, best, source_score
from edgemask.methods.registry import METHODS, method_spec
from edgemask.protocol import Protocol

FAMILY = demo_family(90)
SMALL = {"epochs": 3, "hidden": 32}


def search(method: str = "irm", seed: int = 0, **settings: object) -> Search:
    return Search("demo", "ab→c", method, method_spec(method).under(None, **SMALL | settings), {"alpha": "1"}, seed)


def quadratic_score(recipe) -> float:
    """An artificial score with its maximum at lr = 1e-3."""
    return float(-((np.log10(recipe.lr) + 3) ** 2))


def test_the_first_trial_is_the_defaults(tmp_path):
    done = search().run(1, quadratic_score, tmp_path / "s.json")
    assert done[0].settings["lr"] == 1e-3
    assert done[0].settings["weight"] == method_spec("irm").make.hyper["weight"].default
    assert done[0].score == 0


def test_a_seed_determines_all_trials_and_another_seed_gives_others(tmp_path):
    one, again, other = (
        search(seed=s).run(6, quadratic_score, tmp_path / f"{i}.json") for i, s in enumerate((0, 0, 1))
    )
    assert one == again
    assert one[1:] != other[1:]


def test_a_stopped_search_continues_as_if_it_had_not_been_stopped(tmp_path):
    whole = search().run(8, quadratic_score, tmp_path / "whole.json")
    calls = []

    def counted(recipe):
        calls.append(recipe)
        return quadratic_score(recipe)

    search().run(5, counted, tmp_path / "part.json")
    assert search().run(8, counted, tmp_path / "part.json") == whole
    assert len(calls) == 8
    assert search().run(3, counted, tmp_path / "part.json") == whole[:3]
    assert len(calls) == 8


def test_the_search_learns_from_its_trials(tmp_path):
    done = search().run(30, quadratic_score, tmp_path / "s.json")
    early, late = ([t.score for t in part] for part in (done[1:11], done[20:]))
    assert np.mean(late) > np.mean(early)


def test_a_trial_that_diverges_is_stored_as_failed(tmp_path):
    def broken(recipe):
        if recipe.lr != 1e-3:
            raise DivergenceError("epoch 3: the loss is nan")
        return 0.5

    done = search().run(4, broken, tmp_path / "s.json")
    assert [t.score for t in done] == [0.5, None, None, None]
    assert done[1].failed == "DivergenceError: epoch 3: the loss is nan"
    assert best(done) == done[0]
    with pytest.raises(ValueError, match="all 1 trials failed: DivergenceError"):
        best(done[1:2])


def test_any_other_error_stops_the_search_and_keeps_its_trials(tmp_path):
    path = tmp_path / "s.json"
    search().run(2, quadratic_score, path)
    with pytest.raises(ZeroDivisionError):
        search().run(4, lambda recipe: 1 / 0, path)
    assert len(json.loads(path.read_text())["trials"]) == 2


def test_a_file_of_another_search_is_refused(tmp_path):
    path = tmp_path / "s.json"
    search().run(1, quadratic_score, path)
    with pytest.raises(ValueError, match="holds another search: its seed is 0, here 1"):
        search(seed=1).run(1, quadratic_score, path)
    path.write_text("{")
    with pytest.raises(ValueError, match="is not a record of a search"):
        search().run(1, quadratic_score, path)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_s_drawn_settings_are_legal(method, tmp_path):
    for trial in search(method).run(3, quadratic_score, tmp_path / "s.json"):
        assert set(trial.settings) == set(COMMON) | set(method_spec(method).make.hyper)
        search(method).recipe_of(trial.settings)


def test_scores_use_only_the_sources():
    """Scores do not change if the target's labels are shuffled."""
    stream = np.random.default_rng(0)
    protocol = Protocol("ab→c", ("alpha", "beta"), ("gamma",), ("micro_f1",))
    gamma = FAMILY["gamma"]
    scrambled = FAMILY | {"gamma": gamma.replace(y=stream.permutation(gamma.first_labels))}
    scores = []
    for family in (FAMILY, scrambled):
        training, _ = protocol.open(family)
        recipe = method_spec("erm-gcn").under(None, epochs=5)
        scores.append(source_score("erm-gcn", recipe, training, seed=0, device=torch.device("cpu")))
    assert scores[0] == scores[1]
    assert 0 < scores[0] <= 1


def test_one_source_is_scored_on_withheld_labels():
    training, _ = Protocol("a→c", ("alpha",), ("gamma",), ("micro_f1",)).open(FAMILY)
    recipe = method_spec("erm-gcn").under(None, epochs=5)
    assert 0 < source_score("erm-gcn", recipe, training, seed=0, device=torch.device("cpu")) <= 1


def test_values_are_checked_and_moved_into_the_search_range():
    law = HyperParameter(0.5, 0, 10, search=(1.0, 2.0))
    assert law.clip(0.5) == 1.0
    assert law.legal.check("x", 7) == 7.0
    with pytest.raises(ValueError, match=r"x must be a number in \[0, 10\], got 11"):
        law.legal.check("x", 11)
    with pytest.raises(ValueError, match=r"n must be an integer in \[1, 5\], got 1.5"):
        HyperParameter(2, 1, 5, law="int").legal.check("n", 1.5)
    with pytest.raises(ValueError, match="c must be one of a, b, got 'd'"):
        HyperParameter("a", law="choice", choices=("a", "b")).legal.check("c", "d")


def test_trials_are_read_back_from_the_file_unchanged(tmp_path):
    path = tmp_path / "s.json"
    done = search().run(2, quadratic_score, path)
    assert [Trial(**t) for t in json.loads(path.read_text())["trials"]] == done


WRONG = [
    5,
    {"settings": {}, "score": 1.0},
    {"settings": 5, "score": 1.0},
    {"settings": {"lr": "x"}, "score": 1.0},
    {"settings": {"lr": -1.0}, "score": 1.0},
    {"score": 1.0},
    {"settings": {}, "score": "high"},
    {"settings": {}, "score": 1.0, "failed": 5},
    {"settings": {}, "score": 1.0, "colour": "red"},
]


@pytest.mark.parametrize("trial", WRONG, ids=str)
def test_a_stored_trial_of_another_shape_is_refused(tmp_path, trial):
    path = tmp_path / "s.json"
    good = search().run(1, quadratic_score, path)[0]
    if isinstance(trial, dict) and isinstance(trial.get("settings"), dict) and (trial["settings"] or "colour" in trial):
        trial = trial | {"settings": good.settings | trial["settings"]}
    path.write_text(json.dumps(search().describe() | {"trials": [vars(good), trial]}))
    with pytest.raises(InputError, match=r"s\.json is not a record of a search: trials\[1\]"):
        search().run(3, quadratic_score, path)


@pytest.mark.parametrize(
    "text", ["[" * 10**5, "[]", '{"format": "edgemask-tune-1"}', '{"format": [], "trials": []}', "\xff"]
)
def test_a_file_that_is_no_search_is_refused(tmp_path, text):
    (tmp_path / "s.json").write_bytes(text.encode("latin1"))
    with pytest.raises(InputError, match=r"s\.json is not a record of a search"):
        search().run(1, quadratic_score, tmp_path / "s.json")
