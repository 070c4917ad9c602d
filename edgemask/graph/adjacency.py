"""Graphs as a feature matrix and an adjacency matrix, of NumPy or SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from edgemask.errors import GraphError


def fields(x: Any, matrix: Any, y: Any, name: str) -> dict[str, Any]:
    """Return the arguments `edges`, `weights` and, if nothing else gives the number of nodes, `node_ids` of `Graph`."""
    if sp.issparse(matrix):
        coo = matrix.tocoo(copy=True)
        coo.sum_duplicates()  # as SciPy defines the value of an entry that occurs twice
    else:
        dense = np.asarray(matrix)
        if dense.ndim != 2 or dense.dtype.kind not in "fiub":
            raise GraphError(
                f"graph {name!r}, adjacency: expected an N × N matrix of numbers, got {dense.dtype} of shape "
                f"{dense.shape}"
            )
        coo = sp.coo_array(dense)
    n = coo.shape[0] if x is None else np.shape(x)[0]
    if coo.shape != (n, n):
        expected = "a square matrix" if x is None else f"{n} × {n} for the {n} rows of x"
        hint = "; Graph(name, x, edges, y) takes a list of edges" if 2 in coo.shape else ""
        raise GraphError(f"graph {name!r}, adjacency: expected {expected}, got shape {coo.shape}{hint}")
    weighted = bool((coo.data != 1).any())
    with np.errstate(over="ignore"):
        wrong = np.flatnonzero(~(np.isfinite(coo.data.astype(np.float32)) & (coo.data >= 0)))
    if len(wrong):
        row, column, value = (part[wrong[0]] for part in (coo.row, coo.col, coo.data))
        raise GraphError(
            f"graph {name!r}, adjacency[{row}, {column}]: expected a finite number of at least 0, got {value}"
        )
    weights = coo.data if weighted else None
    ids = np.arange(n) if x is None and y is None else None
    return {"edges": np.stack([coo.row, coo.col]).astype(np.int64), "weights": weights, "node_ids": ids}


def matrices(graph: Any) -> tuple[Any, Any]:
    """Return the features and the adjacency matrix of a graph; see `Graph.to_adjacency`."""
    n = graph.num_nodes
    weights = np.ones(graph.num_edges, np.float32) if graph.weights is None else graph.weights
    (source, destination), x = graph.edges, graph.x.copy()
    return x, sp.csr_array((weights, (source, destination)), shape=(n, n))
