"""Schemas of JSON values: what fits, and the message about what does not."""

from __future__ import annotations

from typing import Any

import pytest

from edgemask.errors import SchemaError
from edgemask.legal import Legal
from edgemask.schema import ANYTHING, COUNT, FLAG, NUMBER, TEXT, Fields, Items, Maybe, Table, check, parse

RUN = Fields({"seed": COUNT, "scores": Table(NUMBER)}, {"name": Maybe(TEXT), "last": FLAG, "pair": Items(TEXT, 2, 2)})


@pytest.mark.parametrize(
    "text",
    [
        '{"seed": 0, "scores": {}}',
        '{"seed": 3, "scores": {"a": 1.5, "b": NaN}, "name": null, "last": true, "pair": ["a", "b"]}',
    ],
)
def test_values_that_fit_are_returned(text: str):
    assert parse(text, RUN, "run").keys() >= {"seed", "scores"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "run: not valid JSON"),
        ("[" * 100_000, "run: not valid JSON (it is nested too deeply)"),
        ("[]", r"run: expected an object, got []"),
        ('{"scores": {}}', "run: 'seed' is missing"),
        ('{"seed": true, "scores": {}}', "run, seed: expected an integer in [0, 4.61169e+18], got True"),
        ('{"seed": -1, "scores": {}}', "run, seed: expected an integer in [0, 4.61169e+18], got -1"),
        ('{"seed": 1, "scores": {"a": "x"}}', "run, scores, 'a': expected a number, got 'x'"),
        ('{"seed": 1, "scores": {}, "last": 1}', "run, last: expected true or false, got 1"),
        ('{"seed": 1, "scores": {}, "pair": ["a"]}', "run, pair: expected 2 items, got 1"),
        ('{"seed": 1, "scores": {}, "pair": ["a", 2]}', "run, pair[1]: expected text, got 2"),
        ('{"seed": 1, "scores": {}, "nane": "x"}', "did you mean 'name'?"),
    ],
)
def test_the_message_names_the_place_and_what_is_expected(text: str, message: str):
    with pytest.raises(SchemaError) as caught:
        parse(text, RUN, "run")
    assert message in str(caught.value)


def test_messages_stay_short():
    for value in ("x" * 10**6, [0] * 10**6, {str(i): i for i in range(10**5)}, 10**5000):
        with pytest.raises(SchemaError) as caught:
            check(value, FLAG, "value")
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize("value", [None, "x", 1, 1.5, True, [], {}])
def test_anything_fits_every_json_value(value: Any):
    check(value, ANYTHING, "value")


def test_lengths_and_choices():
    check(["a"], Items(TEXT, 1), "names")
    with pytest.raises(SchemaError, match="names: expected at least 1 items, got 0"):
        check([], Items(TEXT, 1), "names")
    with pytest.raises(SchemaError, match="kind: expected one of a, b, got 'c'"):
        check("c", Legal(choices=("a", "b")), "kind")


def test_a_key_that_occurs_twice_is_refused():
    with pytest.raises(SchemaError, match=r"run: not valid JSON \(the key 'seed' occurs twice\)"):
        parse('{"seed": 1, "seed": 2}', ANYTHING, "run")
