"""Schemas of JSON values that are read from files: one declaration per kind of file, checked before anything is built.

A schema is a `Legal` (numbers and choices), `TEXT`, `FLAG`, `ANYTHING`, or a combination of them: `Maybe`, `Items`,
`Table` and `Fields`. `check` names the place of the first value that does not fit.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from edgemask.errors import SchemaError
from edgemask.legal import Legal, did_you_mean


@dataclass(frozen=True)
class Kind:
    """Any value of one of several Python types. Subclasses do not count, so that true is not an integer."""

    name: str
    types: tuple[type, ...]


@dataclass(frozen=True)
class Maybe:
    """A value that may also be null."""

    schema: Schema


@dataclass(frozen=True)
class Items:
    """An array.

    Args:
        schema: Schema of every item.
        least: Smallest number of items.
        most: Largest number of items.
    """

    schema: Schema
    least: int = 0
    most: int | None = None


@dataclass(frozen=True)
class Table:
    """An object with any keys, whose values have one schema."""

    schema: Schema


@dataclass(frozen=True)
class Fields:
    """An object with known keys.

    Args:
        required: Schemas of the keys that must be there.
        optional: Schemas of the keys that may be there.
        others: Whether unknown keys are accepted.
    """

    required: Mapping[str, Schema]
    optional: Mapping[str, Schema] = field(default_factory=dict)
    others: bool = False


Schema: TypeAlias = Legal | Kind | Maybe | Items | Table | Fields

TEXT = Kind("text", (str,))
FLAG = Kind("true or false", (bool,))
NUMBER = Kind("a number", (int, float))  # not necessarily finite
COUNT = Legal(0, 2**62, whole=True)
ANYTHING = Kind("a JSON value", (str, bool, int, float, list, dict, type(None)))


def parse(text: str | bytes, schema: Schema, where: str) -> Any:
    """Return the value of a JSON text that fits a schema.

    Args:
        text: The JSON text.
        schema: The schema.
        where: Name of the text in error messages.

    Raises:
        SchemaError: The text is not valid JSON, or its value does not fit the schema.

    >>> parse('{"seed": 3}', Fields({"seed": COUNT}), "run")
    {'seed': 3}
    >>> parse('{"seed": "x"}', Fields({"seed": COUNT}), "run")
    Traceback (most recent call last):
        ...
    edgemask.errors.SchemaError: run, seed: expected an integer in [0, 4.61169e+18], got 'x'
    """
    try:
        value = json.loads(text, object_pairs_hook=_distinct)
    except RecursionError:
        raise SchemaError(f"{where}: not valid JSON (it is nested too deeply)") from None
    except ValueError as error:
        raise SchemaError(f"{where}: not valid JSON ({error})") from error
    check(value, schema, where)
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object whose keys occur once: of two values of a key, one would be ignored."""
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {_short(next(k for k in keys if keys.count(k) > 1))} occurs twice")
    return value


def check(value: Any, schema: Schema, where: str) -> None:
    """Check that a JSON value fits a schema.

    Args:
        value: The value, as `json.loads` returns it.
        schema: The schema.
        where: Name of the value in error messages.

    Raises:
        SchemaError: The value does not fit.
    """
    match schema:
        case Legal():
            _expect(schema.allows(value), str(schema), value, where)
        case Kind():
            _expect(type(value) in schema.types, schema.name, value, where)
        case Maybe():
            if value is not None:
                check(value, schema.schema, where)
        case Items():
            _expect(type(value) is list, "an array", value, where)
            least, most = schema.least, schema.most
            if len(value) < least or (most is not None and len(value) > most):
                legal = f"{least}" if least == most else f"at least {least}" if most is None else f"{least} to {most}"
                raise SchemaError(f"{where}: expected {legal} items, got {len(value)}")
            for i, item in enumerate(value):
                check(item, schema.schema, f"{where}[{i}]")
        case Table():
            _expect(type(value) is dict, "an object", value, where)
            for key, item in value.items():
                check(item, schema.schema, f"{where}, {_short(key)}")
        case Fields():
            _expect(type(value) is dict, "an object", value, where)
            known = {**schema.required, **schema.optional}
            for key in schema.required:
                if key not in value:
                    raise SchemaError(f"{where}: {key!r} is missing")
            for key, item in value.items():
                if key in known:
                    check(item, known[key], f"{where}, {key}")
                elif not schema.others:
                    near = did_you_mean(key, known)
                    raise SchemaError(f"{where}: unknown key {_short(key)} (known keys: {', '.join(known)}){near}")


def _expect(fits: bool, expected: str, value: Any, where: str) -> None:
    if not fits:
        raise SchemaError(f"{where}: expected {expected}, got {_short(value)}")


def _short(value: Any) -> str:
    """Return a value as text for a message, shortened if it is long."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return "an integer of more than 256 bits"  # Python refuses to print integers of thousands of digits
    return reprlib.repr(value)
