"""Products of a constant sparse matrix and a dense one on the CPU, faster than torch's."""

from __future__ import annotations

import numba
from torch import Tensor

from edgemask.nn.compiled import BLOCKS, Array, arrays, blocks, empty
from edgemask.runtime.loops import Loop
from edgemask.runtime.threads import shared_threads


def csr_product(matrix: Tensor, dense: Tensor) -> Tensor:
    """Return matrix @ dense.

    The entries of a row are added one after another, and every product is rounded, so the result is the same for any
    number of threads.

    Args:
        matrix: A float32 CSR matrix that does not change.
        dense: A float32 matrix.
    """
    if "csr_arrays" not in matrix.__dict__:
        indptr = matrix.crow_indices()
        matrix.__dict__["csr_arrays"] = blocks(indptr), *arrays(indptr, matrix.col_indices(), matrix.values())
    out = empty(dense, matrix.shape[0], dense.shape[1])
    with shared_threads():
        _rows(*matrix.__dict__["csr_arrays"], *arrays(dense, out))
    return out


@Loop  # no `fastmath`: every product and every sum is rounded
def _rows(blocks: Array, indptr: Array, columns: Array, values: Array, dense: Array, out: Array) -> None:
    """Fill `out` with the product. Four entries are read at once, but added one after another."""
    width = out.shape[1]
    for block in numba.prange(BLOCKS):
        for i in range(blocks[block], blocks[block + 1]):
            first, past = indptr[i], indptr[i + 1]
            fours = past - (past - first) % 4
            for j in range(width):
                out[i, j] = 0
            for q in range(first, fours, 4):
                u0, u1, u2, u3 = columns[q], columns[q + 1], columns[q + 2], columns[q + 3]
                a0, a1, a2, a3 = values[q], values[q + 1], values[q + 2], values[q + 3]
                for j in range(width):
                    total = out[i, j] + a0 * dense[u0, j]
                    total += a1 * dense[u1, j]
                    total += a2 * dense[u2, j]
                    out[i, j] = total + a3 * dense[u3, j]
            for q in range(fours, past):
                u, a = columns[q], values[q]
                for j in range(width):
                    out[i, j] += a * dense[u, j]
