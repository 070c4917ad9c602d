"""Graphs of networkx."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from edgemask.errors import GraphError, MissingDependencyError
from edgemask.graph import frames
from edgemask.graph.frames import KEY

SPARSE = "sparse"  # key of the graph's attributes: nodes have only the features that are not zero


def graph(cls: Any, source: Any, name: str | None, options: Mapping[str, Any]) -> Any:
    """Return a networkx graph as a graph; see `Graph.from_networkx`."""
    name = name or (source.name if isinstance(source.name, str) and source.name else "graph")
    position = {node: i for i, node in enumerate(source)}
    attributes = [{str(key): value for key, value in own.items()} for _, own in source.nodes(data=True)]
    stored = source.graph.get(KEY, {})
    columns = list(dict.fromkeys(key for own in attributes for key in own))
    if stored and (set(columns) == set(stored["columns"]) or (stored[SPARSE] and set(columns) <= {*stored["columns"]})):
        nodes = _stored_nodes(attributes, stored)
    else:
        nodes = _nodes(list(position), attributes, columns, str(options.get("label") or "label"), name)
    if stored.get("ids", list(position) != list(range(len(position)))):
        nodes.index = pd.Index(_ids(list(position), name), name="id")
    pairs = [(position[u], position[v]) for u, v in source.edges()]
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    column = str(options.get("id") or "id")
    ids = nodes.index if KEY in nodes.attrs or column not in nodes else pd.Index(nodes[column])
    edges = pd.DataFrame({end: ids.take(ends[:, i]) for i, end in enumerate(frames.NAMES)})
    own_edges = [data for _, _, data in source.edges(data=True)]
    for key in dict.fromkeys(key for own in own_edges for key in own):
        column = str(key) if str(key) not in edges.columns else f"attribute {key}"
        edges[column] = pd.Series([own.get(key) for own in own_edges], dtype=object)
    directed = {} if source.is_directed() else {"undirected": True}
    ends_given = dict(zip(frames.NAMES, frames.NAMES, strict=True))  # whatever attributes the edges have
    return frames.graph(cls, nodes, edges, name, {**directed, **options, **ends_given})


def _nodes(ids: list[Any], attributes: list[dict[str, Any]], columns: list[str], label: str, name: str) -> pd.DataFrame:
    """Return the attributes of the nodes as a table. A node may lack its label only."""
    for column in columns:
        if column == label:
            continue
        for node, own in zip(ids, attributes, strict=True):
            if column not in own:
                raise GraphError(
                    f"graph {name!r}, nodes: node {node!r} has no attribute {column!r}, but others have; "
                    "set it at every node (None for a missing text)"
                )
    values = {column: [own.get(column) for own in attributes] for column in columns}
    vectors = [column for column in columns if column != label and _are_vectors(values[column])]
    for column in vectors:
        parts = zip(*values.pop(column), strict=True)
        values |= {f"{column}{i}": list(part) for i, part in enumerate(parts)}
    return pd.DataFrame(
        {column: _column(own) for column, own in values.items()},
        index=pd.RangeIndex(len(ids)),
        columns=pd.Index(list(values), dtype=object),
    )


def _are_vectors(values: list[Any]) -> bool:
    """Return whether all values are lists, tuples or arrays of the same length."""
    kinds = all(isinstance(value, list | tuple | np.ndarray) and np.ndim(value) == 1 for value in values)
    return kinds and len({len(value) for value in values}) == 1


def _column(values: list[Any]) -> Any:
    """Return values as a column: of numbers or booleans if all of them are, else of objects."""
    return pd.Series(values, dtype=object).infer_objects()


def _stored_nodes(attributes: list[dict[str, Any]], stored: Mapping[str, Any]) -> pd.DataFrame:
    """Return the table of nodes from which `digraph` took the attributes."""
    special, features = frames.split(stored)
    left = pd.DataFrame(
        {column: pd.Series([own.get(column) for own in attributes], dtype=object) for column in special},
        index=pd.RangeIndex(len(attributes)),
        columns=pd.Index(special, dtype=object),
    )
    if not stored[SPARSE]:
        return frames.joined(left, np.array([[own[c] for c in features] for own in attributes]), stored)
    place = {column: i for i, column in enumerate(features)}
    found = [(row, place[c], v) for row, own in enumerate(attributes) for c, v in own.items() if c in place]
    rows, cols, values = zip(*found, strict=True) if found else ((), (), ())
    shape = len(attributes), len(features)
    return frames.joined(left, sp.csr_array((np.array(values, dtype=np.float64), (rows, cols)), shape=shape), stored)


def _ids(nodes: list[Any], name: str) -> list[Any]:
    """Return the nodes as ids: integers or strings as they are, anything else as text."""
    kinds = {type(node) for node in nodes}
    if kinds in ({int}, {str}):
        return nodes
    ids = [str(node) for node in nodes]
    if len(set(ids)) < len(ids):
        twice = next(i for n, i in enumerate(ids) if i in ids[:n])
        raise GraphError(f"graph {name!r}, nodes: two nodes are {twice!r} as text; make the nodes all text or integers")
    return ids


def digraph(source: Any) -> Any:
    """Return a graph as a `networkx.DiGraph`; see `Graph.to_networkx`."""
    try:
        import networkx as nx
    except ImportError as error:
        raise MissingDependencyError("to_networkx needs networkx: install edgemask[networkx]") from error

    nodes, edges = frames.frames(source)
    stored = nodes.attrs[KEY] | {SPARSE: source.is_sparse, "ids": source.node_ids is not None}
    result = nx.DiGraph(name=source.name)
    result.graph[KEY] = stored
    special, features = frames.split(stored)
    own = {column: nodes[column].astype(object).where(nodes[column].notna(), None).tolist() for column in special}
    for i, node in enumerate(nodes.index.tolist()):
        result.add_node(node)
        result.nodes[node].update({column: values[i] for column, values in own.items()})
        if source.is_sparse:
            part = slice(*source.x.indptr[i : i + 2])
            entries = zip(source.x.indices[part].tolist(), source.x.data[part].tolist(), strict=True)
            result.nodes[node].update({features[j]: value for j, value in entries})
        else:
            result.nodes[node].update(zip(features, source.x[i].tolist(), strict=True))
    pairs = list(edges[list(frames.NAMES)].itertuples(index=False, name=None))
    result.add_edges_from(pairs)
    if source.weights is not None:
        nx.set_edge_attributes(result, dict(zip(pairs, source.weights.tolist(), strict=True)), "weight")
    return result
