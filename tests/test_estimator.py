"""The estimator: scikit-learn's interface, clear error messages, and model files that predict the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from edgemask import EdgeMaskClassifier, Graph, GraphError
from edgemask.data.synthetic import demo_family
from edgemask.errors import CheckpointError, CoverageWarning, EdgemaskError
from edgemask.metrics import macro_f1
from edgemask.runtime import checkpoint

TINY = {
    "method": "robust",
    "epochs": 6,
    "clusters": 5,
    "k": 3,
    "hidden": 8,
    "mask_projection": 8,
    "mask_hidden": 8,
    "device": "cpu",
}
A, B, C = demo_family(80).values()


@pytest.fixture(scope="module")
def model() -> EdgeMaskClassifier:
    return EdgeMaskClassifier(seed=3, metric="macro_f1", **TINY).fit([A, B])


def shuffled(graph: Graph) -> Graph:
    return graph.replace(y=np.random.default_rng(0).permutation(graph.y))


def test_parameters_are_checked_before_graphs_are_read():
    for model, why in (
        (EdgeMaskClassifier("erm-gnc"), "no method 'erm-gnc' .*; did you mean 'erm-gcn'"),
        (EdgeMaskClassifier("erm-gcn", epochs=1.5), "epochs must be an integer"),
        (EdgeMaskClassifier(epochs=0), "epochs must be an integer"),
        (EdgeMaskClassifier(candidates=["erm-gnc"]), "no method 'erm-gnc'"),
    ):
        with pytest.raises(EdgemaskError, match=why):
            model.fit(["nowhere.npz"])
    with pytest.raises(EdgemaskError, match="on_epoch must be a function or None, got 3"):
        EdgeMaskClassifier("erm-gcn").fit(["nowhere.npz"], on_epoch=3)


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
    assert model.classes_.tolist() == [0, 1, 2, 3, 4]
    assert model.rule_ == "leave-one-source-out"
    assert set(model.leaderboard_["propagation"]) == {"0", "0.5", "0.8", "0.9", "0.95"}
    assert model.leaderboard_["weight"].tolist() == [1, 0, 0, 0, 0]
    assert [r["epoch"] for r in model.history_["edgemask-dg-star"]] == [1, 2, 3, 4, 5, 6]
    assert {"loss alpha", "loss beta"} <= set(model.history_["edgemask-dg-star"][0])
    assert model.sources_ == {"alpha": A.hash, "beta": B.hash}


def test_a_single_source_and_a_single_validation_graph_need_no_list():
    one = EdgeMaskClassifier(**TINY).fit(A, validation=C)
    assert one.rule_ == "validation"
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
    given = {name: value for name, value in estimator.get_params().items() if value is not None}
    assert given == {
        "method": "auto", "max_members": 7, "jobs": 1, "seed": 7, "device": "auto", "metric": "micro_f1",
        "scale": True, "verbose": 0, "epochs": 9, "backbone": "gat",
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
        ({"alpha": 1.5}, r"alpha must be a number in \[0, 1\) or a tuple of .*, got 1.5"),
        ({"recipe": "cake"}, "no recipe 'cake' .*robust"),
        ({"method": "cake"}, "no method 'cake' .*erm-gcn"),
        ({"candidates": ["erm-gcn"]}, "candidates needs method = 'auto', got method = 'robust'"),
        ({"budget": 9.0}, "budget needs method = 'auto', got method = 'robust'"),
        ({"method": "auto", "recipe": "paper"}, "recipe needs a single method, got recipe = 'paper'"),
        ({"method": "auto", "candidates": ["cake"]}, "candidate 'cake': no method 'cake'"),
        (
            {"method": "auto", "candidates": ["edgemask-dg-star:select=validation"]},
            "a race sets select = 'auto' itself",
        ),
        ({"method": "auto", "candidates": ["erm-gcn"]}, "k defines the candidates: choose them by name"),
        (
            {"method": "auto", "budget": -1},
            "budget must be a time such as 90s, 10m or 2h, or a positive number of seconds, got -1",
        ),
        ({"method": "auto", "budget": "soon"}, "budget must be a time such as 90s, 10m or 2h, .* got 'soon'"),
        ({"method": "auto", "max_members": 0}, "max_members must be at least 1, got 0"),
        ({"method": "auto", "jobs": 0}, "jobs must be at least 1, got 0"),
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
    pd.testing.assert_frame_equal(model.explain(C, [0, 1]), model.explain(shuffled(C), [0, 1]))
    one, other = model.adversary(C), model.adversary(shuffled(C))
    assert np.array_equal(one.edges, other.edges)
    assert np.array_equal(one.s, other.s)


# ---- explain and adversary -------------------------------------------------------------------------------


def test_explain_gives_the_edges_that_end_in_a_node(model):
    frame = model.explain(C, [3])
    assert (frame["node"] == 3).all()
    assert sorted(frame["neighbour"]) == sorted(C.edges[0][C.edges[1] == 3])
    assert (frame["class"] == model.predict(C)[3]).all()


def test_the_adversary_gives_every_edge_once_with_its_origin_and_mask(model):
    mask = model.adversary(A)
    assert mask.edges.shape == (2, len(mask.s)) == (2, len(mask.origin))
    assert len(np.unique(mask.edges, axis=1).T) == len(mask.s)
    assert set(mask.origin) == {"original", "knn", "spectral"}
    assert (mask.s >= 0).all()
    assert (mask.s <= 1).all()
    assert np.array_equal(mask.edges[:, mask.origin == "original"], A.edges)


def test_the_mean_mask_is_the_budget():
    fitted = EdgeMaskClassifier(**TINY, bound="budget", rho=0.7, mask_lr=0.1).fit([A])
    s = fitted.adversary(A).s
    assert s.mean() == pytest.approx(0.7, abs=1e-5)
    assert s.std() > 1e-3  # the MaskNet prefers some edges


def test_a_model_without_a_masknet_has_no_adversary():
    fitted = EdgeMaskClassifier(**TINY, mask=False).fit([A])
    with pytest.raises(ValueError, match="without a MaskNet"):
        fitted.adversary(C)


# ---- save, load ------------------------------------------------------------------------------------------


def test_a_loaded_model_equals_the_saved_one_to_the_bit(model, tmp_path: Path):
    model.save(tmp_path / "model")
    loaded = EdgeMaskClassifier.load(tmp_path / "model", device="cpu")
    assert np.array_equal(loaded.predict_proba(C), model.predict_proba(C))
    assert np.array_equal(loaded.adversary(C).s, model.adversary(C).s)
    pd.testing.assert_frame_equal(loaded.leaderboard_, model.leaderboard_.assign(seconds=0.0))
    assert loaded.rule_ == model.rule_
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
    assert blocks.get_params()["inference_batch"] == blocks.members_[0].method.recipe.inference_batch == 17
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
    for wrong in ({**meta, "num_features": 9}, {**meta, "params": []}, {k: meta[k] for k in meta if k != "members"}):
        checkpoint.write(path, "model", tensors, wrong)
        with pytest.raises(CheckpointError, match=f"{path} does not hold a usable model"):
            EdgeMaskClassifier.load(path)


def test_a_target_may_have_fewer_classes_than_the_model(model):
    few = C.replace(y=np.minimum(C.y, 1), classes=("0", "1"))
    assert (model.predict(few) == model.predict(C)).all()
    assert 0 <= model.score(few) <= 1
    more = C.replace(y=C.y + 1, classes=tuple("012345"))
    with pytest.raises(GraphError, match="graph 'gamma', classes: the model does not know '5'; it was trained on '0'"):
        model.score(more)


def test_the_dual_variable_is_saved_with_the_model(tmp_path: Path):
    dual = EdgeMaskClassifier(**TINY, bound="dual", rho=0.2, select="last", alpha=(0.0,)).fit([A, B])
    dual.save(tmp_path / "model")
    assert (
        EdgeMaskClassifier.load(tmp_path / "model").members_[0].method.lam
        == dual.members_[0].method.lam
        != dual.members_[0].method.recipe.lam
    )


@pytest.mark.filterwarnings("ignore::edgemask.errors.EnrichWarning")
def test_the_default_recipe_works_on_small_graphs():
    a, b, c = (g.replace(x=g.x[:, :8]) for g in demo_family(70).values())
    fitted = EdgeMaskClassifier("robust", epochs=2, device="cpu").fit([a, b])
    assert len(fitted.adversary(c).s) > c.num_edges


# ---- auto: a race between candidates -----------------------------------------------------------------------

SMALL = {"candidates": ("erm-mlp", "erm-gcn", "edgemask-dg:backbone=mix:rho=0.7"), "epochs": 10, "hidden": 8}


@pytest.fixture(scope="module")
def auto() -> EdgeMaskClassifier:
    return EdgeMaskClassifier(**SMALL, device="cpu").fit([A, B])


def test_a_budget_may_be_a_text():
    quick = EdgeMaskClassifier(candidates=["erm-mlp"], epochs=2, device="cpu", budget="5m").fit([A, B])
    assert quick.leaderboard_["candidate"].tolist()[0] == "erm-mlp"


def test_the_default_is_a_race(auto):
    assert EdgeMaskClassifier().method == "auto"
    assert auto.rule_ == "auto, leave-one-source-out"
    assert set(auto.leaderboard_["candidate"]) == {*SMALL["candidates"], "majority class"}
    assert auto.leaderboard_["weight"].sum() == pytest.approx(1)
    assert [m.name for m in auto.members_] == list(auto.history_)
    assert auto.expected_.low <= auto.expected_.score <= auto.expected_.high


def test_a_model_of_several_members_survives_a_file(auto, tmp_path: Path):
    auto.save(tmp_path / "model")
    loaded = EdgeMaskClassifier.load(tmp_path / "model", device="cpu")
    assert np.array_equal(loaded.predict_proba(C), auto.predict_proba(C))
    pd.testing.assert_frame_equal(loaded.leaderboard_, auto.leaderboard_.assign(seconds=0.0))
    pd.testing.assert_frame_equal(loaded.compare(C), auto.compare(C))
    assert loaded.expected_ == auto.expected_
    assert loaded.history_ == auto.history_
    assert loaded.get_params() == auto.get_params()


def test_every_method_can_be_fitted_by_name():
    for name in ("erm-mlp", "mixup", "group-dro"):
        fitted = EdgeMaskClassifier(name, epochs=2, device="cpu").fit([A, B])
        assert fitted.members_[0].name == name
        assert fitted.rule_ == "last"


def test_hyper_parameters_of_a_method_are_settings(tmp_path: Path):
    fitted = EdgeMaskClassifier("vrex", epochs=2, weight=3.0, device="cpu").fit([A, B])
    assert fitted.members_[0].method.hparams["weight"] == 3.0
    fitted.save(tmp_path / "model")
    loaded = EdgeMaskClassifier.load(tmp_path / "model", device="cpu")
    assert loaded.members_[0].method.hparams["weight"] == 3.0


@pytest.mark.parametrize("method", ["erm-gcn", "robust"])
def test_names_and_order_of_the_sources_do_not_matter(method):
    settings = TINY | {"method": method, "alpha": (0.0,), "select": "last"}
    one = EdgeMaskClassifier(**settings).fit([A, B])
    other = EdgeMaskClassifier(**settings).fit([B.replace(name="yak"), A.replace(name="zebra")])
    assert np.array_equal(one.predict_proba(C), other.predict_proba(C))


def test_candidates_can_run_in_processes(auto):
    parallel = EdgeMaskClassifier(**SMALL, device="cpu", jobs=2).fit([A, B])
    np.testing.assert_allclose(parallel.predict_proba(C), auto.predict_proba(C), rtol=1e-4)
    assert parallel.leaderboard_["candidate"].tolist() == auto.leaderboard_["candidate"].tolist()


def test_a_graph_unlike_the_sources_raises_a_warning(auto):
    with pytest.warns(CoverageWarning, match="graph 'gamma' differs from the sources"):
        auto.predict(C.replace(x=C.x * 100))
    assert not auto.compare(A)["outside"].any()


def test_predictions_that_are_not_finite_are_refused(auto):
    with pytest.raises(GraphError, match=r"graph 'gamma', x: the largest feature is 0 of node 0, 3e\+38"):
        auto.predict(C.replace(x=np.full(C.x.shape, 3e38, dtype=np.float32)))


def test_a_model_of_version_0_3_can_be_read(model, tmp_path: Path):
    member = model.members_[0]
    meta = {
        "version": "0.3.0",
        "params": {"recipe": "robust", "seed": 3, "device": "cpu", "metric": "macro_f1", "epochs": 6},
        "recipe": member.method.recipe.to_json(),
        "num_features": 64,
        "classes": list("01234"),
        "choice": {"rule": "last", "alpha": member.propagation.alpha, "epoch": 6, "scores": []},
        "history": [],
        "sources": {"alpha": A.hash},
        "lam": 0.001,
    }
    checkpoint.write(tmp_path / "old", "model", checkpoint.pack_module("networks", member.method.networks), meta)
    loaded = EdgeMaskClassifier.load(tmp_path / "old", device="cpu")
    assert np.array_equal(loaded.predict_proba(C), model.predict_proba(C))
    assert loaded.rule_ == "last"
