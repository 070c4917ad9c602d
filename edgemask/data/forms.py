"""Helpers of all graph file formats: errors that name the file, and JSON objects with known keys."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgemask.errors import GraphError


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


def read_info(text: str | bytes, where: str, types: Mapping[str, type]) -> dict[str, Any]:
    """Return a JSON object after checking its keys and values.

    Args:
        text: The JSON text.
        where: Name of the text in error messages.
        types: The legal keys and the type of their values. The items of a list must be strings.

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
        items_are_text = not isinstance(value, list) or all(isinstance(item, str) for item in value)
        if type(value) is not types[key] or not items_are_text:
            expected = "list of str" if types[key] is list else types[key].__name__
            raise GraphError(f"{where}, {key}: expected {expected}, got {value!r}")
    return info
