"""Run tasks in processes of this machine. Each has its share of the cores and can die without affecting the others."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from edgemask.errors import WorkerLostError
from edgemask.experiments.records import Task
from edgemask.experiments.runner import Event, Failed, Retry, Settings, Started, out_of_memory, perform, shared_work
from edgemask.legal import Legal
from edgemask.runtime.device import cores, free_memory, resolve_device
from edgemask.runtime.processes import SPAWN, exit_with_driver, shorten_warnings, threads_per_worker

# MiB of GPU and host memory reserved for each worker when the number of workers is chosen automatically. This is
# several times the recorded need of the suites. A run that still runs out of device memory is run again alone.
DEVICE_MIB, HOST_MIB = 4096, 4096
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
GRACE = 5.0  # seconds that a process has to end by itself before it is killed


class Local:
    """An executor that runs tasks in processes of this machine.

    Even a single job has a process of its own, so that the driver survives and reports it if the system kills that
    process for using too much memory.

    Args:
        settings: Data root, device and cache of the workers.
        jobs: Number of processes. By default one on a CPU; on a GPU as many as cores and memory allow.

    Raises:
        InputError: `jobs` is less than 1.
    """

    def __init__(self, settings: Settings, jobs: int | None = None):
        Legal(1, whole=True, optional=True).check("jobs", jobs)
        self.settings = settings
        self.jobs = default_jobs(settings.device) if jobs is None else jobs

    def run(self, tasks: Sequence[Task]) -> Generator[Event]:
        """Run the tasks and yield their events.

        A task whose process dies is tried a second time. A task that runs out of device memory while other tasks run
        is tried a second time alone, and only then is its failure recorded.

        Raises:
            WorkerLostError: A worker process could not start.
        """
        threads = threads_per_worker(self.jobs)
        keys = [shared_work(task) for task in tasks]
        parts = [list(part) for _, part in groupby(range(len(tasks)), lambda i: i if keys[i] is None else keys[i])]
        waiting, alone = deque(map(deque, parts)), deque[int]()
        lost, crowded = set[int](), set[int]()
        workers: list[Worker] = []
        try:
            workers += [Worker(self.settings, threads) for _ in range(min(self.jobs, len(tasks)))]
            while waiting or alone or any(w.busy for w in workers):
                if not waiting and not any(w.busy for w in workers):
                    waiting.append(deque([alone.popleft()]))
                for worker in workers:
                    if waiting and not worker.busy:
                        worker.queue = waiting.popleft()
                    if worker.queue and worker.ready and worker.task is None:
                        i = worker.queue.popleft()
                        worker.take(i, tasks[i])
                        yield i, Started()
                readable = wait([w.pipe for w in workers])
                for n, worker in enumerate(workers):
                    if worker.pipe not in readable:
                        continue
                    index = worker.task
                    try:
                        outcome = worker.receive()
                    except (EOFError, OSError):
                        why = f"its process {worker.stop()}"
                        if not worker.ready:
                            raise WorkerLostError(f"a worker could not start: {why}") from None
                        workers[n] = Worker(self.settings, threads)
                        workers[n].queue = worker.queue
                        if index in lost:
                            yield index, Failed(f"{why}, also at the second attempt")
                        elif index is not None:
                            lost.add(index)
                            workers[n].queue.appendleft(index)
                            yield index, Retry(why)
                        continue
                    if index is None:
                        continue  # the message only said that the worker is ready
                    if out_of_memory(outcome) and len(workers) > 1 and index not in crowded:
                        crowded.add(index)
                        alone.append(index)
                        yield index, Retry("the device ran out of memory; the run is repeated alone after the others")
                    else:
                        yield index, outcome
        finally:
            for worker in workers:
                worker.process.terminate()
            for worker in workers:
                worker.stop()


class InProcess:
    """An executor that runs tasks in this process, one after the other.

    Args:
        settings: Data root, device and cache.
    """

    def __init__(self, settings: Settings):
        self.settings = settings

    def run(self, tasks: Sequence[Task]) -> Generator[Event]:
        """Run the tasks and yield their events."""
        for i, task in enumerate(tasks):
            yield i, Started()
            yield i, perform(task, self.settings)


class Worker:
    """A process that runs one task at a time.

    Attributes:
        ready: Whether the process has started and waits for tasks.
        task: Index of the task that it runs, or None.
        queue: Indices of the tasks that it runs next, because they share work.
    """

    def __init__(self, settings: Settings, threads: int):
        self.pipe, worker_end = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve, args=(worker_end, settings), daemon=True)
        with environment(dict.fromkeys(THREADS, str(threads))):  # libraries read it when they load, before `serve` runs
            self.process.start()
        worker_end.close()  # the process now has the only other end, so its death closes the pipe
        self.ready = False
        self.task: int | None = None
        self.queue = deque[int]()

    @property
    def busy(self) -> bool:
        """Whether the process has a task to run."""
        return self.task is not None or bool(self.queue)

    def take(self, i: int, task: Task) -> None:
        """Send the task with index `i` to the process."""
        self.task = i
        with suppress(BrokenPipeError):  # the process has died; `receive` will raise EOFError
            self.pipe.send(task)

    def receive(self) -> Any:
        """Receive a message: None when the process is ready, later the outcome of its task.

        Raises:
            EOFError: The process has died.
        """
        message = self.pipe.recv()
        self.ready, self.task = True, None
        return message

    def stop(self) -> str:
        """End the process if it still runs, and return how it ended."""
        self.process.join(GRACE)
        self.process.kill()
        self.process.join()
        self.pipe.close()
        code = self.process.exitcode
        assert code is not None
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


def serve(pipe: Connection[Any, Any], settings: Settings) -> None:
    """Receive tasks and send back their outcomes until the pipe is closed or the driver ends. Runs in the worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; only the driver handles it
    shorten_warnings()
    threading.Thread(target=exit_with_driver, daemon=True).start()
    pipe.send(None)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        pipe.send(perform(task, settings))


def default_jobs(device: str) -> int:
    """Return 1 on a CPU. On a GPU return the number of cores minus 1, limited by the free memory, and at least 1."""
    resolved = resolve_device(device)
    if resolved.type == "cpu":
        return 1
    fitting = min(torch.cuda.mem_get_info(resolved)[0] / 2**20 / DEVICE_MIB, free_memory() / HOST_MIB)
    return max(1, min(cores() - 1, int(fitting)))


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, for processes started inside the `with` block, and restore them at its end."""
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
