"""Memory of large arrays on the host, kept to be used again.

The system clears every fresh page, and in a virtual machine may first fetch it from the host: that takes longer than
many a kernel takes to fill it.
"""

from __future__ import annotations

import mmap
import weakref
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

KEPT = 16 << 20  # bytes from which a block is kept: of smaller ones few pages are cleared, and small runs stay small


class BufferPool:
    """Blocks straight from the system, in huge pages: malloc would leave holes between them that make a step's peak
    memory half as large again. A block whose array is gone serves the next of about its size."""

    def __init__(self) -> None:
        self.free: defaultdict[int, list[mmap.mmap]] = defaultdict(list)

    def take(self, size: int) -> npt.NDArray[Any]:
        """So many bytes, or up to an eighth more: samples of an epoch differ a little in length."""
        step = 1 << max(0, size.bit_length() - 4)
        room = -(-size // step) * step
        free = self.free[room]
        block = free.pop() if free else fresh(room)
        array = np.frombuffer(block, np.uint8)
        weakref.finalize(array, free.append, block).atexit = False
        return array


def fresh(size: int) -> mmap.mmap:
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_HUGEPAGE)
    return block


_given: ContextVar[BufferPool | None] = ContextVar("pages", default=None)


@contextmanager
def from_pool(pool: BufferPool) -> Iterator[None]:
    """Large arrays made in this block come from these pages, and go back to them."""
    token = _given.set(pool)
    try:
        yield
    finally:
        _given.reset(token)


def block(size: int) -> Any:
    """A buffer of at least so many bytes."""
    pages = _given.get()
    return fresh(size) if pages is None or size < KEPT else pages.take(size)
