"""Approximate cosine neighbours in near-linear time: E_kNN of graphs that are too large for the exact search.

An inverted file of quantised rows (faiss) gives candidates for every node. They are ranked by their true similarities.
Then the neighbours of neighbours are tried as well (NN-descent; Dong, Charikar and Li, 2011). This finds most of the
neighbours that were lost by quantisation and projection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import torch

from edgemask.enrich.knn import ROWS, SCALE, is_sparse, on_all, search, unit_rows
from edgemask.enrich.spectral import leading_eigenvectors
from edgemask.errors import InputError, MissingDependencyError
from edgemask.runtime.loops import Loop
from edgemask.runtime.threads import shared_threads
from edgemask.seeds import derive, numpy_stream

Array = npt.NDArray[Any]

INDEX = "ivf-pq4-descent-1"  # name of this algorithm in caches; increase its number when the algorithm changes
WIDTH = 128  # columns of the rows in the index; wider rows are projected on their leading directions
DIRECTIONS = 2**15  # rows from which these directions are computed
CELL = 256  # average number of nodes in a cell of the inverted file
TRAIN = 40  # nodes per cell from which the centres of the cells are computed
PROBES = 16  # cells that are searched for each node
CANDIDATES = 10  # candidates kept from these cells, as a multiple of k
PASSES = 2  # number of passes over the neighbours of neighbours
CHUNK = 2**16  # nodes that are searched for, or projected, at a time
SAMPLE = 1000  # nodes on which the recall is measured
NONE = -np.inf  # similarity of an empty place in a list


def approximate_knn(x: Any, k: int, *, seed: int) -> Array:
    """Return approximate neighbours in the format and order of `knn`, computed on the CPU.

    Some neighbours may be missed; `recall` measures how many are found. The result is determined by `seed` on one
    machine with one number of threads. On other machines or with other numbers of threads, rounding inside the index
    can change which neighbours are missed.

    Args:
        x: N × d features, sparse or dense.
        k: Neighbours per node.
        seed: Seed of the samples and of the index.

    Returns:
        N × k node indices, nearest first (-1 = none).

    Raises:
        InputError: `k` is out of range.
        MissingDependencyError: faiss is not installed.
    """
    faiss = load_faiss()
    unit, usable = unit_rows(x)
    unit = unit if usable.all() else unit[usable]
    nodes, width = unit.shape
    if not 1 <= k < nodes:
        raise InputError(f"k must be in 1 … {nodes - 1} (nodes with features - 1), got {k}")
    points = project(unit, seed) if is_sparse(unit) or width > WIDTH else unit.astype(np.float32)
    points = np.pad(points, ((0, 0), (0, 1))) if points.shape[1] % 2 else points  # each code covers two columns
    keep = min(2 * k, nodes - 1)  # with longer lists than needed, the descent reaches more nodes
    lists, similarity, fresh = empty_lists(nodes, keep)
    with faiss_threads(faiss), shared_threads():
        index, order = build_inverted_file(faiss, points, seed)
        # From here on, nodes are numbered in that order: similar nodes are then close in memory.
        rows, place = rows_of(unit[order], np.float32), np.empty(nodes, dtype=np.int64)
        place[order] = np.arange(nodes)
        for start in range(0, nodes, CHUNK):
            chunk = order[start : start + CHUNK]
            hits = index.search(points[chunk], CANDIDATES * k)[1]
            _rank(*rows, width, place[chunk], np.where(hits >= 0, place[hits], -1), lists, similarity, fresh)
        del index, points
        for _ in range(PASSES):
            before, news, back = lists.copy(), fresh.copy(), _back(lists, fresh)
            fresh[:] = False
            _descend(*rows, width, before, news, back, lists, similarity, fresh)
        final, similarity, fresh = empty_lists(nodes, k)
        _rank(
            *rows_of(unit, np.float64), width, order, np.where(lists >= 0, order[lists], -1), final, similarity, fresh
        )
    return on_all(usable, final.astype(np.int64))


def recall(x: Any, lists: Array, *, seed: int, device: str | torch.device = "cpu") -> float:
    """Return the share of the exact neighbours found in `lists`, on a seeded sample of 1,000 nodes.

    A listed neighbour counts if it is at least as similar as the exact k-th neighbour. If several nodes are equally
    similar to the k-th, any of them counts.

    Args:
        x: N × d features, as a SciPy sparse matrix or an array.
        lists: N × k node indices, with -1 for none.
        seed: Seed of the sample.
        device: Where the exact neighbours of dense features are searched.

    Raises:
        InputError: A row has features that are not finite.
    """
    unit, usable = unit_rows(x)
    ids = np.flatnonzero(usable)
    queries = np.sort(numpy_stream(seed, "recall").choice(len(ids), min(SAMPLE, len(ids)), replace=False))
    last = ids[search(unit if usable.all() else unit[ids], lists.shape[1], queries, device=device)[:, -1:]]
    nodes = ids[queries]
    return float((pair_similarities(unit, nodes, lists[nodes]) >= pair_similarities(unit, nodes, last)).mean())


def pair_similarities(unit: Any, i: Array, j: Array) -> Array:
    """Return the similarities of nodes `i` (A) to their nodes `j` (A × k; -1 = none), in multiples of 2⁻²⁴.

    Args:
        unit: Rows of unit length, dense or sparse.
        i: Nodes (A).
        j: The nodes that each of them is compared with (A × k; -1 = none).

    Returns:
        A × k similarities.
    """
    left, right = np.repeat(i, j.shape[1]), np.maximum(j, 0).ravel()
    products = (unit[left] * unit[right]).sum(axis=1)
    return np.where(j >= 0, np.rint(products * SCALE).reshape(j.shape), NONE)


def project(unit: Any, seed: int) -> Array:
    """Project rows on the leading directions of a sample of them, and scale them to length 1, in float32."""
    nodes, width = unit.shape
    sample = unit[np.sort(numpy_stream(seed, "directions").choice(nodes, min(nodes, DIRECTIONS), replace=False))]
    transposed = sample.T.tocsr() if is_sparse(sample) else sample.T
    directions = leading_eigenvectors(lambda w: transposed @ (sample @ w), width, WIDTH, seed)
    rows = np.empty((nodes, directions.shape[1]), dtype=np.float32)
    for start in range(0, nodes, CHUNK):
        chunk = unit[start : start + CHUNK] @ directions
        rows[start : start + CHUNK] = chunk / np.maximum(np.linalg.norm(chunk, axis=1, keepdims=True), 1e-300)
    return rows


def build_inverted_file(faiss: Any, points: Array, seed: int) -> tuple[Any, Array]:
    """Build a faiss index of points by inner product, with cells of about `CELL` nodes and 4-bit codes.

    Args:
        faiss: The module.
        points: One row per node.
        seed: Seed of the centres of cells and codes.

    Returns:
        The index, and all nodes sorted by the cell they are in.
    """
    nodes, width = points.shape
    cells = max(1, nodes // CELL)
    # IVF: cells. PQ…x4fsr: each pair of columns is a 4-bit code of the residual from the centre of the cell.
    index = faiss.index_factory(width, f"IVF{cells},PQ{width // 2}x4fsr", faiss.METRIC_INNER_PRODUCT)
    for part, name in ((index.cp, "cells"), (index.pq.cp, "codes")):  # rough centres work as well as exact ones
        part.seed, part.niter, part.min_points_per_centroid = derive(seed, name) % 2**31, 6, 1
        part.max_points_per_centroid = TRAIN
    train = numpy_stream(seed, "train").choice(nodes, min(nodes, max(TRAIN * cells, 10_000)), replace=False)
    index.train(points[np.sort(train)])
    index.add(points)
    index.nprobe = min(PROBES, cells)
    lists = index.invlists
    sizes = [lists.list_size(c) for c in range(cells)]
    order = [faiss.rev_swig_ptr(lists.get_ids(c), size).copy() for c, size in enumerate(sizes) if size]
    return index, np.concatenate(order)


def load_faiss() -> Any:
    """Import faiss.

    Returns:
        The module.

    Raises:
        MissingDependencyError: faiss is not installed. The message names the extra.
    """
    try:
        import faiss
    except ImportError as error:
        raise MissingDependencyError(
            "approximate neighbours need faiss, which is not installed: install edgemask[scale], or raise "
            "knn_exact_up_to to the number of nodes to use the exact search"
        ) from error
    return faiss


@contextmanager
def faiss_threads(faiss: Any) -> Iterator[None]:
    """Run faiss on as many threads as torch uses inside a block, and restore its own number afterwards."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(torch.get_num_threads())
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


# ---- ranking and refining lists ------------------------------------------------------------------------
#
# Rows are (indptr, indices, data) of a CSR matrix, or (empty, empty, data) if data is dense.


def rows_of(unit: Any, kind: type) -> tuple[Array, Array, Array]:
    """Return rows as the arrays (indptr, indices, data) that the compiled loops take, with data of type `kind`."""
    if is_sparse(unit):
        return unit.indptr, unit.indices, unit.data.astype(kind, copy=False)
    none = np.empty(0, dtype=np.int32)
    return none, none, unit.astype(kind, copy=False)


def empty_lists(nodes: int, k: int) -> tuple[Array, Array, Array]:
    """Return empty lists: neighbours (-1 = none), their similarities, and flags of the new ones."""
    return (
        np.full((nodes, k), -1, dtype=np.int32),
        np.full((nodes, k), NONE, dtype=np.float32),
        np.zeros((nodes, k), dtype=np.bool_),
    )


@numba.njit(nogil=True)
def _load(indptr: Array, indices: Array, data: Array, i: int, row: Array) -> None:
    """Write row i to the dense array `row`."""
    if data.ndim == 2:
        row[:] = data[i]
    else:
        for p in range(indptr[i], indptr[i + 1]):
            row[indices[p]] = data[p]


@numba.njit(nogil=True)
def _clear(indptr: Array, indices: Array, data: Array, i: int, row: Array) -> None:
    """Set the entries that `_load` wrote back to zero."""
    if data.ndim == 1:
        for p in range(indptr[i], indptr[i + 1]):
            row[indices[p]] = 0


@numba.njit(nogil=True, fastmath={"reassoc", "contract"}, forceinline=True)  # terms may be reordered
def _similarity(indptr: Array, indices: Array, data: Array, row: Array, j: int) -> Any:
    """Return the similarity of a dense row and row j, in multiples of 2⁻²⁴: a float32 can hold it."""
    total = data.dtype.type(0)
    if data.ndim == 2:
        for c in range(data.shape[1]):
            total += row[c] * data[j, c]
    else:
        for p in range(indptr[j], indptr[j + 1]):
            total += row[indices[p]] * data[p]
    return np.rint(total * SCALE)


@numba.njit(nogil=True)
def _insert(lists: Array, similarity: Array, fresh: Array, i: int, value: float, j: int) -> None:
    """Insert j into the list of i, which is ordered by larger similarity, then by lower index."""
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


@Loop
def _rank(
    indptr: Array, indices: Array, data: Array, width: int, nodes: Array, candidates: Array,
    lists: Array, similarity: Array, fresh: Array,
) -> None:  # fmt: skip
    """Insert each row of `candidates` (distinct; -1 = none) into the list of its node."""
    for task in numba.prange((len(nodes) + ROWS - 1) // ROWS):
        row = np.zeros(width, dtype=data.dtype)
        for r in range(task * ROWS, min(len(nodes), (task + 1) * ROWS)):
            i = nodes[r]
            _load(indptr, indices, data, i, row)
            for j in candidates[r]:
                if j >= 0 and j != i:
                    _insert(lists, similarity, fresh, i, _similarity(indptr, indices, data, row, j), j)
            _clear(indptr, indices, data, i, row)


@partial(Loop, parallel=False)
def _back(lists: Array, fresh: Array) -> Array:
    """Return the nodes that list each node, in the order of its rank there, up to k: 2i, plus 1 if the entry is new."""
    nodes, k = lists.shape
    back, size = np.full((nodes, k), -1, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    for p in range(k):
        for i in range(nodes):
            j = lists[i, p]
            if j >= 0 and size[j] < k:
                back[j, size[j]] = 2 * i + fresh[i, p]
                size[j] += 1
    return back


@numba.njit(nogil=True)
def _is_new(table: Array, used: Array, count: int, j: int) -> bool:
    """Add j to an open hash table whose occupied slots are listed in `used`; return False if it was there already."""
    slot = (j * 40503) & (len(table) - 1)
    while table[slot] >= 0:
        if table[slot] == j:
            return False
        slot = (slot + 1) & (len(table) - 1)
    table[slot], used[count] = j, slot
    return True


@Loop
def _descend(
    indptr: Array, indices: Array, data: Array, width: int, before: Array, news: Array, back: Array,
    lists: Array, similarity: Array, fresh: Array,
) -> None:  # fmt: skip
    """For every node, try the neighbours (`before`) of the nodes it lists and of the nodes that list it (`back`).

    Only paths with an entry that is new since the last pass are followed: that pass tried the others.
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
