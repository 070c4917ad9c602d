"""Schemas of JSON values that are read from files: one declaration per kind of file, checked before anything is built.

A schema is a `Legal` (numbers and choices), `TEXT`, `FLAG`, `ANYTHING`, or a combination of them: `Maybe`,
`Either`, `Items`, `Row`, `Table` and `Fields`. `check` names the place of the first value that does not fit.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
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
class Either:
    """A value that fits one of two schemas."""

    first: Schema
    second: Schema


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
class Row:
    """An array of fixed length.

    Args:
        schemas: Schema of each item.
    """

    schemas: tuple[Schema, ...]


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

    @cached_property
    def known(self) -> dict[str, Schema]:
        """Schemas of all known keys."""
        return {**self.required, **self.optional}


Schema: TypeAlias = Legal | Kind | Maybe | Either | Items | Row | Table | Fields

TEXT = Kind("text", (str,))
FLAG = Kind("true or false", (bool,))
NUMBER = Kind("a number", (int, float))  # not necessarily finite
SCALAR = Kind("a text, a number, true, false or null", (str, bool, int, float, type(None)))
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
        raise ValueError(f"the key {short(next(k for k in keys if keys.count(k) > 1))} occurs twice")
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
    try:
        _check(value, schema)
    except _Misfit as misfit:
        raise SchemaError(f"{where}{''.join(reversed(misfit.place))}: {misfit}") from None


class _Misfit(Exception):
    """A value does not fit. Its place is filled from the innermost part outwards, so that values that fit cost less."""

    def __init__(self, message: str, *place: str):
        super().__init__(message)
        self.place = [*place]

    def within(self, part: str) -> _Misfit:
        self.place.append(part)
        return self


def _check(value: Any, schema: Schema) -> None:
    match schema:
        case Legal():
            if not schema.allows(value):
                raise _misfit(str(schema), value)
        case Kind():
            if type(value) not in schema.types:
                raise _misfit(schema.name, value)
        case Maybe():
            if value is not None:
                _check(value, schema.schema)
        case Either():
            try:
                _check(value, schema.first)
            except _Misfit:
                _check(value, schema.second)
        case Items() | Row():
            _check_items(value, schema)
        case Table():
            if type(value) is not dict:
                raise _misfit("an object", value)
            for key, item in value.items():
                try:
                    _check(item, schema.schema)
                except _Misfit as misfit:
                    raise misfit.within(f", {short(key)}") from None
        case Fields():
            _check_fields(value, schema)


def _check_items(value: Any, schema: Items | Row) -> None:
    if type(value) is not list:
        raise _misfit("an array", value)
    least, most = (len(schema.schemas),) * 2 if isinstance(schema, Row) else (schema.least, schema.most)
    if len(value) < least or (most is not None and len(value) > most):
        legal = f"{least}" if least == most else f"at least {least}" if most is None else f"{least} to {most}"
        raise _Misfit(f"expected {legal} items, got {len(value)}")
    for i, item in enumerate(value):
        try:
            _check(item, schema.schemas[i] if isinstance(schema, Row) else schema.schema)
        except _Misfit as misfit:
            raise misfit.within(f"[{i}]") from None


def _check_fields(value: Any, schema: Fields) -> None:
    if type(value) is not dict:
        raise _misfit("an object", value)
    for key in schema.required:
        if key not in value:
            raise _Misfit(f"{key!r} is missing")
    known = schema.known
    for key, item in value.items():
        if key in known:
            try:
                _check(item, known[key])
            except _Misfit as misfit:
                raise misfit.within(f", {key}") from None
        elif not schema.others:
            listed, near = ", ".join(known), did_you_mean(key, known)
            raise _Misfit(f"unknown key {short(key)} (known keys: {listed}){near}")


def _misfit(expected: str, value: Any) -> _Misfit:
    return _Misfit(f"expected {expected}, got {short(value)}")


def short(value: Any) -> str:
    """Return a value as text for a message, shortened if it is long."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return "an integer of more than 256 bits"  # Python refuses to print integers of thousands of digits
    return reprlib.repr(value)
