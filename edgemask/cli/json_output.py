"""The result of a command: tables for people, or one JSON document on standard output with `--json`.

docs/cli.md documents the schema of every command.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from edgemask._version import __version__
from edgemask.runtime.safe_text import naming

Json = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON document (docs/cli.md describes the schemas).")
]


@dataclass
class Output:
    """Where a command shows its result.

    Attributes:
        command: Name of the command in the schema, such as `data.list`.
        as_json: Whether the result is printed as JSON.
        warnings: The warnings so far.
    """

    command: str
    as_json: bool
    warnings: list[str]

    def show(self, fields: Mapping[str, Any], print_text: Callable[[], None]) -> None:
        """Print the result.

        Args:
            fields: The result as JSON values. NaN and infinity become null.
            print_text: Prints the result for people.
        """
        if self.as_json:
            print_document(self.command, {**fields, "warnings": self.warnings})
        else:
            print_text()


@contextmanager
def output(command: str, as_json: bool) -> Iterator[Output]:
    """Yield the output of a command. Warnings inside the block are shown as usual and also collected.

    Args:
        command: Name of the command in the schema, such as `data.list`.
        as_json: Whether to print JSON.
    """
    result = Output(command, as_json, [])
    with warnings.catch_warnings():
        show = warnings.showwarning

        def collect(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            result.warnings.append(str(message))
            show(message, category, *place, **more)

        warnings.showwarning = collect
        yield result


def print_document(schema: str, fields: Mapping[str, Any]) -> None:
    """Print a JSON document with its schema and the version of edgemask. It consists of ASCII characters only."""
    document = {"schema": f"edgemask.{schema}/1", "version": __version__, **fields}
    with naming("standard output"):
        sys.stdout.write(json.dumps(json_value(document), allow_nan=False, indent=1) + "\n")
        sys.stdout.flush()


def json_value(value: Any) -> Any:
    """Return a value as JSON can represent it: NaN and infinity as None, arrays and tuples as lists, paths as text.

    >>> json_value({"score": float("nan"), 1: (Path("a"), 2.5)})
    {'score': None, '1': ['a', 2.5]}
    """
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    return json_value(value.tolist()) if hasattr(value, "tolist") else value  # NumPy's arrays and scalars
