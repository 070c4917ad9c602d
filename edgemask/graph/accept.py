"""Graphs in any form that the package accepts, as `Graph` objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, ValuesView
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from edgemask.errors import InputTypeError
from edgemask.graph.core import Graph

ACCEPTED = (
    "a Graph, a PyTorch Geometric Data object, a networkx graph, a DGL graph, a tuple (nodes, edges) of DataFrames, or "
    "a tuple (X, adjacency) or (X, adjacency, y) of NumPy or SciPy matrices"
)
FRAME_OPTIONS = ("id", "label", "text", "source", "destination", "weight")  # options of tables only


def as_graph(value: Any, name: str = "graph", options: Mapping[str, Any] | None = None) -> Graph:
    """Return a graph in any accepted form as a `Graph`.

    Args:
        value: A `Graph`, which is returned as it is, or an object of another library.
        name: Name of the graph if the object has none.
        options: Options of the conversion, such as `undirected`, `features` or, for tables, `label`.

    Raises:
        InputTypeError: The object is none of these.
        GraphError: The object does not describe a valid graph.
    """
    given = dict(options or {})
    if isinstance(value, Graph):
        return value
    plain = {k: v for k, v in given.items() if k not in FRAME_OPTIONS}
    library = _library(value)
    if library == "torch_geometric":
        return Graph.from_pyg(value, _name(getattr(value, "name", None)) or name, **plain)
    if library == "networkx":
        return Graph.from_networkx(value, _name(value.name) or name, **given)
    if library == "dgl":
        return Graph.from_dgl(value, name, **plain)
    if isinstance(value, tuple) and len(value) == 2 and all(_library(part) == "pandas" for part in value):
        return Graph.from_pandas(*value, name=name, **given)
    if isinstance(value, tuple) and len(value) in (2, 3) and _is_matrix(value[1]):
        x, matrix, y = (*value, None)[:3]
        return Graph.from_adjacency(x, matrix, y, name, **plain)
    raise InputTypeError(f"expected {ACCEPTED}; got {_described(value)}")


def as_graphs(values: Any, options: Mapping[str, Any] | None = None, *, prefix: str = "graph") -> list[Graph]:
    """Return one graph or a sequence of graphs, each in any accepted form, as a list of `Graph` objects.

    Graphs without a name are called `graph-0`, `graph-1`, …

    Args:
        values: The graphs. A tuple is one graph in parts, unless its first item is a graph itself.
        options: Options of the conversion; see `as_graph`.
        prefix: Start of the names.

    Raises:
        InputTypeError: An object is not a graph.
        GraphError: An object does not describe a valid graph.
    """
    if not is_sequence(values):
        return [as_graph(values, f"{prefix}-0", options)]
    return [as_graph(value, f"{prefix}-{i}", options) for i, value in enumerate(values)]


def is_sequence(values: Any) -> bool:
    """Return whether a value is a sequence of graphs, not one graph."""
    if isinstance(values, tuple):
        return not values or isinstance(values[0], Graph | tuple | str | Path) or _library(values[0]) in _GRAPHS
    if isinstance(values, np.ndarray):
        return values.dtype.kind in "OU" and values.ndim == 1
    return isinstance(values, Sequence | ValuesView | Iterator) and not isinstance(values, str)


_GRAPHS = ("torch_geometric", "networkx", "dgl")


def _library(value: Any) -> str:
    """Return the library of an object: that of the first class in its hierarchy that belongs to a known one."""
    for cls in type(value).__mro__:
        root = cls.__module__.partition(".")[0]
        if root in (*_GRAPHS, "pandas"):
            return root
    return ""


def _is_matrix(value: Any) -> bool:
    return bool(sp.issparse(value)) or isinstance(value, np.ndarray | list)


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _described(value: Any) -> str:
    if isinstance(value, tuple | list):
        kind = type(value).__name__
        return f"a {kind} of {', '.join(type(part).__name__ for part in value[:4])}" if value else f"an empty {kind}"
    return f"{type(value).__name__} {value!r}" if isinstance(value, str | int | float) else type(value).__name__
