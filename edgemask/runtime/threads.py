"""Threads shared by Numba and torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba
import torch


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
