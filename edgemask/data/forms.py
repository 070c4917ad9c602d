"""Helpers of all graph file formats: errors that name the file, fields of archives, JSON objects with known keys."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from edgemask.errors import DataError, GraphError, LimitError, SchemaError
from edgemask.limits import check_size, max_bytes
from edgemask.schema import ANYTHING, Table, parse

MOST_COLUMNS = 10_000  # of a CSV file of a benchmark

# The options of all readers; the others depend on the format.
OPTIONS = ("name", "undirected", "duplicates", "self_loops", "isolated")


@contextmanager
def error_prefix(path: str | Path) -> Iterator[None]:
    """Prefix the message of an error with the path.

    Args:
        path: Path of the file that is read inside the block.

    Raises:
        GraphError: The block raised a `GraphError` or a `SchemaError`. The message now starts with the path.
        LimitError: The block raised a `LimitError`.
    """
    try:
        yield
    except (GraphError, SchemaError) as error:
        raise GraphError(f"{path}: {error}") from error
    except LimitError as error:
        raise LimitError(f"{path}: {error}") from error


@contextmanager
def benchmark_file(path: Path) -> Iterator[None]:
    """Report any error as damage of a benchmark's file.

    Args:
        path: Path of the file whose content is read inside the block.

    Raises:
        DataError: The block raised another exception. The message names the file.
        LimitError: The file would take too much memory.
    """
    try:
        yield
    except DataError:
        raise
    except LimitError as error:
        raise LimitError(f"{path}: {error}") from error
    except Exception as error:  # the exceptions of a damaged file cannot be enumerated
        reason = str(error) if isinstance(error, GraphError) else f"{type(error).__name__}: {error}"
        raise DataError(f"{path}: the file is damaged ({one_line(reason)})") from error


def read_rows(path: Path, **options: Any) -> pd.DataFrame:
    """Return a CSV file of a benchmark as a table. Its name ends in `.gz` if it is compressed.

    Args:
        path: The file.
        **options: Arguments of `pandas.read_csv`.

    Raises:
        DataError: The file is damaged.
        LimitError: Its text would take too much memory.
    """
    with benchmark_file(path):
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            text = file.read(max_bytes(path) + 1)
        check_size(len(text), "the text", path)
        if (columns := text.partition(b"\n")[0].count(b",") + 1) > MOST_COLUMNS:
            raise DataError(f"{path}: expected at most {MOST_COLUMNS:,} columns, got {columns:,}")
        return pd.read_csv(io.BytesIO(text), **options)


def one_line(text: str) -> str:
    """Return a text as one line of at most 300 characters."""
    text = " ".join(text.split())
    return text if len(text) <= 300 else f"{text[:297]}…"


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
        info: dict[str, Any] = parse(text, Table(ANYTHING), where)
    except SchemaError as error:
        raise GraphError(str(error)) from error
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
        LimitError: Its content would take too much memory.
    """
    with Path(path).open("rb") as file:
        try:
            return decode(file)
        except LimitError:
            raise
        except GraphError as error:
            raise GraphError(f"not a readable {kind}: {error}") from error
        except Exception as error:  # the exceptions of a damaged file cannot be enumerated
            raise GraphError(f"not a readable {kind} ({type(error).__name__}: {one_line(str(error))})") from error


def take(fields: dict[str, Any], field: str) -> Any:
    """Remove a required field and return its value."""
    if field not in fields:
        raise GraphError(f"field {field!r} is missing")
    return fields.pop(field)
