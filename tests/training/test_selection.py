"""Selection rules: which rule applies, what it withholds, what it chooses, and which graphs it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from edgemask.config import recipe
from edgemask.errors import GraphError
from edgemask.methods.edgemask import Game
from edgemask.methods.erm import ERM
from edgemask.training.fit import Fit
from edgemask.training.selection import resolve_rule, smallest_alpha_near_best, withhold
from tests.training.toys import TINY, A, B, C, domain


def test_rules_resolve_by_what_there_is():
    auto = recipe("robust")
    assert resolve_rule(auto, [A, B], [C]).name == "validation"
    assert resolve_rule(auto, [A, B], []).name == "leave-one-source-out"
    assert resolve_rule(auto, [A], []).name == "source-val"
    with pytest.raises(ValueError, match="select = 'validation' needs validation graphs, none were given"):
        resolve_rule(auto.replace(select="validation"), [A], [])
    with pytest.raises(ValueError, match="at least 2 sources, got 1"):
        resolve_rule(auto.replace(select="leave-one-source-out"), [A], [])


def test_patience_is_judged_by_the_rule_that_results():
    with pytest.raises(ValueError, match=r"patience needs .* but the rule is 'leave-one-source-out'"):
        Fit(Game, TINY.replace(select="auto", patience=3), [A, B])
    with pytest.raises(ValueError, match=r"patience needs .* but the rule is 'last'"):
        Fit(Game, TINY.replace(patience=3), [A, B])


def test_the_weaker_strength_wins_a_near_tie():
    assert smallest_alpha_near_best({0.0: 0.7, 0.5: 0.701, 0.9: 0.6}) == 0.0
    assert smallest_alpha_near_best({0.0: 0.7, 0.5: 0.71, 0.9: 0.709}) == 0.5


def test_withheld_nodes_are_never_trained_on():
    train, scored = withhold(A, 0)
    held = np.flatnonzero(scored.masks["eval"])
    assert not set(train) & set(held)
    assert len(train) + len(held) == 60
    for c in range(3):  # class by class
        assert sum(A.y[held] == c) == round(0.2 * sum(A.y == c))


def test_too_few_labels_to_withhold_are_refused():
    y = np.full(60, -1)
    y[:2] = 0, 1
    with pytest.raises(GraphError, match="graph 'a', y: too few labels"):
        Fit(Game, TINY.replace(select="source-val"), [A.replace(y=y)]).run()


def test_selection_finds_that_propagation_hurts_on_a_heterophilous_validation_domain():
    bad = domain("v", 9, homophily=0.05)
    r = TINY.replace(
        select="validation", alpha=(0.0, 0.9), epochs=30, lr=1e-2, backbone="mlp", mask=False, k=0, clusters=0
    )
    _, choice = Fit(ERM, r, [A, B], [bad]).run()
    assert choice.alpha == 0.0
    _, choice = Fit(ERM, r, [A, B], [domain("w", 10, homophily=0.95)]).run()
    assert choice.alpha == 0.9


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([], "no source graphs"),
        ([A, domain("w", 1).replace(x=np.ones((60, 4)))], "graph 'w', x: 4 features, but graph 'a' has 3"),
        ([A.without_labels()], "graph 'a', y: training needs labels"),
        ([A.replace(y=np.zeros(60, dtype=int))], "graph 'a', y: every label is 'a'"),
        ([A, A], "two domains are named 'a'"),
    ],
)
def test_bad_sources_are_refused(sources, message):
    with pytest.raises(GraphError, match=message):
        Fit(Game, TINY, sources)
