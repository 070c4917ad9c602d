"""The estimator: scikit-learn's interface, clear error messages, and model files that predict the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from edgemask import EdgeMaskClassifier, Graph, GraphError
from edgemask.data.synthetic import demo_family
from edgemask.errors import CheckpointError, EdgemaskError
from edgemask.metrics import macro_f1
from edgemask.runtime import checkpoint

TINY = {"epochs": 6, "clusters": 5, "k": 3, "hidden": 8, "mask_projection": 8, "mask_hidden": 8, "device": "cpu"}
A, B, C = demo_family(80).values()


@pytest.fixture(scope="module")
def model() -> EdgeMaskClassifier:
    return EdgeMaskClassifier(seed=3, metric="macro_f1", **TINY).fit([A, B])


def shuffled(graph: Graph) -> Graph:
    return graph.replace(y=np.random.default_rng(0).permutation(graph.y))


# ---- fit, predict, score ---------------------------------------------------------------------------------


def test_fit_then_predict_gives_a_class_index_for_every_node():
    predicted = EdgeMaskClassifier(**TINY, alpha=(0.0,), select="last").fit([A, B]).predict(C)
    assert predicted.shape == (80,)
    assert set(predicted) <= set(range(5))


def test_probabilities_are_distributions_and_predict_takes_the_largest(model):
    p = model.predict_proba(C)
    assert p.shape == (80, 5)
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(1), 1, rtol=0, atol=1e-12)
    assert (model.predict(C) == p.argmax(1)).all()


def test_score_is_the_estimators_metric(model):
    assert model.score(C) == macro_f1(C.y, model.predict_proba(C))


@pytest.mark.slow
def test_training_beats_guessing_on_the_unseen_domain():
    longer = EdgeMaskClassifier(**TINY | {"epochs": 60}, lr=0.02, alpha=(0.0,), select="last").fit([A, B])
    assert longer.score(C) > 0.3  # 5 equally likely classes


def test_fit_sets_the_fitted_attributes(model):
    assert model.classes_.tolist() == list("01234")
    assert model.choice_.rule == "leave-one-source-out"
    assert set(model.choice_.scores) == {0.0, 0.5, 0.8, 0.9, 0.95}
    assert [r["epoch"] for r in model.history_] == [1, 2, 3, 4, 5, 6]
    assert model.sources_ == {"alpha": A.hash, "beta": B.hash}


def test_a_single_source_and_a_single_validation_graph_need_no_list():
    one = EdgeMaskClassifier(**TINY).fit(A, C)
    assert one.choice_.rule == "validation"
    assert list(one.sources_) == ["alpha"]


def test_the_same_seed_gives_the_same_model_and_another_seed_another_model(model):
    params = model.get_params()
    again, other = (EdgeMaskClassifier(**params | {"seed": s}).fit([A, B]).predict_proba(C) for s in (3, 4))
    assert np.array_equal(again, model.predict_proba(C))
    assert not np.array_equal(other, again)


@pytest.mark.parametrize("nodes", [70, 300])
def test_a_graph_of_another_size_works(model, nodes):
    assert model.predict_proba(demo_family(nodes)["gamma"]).shape == (nodes, 5)


@pytest.mark.parametrize("nodes", [1, 80])
def test_a_graph_without_edges_works(model, nodes):
    bare = Graph("bare", C.x[:nodes], np.empty((2, 0), dtype=int))
    np.testing.assert_allclose(model.predict_proba(bare).sum(1), np.ones(nodes))


# ---- scikit-learn's interface ------------------------------------------------------------------------------


def test_clone_copies_the_settings_but_not_the_fit(model):
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy is not model
    with pytest.raises(NotFittedError):
        copy.predict(C)


def test_set_params_reaches_named_parameters_and_settings():
    estimator = EdgeMaskClassifier(epochs=5)
    assert estimator.set_params(seed=7, epochs=9, backbone="gat") is estimator
    assert estimator.get_params() == {
        "recipe": "robust", "seed": 7, "device": "auto", "metric": "micro_f1", "epochs": 9, "backbone": "gat",
    }  # fmt: skip


def test_repr_shows_the_parameters_that_differ_from_the_defaults():
    assert repr(EdgeMaskClassifier(epochs=5)) == "EdgeMaskClassifier(epochs=5)"


@pytest.mark.parametrize("call", ["predict", "predict_proba", "score", "explain", "save"])
def test_use_before_fit_is_an_error(call):
    with pytest.raises(NotFittedError, match="call fit first") as caught:
        getattr(EdgeMaskClassifier(), call)(C)
    assert isinstance(caught.value, EdgemaskError)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"epochs": 0}, r"epochs must be an integer in \[1, inf\), got 0"),
        ({"rho": 1.5}, r"rho must be a number in \(0, 1\], got 1.5"),
        ({"gate": "door"}, "gate must be one of .*, got 'door'"),
        ({"alpha": 0.5}, r"alpha must be a tuple of at least one number in \[0, 1\), got 0.5"),
        ({"epoch": 3}, "no setting 'epoch' .*epochs"),
        ({"recipe": "cake"}, "no recipe 'cake' .*robust"),
        ({"metric": "f2"}, "no metric 'f2' .*micro_f1"),
        ({"metric": "f2", "select": "last", "alpha": (0.0,)}, "no metric 'f2'"),
        ({"seed": 0.5}, "seed must be an integer, got 0.5"),
        ({"device": "abacus"}, "device must be auto, cpu or cuda, got 'abacus'"),
    ],
)
def test_a_bad_parameter_is_stored_and_refused_at_fit(bad, message):
    estimator = EdgeMaskClassifier(**TINY | bad)
    assert estimator.get_params().items() >= bad.items()
    with pytest.raises(ValueError, match=message):
        estimator.fit([A, B])


# ---- graphs that do not fit ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (C.replace(x=np.ones((80, 9))), "graph 'gamma', x: 9 features, but the model was trained on 64"),
    ],
)
@pytest.mark.parametrize("call", ["predict", "score", "explain"])
def test_a_target_that_does_not_fit_is_refused(model, graph, message, call):
    with pytest.raises(GraphError, match=message):
        getattr(model, call)(graph)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([], "no source graphs were given"),
        ([A, B.without_labels()], "graph 'beta', y: training needs labels, but it has none"),
        ([A, B.replace(y=np.full(80, 2))], "graph 'beta', y: every label is '2'"),
        ([A, B.replace(x=np.ones((80, 9)))], "graph 'beta', x: 9 features, but graph 'alpha' has 64"),
        ([A, B.replace(classes=tuple("abcde"))], "graph 'beta', classes: .* but graph 'alpha' has"),
    ],
)
def test_a_source_that_does_not_fit_is_refused(sources, message):
    with pytest.raises(GraphError, match=message):
        EdgeMaskClassifier(**TINY).fit(sources)


def test_scoring_a_graph_without_labels_is_refused(model):
    with pytest.raises(GraphError, match="graph 'gamma' has no labels"):
        model.score(C.without_labels())


# ---- labels of the target --------------------------------------------------------------------------------


@pytest.mark.parametrize("test_graph", ["original", "enriched"])
def test_predictions_do_not_depend_on_the_targets_labels(test_graph):
    fitted = EdgeMaskClassifier(**TINY, test_graph=test_graph, test_mask="masknet").fit([A])
    p = fitted.predict_proba(C)
    assert np.array_equal(fitted.predict_proba(shuffled(C)), p)
    assert np.array_equal(fitted.predict_proba(C.without_labels()), p)
    assert np.array_equal(fitted.predict_proba(Graph("no classes", C.x, C.edges)), p)


def test_explanations_do_not_depend_on_the_targets_labels(model):
    one, other = model.explain(C), model.explain(shuffled(C))
    assert np.array_equal(one.edges, other.edges)
    assert np.array_equal(one.s, other.s)


# ---- explain ---------------------------------------------------------------------------------------------


def test_explain_gives_every_edge_once_with_its_origin_and_mask(model):
    mask = model.explain(A)
    assert mask.edges.shape == (2, len(mask.s)) == (2, len(mask.origin))
    assert len(np.unique(mask.edges, axis=1).T) == len(mask.s)
    assert set(mask.origin) == {"original", "knn", "spectral"}
    assert (mask.s >= 0).all()
    assert (mask.s <= 1).all()
    assert np.array_equal(mask.edges[:, mask.origin == "original"], A.edges)


def test_the_mean_mask_is_the_budget():
    fitted = EdgeMaskClassifier(**TINY, bound="budget", rho=0.7, mask_lr=0.1).fit([A])
    s = fitted.explain(A).s
    assert s.mean() == pytest.approx(0.7, abs=1e-5)
    assert s.std() > 1e-3  # the MaskNet prefers some edges


def test_a_model_without_a_masknet_cannot_explain():
    fitted = EdgeMaskClassifier(**TINY, mask=False).fit([A])
    with pytest.raises(ValueError, match="without a MaskNet"):
        fitted.explain(C)


# ---- save, load ------------------------------------------------------------------------------------------


def test_a_loaded_model_equals_the_saved_one_to_the_bit(model, tmp_path: Path):
    model.save(tmp_path / "model")
    loaded = EdgeMaskClassifier.load(tmp_path / "model", device="cpu")
    assert np.array_equal(loaded.predict_proba(C), model.predict_proba(C))
    assert np.array_equal(loaded.explain(C).s, model.explain(C).s)
    assert loaded.choice_ == model.choice_
    assert loaded.history_ == model.history_
    assert loaded.sources_ == model.sources_
    assert loaded.get_params() == model.get_params()
    assert loaded.classes_.tolist() == model.classes_.tolist()


def test_tuples_and_numpy_seeds_survive_a_file(tmp_path: Path):
    saved = EdgeMaskClassifier(**TINY, seed=np.int64(2), alpha=(0.0, 0.5), mask_inputs=("origin",)).fit([A])
    saved.save(tmp_path / "model")
    loaded = EdgeMaskClassifier.load(tmp_path / "model", device="cpu")
    assert loaded.get_params() == saved.get_params()
    assert np.array_equal(clone(loaded).fit([A]).predict_proba(C), saved.predict_proba(C))


def test_a_model_fitted_in_batches_can_predict_in_blocks(tmp_path: Path):
    fitted = EdgeMaskClassifier(batch_size=30, fan_out=(4, 4, 2), inference_batch=17, **TINY).fit([A, B])
    fitted.save(tmp_path / "model")
    loaded = EdgeMaskClassifier.load(tmp_path / "model", device="cpu")
    assert loaded.get_params()["fan_out"] == (4, 4, 2)
    assert np.array_equal(loaded.predict_proba(C), fitted.predict_proba(C))


def test_a_graph_of_any_size_can_be_predicted_in_blocks(model, tmp_path: Path):
    model.save(tmp_path / "model")
    blocks = EdgeMaskClassifier.load(tmp_path / "model", device="cpu", inference_batch=17)
    assert blocks.get_params()["inference_batch"] == blocks.method_.recipe.inference_batch == 17
    np.testing.assert_allclose(blocks.predict_proba(C), model.predict_proba(C), rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="inference_batch must be an integer in"):
        EdgeMaskClassifier.load(tmp_path / "model", device="cpu", inference_batch=0)


def test_only_the_first_of_several_processes_writes(model, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_file_that_holds_no_usable_model_is_refused(model, tmp_path: Path):
    path = tmp_path / "model"
    model.save(path)
    tensors, meta = checkpoint.read(path, "model")
    for wrong in ({**meta, "num_features": 9}, {**meta, "params": []}, {k: meta[k] for k in meta if k != "choice"}):
        checkpoint.write(path, "model", tensors, wrong)
        with pytest.raises(CheckpointError, match=f"{path} does not hold a usable model"):
            EdgeMaskClassifier.load(path)


def test_a_target_may_have_fewer_classes_than_the_model_unless_it_is_scored(model):
    few = C.replace(y=np.minimum(C.y, 1), classes=("0", "1"))
    assert (model.predict(few) == model.predict(C)).all()
    with pytest.raises(GraphError, match=r"graph 'gamma', classes: \('0', '1'\), but the model was trained on"):
        model.score(few)


def test_the_dual_variable_is_saved_with_the_model(tmp_path: Path):
    dual = EdgeMaskClassifier(**TINY, bound="dual", rho=0.2, select="last", alpha=(0.0,)).fit([A, B])
    dual.save(tmp_path / "model")
    assert EdgeMaskClassifier.load(tmp_path / "model").method_.lam == dual.method_.lam != dual.method_.recipe.lam


@pytest.mark.filterwarnings("ignore::edgemask.errors.EnrichWarning")
def test_the_default_recipe_works_on_small_graphs():
    a, b, c = (g.replace(x=g.x[:, :8]) for g in demo_family(70).values())
    fitted = EdgeMaskClassifier(epochs=2, device="cpu").fit([a, b])
    assert len(fitted.explain(c).s) > c.num_edges
