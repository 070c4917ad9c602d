"""The same checks for every method of the registry, on a tiny family of synthetic graphs."""

import numpy as np
import pytest
import torch

from edgemask import inference
from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.errors import GraphError
from edgemask.graph import Graph
from edgemask.methods.batches import Batches
from edgemask.methods.registry import METHODS, method_spec
from edgemask.training.fit import Fit

EPOCHS = 12
SMALL = {"epochs": EPOCHS, "hidden": 8, "alpha": (0.0,), "select": "last", "average": 0.0, "lr": 0.01}
WHOLE = ("ada", "eerm", "grm")  # methods that need whole graphs
ENRICHED = {"k": 3, "clusters": 4, "spectral_budget": 2.0}


def small_recipe(name: str, **settings: object):
    spec = method_spec(name)
    more = {key: value for key, value in ENRICHED.items() if spec.recipe.enriched and getattr(spec.recipe, key) != 0}
    gat = {"heads": 2} if spec.recipe.backbone == "gat" else {}
    return spec.under(None, **SMALL | more | gat | settings)


@pytest.fixture(scope="module")
def family() -> dict[str, Graph]:
    return {**demo_family(70), "unseen": demo_family(90)["gamma"]}


def fit(name: str, family: dict[str, Graph], seed: int = 0, checkpoint=None, on_epoch=None, **settings: object):
    sources = [family["alpha"], family["beta"]]
    job = Fit(
        method_spec(name).make, small_recipe(name, **settings), sources,
        seed=seed, checkpoint_path=checkpoint, checkpoint_every=EPOCHS // 2, on_epoch=on_epoch,
    )  # fmt: skip
    return job.run()[0]


def predicted(trainer, graph: Graph) -> np.ndarray:
    return inference.probabilities(trainer.method, graph.without_labels(), 0.0)


@pytest.fixture(scope="module", params=METHODS)
def trained(request, family):
    """Train each method once. Most checks use this run."""
    return request.param, fit(request.param, family)


def test_the_loss_falls(trained):
    _, trainer = trained
    losses = [np.mean([v for k, v in r.items() if k.startswith("loss ")]) for r in trainer.history]
    assert np.isfinite(losses).all()
    assert min(losses[-3:]) < losses[0]


def test_an_unseen_graph_of_another_size_is_predicted(trained, family):
    _, trainer = trained
    p = predicted(trainer, family["unseen"])
    assert p.shape == (family["unseen"].num_nodes, family["unseen"].num_classes)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-6)


@pytest.mark.slow
def test_a_seed_decides_all(trained, family):
    name, trainer = trained
    np.testing.assert_array_equal(predicted(trainer, family["unseen"]), predicted(fit(name, family), family["unseen"]))
    other = predicted(fit(name, family, seed=1), family["unseen"])
    assert not np.array_equal(predicted(trainer, family["unseen"]), other)


def test_a_stopped_run_resumes_to_the_bit(trained, family, tmp_path):
    name, trainer = trained

    class Stopped(Exception):
        pass

    def stop(current, stage):
        if current.epoch == EPOCHS // 2 + 1:
            raise Stopped

    path = tmp_path / "state"
    with pytest.raises(Stopped):
        fit(name, family, checkpoint=path, on_epoch=stop)
    resumed = fit(name, family, checkpoint=path)
    assert len(resumed.history) == EPOCHS
    np.testing.assert_array_equal(predicted(trainer, family["unseen"]), predicted(resumed, family["unseen"]))


def test_state_carries_the_whole_model(trained, family):
    _, trainer = trained
    method = trainer.method
    fresh = type(method)(method.recipe, method.num_features, method.num_classes, 5, torch.device("cpu"))
    fresh.load_state(*method.state())
    ours, theirs = (inference.probabilities(m, family["unseen"].without_labels(), 0.0) for m in (method, fresh))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", METHODS)
def test_bad_input_is_refused_by_name(name, family):
    graph = family["alpha"]
    with pytest.raises(GraphError, match="'alpha', y: training needs labels"):
        Fit(method_spec(name).make, small_recipe(name), [graph.without_labels()])
    with pytest.raises(ValueError, match="no setting 'learning_rate'"):
        small_recipe(name, learning_rate=1)


@pytest.mark.parametrize("name", METHODS)
def test_hyper_parameters_have_sound_ranges(name):
    spec = method_spec(name)
    assert spec.status == "full" or spec.status.startswith("partial: ")
    assert spec.summary
    assert spec.citation
    for key, hyper in spec.make.hyper.items():
        assert hyper.about, key
        assert key not in Recipe.__dataclass_fields__, f"--set {key} would not reach the recipe"
        assert hyper.legal.check(key, hyper.default) == hyper.default
        if hyper.law != "choice":
            low, high = hyper.search or (hyper.low, hyper.high)
            assert hyper.low <= low <= high <= hyper.high
            assert np.isfinite([low, high]).all()
            assert hyper.law != "log" or low > 0
            with pytest.raises(ValueError, match=f"{key} must be"):
                spec.under(None, **{key: "nonsense"})
        with pytest.raises(ValueError, match=key):
            spec.under(None, **{key: np.nan})


@pytest.mark.parametrize("name", METHODS)
def test_the_enriched_graph_averaging_propagation_and_batches_can_be_granted(name, family, monkeypatch):
    """Methods that need whole graphs reject batches with an error; everything else works with all methods."""
    drawn, sizes = Batches.part, {"alpha": [], "beta": []}

    def part(batches, *which):
        source, edges = drawn(batches, *which)
        sizes[source.domain.name].append(len(source.train))
        return source, edges

    monkeypatch.setattr(Batches, "part", part)
    granted = {"epochs": 2, **ENRICHED, "knn_ratio": 1.0, "average": 0.05, "average_from": 0.0}
    granted |= {"select": "source-val", "alpha": (0.0, 0.5)}
    batches = {"batch_size": 20, "fan_out": 3}
    if name in WHOLE:
        with pytest.raises(ValueError, match=f"(?i)^(?=.*{name}).*batch_size must be None"):
            fit(name, family, **granted, **batches)
        batches = {}
    trainer = fit(name, family, **granted, **batches)
    assert trainer.average is not None
    assert all(source.sampler is not None for source in trainer.sources)
    for source in trainer.sources:
        own_sizes = sizes[source.domain.name]
        assert sum(own_sizes) == (2 * len(source.train) if batches else 0)  # every training node once per epoch
        assert max(own_sizes, default=0) <= 20
    assert np.isfinite([trainer.history[-1][f"select {alpha}"] for alpha in ("0", "0.5")]).all()
    graph = family["unseen"].without_labels()
    plain, propagated = (inference.probabilities(trainer.method, graph, alpha) for alpha in (0.0, 0.5))
    np.testing.assert_allclose(propagated.sum(1), 1, atol=1e-6)
    assert np.abs(propagated - plain).max() > 1e-3
