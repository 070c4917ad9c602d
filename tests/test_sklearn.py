"""The estimator composes with scikit-learn: parameters, clones, searches, cross-validation, pipelines."""

from __future__ import annotations

import dataclasses
import inspect
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    RandomizedSearchCV,
    cross_val_score,
)
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from edgemask import EdgeMaskClassifier, Graph, Recipe, benchmark
from edgemask.errors import CoverageWarning, GraphError, InputError, InputTypeError
from edgemask.estimator import HYPER, OWN, SETTINGS

GRAPHS: list[Graph] = list(benchmark("synthetic").load(nodes=80).values())
QUICK: dict[str, Any] = {"epochs": 3, "select": "last", "alpha": 0.0, "device": "cpu"}


@pytest.fixture(autouse=True)
def _no_coverage_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        yield


def test_every_setting_is_a_parameter_with_a_default() -> None:
    signature = inspect.signature(EdgeMaskClassifier).parameters
    assert tuple(signature) == (*OWN, *SETTINGS, "hyper")
    assert set(SETTINGS) == {f.name for f in dataclasses.fields(Recipe)} - {"hyper"}
    assert all(signature[name].default is None for name in SETTINGS)
    assert set(EdgeMaskClassifier().get_params()) == {*OWN, *SETTINGS}
    assert HYPER.isdisjoint((*OWN, *SETTINGS))


@pytest.mark.parametrize(
    ("name", "near"), [("epoch", "epochs"), ("methode", "method"), ("backbon", "backbone"), ("penalty_weigth", "")]
)
def test_misspelt_names_are_refused_at_once(name: str, near: str) -> None:
    with pytest.raises(InputTypeError, match=f"EdgeMaskClassifier has no parameter '{name}'.*{near}"):
        EdgeMaskClassifier(**{name: 3})
    with pytest.raises(TypeError, match=f"no parameter '{name}'"):
        EdgeMaskClassifier().set_params(**{name: 3})


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("random_state", "; did you mean 'seed'?"),
        ("learning_rate", "; did you mean 'lr'?"),
        ("self_loops", "; it is an option of reading graphs: read={'self_loops': …}"),
        ("label", "; it is an option of reading graphs: read={'label': …}"),
    ],
)
def test_names_of_other_places_are_explained(name: str, end: str) -> None:
    with pytest.raises(InputTypeError, match=f"EdgeMaskClassifier has no parameter '{name}'{re.escape(end)}$"):
        EdgeMaskClassifier(**{name: 3})


def test_a_clone_has_the_same_parameters_and_no_model() -> None:
    model = EdgeMaskClassifier("irm", anneal=5, read={"undirected": True}, **QUICK)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.hyper == {"anneal": 5}
    assert not hasattr(copy.fit(GRAPHS[:2]), "nothing")
    assert not hasattr(clone(copy), "model_")
    assert is_classifier(model)
    assert repr(EdgeMaskClassifier("irm", anneal=5)) == "EdgeMaskClassifier(anneal=5, method='irm')"


@pytest.mark.slow
def test_a_grid_search_over_graphs() -> None:
    grid = {"method": ["erm-mlp", "erm-gcn"], "lr": [1e-3, 1e-1]}
    search = GridSearchCV(EdgeMaskClassifier("erm-gcn", **QUICK), grid, cv=LeaveOneOut(), error_score="raise")
    search.fit(GRAPHS)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert len(set(search.cv_results_["mean_test_score"])) > 1
    assert search.predict(GRAPHS[0]).shape == (80,)
    by_hand = []
    for left_out in range(3):
        rest = [g for i, g in enumerate(GRAPHS) if i != left_out]
        by_hand.append(clone(search.best_estimator_).fit(rest).score(GRAPHS[left_out]))
    assert search.best_score_ == pytest.approx(np.mean(by_hand))


def test_a_search_over_a_hyper_parameter() -> None:
    search = GridSearchCV(EdgeMaskClassifier("irm", **QUICK), {"anneal": [1, 2]}, cv=KFold(3), error_score="raise")
    assert search.fit(GRAPHS).best_params_["anneal"] in (1, 2)
    random = RandomizedSearchCV(
        EdgeMaskClassifier("erm-mlp", **QUICK), {"hidden": [8, 16, 32]}, n_iter=2, cv=KFold(3), error_score="raise"
    )
    assert random.fit(GRAPHS).best_params_["hidden"] in (8, 16, 32)


def test_cross_validation_leaves_out_graphs() -> None:
    model = EdgeMaskClassifier("erm-mlp", **QUICK)
    scores = cross_val_score(model, GRAPHS, cv=LeaveOneOut(), error_score="raise")
    expected = [clone(model).fit([g for g in GRAPHS if g is not target]).score(target) for target in GRAPHS]
    np.testing.assert_allclose(scores, expected)
    grouped = cross_val_score(model, GRAPHS, groups=[0, 0, 1], cv=LeaveOneGroupOut(), error_score="raise")
    two = clone(model).fit(GRAPHS[2]).score(GRAPHS[:2])
    assert grouped[0] == pytest.approx(two)
    assert two == pytest.approx(np.mean([clone(model).fit(GRAPHS[2]).score(g) for g in GRAPHS[:2]]))


def test_a_pipeline_transforms_graphs() -> None:
    add = FunctionTransformer(lambda graphs: [g.with_structure("log-degree") for g in graphs])
    pipe = Pipeline([("structure", add), ("model", EdgeMaskClassifier("erm-mlp", **QUICK))]).fit(GRAPHS[:2])
    assert pipe["model"].model_.num_features == GRAPHS[0].num_features + 1
    (labels,) = pipe.predict([GRAPHS[2]])
    assert set(labels) <= set(pipe.classes_)
    assert 0 <= pipe.score([GRAPHS[2]]) <= 1
    pipe.set_params(model__epochs=2).fit(GRAPHS[:2])


def test_labels_can_be_given_as_y() -> None:
    bare = [g.without_labels().replace(classes=()) for g in GRAPHS]
    labels = [g.y for g in GRAPHS]
    model = EdgeMaskClassifier("erm-mlp", **QUICK)
    with_y = clone(model).fit(bare[:2], labels[:2])
    np.testing.assert_array_equal(with_y.predict_proba(bare[2]), clone(model).fit(GRAPHS[:2]).predict_proba(bare[2]))
    assert with_y.score([bare[2]], [labels[2]]) == with_y.score(GRAPHS[2])
    assert with_y.score(bare[2], labels[2]) == with_y.score(GRAPHS[2])
    with pytest.raises(InputError, match=r"y must hold one array of labels for each of the 2 graphs.*validation=…"):
        clone(model).fit(GRAPHS[:2], GRAPHS[2:])


def test_predictions_are_values_of_the_classes() -> None:
    named = [g.replace(classes=("a", "b", "c", "d", "e")) for g in GRAPHS]
    integers = EdgeMaskClassifier("erm-mlp", **QUICK).fit(GRAPHS[:2])
    texts = EdgeMaskClassifier("erm-mlp", **QUICK).fit(named[:2])
    assert integers.classes_.tolist() == [0, 1, 2, 3, 4]
    assert texts.classes_[integers.predict(GRAPHS[2])].tolist() == texts.predict(named[2]).tolist()
    assert (integers.predict(GRAPHS[2]) == GRAPHS[2].y).mean() == integers.score(GRAPHS[2])
    both = integers.predict(GRAPHS[:2])
    assert [len(one) for one in both] == [80, 80]


def test_numbers_of_numpy_are_parameters(tmp_path: Path) -> None:
    model = EdgeMaskClassifier("erm-gcn", **QUICK).set_params(hidden=np.arange(8, 9)[0], lr=np.float32(0.5))
    model.fit(GRAPHS[:1]).save(tmp_path / "m.safetensors")
    params = EdgeMaskClassifier.load(tmp_path / "m.safetensors").get_params()
    assert (params["hidden"], params["lr"]) == (8, 0.5)


def test_scale_is_a_boolean() -> None:
    with pytest.raises(InputTypeError, match="scale must be True or False, got 'no'"):
        EdgeMaskClassifier("erm-mlp", scale="no", **QUICK).fit(GRAPHS[:1])


def test_a_mask_without_labels_is_named() -> None:
    graph = GRAPHS[0].replace(masks={"train": np.zeros(80, dtype=bool)})
    with pytest.raises(GraphError, match="graph 'alpha': its mask 'train' contains no labelled node"):
        EdgeMaskClassifier("erm-mlp", **QUICK).fit([graph])
