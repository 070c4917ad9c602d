"""What the forms of graph file share: errors that name the file, and JSON of known keys."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgemask.errors import GraphError


@contextmanager
def blaming(path: str | Path) -> Iterator[None]:
    """Puts the path before what a `GraphError` says."""
    try:
        yield
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error


def read_info(text: str | bytes, where: str, types: Mapping[str, type]) -> dict[str, Any]:
    """A JSON object whose keys and value types are among `types`; a list holds text."""
    try:
        info: Any = json.loads(text)
    except ValueError as error:
        raise GraphError(f"{where}: is no JSON ({error})") from error
    if not isinstance(info, dict):
        raise GraphError(f"{where}: expected a JSON object, got {type(info).__name__}")
    for key, value in info.items():
        if key not in types:
            raise GraphError(f"{where}: {key!r} is not known (known: {', '.join(types)})")
        texts = not isinstance(value, list) or all(isinstance(item, str) for item in value)
        if type(value) is not types[key] or not texts:
            raise GraphError(f"{where}, {key}: expected {types[key].__name__}, got {value!r}")
    return info
