"""The library that an object belongs to, found without importing the library."""

from __future__ import annotations

from typing import Any

from edgemask.errors import InputTypeError

GRAPHS = ("torch_geometric", "networkx", "dgl")  # libraries whose objects are graphs


def library(value: Any) -> str:
    """Return the library of an object: that of the first class in its hierarchy that belongs to a known one."""
    for cls in type(value).__mro__:
        root = cls.__module__.partition(".")[0]
        if root in (*GRAPHS, "pandas"):
            return root
    return ""


def require(value: Any, name: str, what: str, kind: str) -> None:
    """Check that an object belongs to a library.

    Args:
        value: The object.
        name: The library.
        what: What the message calls the argument.
        kind: What the message expects.

    Raises:
        InputTypeError: It does not.
    """
    if library(value) != name or (name == "pandas" and not hasattr(value, "columns")):
        raise InputTypeError(f"{what} must be {kind}, got {described(value)}")


def described(value: Any) -> str:
    """Return how a message describes an object that is none of the expected ones."""
    if isinstance(value, tuple | list):
        kind = type(value).__name__
        return f"a {kind} of {', '.join(type(part).__name__ for part in value[:4])}" if value else f"an empty {kind}"
    return f"{type(value).__name__} {value!r}" if isinstance(value, str | int | float) else type(value).__name__
