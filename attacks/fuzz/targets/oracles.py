"""Plain checks of what readers return, written without the checks of the package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from attacks.fuzz.cases import Case, WrongContent, write_files
from edgemask import Graph, read_graph, write_graph


def require(condition: Any, what: str) -> None:
    """Raise `WrongContent` unless a condition holds."""
    if not condition:
        raise WrongContent(what)


def check_graph(graph: Graph, folder: Path) -> None:
    """Check that a graph is valid, and that a copy in a file is equal to it."""
    n, x = graph.num_nodes, graph.x
    require(isinstance(graph.name, str), "the name is not text")
    require(n > 0 and x.dtype == np.float32 and x.shape == (n, graph.num_features), "features of a wrong shape or type")
    if sp.issparse(x):
        starts, columns, values = x.indptr, x.indices, x.data
        require(starts[0] == 0 and starts[-1] == len(columns) == len(values), "row pointers do not fit")
        require((np.diff(starts) >= 0).all(), "row pointers decrease")
        require(not len(columns) or (columns.min() >= 0 and columns.max() < graph.num_features), "column out of range")
        rows = np.repeat(np.arange(n), np.diff(starts))
        require(len(set(zip(rows.tolist(), columns.tolist(), strict=True))) == len(columns), "an entry occurs twice")
    else:
        values = x
    require(np.isfinite(values).all(), "features that are not finite")
    source, destination = graph.edges
    require(graph.edges.dtype == np.int64, "edges that are not int64")
    if graph.num_edges:
        require(graph.edges.min() >= 0 and graph.edges.max() < n, "an edge ends outside the graph")
        require((source != destination).all(), "a self-loop")
        require((np.diff(destination * n + source) > 0).all(), "edges are not sorted or repeated")
    if graph.weights is not None:
        require(graph.weights.shape == (graph.num_edges,), "weights of a wrong shape")
        require(np.isfinite(graph.weights).all() and (graph.weights >= 0).all(), "weights that are not legal")
    require(all(isinstance(c, str) for c in graph.classes), "a class whose name is not text")
    require(len(set(graph.classes)) == len(graph.classes), "two classes of the same name")
    if graph.y is not None:
        shape, most = ((n,), graph.num_classes) if graph.y.ndim == 1 else ((n, graph.num_classes), 2)
        require(graph.y.shape == shape, "labels of a wrong shape")
        require(graph.y.dtype.kind == "i" and graph.y.min() >= -1 and graph.y.max() < most, "labels out of range")
    for mask in graph.masks.values():
        require(mask.shape == (n,) and mask.dtype == bool, "a mask of a wrong shape or type")
    if graph.feature_names:
        require(len(set(graph.feature_names)) == len(graph.feature_names) == graph.num_features, "names of features")
    if graph.node_ids is not None:
        require(len(set(graph.node_ids.tolist())) == n, "node ids that are not distinct")
    copy = folder / "copy of the graph.npz"
    write_graph(graph, copy)
    require(read_graph(copy) == graph, "a copy in a file is not equal")


def check_unchanged(case: Case, value: Any, folder: Path, read: Callable[[Path], Any]) -> None:
    """Check that an accepted input has the content of the valid one, if checksums cover every byte that matters.

    Args:
        case: The input.
        value: What the reader returned.
        folder: A folder for the valid files.
        read: Reads the valid files in a folder.
    """
    if case.sealed and case.base and case.files != case.base:
        base = folder / "base of this input"
        write_files(case.base, base)
        require(value == read(base), "a file was changed, which its checksum shows, and the content is another one")


def check_probabilities(p: Any, n: int, classes: int) -> None:
    """Check class probabilities."""
    require(p.shape == (n, classes), f"probabilities of shape {p.shape}")
    require(np.isfinite(p).all() and (p >= 0).all() and np.allclose(p.sum(1), 1, atol=1e-4), "not probabilities")
