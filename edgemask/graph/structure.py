"""Features that are derived from the edges, for graphs without features of their own.

Every feature is computed from one graph alone, so it means the same in all graphs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Array = npt.NDArray[Any]

WIDTH = 256  # columns of the one-hot degrees: 0 … 254, and 255 or more
WORK = 1 << 22  # entries of a sparse product that are in memory at once


def _degree(edges: Array, n: int) -> tuple[Any, list[str]]:
    columns = np.minimum(np.bincount(edges[1], minlength=n), WIDTH - 1)
    x = sp.csr_array((np.ones(n, np.float32), columns, np.arange(n + 1)), shape=(n, WIDTH))
    return x, [*(f"degree={d}" for d in range(WIDTH - 1)), f"degree>={WIDTH - 1}"]


def _log_degree(edges: Array, n: int) -> tuple[Any, list[str]]:
    return np.log1p(np.bincount(edges[1], minlength=n))[:, None].astype(np.float32), ["log-degree"]


def _clustering(edges: Array, n: int) -> tuple[Any, list[str]]:
    ends = np.concatenate([edges, edges[::-1]], axis=1)
    adjacency = sp.csr_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(n, n))
    adjacency.data[:] = 1  # both directions of an edge count once
    degree = np.diff(adjacency.indptr)
    work = np.cumsum(adjacency @ degree)  # size of the product of the first rows
    cuts = np.unique([0, *np.searchsorted(work, np.arange(WORK, work[-1] if n else 0, WORK)), n])
    triangles = np.zeros(n)
    for first, past in itertools.pairwise(cuts):
        rows = adjacency[first:past]
        triangles[first:past] = (rows @ adjacency).multiply(rows).sum(axis=1)
    pairs = np.maximum(degree * (degree - 1), 1)
    return (triangles / pairs)[:, None].astype(np.float32), ["clustering"]


# By name: a function of the edges (2 × M) and the number of nodes that returns columns and their names.
STRUCTURE: dict[str, Callable[[Array, int], tuple[Any, list[str]]]] = {
    "degree": _degree,
    "log-degree": _log_degree,
    "clustering": _clustering,
}


def structural_features(edges: Array, num_nodes: int, kinds: Sequence[str]) -> tuple[Any, tuple[str, ...]]:
    """Return features that are derived from the edges, and their names.

    Args:
        edges: 2 × M directed edges without duplicates and self-loops.
        num_nodes: Number of nodes.
        kinds: `degree` (the in-degree, one-hot in 256 sparse columns), `log-degree` (log(1 + in-degree)) or
            `clustering` (the local clustering coefficient, ignoring directions).

    Returns:
        The columns of all kinds side by side, in CSR format if one of them is sparse, and their names.

    >>> x, names = structural_features(np.array([[0, 1, 2], [1, 2, 0]]), 3, ["log-degree", "clustering"])
    >>> x[0].tolist() == [np.log1p(np.float32(1)), 1], names
    (True, ('log-degree', 'clustering'))
    """
    parts = [STRUCTURE[kind](edges, num_nodes) for kind in kinds]
    return beside([x for x, _ in parts]), tuple(name for _, names in parts for name in names)


def beside(parts: Sequence[Any]) -> Any:
    """Return matrices side by side. The result is sparse if one of them is."""
    if any(sp.issparse(part) for part in parts):
        return sp.hstack([sp.csr_array(part) for part in parts], format="csr")
    return np.concatenate(parts, axis=1)
