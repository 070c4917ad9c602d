"""Threads of a computation: one for small graphs, and the same number for Numba, torch and NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numba
import torch
from threadpoolctl import threadpool_limits

from edgemask.graph import Graph

# Up to this `work` one thread is used. With a second thread an idle machine takes a fifth less time at most, but a busy
# one several times as long, because the threads of a loop wait for each other.
SMALL = 1_000_000  # for an epoch of training
SHORT = 5_000_000  # for a prediction, which takes less than a tenth of a second then
PER_NODE, PER_EDGE = 200, 8  # features that take as long as a node or an edge in an epoch with 64 hidden units


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
def threads_for(graphs: Iterable[Graph], small: int = SMALL) -> Iterator[None]:
    """Choose the threads of a block that trains on graphs or predicts them, and restore the previous setting after it.

    If the largest graph is small, the block runs on one thread. Otherwise it runs on the threads that torch has: all
    cores, or fewer if the environment variable `OMP_NUM_THREADS` or `torch.set_num_threads` says so. Sums of floating
    point numbers depend on the number of threads by rounding, so the choice depends on the graphs only: not on the load
    of the machine, and not on whether the block runs in a worker process.

    Args:
        graphs: All graphs of the block.
        small: Largest `work` of a small graph.

    >>> ring = Graph("ring", [[1.0]] * 5, [range(5), [1, 2, 3, 4, 0]])
    >>> with threads_for([ring]):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    one = max(map(work, graphs), default=0) <= small
    torch.set_num_threads(1 if one else before)
    try:
        with threadpool_limits(1 if one else None, user_api="blas"):  # NumPy and SciPy have threads of their own
            yield
    finally:
        torch.set_num_threads(before)


def work(graph: Graph) -> int:
    """Return the work of an epoch on a graph, as a number of features. Zeros of sparse features do not count."""
    features = int(graph.x.nnz if graph.is_sparse else graph.x.size)
    return features + PER_NODE * graph.num_nodes + PER_EDGE * graph.num_edges
