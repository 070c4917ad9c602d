"""Every method of the registry can be built, trained and used through the common interface."""

from __future__ import annotations

import numpy as np
import pytest

from edgemask import inference
from edgemask.config import RECIPES
from edgemask.data.synthetic import demo_family
from edgemask.errors import InputError
from edgemask.methods.registry import METHODS, method_spec
from edgemask.training.candidates import choose_candidates
from edgemask.training.fit import Fit

A, B, C = demo_family(80).values()


def tiny(name: str):
    """Return a small version of a method's own recipe, which keeps k = 0 and clusters = 0."""
    r = method_spec(name).recipe
    return r.replace(
        epochs=2, hidden=4, heads=2, mask_projection=4, mask_hidden=4, k=min(r.k, 3), clusters=min(r.clusters, 5)
    )


@pytest.mark.parametrize("name", METHODS)
def test_a_method_trains_and_predicts_an_unseen_graph(name):
    trainer, choice = Fit(method_spec(name).make, tiny(name), [A, B]).run()
    p = inference.probabilities(trainer.method, C.without_labels(), choice.alpha)
    assert trainer.epoch == 2
    assert {"loss alpha", "loss beta"} <= trainer.history[-1].keys()
    assert p.shape == (80, 5)
    np.testing.assert_allclose(p.sum(1), 1, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_what_it_is(name):
    assert method_spec(name).summary
    assert method_spec(name).citation


def test_a_name_says_which_edges_are_trained_on():
    for name in METHODS:
        recipe = method_spec(name).recipe
        assert recipe.enriched == (name.endswith("-enriched") or "star" in name), name
    assert method_spec("edgemask-dg-star-knn").recipe.clusters == 0


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no method 'erm' \(methods: erm-mlp, .*edgemask-dg-star\)"):
        method_spec("erm")


def test_a_stock_recipe_does_not_change_what_a_method_is():
    assert not method_spec("edgemask-dg").under("paper").enriched
    assert method_spec("edgemask-dg-star-knn").under("paper").clusters == 0
    plain = method_spec("erm-mlp").under("robust", epochs=3)
    assert (plain.backbone, plain.mask, plain.enriched, plain.epochs) == ("mlp", False, False, 3)
    assert method_spec("edgemask-dg-star").under("paper") == RECIPES["paper"]


@pytest.mark.parametrize("name", ["self", "cls", "name", "names", "sources", "hyper"])
def test_names_of_arguments_are_not_settings(name):
    with pytest.raises(InputError, match=f"no setting '{name}'"):
        method_spec("erm-mlp").under(None, **{name: 5})
    with pytest.raises(InputError, match=f"no setting '{name}'"):
        choose_candidates(None, [], **{name: 5})
