"""The most expensive loops: sums of rows over the edges of a node, and inner products of the two rows of an edge.

Node i has the entries indptr[i] … indptr[i + 1] - 1. Entry q refers to the row at[q] and to the edge order[q], or to
the edge q if there is no order. Rows have one part per head. Edge p has the coefficient factor[p] · share[p, k] for
head k, or 0 if its share is not positive.

Rows are read four at a time, which is as many as the memory delivers to a core at once. One thread computes each sum,
in the order of the entries. There are no atomic operations, and the results are the same to the bit for any number of
threads.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from torch import Tensor

from edgemask.nn.compiled import BLOCKS, Array, arrays, blocks, compiled, empty, helper, longest
from edgemask.runtime.threads import shared_threads

Entries = tuple[Tensor, Tensor, Tensor | None]  # indptr, at, order


def sums(entries: Entries, factor: Tensor, share: Tensor | None, rows: Tensor, scale: float = 1.0) -> Tensor:
    """Return out[i, k] = scale · Σ_q factor · share · rows[at[q], k].

    Args:
        entries: The entries of each node: indptr, at and order.
        factor: Factor of each edge.
        share: Share of each edge and head. None means ones.
        rows: Rows of the nodes (nodes × heads × d).
        scale: A factor of all sums.

    Returns:
        The sums (nodes × heads × d).
    """
    out = empty(rows, len(entries[0]) - 1, *rows.shape[1:])
    with shared_threads():
        _sums(blocks(entries[0]), *arrays(*entries, factor, share), scale, *arrays(rows, out))
    return out


def products(
    entries: Entries, factor: Tensor, share: Tensor | None, own: Tensor, rows: Tensor, scale: float = 1.0,
    *, with_sums: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Return t[p, k] = scale · ⟨own[i, k], rows[at[q], k]⟩ for every edge, even if its share is not positive.

    Args:
        entries: The entries of each node: indptr, at and order.
        factor: Factor of each edge.
        share: Share of each edge and head. None means ones.
        own: Rows of the nodes that have the entries (nodes × heads × d).
        rows: Rows that the entries refer to (nodes × heads × d).
        scale: A factor of all products and sums.
        with_sums: Whether to compute `sums` in the same pass over the rows.

    Returns:
        The products (edges × heads), and the result of `sums` or None.
    """
    out = empty(rows, *own.shape) if with_sums else None
    inner = empty(rows, len(factor), rows.shape[1])
    inner[int(entries[0][-1]) :] = 0  # padding entries
    with shared_threads():
        _products(blocks(entries[0]), *arrays(*entries, factor, share), scale, *arrays(own, rows, inner, out))
    return inner, out


@helper
def _part(share: Array | None, p: int, k: int, factor: float) -> Any:
    """Return the coefficient of edge p for head k, given its factor.

    It is 0 if the share is not positive, and NaN if the share is NaN. The formula has no branch that the processor
    could mispredict.
    """
    if share is None:
        return factor
    half = factor * share.dtype.type(0.5)
    return half * (share[p, k] + abs(share[p, k]))


@compiled
def _sums(
    blocks: Array, indptr: Array, at: Array, order: Array, factor: Array, share: Array, scale: float,
    rows: Array, out: Array,
) -> None:  # fmt: skip
    """Fill `out` with the result of `sums`."""
    _, heads, width = rows.shape
    scaled = rows.dtype.type(scale)
    for block in numba.prange(BLOCKS):
        room = longest(indptr, blocks[block], blocks[block + 1]) + 3
        where, edge, f = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, rows.dtype)
        for i in range(blocks[block], blocks[block + 1]):
            count = 0
            for q in range(indptr[i], indptr[i + 1]):
                p = q if order is None else order[q]
                if factor[p] != 0:
                    where[count], edge[count], f[count] = at[q], p, scaled * factor[p]
                    count += 1
            for m in range(count, count + -count % 4):  # complete a group of four
                where[m], edge[m], f[m] = where[count - 1], edge[count - 1], 0
            for k in range(heads):
                for j in range(width):
                    out[i, k, j] = 0
            for m in range(0, count, 4):
                u0, u1, u2, u3 = where[m], where[m + 1], where[m + 2], where[m + 3]
                p0, p1, p2, p3 = edge[m], edge[m + 1], edge[m + 2], edge[m + 3]
                for k in range(heads):
                    a0, a1 = _part(share, p0, k, f[m]), _part(share, p1, k, f[m + 1])
                    a2, a3 = _part(share, p2, k, f[m + 2]), _part(share, p3, k, f[m + 3])
                    for j in range(width):
                        g0, g1, g2, g3 = rows[u0, k, j], rows[u1, k, j], rows[u2, k, j], rows[u3, k, j]
                        out[i, k, j] += a0 * g0 + a1 * g1 + a2 * g2 + a3 * g3


@compiled
def _products(
    blocks: Array, indptr: Array, at: Array, order: Array, factor: Array, share: Array, scale: float,
    own: Array, rows: Array, inner: Array, out: Array,
) -> None:  # fmt: skip
    """Fill `inner` with the inner products and, unless it is None, `out` with the result of `sums`."""
    _, heads, width = rows.shape
    scaled, zero = rows.dtype.type(scale), rows.dtype.type(0)
    for block in numba.prange(BLOCKS):
        room = longest(indptr, blocks[block], blocks[block + 1]) + 3
        where, edge, f = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, rows.dtype)
        for i in range(blocks[block], blocks[block + 1]):
            count = indptr[i + 1] - indptr[i]
            for m in range(count):
                q = indptr[i] + m
                p = q if order is None else order[q]
                where[m], edge[m], f[m] = at[q], p, scaled * factor[p]
            for m in range(count, count + -count % 4):
                where[m], edge[m], f[m] = where[count - 1], edge[count - 1], 0
            if out is not None:
                for k in range(heads):
                    for j in range(width):
                        out[i, k, j] = 0
            for m in range(0, count, 4):
                u0, u1, u2, u3 = where[m], where[m + 1], where[m + 2], where[m + 3]
                p0, p1, p2, p3 = edge[m], edge[m + 1], edge[m + 2], edge[m + 3]
                for k in range(heads):
                    a0, a1 = _part(share, p0, k, f[m]), _part(share, p1, k, f[m + 1])
                    a2, a3 = _part(share, p2, k, f[m + 2]), _part(share, p3, k, f[m + 3])
                    t0, t1, t2, t3 = zero, zero, zero, zero
                    for j in range(width):
                        x, g0, g1, g2, g3 = own[i, k, j], rows[u0, k, j], rows[u1, k, j], rows[u2, k, j], rows[u3, k, j]
                        t0 += x * g0
                        t1 += x * g1
                        t2 += x * g2
                        t3 += x * g3
                        if out is not None:
                            out[i, k, j] += a0 * g0 + a1 * g1 + a2 * g2 + a3 * g3
                    inner[p0, k], inner[p1, k], inner[p2, k], inner[p3, k] = (
                        scaled * t0, scaled * t1, scaled * t2, scaled * t3,
                    )  # fmt: skip
