"""Helpers of all graph file formats: errors that name the file, fields of archives, JSON objects with known keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgemask.errors import GraphError

# The options of all readers; the others depend on the format.
OPTIONS = ("name", "undirected", "duplicates", "self_loops", "isolated")


@contextmanager
def error_prefix(path: str | Path) -> Iterator[None]:
    """Prefix the message of a `GraphError` with the path.

    Args:
        path: Path of the file that is read inside the block.

    Raises:
        GraphError: The block raised a `GraphError`. The message now starts with the path.
    """
    try:
        yield
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error


def read_info(text: str | bytes, where: str, types: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
    """Return a JSON object after checking its keys and values.

    Args:
        text: The JSON text.
        where: Name of the text in error messages.
        types: The legal keys and the type or types of their values. The items of a list must be strings.

    Raises:
        GraphError: The text is not a JSON object, a key is unknown, or a value has another type.
    """
    try:
        info: Any = json.loads(text)
    except ValueError as error:
        raise GraphError(f"{where}: not valid JSON ({error})") from error
    if not isinstance(info, dict):
        raise GraphError(f"{where}: expected a JSON object, got {type(info).__name__}")
    for key, value in info.items():
        if key not in types:
            raise GraphError(f"{where}: unknown key {key!r} (known keys: {', '.join(types)})")
        legal = types[key]
        legal = legal if isinstance(legal, tuple) else (legal,)
        items_are_text = not isinstance(value, list) or all(isinstance(item, str) for item in value)
        if type(value) not in legal or not items_are_text:
            expected = " or ".join("list of str" if kind is list else kind.__name__ for kind in legal)
            raise GraphError(f"{where}, {key}: expected {expected}, got {value!r}")
    return info


def decoded(path: str | Path, kind: str, decode: Callable[[Any], Any]) -> Any:
    """Return the content of a file.

    Args:
        path: Path of the file.
        kind: What the file should be, for the message.
        decode: A function of the opened file.

    Raises:
        GraphError: The file cannot be decoded.
    """
    with Path(path).open("rb") as file:
        try:
            return decode(file)
        except Exception as error:  # the exceptions of a damaged file cannot be enumerated
            raise GraphError(f"not a readable {kind} ({type(error).__name__}: {error})") from error


def take(fields: dict[str, Any], field: str) -> Any:
    """Remove a required field and return its value."""
    if field not in fields:
        raise GraphError(f"field {field!r} is missing")
    return fields.pop(field)
