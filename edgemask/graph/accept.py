"""Graphs in any form that the package accepts, as `Graph` objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, ValuesView
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from edgemask.errors import GraphWarning, InputTypeError, warn
from edgemask.graph import pyg
from edgemask.graph.core import Graph
from edgemask.graph.frames import KEY, OPTIONS, names_of, own_description
from edgemask.graph.libraries import GRAPHS, described, library
from edgemask.graph.structure import STRUCTURE

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
        options: Options of the conversion, such as `undirected`, `features` or, for tables, `label`. The option `name`
            overrides the name of the object. A `GraphWarning` names options of tables that the object cannot use.

    Raises:
        InputTypeError: The object is none of these.
        InputError: There is no such option.
        GraphError: The object does not describe a valid graph.
    """
    given = dict(options or {})
    chosen = given.pop("name", None)
    if isinstance(value, Graph):
        return value
    kind = library(value)
    if kind == "networkx":
        return Graph.from_networkx(value, chosen or _name(value.name) or name, **given)
    if _is_table(value):
        return Graph.from_pandas(value[0], value[1], chosen or name, **given)
    matrices = isinstance(value, tuple) and len(value) in (2, 3) and _is_matrix(value[1])
    if (not kind and not matrices) or kind == "pandas":
        hints = {"pandas": "; two DataFrames in a list are two graphs: use a tuple"}
        hint = "; read_graph reads files" if isinstance(value, str | Path) else hints.get(kind, "")
        raise InputTypeError(f"expected {ACCEPTED}; got {described(value)}{hint}")
    name = chosen or _name(getattr(value, "name", None)) or name
    plain = {k: v for k, v in given.items() if k not in FRAME_OPTIONS}
    if ignored := ", ".join(k for k in given if k in FRAME_OPTIONS):
        message = f"graph {name!r} is not a table, so these options are not used: {ignored}"
        warn(message, GraphWarning)
    if kind == "torch_geometric":
        return Graph.from_pyg(value, name, **plain)
    if kind == "dgl":
        return Graph.from_dgl(value, name, **plain)
    x, adjacency, y = (pyg.array(part) for part in (*value, None)[:3])
    return Graph.from_adjacency(x, adjacency, y, name, **plain)


def applicable(value: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those options that the form of an object has: the names of columns, for example, only for tables.

    Tables and networkx graphs that `Graph.to_pandas` and `to_networkx` made describe themselves.

    Args:
        value: An object that `as_graph` accepts.
        options: Options that fitted the form of other graphs.
    """
    known = {option: v for option, v in options.items() if option in OPTIONS}
    table, network = _is_table(value), library(value) == "networkx"
    copy = own_description(value[0], {}) if table else network and KEY in value.graph
    if network and not any(known.get("id") in own for _, own in value.nodes(data=True)):
        known.pop("id", None)  # the nodes themselves are the ids
    if (table or network) and not copy:
        return known
    columns = not all(name in STRUCTURE for name in names_of(options.get("features") or ()))
    return {k: v for k, v in known.items() if k not in FRAME_OPTIONS and not (k == "features" and columns)}


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
        return not values or isinstance(values[0], Graph | tuple | str | Path) or library(values[0]) in GRAPHS
    if library(values) == "torch_geometric":
        return hasattr(values, "__getitem__") and not hasattr(values, "to_dict")  # a dataset
    if isinstance(values, np.ndarray):
        return values.dtype.kind in "OU" and values.ndim == 1
    return isinstance(values, Sequence | ValuesView | Iterator) and not isinstance(values, str | bytes)


def _is_table(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(library(part) == "pandas" for part in value)


def _is_matrix(value: Any) -> bool:
    return bool(sp.issparse(value)) or isinstance(value, np.ndarray | list) or hasattr(value, "layout")


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
