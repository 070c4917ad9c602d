"""Worker processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

from edgemask.errors import InputError
from edgemask.runtime.device import cores
from edgemask.runtime.safe_text import printable

SPAWN = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA


class Inline(Executor):
    """An executor that runs every call at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function and return a future that holds its result."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        return future


@contextmanager
def process_pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Start worker processes, each with its share of the cores, and end them with the block.

    Args:
        jobs: Number of processes.

    Raises:
        InputError: `jobs` is less than 1.
    """
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    pool = ProcessPoolExecutor(jobs, SPAWN, prepare_worker, (threads_per_worker(jobs),))
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def prepare_worker(threads: int) -> None:
    """Prepare this process as a worker: limit its threads, ignore Ctrl-C, and end when the driver ends."""
    torch.set_num_threads(threads)
    shorten_warnings()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; only the driver handles it
    threading.Thread(target=exit_with_driver, daemon=True).start()


def shorten_warnings() -> None:
    """Print the warnings of edgemask in this process as one line, and all without control characters."""
    usual = warnings.formatwarning

    def one_line(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> str:
        if category.__module__ != InputError.__module__:
            return printable(usual(message, category, *place, **more))
        return printable(f"warning: {' '.join(str(message).splitlines())}\n")

    warnings.formatwarning = one_line


def exit_with_driver() -> None:
    """End this process when the driver ends for any reason, because nobody would use its results."""
    driver = multiprocessing.parent_process()
    assert driver is not None
    driver.join()
    os._exit(1)


def threads_per_worker(jobs: int) -> int:
    """Return the threads of each of `jobs` workers: their share of the cores, but not more than OMP_NUM_THREADS."""
    share, wanted = max(1, cores() // jobs), os.environ.get("OMP_NUM_THREADS", "")
    return min(share, int(wanted)) if wanted.isdigit() and int(wanted) > 0 else share
