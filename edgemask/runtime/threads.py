"""Threads shared by Numba and torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numba
import torch

SMALL = 30_000  # nodes and directed edges of a graph; on fewer, a second thread mostly waits


@contextmanager
def shared_threads() -> Iterator[None]:
    """Run Numba's parallel loops on as many threads as torch uses, and keep torch's thread count.

    Both share one OpenMP runtime. Without this, Numba's first parallel call sets the thread count to the number of
    cores for torch as well, whatever the user asked for.
    """
    wanted, before = torch.get_num_threads(), numba.get_num_threads()
    numba.set_num_threads(min(wanted, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    try:
        yield
    finally:
        numba.set_num_threads(before)
        torch.set_num_threads(wanted)


@contextmanager
def threads_for(sizes: Iterable[int]) -> Iterator[None]:
    """Use one thread if all graphs are small. The rule depends on the graphs only, and so do the results.

    Args:
        sizes: Number of nodes and edges of each graph.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1 if max(sizes, default=0) <= SMALL else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
