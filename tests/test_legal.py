"""Tests of the range checker."""

from __future__ import annotations

import math
from typing import Any

import pytest

from edgemask.errors import InputError
from edgemask.legal import Legal, did_you_mean, is_number

INTEGER, SHARE = Legal(1, whole=True), Legal(0, 1, open_low=True, open_high=True)


@pytest.mark.parametrize(
    ("legal", "text"),
    [
        (Legal(), "a number in (-inf, inf)"),
        (Legal(0, 1), "a number in [0, 1]"),
        (SHARE, "a number in (0, 1)"),
        (INTEGER, "an integer in [1, inf)"),
        (Legal(1, 5, whole=True, optional=True), "an integer in [1, 5] or None"),
        (Legal(choices=("a", "b")), "one of a, b"),
    ],
)
def test_the_legal_values_as_text(legal: Legal, text: str) -> None:
    assert str(legal) == text


@pytest.mark.parametrize(
    ("legal", "value"),
    [
        (INTEGER, 0),
        (INTEGER, 2.0),
        (INTEGER, True),
        (INTEGER, None),
        (SHARE, 0),
        (SHARE, 1),
        (SHARE, math.nan),
        (Legal(), math.inf),
        (Legal(), 10**400),
        (Legal(), "1"),
        (Legal(choices=("a", "b")), "c"),
        (Legal(choices=("a", "b")), None),
    ],
)
def test_an_illegal_value_is_named_with_the_legal_ones(legal: Legal, value: Any) -> None:
    assert not legal.allows(value)
    with pytest.raises(InputError) as raised:
        legal.check("x", value)
    assert str(raised.value) == f"x must be {legal}, got {value!r}"


def test_a_legal_value_gets_the_type_of_its_setting() -> None:
    assert type(Legal(0, 1).check("x", 1)) is float
    assert type(INTEGER.check("x", 3)) is int
    assert Legal(0, optional=True).check("x", None) is None
    assert Legal(choices=("a", 1)).check("x", 1) == 1


def test_booleans_and_infinite_values_are_not_numbers() -> None:
    assert is_number(1)
    assert is_number(0.5)
    assert not any(map(is_number, (True, math.nan, -math.inf, 10**400, "1", None)))


def test_the_nearest_name_is_suggested() -> None:
    assert did_you_mean("erm-gnc", ["erm-gcn", "erm-mlp"]) == "; did you mean 'erm-gcn'?"
    assert did_you_mean("cake", ["erm-gcn", "erm-mlp"]) == ""
    assert did_you_mean(3, ["erm-gcn"]) == ""
    with pytest.raises(InputError, match=r"must be one of gcn, gat, got 'gnc'; did you mean 'gcn'\?$"):
        Legal(choices=("gcn", "gat")).check("backbone", "gnc")
