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
import torch.nn.functional as F
from torch import Tensor

from edgemask.errors import InputError
from edgemask.runtime.loops import Loop
from edgemask.runtime.threads import shared_threads

Array = npt.NDArray[Any]

# Similarities are rounded to multiples of 2⁻²⁴ ≈ 6e-8 before they are compared. Float64 sums in any order agree far
# more closely than that, so the order, the threads and the backend cannot decide a tie. The scale is a power of two so
# that small fractions such as 1/256, which are common among word counts, do not lie half-way between two multiples,
# where rounding would be arbitrary.
SCALE = 2.0**24
ROWS = 64  # rows per parallel task of the sparse search; they share one accumulator
TILE = 1024, 2**15  # similarities in memory at a time in the float32 pass of the dense search (128 MiB)
BLOCK = 2**23  # float64 similarities, or features of candidates, in memory at a time (64 MiB)
SPARE = 16  # candidates of the float32 pass beyond k and the node itself


def knn(x: Any, k: int, *, device: str | torch.device = "cpu") -> Array:
    """Find the k most cosine-similar other nodes of every node.

    The search is exact. Neighbours are ordered by larger similarity, then by lower index; similarities are float64
    values rounded to multiples of 2⁻²⁴. An all-zero row has no cosine: it has no neighbours and is not a neighbour of
    any node.

    Sparse features take O(Σ_c n_c² + N²) time (n_c non-zeros in column c) and memory for one row of similarities per
    thread. They are always searched on the CPU: as dense features they would take longer on any device. Dense features
    are multiplied in blocks on `device`.

    Args:
        x: N × d features, as a SciPy sparse matrix or an array.
        k: Neighbours per node.
        device: Where dense features are searched.

    Returns:
        N × k node indices, nearest first. If a node has fewer than k neighbours, its row ends in -1.

    Raises:
        InputError: `k` is out of range, or a row has features that are not finite.

    >>> knn(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), 1).tolist()
    [[1], [0], [1]]
    """
    nodes = x.shape[0]
    if not 1 <= k < nodes:
        raise InputError(f"k must be in 1 … {nodes - 1} (nodes - 1), got {k}")
    unit, usable = unit_rows(x)
    return on_all(usable, search(unit[usable], k, device=device))


def on_all(usable: Array, lists: Array) -> Array:
    """Return the lists of all nodes, given the lists of the usable nodes in terms of these nodes."""
    ids = np.flatnonzero(usable)
    if len(ids) == len(usable):
        return lists
    all_lists = np.full((len(usable), lists.shape[1]), -1, dtype=np.int64)
    all_lists[ids] = np.where(lists >= 0, ids[lists], -1)
    return all_lists


def search(unit: Any, k: int, queries: Array | None = None, *, device: str | torch.device = "cpu") -> Array:
    """Find the k most similar other rows among rows of length 1.

    Args:
        unit: Rows of Euclidean length 1, as `unit_rows` returns them, without all-zero rows.
        k: Neighbours per row.
        queries: Indices of the rows whose neighbours are searched. None means all rows.
        device: Where dense rows are searched.

    Returns:
        One list of k row indices per query, ordered and filled up with -1 as by `knn`.
    """
    queries = np.arange(unit.shape[0]) if queries is None else queries
    if not is_sparse(unit):
        return _search_dense(unit, k, queries, device)
    columns = unit.tocsc()
    out = np.full((len(queries), k), -1, dtype=np.int64)
    with shared_threads():
        _search(
            unit.indptr, unit.indices, unit.data,
            columns.indptr, columns.indices, columns.data,
            queries, out,
        )  # fmt: skip
    return out


def is_sparse(x: Any) -> bool:
    """Return whether `x` is a SciPy sparse matrix, as a plain bool: with SciPy's own test, type checkers narrow `x`."""
    return bool(sp.issparse(x))


def unit_rows(x: Any) -> tuple[Any, Array]:
    """Scale the rows of `x` to Euclidean length 1.

    Args:
        x: N × d features, as a SciPy sparse matrix or an array.

    Returns:
        The scaled rows as float64 values, in CSR format if `x` is sparse, and a boolean per row that is False if the
        row is all zero. All-zero rows stay as they are.

    Raises:
        InputError: A row has features that are not finite.
    """
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
        raise InputError(f"x: row {node} has length {lengths[node]}, expected finite features")
    usable = lengths > 0
    lengths[~usable] = 1.0
    if is_sparse(unit):
        unit.data /= np.repeat(lengths, np.diff(unit.indptr))
    else:
        unit /= lengths[:, None]
    return unit, usable


@Loop
def _search(
    indptr: Array, indices: Array, data: Array,
    starts: Array, rows: Array, values: Array,
    queries: Array, out: Array,
) -> None:  # fmt: skip
    """Compare rows of the CSR matrix (`indptr`, `indices`, `data`) with its inverted index (the CSC form)."""
    nodes, (count, k) = len(indptr) - 1, out.shape
    for task in numba.prange((count + ROWS - 1) // ROWS):
        similarity = np.zeros(nodes)
        best = np.empty(k)
        for r in range(task * ROWS, min(count, (task + 1) * ROWS)):
            i = queries[r]
            for p in range(indptr[i], indptr[i + 1]):
                column, value = indices[p], data[p]
                for q in range(starts[column], starts[column + 1]):
                    similarity[rows[q]] += value * values[q]
            best[:] = -np.inf
            for j in range(nodes):  # ascending: among equals, the lower index is inserted first
                scaled = similarity[j] * SCALE
                similarity[j] = 0.0
                if scaled <= best[k - 1] or j == i:
                    continue
                rounded = np.rint(scaled)
                place = k - 1
                if rounded <= best[place]:
                    continue
                while place > 0 and best[place - 1] < rounded:
                    best[place] = best[place - 1]
                    out[r, place] = out[r, place - 1]
                    place -= 1
                best[place] = rounded
                out[r, place] = j


def _search_dense(unit: Array, k: int, queries: Array, device: str | torch.device) -> Array:
    """Find candidates by a float32 product and rank them in float64; redo uncertain rows in float64.

    The error of a float32 product of two rows of length 1 is at most (d + 2)u/(1 - (d + 2)u), u = 2⁻²⁴, in any order of
    summation: there are d roundings in the product and one in each factor. Therefore no node outside the candidates is
    more similar than the float32 similarity of the least similar candidate, plus this bound. If the k-th candidate in
    float64 is not strictly above that value, for example because many similarities tie, the row is searched again.
    """
    points, ids = torch.from_numpy(unit).to(device), torch.from_numpy(queries).to(device)
    (nodes, width), rough = points.shape, points.float()
    wanted, all_nodes = min(k + 1 + SPARE, nodes), torch.arange(nodes, device=device)
    slack = (share := (width + 3) * 2.0**-24) / (1 - share)  # one u more than needed
    lists = []
    with full_precision():
        for rows in torch.split(ids, max(1, min(TILE[0], BLOCK // (wanted * width)))):
            least, candidates = _candidates(rough, rows, wanted)
            similarity = (points[candidates] @ points[rows].unsqueeze(2)).squeeze(2)
            value, index = _best(similarity, candidates, rows, k)
            if wanted < nodes:
                outside = ((least.double() + slack) * SCALE).round()
                uncertain = ((value[:, -1] / 2.0**28).ceil() <= outside).nonzero().squeeze(1)
                for part in torch.split(uncertain, max(1, BLOCK // nodes)) if len(uncertain) else ():
                    index[part] = _best(points[rows[part]] @ points.T, all_nodes, rows[part], k)[1]
            lists.append(index.cpu())
    return torch.cat(lists).numpy() if lists else np.empty((0, k), dtype=np.int64)


def _candidates(rough: Tensor, rows: Tensor, wanted: int) -> tuple[Tensor, Tensor]:
    """Return the least similarity and the indices of the nodes most similar to `rows`, themselves included."""
    values, indices, start = [], [], 0
    for tile in torch.split(rough, TILE[1]):
        value, index = (rough[rows] @ tile.T).topk(min(wanted, len(tile)))
        values.append(value)
        indices.append(index + start)
        start += len(tile)
    value, place = torch.cat(values, 1).topk(wanted)
    return value[:, -1], torch.cat(indices, 1).gather(1, place)


def _best(similarity: Tensor, candidates: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the keys and the indices (-1 = none) of the first k candidates in the order of `knn`.

    The key is one number that orders by similarity, then by index. All keys are distinct, so top-k has no ties to
    break. Keys are exact in float64: |similarity| ≤ 2²⁴, shifted by 28 bits, leaves room for 2²⁸ nodes.
    """
    key = similarity.mul_(SCALE).round_().mul_(2.0**28).sub_(candidates)
    key.masked_fill_(candidates == rows.unsqueeze(1), -torch.inf)
    value, place = key.topk(min(k, key.shape[1]))
    index = candidates.expand_as(key).gather(1, place).masked_fill_(value == -torch.inf, -1)
    return value, F.pad(index, (0, k - index.shape[1]), value=-1)


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute float32 products in full float32 inside a block, whatever precision the process has set."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
