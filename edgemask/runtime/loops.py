"""Loops that Numba compiles: cached on disk where a disk can be written, on one thread where threads cannot be used."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

import numba
import torch

_forked = False  # whether this process was forked from one that had run a loop on threads


class Loop:
    """A function that Numba compiles when it is first called, and caches on disk for later processes.

    The cache is in `__pycache__` beside the file of the function, in the user's cache, or in `$NUMBA_CACHE_DIR`. If
    none of them can be written, every process compiles the function again.

    In a process that was forked after a parallel loop had run, the function is compiled for one thread, because the
    threads of GNU OpenMP do not survive a fork.

    Args:
        function: The function.
        parallel: Run its `prange` loops on several threads.
        fastmath: Which changes of floating point arithmetic the compiler may make.
    """

    def __init__(self, function: Any, *, parallel: bool = True, fastmath: Any = False):
        self.function, self.fastmath = function, fastmath
        options = {"parallel": parallel, "nogil": True, "fastmath": fastmath}
        try:
            self.compiled = numba.njit(cache=True, **options)(function)
        except RuntimeError:  # Numba finds no folder for the cache
            self.compiled = numba.njit(**options)(function)

    @cached_property
    def serial(self) -> Any:
        """The function on one thread. It is not cached: Numba would take it for the parallel one."""
        return numba.njit(nogil=True, fastmath=self.fastmath)(self.function)

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function."""
        if _forked:
            return self.serial(*arguments)
        try:
            return self.compiled(*arguments)
        except OSError:  # the function is compiled but cannot be cached, for example because the disk is full
            return self.compiled(*arguments)


def _after_fork() -> None:
    global _forked
    try:
        _forked = _forked or numba.threading_layer() == "omp"  # type: ignore[attr-defined]
    except ValueError:  # no parallel loop has run
        return
    if _forked:
        torch.set_num_threads(1)


os.register_at_fork(after_in_child=_after_fork)
