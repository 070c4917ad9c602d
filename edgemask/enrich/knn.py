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
from edgemask.runtime.threads import shared_threads

Array = npt.NDArray[Any]

# Similarities are compared as whole multiples of 2⁻²⁴ ≈ 6e-8: float64 sums in any order agree far below
# that, so order, threads and backend cannot decide a tie. A power of two keeps small fractions such as
# 1/256, common among word counts, off the half-way points where rounding itself would be a coin toss.
SCALE = 2.0**24
ROWS = 64  # rows per parallel task of the sparse route, so that one accumulator serves many rows
TILE = 1024, 2**15  # similarities held at a time by the float32 pass of the dense route (128 MiB)
BLOCK = 2**23  # entries of the similarity matrix, or of candidates' features, held at a time in float64 (64 MiB)
SPARE = 16  # candidates the float32 pass keeps beyond k and the node itself


def knn(x: Any, k: int, *, device: str | torch.device = "cpu") -> Array:
    """The k most cosine-similar other nodes of every node: N × k node indices, nearest first.

    `x` is N × d, a SciPy sparse matrix or an array; the search is exact. Larger similarity first, then
    lower index, where similarities are float64 rounded to multiples of 2⁻²⁴. An all-zero row has no
    cosine: it has no neighbours and is nobody's neighbour. Where fewer than k neighbours exist, the row
    ends in -1. Sparse features take O(Σ_c n_c² + N²) time (n_c non-zeros in column c) and one row of
    similarities per thread, on the CPU whatever the `device`: made dense they would take longer on any.
    Dense ones are multiplied in blocks, on `device`.
    """
    nodes = x.shape[0]
    if not 1 <= k < nodes:
        raise InputError(f"k must be in 1 … {nodes - 1} (nodes - 1), got {k}")
    unit, usable = unit_rows(x)
    return on_all(usable, search(unit[usable], k, device=device))


def on_all(usable: Array, found: Array) -> Array:
    """Neighbour lists of all nodes from the lists of the usable ones among each other."""
    ids = np.flatnonzero(usable)
    if len(ids) == len(usable):
        return found
    lists = np.full((len(usable), found.shape[1]), -1, dtype=np.int64)
    lists[ids] = np.where(found >= 0, ids[found], -1)
    return lists


def search(unit: Any, k: int, queries: Array | None = None, *, device: str | torch.device = "cpu") -> Array:
    """`knn` among rows of length 1, for all of them or for the rows `queries` alone."""
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
        raise InputError(f"x: row {node} has length {lengths[node]}, expected finite features")
    usable = lengths > 0
    lengths[~usable] = 1.0
    if is_sparse(unit):
        unit.data /= np.repeat(lengths, np.diff(unit.indptr))
    else:
        unit /= lengths[:, None]
    return unit, usable


@numba.njit(parallel=True, cache=True, nogil=True)
def _search(
    indptr: Array, indices: Array, data: Array,
    starts: Array, rows: Array, values: Array,
    queries: Array, out: Array,
) -> None:  # fmt: skip
    """Rows of the CSR matrix (`indptr`, `indices`, `data`) against the inverted index (its CSC form)."""
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
            for j in range(nodes):  # ascending, so among equals the lower index is there first
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
    """Candidates by a float32 product, ranked in float64; float64 throughout where that leaves a doubt.

    A float32 product of two rows of length 1 is wrong by at most (d + 2)u/(1 - (d + 2)u), u = 2⁻²⁴, in
    whatever order it is summed: d roundings in the product, one in each factor. So no node outside the
    candidates is more similar than the least similar of them in float32, plus that. Where the k-th candidate,
    in float64, does not stand strictly above this, as where many similarities tie, the row is searched again.
    """
    points, ids = torch.from_numpy(unit).to(device), torch.from_numpy(queries).to(device)
    (nodes, width), rough = points.shape, points.float()
    wanted, everyone = min(k + 1 + SPARE, nodes), torch.arange(nodes, device=device)
    slack = (share := (width + 3) * 2.0**-24) / (1 - share)  # one more u than needed
    found = []
    with full_precision():
        for rows in torch.split(ids, max(1, min(TILE[0], BLOCK // (wanted * width)))):
            least, candidates = _candidates(rough, rows, wanted)
            similarity = (points[candidates] @ points[rows].unsqueeze(2)).squeeze(2)
            value, index = _best(similarity, candidates, rows, k)
            if wanted < nodes:
                outside = ((least.double() + slack) * SCALE).round()
                doubt = ((value[:, -1] / 2.0**28).ceil() <= outside).nonzero().squeeze(1)
                for part in torch.split(doubt, max(1, BLOCK // nodes)) if len(doubt) else ():
                    index[part] = _best(points[rows[part]] @ points.T, everyone, rows[part], k)[1]
            found.append(index.cpu())
    return torch.cat(found).numpy() if found else np.empty((0, k), dtype=np.int64)


def _candidates(rough: Tensor, rows: Tensor, wanted: int) -> tuple[Tensor, Tensor]:
    """The nodes most similar to `rows` in float32, themselves among them: the least similarity, and who."""
    values, indices, start = [], [], 0
    for tile in torch.split(rough, TILE[1]):
        value, index = (rough[rows] @ tile.T).topk(min(wanted, len(tile)))
        values.append(value)
        indices.append(index + start)
        start += len(tile)
    value, place = torch.cat(values, 1).topk(wanted)
    return value[:, -1], torch.cat(indices, 1).gather(1, place)


def _best(similarity: Tensor, candidates: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k first of the candidates by the rule of `knn`: their keys and who they are (-1 = none).

    One number orders by similarity, then by index; all distinct, so top-k has no ties to break. Exact in
    float64: |similarity| ≤ 2²⁴, shifted by 28 bits, leaves room for 2²⁸ nodes.
    """
    key = similarity.mul_(SCALE).round_().mul_(2.0**28).sub_(candidates)
    key.masked_fill_(candidates == rows.unsqueeze(1), -torch.inf)
    value, place = key.topk(min(k, key.shape[1]))
    index = candidates.expand_as(key).gather(1, place).masked_fill_(value == -torch.inf, -1)
    return value, F.pad(index, (0, k - index.shape[1]), value=-1)


@contextmanager
def full_precision() -> Iterator[None]:
    """Float32 products in float32, not in a shorter format, whatever the process has chosen."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
