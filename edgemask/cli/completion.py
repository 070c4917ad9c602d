"""Names that the shell completes. The module of a table is imported when the user asks for its names."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module


def names(module: str, table: str, *more: str) -> Callable[[str], list[str]]:
    """Return a function that completes a name.

    Args:
        module: The module with the table of names.
        table: The table.
        *more: Names that are not in the table.
    """

    def complete(incomplete: str) -> list[str]:
        known = (*more, *getattr(import_module(f"edgemask.{module}"), table))
        return [name for name in known if name.startswith(incomplete)]

    return complete


RECIPE_NAMES = names("config", "RECIPES")
METHOD_NAMES = names("methods.registry", "METHODS")
METHOD_OR_AUTO = names("methods.registry", "METHODS", "auto")
FIT_METHODS = names("methods.registry", "METHODS", "auto", "robust", "paper", "released")
BENCHMARK_NAMES = names("data", "BENCHMARKS")
METRIC_NAMES = names("metrics", "METRICS")
