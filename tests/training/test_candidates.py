"""Candidates: names with settings, lists that are edited, and a loss on all labels where nodes have several."""

from __future__ import annotations

import numpy as np
import pytest

from edgemask.errors import InputError
from edgemask.methods.edgemask import Game
from edgemask.training.candidates import BINARY_LR, DEFAULTS, SHARED, Candidate, choose_candidates
from tests.training.toys import A


def names(candidates):
    return [c.name for c in candidates]


def test_a_name_gives_method_and_settings():
    candidate = Candidate.parse("edgemask-dg:backbone=mix:rho=0.7", epochs=50)
    assert candidate.make is Game
    assert (candidate.recipe.backbone, candidate.recipe.rho, candidate.recipe.epochs) == ("mix", 0.7, 50)
    assert candidate.recipe.alpha == SHARED["alpha"]
    assert Candidate.parse("erm-gcn:epochs=7", epochs=50).recipe.epochs == 7


def test_the_default_candidates_are_the_declared_ones():
    assert names(choose_candidates(None, [A])) == list(DEFAULTS)
    assert len(DEFAULTS) == 17
    assert DEFAULTS[0] == "erm-mlp"


def test_candidates_are_replaced_added_or_removed():
    assert names(choose_candidates(["irm", "erm-mlp"], [A])) == ["irm", "erm-mlp"]
    edited = names(choose_candidates(["+irm", "-erm-egc"], [A]))
    assert edited == [n for n in DEFAULTS if n != "erm-egc"] + ["irm"]


def test_nodes_with_several_labels_add_a_loss_on_all_of_them():
    several = A.replace(y=np.eye(3, dtype=int)[A.first_labels])
    candidates = choose_candidates(["erm-gcn", "irm"], [A.replace(name="other"), several])
    assert names(candidates) == ["erm-gcn", "erm-gcn:loss=binary:lr=0.004", "irm"]  # IRM has a loss of its own
    assert (candidates[1].recipe.loss, candidates[1].recipe.lr) == ("binary", BINARY_LR)
    assert Candidate.parse(candidates[1].name).recipe == candidates[1].recipe


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["erm-gnc"], "candidate 'erm-gnc': no method 'erm-gnc'"),
        (["erm-gcn:depth=3"], "candidate 'erm-gcn:depth=3': no setting 'depth'"),
        (["erm-gcn:epochs"], "expected NAME=VALUE, got 'epochs'"),
        (["erm-gcn", "erm-gcn"], "candidates must be distinct"),
        (["-irm"], "no default candidate 'irm'"),
        ([f"-{n}" for n in DEFAULTS], "no candidate is left"),
    ],
)
def test_bad_candidates_are_named(given, message):
    with pytest.raises(InputError, match=message):
        choose_candidates(given, [A])
