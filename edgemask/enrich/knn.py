"""Exact cosine k-nearest neighbours with a fixed tie rule: the edge set E_kNN (section 4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

Array = npt.NDArray[Any]

# Similarities are compared as whole multiples of 2⁻²⁴ ≈ 6e-8: float64 sums in any order agree far below
# that, so order, threads and backend cannot decide a tie. A power of two keeps small fractions such as
# 1/256, common among word counts, off the half-way points where rounding itself would be a coin toss.
SCALE = 2.0**24
ROWS = 64  # rows per parallel task, so that one accumulator serves many rows
BLOCK = 2**23  # entries of the similarity matrix held at a time by the dense route (64 MiB)


class EnrichWarning(UserWarning):
    """Enrichment went on, with something the caller should know."""


def knn(x: Any, k: int, *, device: str | torch.device = "cpu") -> Array:
    """The k most cosine-similar other nodes of every node: N × k node indices, nearest first.

    `x` is N × d, a SciPy sparse matrix or an array; the search is exact. Larger similarity first, then
    lower index, where similarities are float64 rounded to multiples of 2⁻²⁴. An all-zero row has no
    cosine: it has no neighbours and is nobody's neighbour. Where fewer than k neighbours exist, the row
    ends in -1. Sparse features take O(Σ_c n_c² + N²) time (n_c non-zeros in column c) and one row of
    similarities per thread; dense ones are multiplied in blocks, on `device`.
    """
    nodes = x.shape[0]
    if not 1 <= k < nodes:
        raise ValueError(f"k must be in 1 … {nodes - 1} (nodes - 1), got {k}")
    unit, usable = unit_rows(x)
    if is_sparse(unit):
        columns = unit.tocsc()
        out = np.full((nodes, k), -1, dtype=np.int64)
        with shared_threads():
            _search(
                unit.indptr, unit.indices, unit.data,
                columns.indptr, columns.indices, columns.data,
                usable, out,
            )  # fmt: skip
        return out
    return _search_dense(unit, usable, k, device)


def is_sparse(x: Any) -> bool:
    """Whether `x` is a SciPy sparse matrix (a plain bool: SciPy's own test narrows the type too far)."""
    return bool(sp.issparse(x))


def unit_rows(x: Any) -> tuple[Any, Array]:
    """Rows of `x` at Euclidean length 1 (float64; CSR when sparse), and which rows are not all zero."""
    unit: Any
    if is_sparse(x):
        unit = sp.csr_array(x, dtype=np.float64, copy=True)
        unit.sum_duplicates()
        lengths = np.sqrt(unit.multiply(unit).sum(axis=1))
    else:
        unit = np.array(x, dtype=np.float64)
        lengths = np.sqrt(np.einsum("ij,ij->i", unit, unit))
    if not np.isfinite(lengths).all():
        node = np.flatnonzero(~np.isfinite(lengths))[0]
        raise ValueError(f"x: row {node} has length {lengths[node]}, expected finite features")
    usable = lengths > 0
    lengths[~usable] = 1.0
    if is_sparse(unit):
        unit.data /= np.repeat(lengths, np.diff(unit.indptr))
    else:
        unit /= lengths[:, None]
    return unit, usable


@contextmanager
def shared_threads() -> Iterator[None]:
    """Run Numba's parallel loops on as many threads as torch uses, and leave torch's count as it was.

    The two share one OpenMP runtime: Numba's first parallel call would set its thread count to the number
    of cores for torch as well, whatever the user asked for.
    """
    wanted, before = torch.get_num_threads(), numba.get_num_threads()
    numba.set_num_threads(min(wanted, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    try:
        yield
    finally:
        numba.set_num_threads(before)
        torch.set_num_threads(wanted)


@numba.njit(parallel=True, cache=True, nogil=True)
def _search(
    indptr: Array, indices: Array, data: Array,
    starts: Array, rows: Array, values: Array,
    usable: Array, out: Array,
) -> None:  # fmt: skip
    """Each row of the CSR matrix (`indptr`, `indices`, `data`) against the inverted index (its CSC form)."""
    nodes, k = out.shape
    for task in numba.prange((nodes + ROWS - 1) // ROWS):
        similarity = np.zeros(nodes)
        best = np.empty(k)
        for i in range(task * ROWS, min(nodes, (task + 1) * ROWS)):
            if not usable[i]:
                continue
            for p in range(indptr[i], indptr[i + 1]):
                column, value = indices[p], data[p]
                for q in range(starts[column], starts[column + 1]):
                    similarity[rows[q]] += value * values[q]
            best[:] = -np.inf
            for j in range(nodes):  # ascending, so among equals the lower index is there first
                scaled = similarity[j] * SCALE
                similarity[j] = 0.0
                if scaled <= best[k - 1] or j == i or not usable[j]:
                    continue
                rounded = np.rint(scaled)
                place = k - 1
                if rounded <= best[place]:
                    continue
                while place > 0 and best[place - 1] < rounded:
                    best[place] = best[place - 1]
                    out[i, place] = out[i, place - 1]
                    place -= 1
                best[place] = rounded
                out[i, place] = j


def _search_dense(unit: Array, usable: Array, k: int, device: str | torch.device) -> Array:
    points = torch.from_numpy(unit).to(device)
    empty = torch.from_numpy(~usable).to(device)
    order = torch.arange(len(points), device=device)
    found = []
    for ids in torch.split(order, max(1, BLOCK // len(points))):
        # One number orders by similarity, then by index; all distinct, so top-k has no ties to break.
        # Exact in float64: |similarity| ≤ 2²⁴, shifted by 28 bits, leaves room for 2²⁸ nodes.
        key = (points[ids] @ points.T).mul_(SCALE).round_().mul_(2.0**28).sub_(order)
        key[:, empty] = -torch.inf
        key[empty[ids]] = -torch.inf
        key[ids - ids[0], ids] = -torch.inf
        value, index = key.topk(k)
        found.append(index.masked_fill(value == -torch.inf, -1).cpu())
    return torch.cat(found).numpy()
