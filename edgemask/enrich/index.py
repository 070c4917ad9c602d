"""Approximate cosine neighbours in near-linear time: E_kNN of a graph too large for the exact search.

An inverted file of quantised rows (faiss) gives every node some candidates. They are ranked by their true
similarities, and neighbours of neighbours are tried beside them (NN-descent; Dong, Charikar and Li, 2011), which
finds most of what quantisation and projection have lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import torch

from edgemask.enrich.knn import ROWS, SCALE, is_sparse, on_all, search, unit_rows
from edgemask.enrich.spectral import leading_eigenvectors
from edgemask.errors import InputError, MissingDependencyError
from edgemask.runtime.threads import shared_threads
from edgemask.seeds import derive, numpy_stream

Array = npt.NDArray[Any]

INDEX = "ivf-pq4-descent-1"  # the name of all that follows in caches, counted up when any of it changes
WIDTH = 128  # of the rows in the index: wider ones are projected on their leading directions
DIRECTIONS = 2**15  # rows these directions are found from
CELL = 256  # nodes in a cell of the inverted file, on average
TRAIN = 40  # nodes per cell that the centres of the cells are found from
PROBES = 16  # cells searched for a node
CANDIDATES = 10  # kept from there, times k
PASSES = 2  # over the neighbours of neighbours
CHUNK = 2**16  # nodes asked for, or projected, at a time
SAMPLE = 1000  # nodes on which recall is measured
NONE = -np.inf  # the similarity of an empty place in a list


def approximate_knn(x: Any, k: int, *, seed: int) -> Array:
    """As `knn`, ordered by the same rule, but neighbours may be missed: `recall` says how many. On the CPU.

    Deterministic by `seed` for one machine and one number of threads: rounding inside the index may change with
    them, and so which neighbours are missed.
    """
    faiss = load_faiss()
    unit, usable = unit_rows(x)
    unit = unit if usable.all() else unit[usable]
    nodes, width = unit.shape
    if not 1 <= k < nodes:
        raise InputError(f"k must be in 1 … {nodes - 1} (nodes with features - 1), got {k}")
    points = project(unit, seed) if is_sparse(unit) or width > WIDTH else unit.astype(np.float32)
    points = np.pad(points, ((0, 0), (0, 1))) if points.shape[1] % 2 else points  # codes are of two columns each
    keep = min(2 * k, nodes - 1)  # longer lists than asked for lead further
    lists, similarity, fresh = empty_lists(nodes, keep)
    with faiss_threads(faiss), shared_threads():
        index, order = inverted_file(faiss, points, seed)
        # From here on by place in that order: what is near in features is then near in memory.
        rows, place = rows_of(unit[order], np.float32), np.empty(nodes, dtype=np.int64)
        place[order] = np.arange(nodes)
        for start in range(0, nodes, CHUNK):
            some = order[start : start + CHUNK]
            found = index.search(points[some], CANDIDATES * k)[1]
            _rank(*rows, width, place[some], np.where(found >= 0, place[found], -1), lists, similarity, fresh)
        del index, points
        for _ in range(PASSES):
            before, news, back = lists.copy(), fresh.copy(), _back(lists, fresh)
            fresh[:] = False
            _descend(*rows, width, before, news, back, lists, similarity, fresh)
        found, similarity, fresh = empty_lists(nodes, k)
        _rank(
            *rows_of(unit, np.float64), width, order, np.where(lists >= 0, order[lists], -1), found, similarity, fresh
        )
    return on_all(usable, found.astype(np.int64))


def recall(x: Any, lists: Array, *, seed: int, device: str | torch.device = "cpu") -> float:
    """Share of the neighbours in `lists` as similar as the exact k nearest, over a seeded sample of 1,000 nodes.

    Where more than k nodes are as similar as the k-th, any of them counts.
    """
    unit, usable = unit_rows(x)
    ids = np.flatnonzero(usable)
    asked = np.sort(numpy_stream(seed, "recall").choice(len(ids), min(SAMPLE, len(ids)), replace=False))
    last = ids[search(unit if usable.all() else unit[ids], lists.shape[1], asked, device=device)[:, -1:]]
    asked = ids[asked]
    return float((pair_similarities(unit, asked, lists[asked]) >= pair_similarities(unit, asked, last)).mean())


def pair_similarities(unit: Any, i: Array, j: Array) -> Array:
    """Similarities of each node `i` (A) to its nodes `j` (A × k; -1 = none), in multiples of 2⁻²⁴."""
    left, right = np.repeat(i, j.shape[1]), np.maximum(j, 0).ravel()
    products = (unit[left] * unit[right]).sum(axis=1)
    return np.where(j >= 0, np.rint(products * SCALE).reshape(j.shape), NONE)


def project(unit: Any, seed: int) -> Array:
    """The rows on the leading directions of a sample of them, at length 1, in float32."""
    nodes, width = unit.shape
    some = unit[np.sort(numpy_stream(seed, "directions").choice(nodes, min(nodes, DIRECTIONS), replace=False))]
    across = some.T.tocsr() if is_sparse(some) else some.T
    directions = leading_eigenvectors(lambda w: across @ (some @ w), width, WIDTH, seed)
    rows = np.empty((nodes, directions.shape[1]), dtype=np.float32)
    for start in range(0, nodes, CHUNK):
        some = unit[start : start + CHUNK] @ directions
        rows[start : start + CHUNK] = some / np.maximum(np.linalg.norm(some, axis=1, keepdims=True), 1e-300)
    return rows


def inverted_file(faiss: Any, points: Array, seed: int) -> tuple[Any, Array]:
    """An index of `points` by inner product, and the nodes in the order of their cells."""
    nodes, width = points.shape
    cells = max(1, nodes // CELL)
    index = faiss.index_factory(width, f"IVF{cells},PQ{width // 2}x4fsr", faiss.METRIC_INNER_PRODUCT)
    for part, name in ((index.cp, "cells"), (index.pq.cp, "codes")):  # rough centres serve as well as perfect ones
        part.seed, part.niter, part.min_points_per_centroid = derive(seed, name) % 2**31, 6, 1
        part.max_points_per_centroid = TRAIN
    train = numpy_stream(seed, "train").choice(nodes, min(nodes, max(TRAIN * cells, 10_000)), replace=False)
    index.train(points[np.sort(train)])
    index.add(points)
    index.nprobe = min(PROBES, cells)
    kept = index.invlists
    order = [faiss.rev_swig_ptr(kept.get_ids(c), kept.list_size(c)).copy() for c in range(cells) if kept.list_size(c)]
    return index, np.concatenate(order)


def load_faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingDependencyError(
            "approximate neighbours need faiss: install edgemask[scale], or raise knn_exact_up_to to the number of "
            "nodes for the exact search"
        ) from error
    return faiss


@contextmanager
def faiss_threads(faiss: Any) -> Iterator[None]:
    """Run the index on as many threads as torch uses, and give its own number back."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(torch.get_num_threads())
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


# ---- lists, ranked and refined -------------------------------------------------------------------------
#
# Rows are (indptr, indices, data) of a CSR matrix, or (nothing, nothing, data) where data is dense.


def rows_of(unit: Any, kind: type) -> tuple[Array, Array, Array]:
    if is_sparse(unit):
        return unit.indptr, unit.indices, unit.data.astype(kind, copy=False)
    none = np.empty(0, dtype=np.int32)
    return none, none, unit.astype(kind, copy=False)


def empty_lists(nodes: int, k: int) -> tuple[Array, Array, Array]:
    """Neighbours (-1 = none), their similarities, and which of them are new."""
    return (
        np.full((nodes, k), -1, dtype=np.int32),
        np.full((nodes, k), NONE, dtype=np.float32),
        np.zeros((nodes, k), dtype=np.bool_),
    )


@numba.njit(cache=True, nogil=True)
def _load(indptr: Array, indices: Array, data: Array, i: int, row: Array) -> None:
    """Row i, spread out, into `row`."""
    if data.ndim == 2:
        row[:] = data[i]
    else:
        for p in range(indptr[i], indptr[i + 1]):
            row[indices[p]] = data[p]


@numba.njit(cache=True, nogil=True)
def _clear(indptr: Array, indices: Array, data: Array, i: int, row: Array) -> None:
    """Zeros again where `_load` wrote."""
    if data.ndim == 1:
        for p in range(indptr[i], indptr[i + 1]):
            row[indices[p]] = 0


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"}, forceinline=True)  # sums in any order
def _similarity(indptr: Array, indices: Array, data: Array, row: Array, j: int) -> Any:
    """Of a row spread out and row j, in multiples of 2⁻²⁴, which a float32 holds."""
    total = data.dtype.type(0)
    if data.ndim == 2:
        for c in range(data.shape[1]):
            total += row[c] * data[j, c]
    else:
        for p in range(indptr[j], indptr[j + 1]):
            total += row[indices[p]] * data[p]
    return np.rint(total * SCALE)


@numba.njit(cache=True, nogil=True)
def _insert(lists: Array, similarity: Array, fresh: Array, i: int, value: float, j: int) -> None:
    """Put j into the list of i, where it belongs: larger similarity first, then lower index."""
    place = lists.shape[1] - 1
    if value < similarity[i, place] or (value == similarity[i, place] and j > lists[i, place]):
        return
    while place > 0 and (
        similarity[i, place - 1] < value or (similarity[i, place - 1] == value and lists[i, place - 1] > j)
    ):
        lists[i, place], similarity[i, place] = lists[i, place - 1], similarity[i, place - 1]
        fresh[i, place] = fresh[i, place - 1]
        place -= 1
    lists[i, place], similarity[i, place], fresh[i, place] = j, value, True


@numba.njit(parallel=True, cache=True, nogil=True)
def _rank(
    indptr: Array, indices: Array, data: Array, width: int, nodes: Array, candidates: Array,
    lists: Array, similarity: Array, fresh: Array,
) -> None:  # fmt: skip
    """Put each row of `candidates` (distinct; -1 = none) into the list of its node."""
    for task in numba.prange((len(nodes) + ROWS - 1) // ROWS):
        row = np.zeros(width, dtype=data.dtype)
        for r in range(task * ROWS, min(len(nodes), (task + 1) * ROWS)):
            i = nodes[r]
            _load(indptr, indices, data, i, row)
            for j in candidates[r]:
                if j >= 0 and j != i:
                    _insert(lists, similarity, fresh, i, _similarity(indptr, indices, data, row, j), j)
            _clear(indptr, indices, data, i, row)


@numba.njit(cache=True, nogil=True)
def _back(lists: Array, fresh: Array) -> Array:
    """Who lists each node, as many as a list holds, those that list it high up first: 2i, plus 1 where it is new."""
    nodes, k = lists.shape
    back, size = np.full((nodes, k), -1, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    for p in range(k):
        for i in range(nodes):
            j = lists[i, p]
            if j >= 0 and size[j] < k:
                back[j, size[j]] = 2 * i + fresh[i, p]
                size[j] += 1
    return back


@numba.njit(cache=True, nogil=True)
def _is_new(table: Array, used: Array, count: int, j: int) -> bool:
    """Note j in an open hash table whose occupied slots are listed in `used`; False where it was there."""
    slot = (j * 40503) & (len(table) - 1)
    while table[slot] >= 0:
        if table[slot] == j:
            return False
        slot = (slot + 1) & (len(table) - 1)
    table[slot], used[count] = j, slot
    return True


@numba.njit(parallel=True, cache=True, nogil=True)
def _descend(
    indptr: Array, indices: Array, data: Array, width: int, before: Array, news: Array, back: Array,
    lists: Array, similarity: Array, fresh: Array,
) -> None:  # fmt: skip
    """Try, for every node, the neighbours (`before`) of those it lists and of those that list it (`back`).

    Only over a step that is new since the last pass: the others were tried there.
    """
    nodes, k = before.shape
    slots = 64
    while slots < 4 * k * (k + 1):
        slots *= 2
    for task in numba.prange((nodes + ROWS - 1) // ROWS):
        row = np.zeros(width, dtype=data.dtype)
        table, used = np.full(slots, -1, dtype=np.int64), np.empty(slots, dtype=np.int64)
        for i in range(task * ROWS, min(nodes, (task + 1) * ROWS)):
            _load(indptr, indices, data, i, row)
            _is_new(table, used, 0, i)
            count = 1
            for j in before[i]:
                if j >= 0:
                    count += _is_new(table, used, count, j)
            for p in range(2 * k):
                if p < k:
                    j, is_news = before[i, p], news[i, p]
                else:
                    j, is_news = back[i, p - k] >> 1, (back[i, p - k] & 1) == 1
                if j < 0:
                    continue
                for q in range(-1, k):
                    c = j if q < 0 else before[j, q]
                    if c < 0 or not (is_news or q < 0 or news[j, q]) or not _is_new(table, used, count, c):
                        continue
                    count += 1
                    _insert(lists, similarity, fresh, i, _similarity(indptr, indices, data, row, c), c)
            for slot in used[:count]:
                table[slot] = -1
            _clear(indptr, indices, data, i, row)
