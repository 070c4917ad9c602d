"""Tasks in processes of this machine, each with its share of the cores; one that dies costs only its own task."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from edgemask.errors import InputError, WorkerLostError
from edgemask.experiments.records import Task
from edgemask.experiments.runner import Event, Failed, Retry, Settings, Started, out_of_memory, perform
from edgemask.runtime.device import cores, free_memory, resolve_device

# MiB of a GPU and of the host that a worker may take where their number is left to us: several times what the suites
# were recorded to take. A run that finds the device too full beside others is run again alone.
DEVICE_MIB, HOST_MIB = 4096, 4096
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
GRACE = 5.0  # seconds for a process to end by itself
SPAWN = multiprocessing.get_context("spawn")  # a fork would carry a broken CUDA context along


class Local:
    """`jobs` processes; by default one on a CPU, and on a GPU as many as cores and memory allow.

    Also one job has a process of its own: one that the system kills for its memory is then noticed, not suffered.
    """

    def __init__(self, settings: Settings, jobs: int | None = None):
        if jobs is not None and jobs < 1:
            raise InputError(f"jobs must be at least 1, got {jobs}")
        self.settings = settings
        self.jobs = default_jobs(settings.device) if jobs is None else jobs

    def run(self, tasks: Sequence[Task]) -> Generator[Event]:
        """A task whose process dies is tried once more; one that ran out of the device's memory beside others is
        tried once more alone, before that is believed of it."""
        threads = max(1, cores() // self.jobs)
        waiting, alone = deque(range(len(tasks))), deque[int]()
        lost, crowded = set[int](), set[int]()
        workers: list[Worker] = []
        try:
            workers += [Worker(self.settings, threads) for _ in range(min(self.jobs, len(tasks)))]
            while waiting or alone or any(w.task is not None for w in workers):
                if not waiting and all(w.task is None for w in workers):
                    waiting.append(alone.popleft())
                for worker in workers:
                    if waiting and worker.ready and worker.task is None:
                        i = waiting.popleft()
                        worker.take(i, tasks[i])
                        yield i, Started()
                heard = wait([w.pipe for w in workers])
                for n, worker in enumerate(workers):
                    if worker.pipe not in heard:
                        continue
                    at = worker.task
                    try:
                        outcome = worker.hear()
                    except (EOFError, OSError):
                        why = f"its process {worker.stop()}"
                        if not worker.ready:
                            raise WorkerLostError(f"a worker could not start: {why}") from None
                        workers[n] = Worker(self.settings, threads)
                        if at in lost:
                            yield at, Failed(f"{why}, at the second attempt too")
                        elif at is not None:
                            lost.add(at)
                            waiting.appendleft(at)
                            yield at, Retry(why)
                        continue
                    if at is None:
                        continue  # it has only said that it is ready
                    if out_of_memory(outcome) and len(workers) > 1 and at not in crowded:
                        crowded.add(at)
                        alone.append(at)
                        yield at, Retry("the device ran out of memory; it will run alone once the others have ended")
                    else:
                        yield at, outcome
        finally:
            for worker in workers:
                worker.process.terminate()
            for worker in workers:
                worker.stop()


class Worker:
    """A process that is handed one task at a time: `ready` once it has said so, `task` is what it is at."""

    def __init__(self, settings: Settings, threads: int):
        self.pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve, args=(theirs, settings), daemon=True)
        with environment(dict.fromkeys(THREADS, str(threads))):  # read when libraries load, before `serve` begins
            self.process.start()
        theirs.close()  # now the process holds the only other end, and its death is the end of the pipe
        self.ready = False
        self.task: int | None = None

    def take(self, i: int, task: Task) -> None:
        self.task = i
        with suppress(BrokenPipeError):  # it died since: `hear` will find the pipe's end
            self.pipe.send(task)

    def hear(self) -> Any:
        """That it is ready, the first time; then the outcome of its task."""
        said = self.pipe.recv()
        self.ready, self.task = True, None
        return said

    def stop(self) -> str:
        """End the process, if it still runs, and say how it ended."""
        self.process.join(GRACE)
        self.process.kill()
        self.process.join()
        self.pipe.close()
        code = self.process.exitcode
        assert code is not None
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


def serve(pipe: Connection[Any, Any], settings: Settings) -> None:
    """The life of a worker: outcomes for tasks, until the pipe or the driver ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C reaches all; it is the driver's to act on it
    threading.Thread(target=_die_with_the_driver, daemon=True).start()
    pipe.send(None)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        pipe.send(perform(task, settings))


def _die_with_the_driver() -> None:
    """Whatever ended the driver, no worker goes on computing what nobody will record."""
    driver = multiprocessing.parent_process()
    assert driver is not None
    driver.join()
    os._exit(1)


def default_jobs(device: str) -> int:
    """One process with all threads on a CPU; on a GPU a core each but one, within the memory that is free."""
    where = resolve_device(device)
    if where.type == "cpu":
        return 1
    fitting = min(torch.cuda.mem_get_info(where)[0] / 2**20 / DEVICE_MIB, free_memory() / HOST_MIB)
    return max(1, min(cores() - 1, int(fitting)))


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """These variables for the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
