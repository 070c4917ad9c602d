"""edgemask: graph domain generalisation.

Train a node classifier on a few labelled graphs and use it on a graph it has never seen:

>>> from edgemask import EdgeMaskClassifier, benchmark
>>> graphs = benchmark("synthetic").load(nodes=300)
>>> model = EdgeMaskClassifier(epochs=2, k=3, clusters=5).fit([graphs["alpha"], graphs["beta"]])
>>> labels = model.predict(graphs["gamma"])
>>> len(labels)
300

Public names are imported when they are first used, so that `import edgemask` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from edgemask._version import __version__

if TYPE_CHECKING:
    from edgemask.config import RECIPES, Recipe, recipe
    from edgemask.data import BENCHMARKS, Store, benchmark, read_graph, write_graph
    from edgemask.errors import DataError, EdgemaskError, GraphError, InputError
    from edgemask.estimator import EdgeMaskClassifier
    from edgemask.graph import Contract, Graph, as_graph, collect
    from edgemask.model import Model, load_model
    from edgemask.protocol import Protocol, leave_one_out

_MODULES = {
    "BENCHMARKS": "data",
    "RECIPES": "config",
    "Contract": "graph",
    "DataError": "errors",
    "EdgeMaskClassifier": "estimator",
    "EdgemaskError": "errors",
    "Graph": "graph",
    "GraphError": "errors",
    "InputError": "errors",
    "Model": "model",
    "Protocol": "protocol",
    "Recipe": "config",
    "Store": "data",
    "as_graph": "graph",
    "benchmark": "data",
    "collect": "graph",
    "leave_one_out": "protocol",
    "load_model": "model",
    "read_graph": "data",
    "recipe": "config",
    "write_graph": "data",
}

__all__ = [
    "BENCHMARKS",
    "RECIPES",
    "Contract",
    "DataError",
    "EdgeMaskClassifier",
    "EdgemaskError",
    "Graph",
    "GraphError",
    "InputError",
    "Model",
    "Protocol",
    "Recipe",
    "Store",
    "__version__",
    "as_graph",
    "benchmark",
    "collect",
    "leave_one_out",
    "load_model",
    "read_graph",
    "recipe",
    "write_graph",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'edgemask' has no attribute {name!r}")
    value = getattr(import_module(f"edgemask.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
