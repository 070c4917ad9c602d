"""Reuse of the memory of large arrays on the host.

The system clears every new page, and a virtual machine may have to fetch it from its host first. This can take longer
than the kernel that fills the array.
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

# Bytes. Smaller buffers are not pooled: clearing them costs little, and small runs keep using little memory.
POOLED_FROM = 16 << 20


class BufferPool:
    """A pool of large buffers. A buffer whose array has been freed is used for the next array of about its size.

    Buffers are mapped directly from the system, in huge pages. With malloc, holes between them would make the peak
    memory of a training step half as large again.
    """

    def __init__(self) -> None:
        self.free: defaultdict[int, list[mmap.mmap]] = defaultdict(list)

    def take(self, size: int) -> npt.NDArray[Any]:
        """Return a buffer of `size` bytes, or up to an eighth more.

        Sizes are rounded up because the edge samples of different epochs differ a little in length.
        """
        step = 1 << max(0, size.bit_length() - 4)
        rounded = -(-size // step) * step
        free = self.free[rounded]
        buffer = free.pop() if free else allocate(rounded)
        array = np.frombuffer(buffer, np.uint8)
        weakref.finalize(array, free.append, buffer).atexit = False
        return array


def allocate(size: int) -> mmap.mmap:
    """Map `size` bytes of new memory from the system, in huge pages."""
    buffer = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    buffer.madvise(mmap.MADV_HUGEPAGE)
    return buffer


_current_pool: ContextVar[BufferPool | None] = ContextVar("buffer_pool", default=None)


@contextmanager
def from_pool(pool: BufferPool) -> Iterator[None]:
    """Inside a block, take the buffers of new large arrays from `pool`."""
    token = _current_pool.set(pool)
    try:
        yield
    finally:
        _current_pool.reset(token)


def new_buffer(size: int) -> Any:
    """Return a buffer of at least `size` bytes, from the current pool if it is large."""
    pool = _current_pool.get()
    return allocate(size) if pool is None or size < POOLED_FROM else pool.take(size)
