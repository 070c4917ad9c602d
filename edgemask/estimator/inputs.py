"""The graphs that `EdgeMaskClassifier` is trained on, and the labels and nodes that its methods are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edgemask.errors import GraphError, InputError, InputTypeError
from edgemask.graph import MISSING, Contract, Graph, is_sequence, unify
from edgemask.graph.checks import advice
from edgemask.legal import did_you_mean
from edgemask.model import to_graph


def training_graphs(
    X: Any, y: Any, validation: Any, read: Mapping[str, Any], scale: bool
) -> tuple[Contract, list[Graph], list[Graph]]:
    """Return what all graphs of a fit have in common, the sources, and the validation graphs, in a common form.

    Args:
        X: Graphs to train on, in any accepted form.
        y: One array of labels per graph, or None.
        validation: Graphs used only for selection, or None.
        read: Options of the conversion.
        scale: Whether numeric columns are standardised.

    Raises:
        InputTypeError: An object is not a graph, or `y` is not a sequence of labels.
        GraphError: The graphs do not fit together or have no labels.
    """
    sources = labelled_graphs(X, y, partial(to_graphs, prefix="graph", read=read))
    scored = [] if validation is None else to_graphs(validation, "validation", read)
    if not sources:
        raise GraphError("no source graphs were given")
    masks = ["train"] * len(sources) + ["val"] * len(scored)
    graphs = [restricted(g, mask) for g, mask in zip([*sources, *scored], masks, strict=True)]
    for given, graph, mask in zip([*sources, *scored], graphs, masks, strict=True):
        if given.labelled.any() and not graph.labelled.any():
            raise GraphError(f"graph {graph.name!r}: its mask {mask!r} contains no labelled node")
        if not graph.labelled.any():
            raise GraphError(
                f"graph {graph.name!r}, y: training needs labels, but it has none; in a table, "
                f"{advice('label', '…')} names their column"
            )
    contract, graphs = unify(graphs, scale=scale, fitted=len(sources))
    return contract, graphs[: len(sources)], graphs[len(sources) :]


def to_graphs(values: Any, prefix: str, read: Mapping[str, Any]) -> list[Graph]:
    """Return one graph or several, in any accepted form, as `Graph` objects."""
    several = values if is_sequence(values) else [values]
    return [to_graph(value, f"{prefix}-{i}", read) for i, value in enumerate(several)]


def labelled_graphs(X: Any, y: Any, convert: Callable[[Any], list[Graph]]) -> list[Graph]:
    """Return graphs with the given labels.

    Args:
        X: A graph or a sequence of graphs.
        y: The labels of the graph, or a sequence with those of each graph. None uses the graphs' own. Values become
            the names of the classes; -1, None and NaN are missing labels.
        convert: Returns one graph or several, in any accepted form, as `Graph` objects.

    Raises:
        InputTypeError: `y` does not hold one array of labels per graph.
    """
    graphs = convert(X)
    if y is None:
        return graphs
    items = list(y) if is_sequence(X) and isinstance(y, Iterable) and not _is_graph(y) else [y]
    if len(items) != len(graphs) or any(_is_graph(labels) or np.ndim(labels) == 0 for labels in items):
        raise InputTypeError(
            f"y must hold one array of labels for each of the {len(graphs)} graphs, got {len(items)} of type "
            f"{type(next(iter(items), None)).__name__}; graphs for model selection are given as validation=…"
        )
    return [_relabelled(graph, labels) for graph, labels in zip(graphs, items, strict=True)]


def _is_graph(value: Any) -> bool:
    """Return whether a value is a graph or a path, and so not an array of labels."""
    return isinstance(value, str | Path) or (not isinstance(value, tuple) and is_sequence((value,)))


def _relabelled(graph: Graph, y: Any) -> Graph:
    """Return a graph with other labels, whose values are the names of the classes."""
    labels = np.asarray(y)
    if labels.ndim == 1 and labels.dtype.kind in "iu":
        labels = np.where(labels == MISSING, "", labels.astype(str))
    return graph.replace(y=labels, classes=())


def restricted(graph: Graph, mask: str) -> Graph:
    """Return a graph with only the labels that a fit may use: those inside a mask, if the graph has it.

    Selection scores all of them. The mask `test`, and with a mask `train` or `val` also `eval`, is for scores of a
    fitted model.
    """
    unused = {"test", "eval"} if mask in graph.masks else {"test"}
    kept = {name: own for name, own in graph.masks.items() if name not in unused}
    graph = graph.masked_labels(mask)
    return graph if len(kept) == len(graph.masks) else graph.replace(masks=kept)


def rows_of(graph: Graph, nodes: Sequence[Any] | None) -> Sequence[int] | None:
    """Return the rows of nodes that are given by their ids. A graph without ids has rows only.

    Raises:
        InputError: There is no node of an id.
    """
    if nodes is None or graph.node_ids is None:
        return nodes
    if isinstance(nodes, str) or not isinstance(nodes, Iterable):
        raise InputTypeError(f"nodes must be a sequence of node ids, got {nodes!r}")
    rows = {node: row for row, node in enumerate(graph.node_ids.tolist())}
    wanted = [node.item() if isinstance(node, np.generic) else node for node in nodes]
    for node in wanted:
        if not isinstance(node, str | int) or node not in rows:
            kind = "texts" if graph.node_ids.dtype.kind == "U" else "integers"
            near = did_you_mean(node, map(str, rows))
            raise InputError(f"graph {graph.name!r} has no node {node!r} (its ids are {kind}){near}")
    return [rows[node] for node in wanted]
