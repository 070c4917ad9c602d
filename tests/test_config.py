"""Tests of recipes: legal values, error messages, JSON, and the stock recipes."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from edgemask.config import BACKBONES, RECIPES, Recipe, recipe
from edgemask.errors import InputError

ILLEGAL = [
    ("k", -1, "an integer in [0, inf)"),
    ("clusters", 2.5, "an integer in [0, inf)"),
    ("affinity", "euclidean", "one of cosine, rbf"),
    ("knn_exact_up_to", 999, "an integer in [1000, inf)"),
    ("knn_ratio", 1.1, "a number in [0, 1]"),
    ("spectral_ratio", -0.1, "a number in [0, 1]"),
    ("knn_ratio", None, "a number in [0, 1]"),
    ("spectral_budget", float("inf"), "a number in [0, inf) or None"),
    ("backbone", "transformer", f"one of {', '.join(BACKBONES)}"),
    ("layers", 0, "an integer in [1, 1000]"),
    ("layers", 2.0, "an integer in [1, 1000]"),
    ("layers", True, "an integer in [1, 1000]"),
    ("hidden", 0, "an integer in [1, inf)"),
    ("heads", 0, "an integer in [1, inf)"),
    ("dropout", 1.0, "a number in [0, 0.999]"),
    ("attention_dropout", -0.1, "a number in [0, 0.999]"),
    ("mask", "no", "True or False"),
    ("mask", 0, "True or False"),
    ("gate", "hard", "one of message, attention, softmax"),
    ("mask_inputs", ("labels",), "a tuple of origin, structure, predictions"),
    ("mask_inputs", "origin", "a tuple of origin, structure, predictions"),
    ("mask_inputs", ["origin"], "a tuple of origin, structure, predictions"),
    ("mask_projection", 0, "an integer in [1, inf)"),
    ("mask_hidden", 0, "an integer in [1, inf)"),
    ("epochs", 0, "an integer in [1, inf)"),
    ("n_descent", 0, "an integer in [1, inf)"),
    ("n_ascent", -1, "an integer in [0, inf)"),
    ("lr", 0, "a number in (0, inf)"),
    ("lr", "fast", "a number in (0, inf)"),
    ("lr", float("nan"), "a number in (0, inf)"),
    ("mask_lr", 0.0, "a number in (0, inf)"),
    ("weight_decay", -1e-4, "a number in [0, inf)"),
    ("clip", -1.0, "a number in [0, inf)"),
    ("adversarial", None, "True or False"),
    ("bound", "none", "one of penalty, dual, budget"),
    ("lam", float("-inf"), "a number in (-inf, inf)"),
    ("rho", 0.0, "a number in (0, 1]"),
    ("rho", 1.01, "a number in (0, 1]"),
    ("dual_lr", 0.0, "a number in (0, inf)"),
    ("precision", "fp16", "one of tf32, float32, bf16"),
    ("hyper", (("b", 1), ("a", 1)), "a tuple of (name, value) pairs sorted by name"),
    ("hyper", {"a": 1}, "a tuple of (name, value) pairs sorted by name"),
    ("batch_size", 0, "an integer in [1, inf) or None"),
    ("batch_size", 10.0, "an integer in [1, inf) or None"),
    *(
        ("fan_out", v, "None, an integer of at least 1 (-1 keeps all neighbours), or a tuple of such integers")
        for v in (0, -2, True, 2.5, (), (5, 0), [5, 5])
    ),
    ("shards", 0, "an integer in [1, inf)"),
    ("inference_batch", 0, "an integer in [1, inf) or None"),
    ("loss", "hinge", "one of cross-entropy, binary"),
    ("average", 1.5, "a number in [0, 1]"),
    ("average_from", -0.5, "a number in [0, 1]"),
    ("test_graph", "both", "one of original, enriched"),
    ("test_mask", "half", "one of ones, zeros, masknet"),
    ("alpha", (), "a number in [0, 1) or a tuple of at least one number in [0, 1)"),
    ("alpha", (0.5, 1.0), "a number in [0, 1) or a tuple of at least one number in [0, 1)"),
    ("alpha", ("0.5",), "a number in [0, 1) or a tuple of at least one number in [0, 1)"),
    ("alpha", 1.5, "a number in [0, 1) or a tuple of at least one number in [0, 1)"),
    ("alpha", [0.5], "a number in [0, 1) or a tuple of at least one number in [0, 1)"),
    ("steps", -1, "an integer in [0, 10000]"),
    ("select", "oracle", "one of auto, last, source-val, validation, leave-one-source-out"),
    ("eval_every", 0, "an integer in [1, inf)"),
    ("patience", -1, "an integer in [0, inf)"),
]


@pytest.mark.parametrize(("name", "value", "legal"), ILLEGAL, ids=[f"{n}={v!r}" for n, v, _ in ILLEGAL])
def test_illegal_value_is_named_with_its_setting_and_legal_values(name, value, legal):
    with pytest.raises(ValueError, match=re.escape(f"{name} must be {legal}, got {value!r}")):
        Recipe(**{name: value})


def test_every_setting_has_an_illegal_value():
    assert {name for name, _, _ in ILLEGAL} == {f.name for f in dataclasses.fields(Recipe)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("k", 0),
            ("knn_ratio", 0),
            ("knn_ratio", 1),
            ("spectral_budget", 2.5),
            ("lam", -3.0),
            ("rho", 1),
            ("rho", 1e-6),
        ),
        *(("n_ascent", 0), ("lr", 1), ("steps", 0), ("alpha", (0.999,)), ("mask_inputs", ("predictions", "origin"))),
    ],
)
def test_bounds_of_the_ranges_are_legal(name, value):
    assert getattr(Recipe(**{name: value}), name) == value


def test_several_strengths_need_a_selection_rule():
    with pytest.raises(
        ValueError,
        match=re.escape("select = 'last' does not choose among strengths: give alpha one value, got (0.0, 0.5)"),
    ):
        Recipe(alpha=(0.0, 0.5))
    assert Recipe(alpha=(0.0, 0.5), select="source-val").alpha == (0.0, 0.5)


def test_budget_needs_an_adversary():
    with pytest.raises(
        ValueError, match="adversarial = False leaves the MaskNet nothing to learn under bound = 'budget'"
    ):
        Recipe(adversarial=False, bound="budget")


@pytest.mark.parametrize(
    ("backbone", "fan_out"), [("gat", (5, 3)), ("gin", (5, -1)), ("gcn", (5, 3, 2)), ("sgc", (5, 3, -1)), ("gcn", 5)]
)
def test_fan_out_has_one_value_per_hop(backbone, fan_out):
    assert Recipe(backbone=backbone, fan_out=fan_out).fan_out == fan_out
    if isinstance(fan_out, tuple):
        with pytest.raises(ValueError, match=rf"fan_out needs one value per hop: .*got \({fan_out[0]}, 3, 3, 3\)"):
            Recipe(backbone=backbone, fan_out=(fan_out[0], 3, 3, 3))


def test_shards_need_a_batch_of_at_least_their_number():
    assert Recipe(batch_size=4, shards=4).shards == 4
    for batch_size in (None, 3):
        with pytest.raises(ValueError, match=f"shards = 4 .* batch_size must be at least 4, got {batch_size}"):
            Recipe(batch_size=batch_size, shards=4)


def test_unknown_setting_is_rejected_with_the_known_settings():
    with pytest.raises(ValueError, match=r"no setting 'learning_rate' \(settings: k, clusters, .*, lr, "):
        Recipe().replace(learning_rate=0.1)
    with pytest.raises(ValueError, match="no setting 'gates'"):
        Recipe.from_json({"gates": "message"})


def test_unknown_recipe_is_rejected_with_the_known_recipes():
    with pytest.raises(ValueError, match=r"no recipe 'best' \(recipes: paper, released, robust\)"):
        recipe("best")


def test_overrides_are_checked():
    assert recipe("paper", rho=0.25).rho == 0.25
    with pytest.raises(ValueError, match="rho must be"):
        recipe("paper", rho=2)


def test_a_recipe_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Recipe().lr = 1.0


@pytest.mark.parametrize("name", RECIPES)
def test_json_round_trip(name):
    full = recipe(name, mask_inputs=("origin", "structure"), spectral_budget=3.5, backbone="gat", fan_out=(4, -1))
    assert Recipe.from_json(json.loads(json.dumps(full.to_json()))) == full


def test_values_from_json_are_checked():
    with pytest.raises(ValueError, match="epochs must be an integer"):
        Recipe.from_json({"epochs": "200"})


@pytest.mark.parametrize(
    ("changes", "enriched"),
    [
        ({}, True),
        ({"k": 0}, True),
        ({"k": 0, "clusters": 0}, False),
        ({"knn_ratio": 0.0, "spectral_ratio": 0.0}, False),
        ({"spectral_ratio": 0.0, "spectral_budget": 5, "k": 0}, False),  # a budget is only an upper limit
        ({"spectral_budget": 0, "k": 0}, False),
        ({"spectral_budget": 5, "k": 0}, True),
    ],
)
def test_enriched(changes, enriched):
    assert Recipe(**changes).enriched is enriched


def test_recipe_paper_has_the_settings_of_the_paper():
    r = recipe("paper")
    assert (r.backbone, r.gate, r.bound, r.adversarial) == ("gat", "message", "penalty", True)
    assert (r.lam, r.n_descent, r.n_ascent, r.epochs) == (1e-3, 5, 1, 200)
    assert (r.k, r.clusters, r.knn_ratio, r.spectral_ratio) == (10, 100, 0.1, 0.1)
    assert (r.layers, r.mask_inputs, r.average, r.alpha) == (2, (), 0.0, (0.0,))


def test_recipe_released_behaves_like_the_released_code():
    r = recipe("released")
    assert (r.gate, r.adversarial, r.test_graph, r.test_mask) == ("attention", False, "original", "zeros")


def test_robust_is_the_default_and_bounds_its_adversary():
    r = recipe()
    assert r == RECIPES["robust"]
    assert (r.adversarial, r.test_graph, r.test_mask, r.select) == (True, "original", "ones", "auto")
    assert r.bound == "budget"


def test_changes_are_the_settings_that_differ_from_the_defaults():
    assert Recipe().changes() == {}
    assert Recipe(alpha=(0,), epochs=3).changes() == {"epochs": 3}
    assert Recipe(average=0) == Recipe(average=0.0)


def test_inference_settings_need_a_masknet_and_enrichment():
    with pytest.raises(ValueError, match="test_mask = 'masknet' needs a MaskNet, got mask = False"):
        Recipe(mask=False, test_mask="masknet")
    with pytest.raises(ValueError, match="test_graph = 'enriched' needs enrichment"):
        Recipe(k=0, clusters=0, test_graph="enriched")


def test_removed_settings_are_accepted_with_their_fixed_value_only():
    old = recipe("robust").to_json() | {"mask_kind": "sigmoid", "activation": "elu", "knn_budget": None}
    assert Recipe.from_json(old) == recipe("robust")
    with pytest.raises(InputError, match="mask_kind = 'gumbel' is no longer supported"):
        Recipe.from_json(old | {"mask_kind": "gumbel"})
