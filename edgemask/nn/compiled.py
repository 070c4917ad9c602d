"""Common parts of the CPU kernels: compilation of loops, division of work among threads, and dropout.

Numba recompiles a cached loop only when the file that defines the loop changes. After a change to this file, delete
the `__pycache__` folders.
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

from edgemask.runtime.buffers import new_buffer
from edgemask.runtime.loops import Loop

Array = npt.NDArray[Any]
u32 = np.uint32

BLOCKS = 64  # parts of a loop that are divided among the threads, however many threads there are
LARGE = 1 << 22  # bytes from which a tensor gets memory pages of its own
# The compiler may vectorise sums, which it does the same way every time. NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz"}


def empty(like: Tensor, *shape: int) -> Tensor:
    """Return an uninitialised tensor with the dtype of `like`. On Linux, a large one gets memory pages of its own."""
    size = math.prod(shape) * like.element_size()
    if sys.platform != "linux" or size < LARGE:
        return like.new_empty(shape)
    return torch.frombuffer(new_buffer(size), dtype=like.dtype).resize_(
        shape
    )  # not a view, since autograd may add in place


def arrays(*tensors: Tensor | None) -> list[Any]:
    """Return the tensors as NumPy arrays. Only tensors that are not contiguous are copied, and None stays None."""
    return [None if t is None else t.detach().contiguous().numpy() for t in tensors]


def blocks(indptr: Tensor) -> Array:
    """Divide the nodes into `BLOCKS` runs with about the same number of edges each.

    Args:
        indptr: Where the edges of each node begin (N + 1 values).

    Returns:
        The first node of each block, followed by N.
    """
    known = getattr(indptr, "_blocks", None)  # the tensor keeps its blocks, until it is changed in place
    if known is not None and known[0] == indptr._version:
        return known[1]  # type: ignore[no-any-return]
    starts = indptr.numpy()
    edges = np.arange(BLOCKS + 1) * int(starts[-1]) // BLOCKS
    first_nodes: Array = np.searchsorted(starts, edges.astype(starts.dtype))
    first_nodes[-1] = len(starts) - 1  # the last block includes nodes without edges at the end
    indptr._blocks = indptr._version, first_nodes  # type: ignore[attr-defined]
    return first_nodes


def compiled(loop: Any) -> Loop:
    """Compile a loop with Numba, so that its `prange` loops run on several threads."""
    return Loop(loop, fastmath=FAST)


def helper(function: Any) -> Any:
    """Compile a function with Numba that is inlined into every loop that calls it.

    If inlining were left to the compiler, one process could run the loop's own copy of the function and another process
    the copy of a different loop, which may sum in another order. The first process after an installation would then
    round differently from later ones.
    """
    return numba.njit(nogil=True, fastmath=FAST, forceinline=True)(function)


@helper
def longest(indptr: Array, first: int, last: int) -> int:
    """Return the largest number of entries of a node in first … last - 1."""
    most = 0
    for i in range(first, last):
        most = max(most, indptr[i + 1] - indptr[i])
    return most


def draw(dropout: float) -> tuple[np.uint32, np.uint64]:
    """Return the threshold and the seed of dropout.

    If `dropout` is not 0, the seed is drawn from torch's default generator, which takes one number.
    """
    seed = int(torch.randint(2**63 - 1, ())) if dropout else 0
    return np.uint32(dropout * 2**32), np.uint64(seed)


@helper
def stream(seed: Any, row: int) -> Any:
    """Return the 32-bit seed of a row: number `row` of SplitMix64(seed)."""
    x = seed + np.uint64(row) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.uint32((x ^ (x >> np.uint64(31))) >> np.uint64(32))


@helper
def dropped(row: int, number: int, threshold: int) -> Any:
    """Return whether dropout removes entry `number` of the row with seed `row`.

    The decision is a 32-bit hash, which the compiler computes for 8 entries at once.
    """
    x = u32(row + u32(u32(number) * u32(0x9E3779B9)))
    x = u32(u32(x ^ u32(x >> u32(16))) * u32(0x85EBCA6B))
    x = u32(u32(x ^ u32(x >> u32(13))) * u32(0xC2B2AE35))
    return u32(x ^ u32(x >> u32(16))) < threshold


def exp(x: float) -> float:
    """Return e^x for x up to 80, in compiled loops.

    In float32 it is plain arithmetic, which the compiler vectorises for 8 numbers at once. The relative error is at
    most 2e-7. The result is 0 for x below -87, near the smallest normal float32 number.
    """
    return float(np.exp(x))


@overload(exp, jit_options={"fastmath": FAST, "forceinline": True})
def _exp(x: Any) -> Any:
    """Return the implementation of `exp` that Numba compiles for the type of x."""

    def library(x: Any) -> Any:
        return np.exp(x)

    if x != numba.float32:
        return library
    f, low = np.float32, np.float32(-87)
    per_two, coarse, fine = f(1 / math.log(2)), f(0.693359375), f(0.693359375 - math.log(2))  # k * coarse is exact
    a2, a3, a4, a5, a6, a7 = (f(1 / math.factorial(i)) for i in range(2, 8))

    def single(x: Any) -> Any:
        k = np.floor(x * per_two + f(0.5))
        r = x - k * coarse + k * fine  # x - k ln 2; since |r| ≤ ln 2 / 2, these terms suffice
        series = f(1) + r + r * r * (a2 + r * (a3 + r * (a4 + r * (a5 + r * (a6 + r * a7)))))
        power = np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)  # 2^k from its exponent bits
        return f(0) if x < low else series * power

    return single


def require_one_precision(**tensors: Tensor | None) -> None:
    """Check that the given tensors are all float32 or all float64. Tensors that are None are ignored.

    Raises:
        TypeError: The tensors have another precision, or different ones.
    """
    dtypes = {name: t.dtype for name, t in tensors.items() if t is not None}
    if not set(dtypes.values()) <= {torch.float32, torch.float64} or len(set(dtypes.values())) > 1:
        raise TypeError(f"{', '.join(dtypes)} must all be float32 or all float64, got {dtypes}")
