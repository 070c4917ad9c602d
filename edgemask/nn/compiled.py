"""What the CPU kernels share: how loops are compiled, what their threads share out, and dropout.

Numba's cache of a compiled loop is renewed when the loop's own file changes: after a change here, remove `__pycache__`.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import torch
from numba.extending import overload
from torch import Tensor

from edgemask.runtime.buffers import block

Array = npt.NDArray[Any]
u32 = np.uint32

BLOCKS = 64  # of nodes, with about equally many edges: what threads share out, whatever their number
LARGE = 1 << 22  # bytes
# Sums may be vectorised (by the compiler, the same way every time); NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz"}


def empty(like: Tensor, *shape: int) -> Tensor:
    """Uninitialised, of this tensor's precision; a large one in pages of its own."""
    size = math.prod(shape) * like.element_size()
    if sys.platform != "linux" or size < LARGE:
        return like.new_empty(shape)
    return torch.frombuffer(block(size), dtype=like.dtype).resize_(shape)  # no view: autograd may add to it in place


def arrays(*tensors: Tensor | None) -> list[Any]:
    """The same memory as NumPy arrays, copied only where it is not contiguous; None stays None."""
    return [None if t is None else t.detach().contiguous().numpy() for t in tensors]


def blocks(indptr: Tensor) -> Array:
    """Where each block's nodes begin: as many edges to each as whole nodes allow."""
    starts = indptr.numpy()
    edges = np.arange(BLOCKS + 1) * int(starts[-1]) // BLOCKS
    found: Array = np.searchsorted(starts, edges.astype(starts.dtype))
    found[-1] = len(starts) - 1  # nodes without edges at the end are somebody's too
    return found


def compiled(loop: Any) -> Any:
    return numba.njit(parallel=True, cache=True, nogil=True, fastmath=FAST)(loop)


def helper(function: Any) -> Any:
    """Part of every loop that calls it. Left to the compiler, one process may run the loop's own copy and another that
    of a different loop, with sums in another order: the first process after an installation would round otherwise."""
    return numba.njit(cache=True, nogil=True, fastmath=FAST, forceinline=True)(function)


@helper
def longest(indptr: Array, first: int, last: int) -> int:
    """The most entries one of these nodes has."""
    most = 0
    for i in range(first, last):
        most = max(most, indptr[i + 1] - indptr[i])
    return most


def draw(dropout: float) -> tuple[np.uint32, np.uint64]:
    """The threshold and the seed of dropout: where there is any, one number from torch's default generator."""
    seed = int(torch.randint(2**63 - 1, ())) if dropout else 0
    return np.uint32(dropout * 2**32), np.uint64(seed)


@helper
def stream(seed: Any, row: int) -> Any:
    """A 32-bit seed for the row, number `row` of SplitMix64(seed)."""
    x = seed + np.uint64(row) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.uint32((x ^ (x >> np.uint64(31))) >> np.uint64(32))


@helper
def dropped(row: int, number: int, threshold: int) -> Any:
    """Whether dropout takes this number of a row's stream: a hash of 32 bits, which the compiler does for 8 at once."""
    x = u32(row + u32(u32(number) * u32(0x9E3779B9)))
    x = u32(u32(x ^ u32(x >> u32(16))) * u32(0x85EBCA6B))
    x = u32(u32(x ^ u32(x >> u32(13))) * u32(0xC2B2AE35))
    return u32(x ^ u32(x >> u32(16))) < threshold


def exp(x: float) -> float:
    """In compiled loops: e^x for x up to 80. In float32 it is plain arithmetic, which the compiler does for 8 numbers
    at once: right to 2e-7 (relative), and 0 below -87, where float32 ends."""
    return float(np.exp(x))


@overload(exp, jit_options={"fastmath": FAST, "forceinline": True})
def _exp(x: Any) -> Any:
    def library(x: Any) -> Any:
        return np.exp(x)

    if x != numba.float32:
        return library
    f, low = np.float32, np.float32(-87)
    per_two, coarse, fine = f(1 / math.log(2)), f(0.693359375), f(0.693359375 - math.log(2))  # coarse: exact times k
    a2, a3, a4, a5, a6, a7 = (f(1 / math.factorial(i)) for i in range(2, 8))

    def single(x: Any) -> Any:
        k = np.floor(x * per_two + f(0.5))
        r = x - k * coarse + k * fine  # x - k ln 2, at most ln 2 / 2: the series needs no more terms
        series = f(1) + r + r * r * (a2 + r * (a3 + r * (a4 + r * (a5 + r * (a6 + r * a7)))))
        power = np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)  # 2^k by its exponent bits
        return f(0) if x < low else series * power

    return single


def require_one_precision(**tensors: Tensor | None) -> None:
    kinds = {name: t.dtype for name, t in tensors.items() if t is not None}
    if not set(kinds.values()) <= {torch.float32, torch.float64} or len(set(kinds.values())) > 1:
        raise TypeError(f"{', '.join(kinds)} must all be float32 or all float64, got {kinds}")
