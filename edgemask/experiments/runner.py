"""The runner: runs the tasks that have no record yet and writes one record for each.

A worker (`perform`) returns the record and writes nothing; only the driver (`run_all`) writes. An executor
(`edgemask.experiments.local`, `edgemask.experiments.on_ray`) sends tasks to workers and yields events that tell what
happens to each task.
"""

from __future__ import annotations

import gc
import json
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import torch

from edgemask.data import Store
from edgemask.enrich import Cache, default_cache
from edgemask.errors import DataError, InputError
from edgemask.experiments.auto import AutoRun
from edgemask.experiments.records import (
    Record,
    ResultStore,
    Task,
    canonical,
    identity,
    load_domains,
    missing_files,
)
from edgemask.experiments.stored import benchmark_of, find_benchmark
from edgemask.graph import Graph
from edgemask.protocol import Protocol as Split
from edgemask.runtime.atomic import remove_leftovers
from edgemask.runtime.device import resolve_device

HELD = 3  # number of protocols whose graphs a worker keeps in memory
FRAMES = 3  # number of traceback frames that a failure reports


@dataclass(frozen=True)
class Settings:
    """Settings of a worker on the machine it runs on.

    Args:
        data_root: Folder of the benchmark data. None means the default of `Store` on the worker's machine.
        offline: Whether downloads are forbidden. None means the default of `Store`.
        device: The device to compute on: `auto`, `cpu` or `cuda`.
        cache: Folder in which enrichment is cached. None means `default_cache`.
    """

    data_root: Path | None = None
    offline: bool | None = None
    device: str = "auto"
    cache: Path | None = None

    def store(self) -> Store:
        """Return the store of the benchmark data."""
        return Store(self.data_root, offline=self.offline)


# ---- events of a task --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Started:
    """A worker has started the task."""


@dataclass(frozen=True)
class Retry:
    """The task failed and will be tried again. `why` is the reason."""

    why: str


@dataclass(frozen=True)
class Failed:
    """The task ended without a record. `why` is the reason."""

    why: str


@dataclass(frozen=True)
class MissingData:
    """The worker did not find the data of the task.

    Args:
        host: Name of the worker's machine.
        root: The data root in which it looked.
        files: The missing files.
    """

    host: str
    root: str
    files: tuple[str, ...]


Outcome = Record | Failed | MissingData
Event = tuple[int, Started | Retry | Outcome]  # the number is the task's index in the list


class Executor(Protocol):
    """The interface of a class that runs tasks on workers."""

    def run(self, tasks: Sequence[Task]) -> Generator[Event]:
        """Run every task and yield its events, the last of which is its outcome. Closing the generator stops all."""
        ...


# ---- the worker --------------------------------------------------------------------------------------------


def perform(task: Task, settings: Settings) -> Outcome:
    """Run a task on the data of this machine.

    Returns:
        The record as JSON represents it, `MissingData` if files are missing, or `Failed` if an exception was raised.
    """
    outcome = _outcome(task, settings)
    gc.collect()  # the frames of an exception kept tensors alive until now
    torch.cuda.empty_cache()
    return outcome


def _outcome(task: Task, settings: Settings) -> Outcome:
    try:
        store = settings.store()
        if files := missing_files(benchmark_of(task), task.protocol, store):
            return MissingData(socket.gethostname(), str(store.root), tuple(files))
        domains = domains_of(task, settings)
        cache = default_cache() if settings.cache is None else Cache(settings.cache)
        record = task.perform(domains, device=resolve_device(settings.device), cache=cache)
        if identity(record) != identity(task.describe()):
            raise InputError(f"{task.label}: perform() returned the record of another task")
        sealable: Record = json.loads(json.dumps(record))
        return sealable
    except Exception as error:  # an error in one task must not stop the others
        return Failed("".join(traceback.format_exception(error, limit=-FRAMES)).strip())


def domains_of(task: Task, settings: Settings) -> dict[str, Graph]:
    """Load the graphs of a task. They stay in memory for the next tasks on the same data."""
    return _domains(task.benchmark, canonical(dict(task.options)), task.protocol, settings)


@lru_cache(maxsize=HELD)
def _domains(name: str, options: str, protocol: Split, settings: Settings) -> dict[str, Graph]:
    given = json.loads(options)
    return load_domains(find_benchmark(name, given, protocol), protocol, settings.store(), given)


def out_of_memory(outcome: Outcome) -> bool:
    """Return whether a run ran out of device memory. Other runs on the same device may have been the cause."""
    return isinstance(outcome, dict) and outcome.get("failed", {}).get("kind") == "OutOfMemoryError"


# ---- the driver --------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """The progress of a list of tasks.

    Attributes:
        total: Number of distinct tasks.
        already_recorded: Number of tasks that had a record before the run.
        done: Number of tasks that the run has recorded.
        recorded_elsewhere: Number of tasks of `done` whose record another driver wrote first.
        running: Label and start time (`time.monotonic`) of the running tasks, by index.
        failed: Label and reason of the failed tasks.
        absent: Label and missing data of the tasks that could not run.
        retried: Label and reason of the tasks that are tried a second time.
        interrupted: Whether the user stopped the run.
        begun: When the run began (`time.monotonic`).
    """

    total: int
    already_recorded: int = 0
    done: int = 0
    recorded_elsewhere: int = 0
    running: dict[int, tuple[str, float]] = field(default_factory=dict)
    failed: list[tuple[str, str]] = field(default_factory=list)
    absent: list[tuple[str, MissingData]] = field(default_factory=list)
    retried: list[tuple[str, str]] = field(default_factory=list)
    interrupted: bool = False
    begun: float = field(default_factory=time.monotonic)

    @property
    def remaining(self) -> int:
        """Number of tasks without an outcome."""
        return self.total - self.already_recorded - self.done - len(self.failed) - len(self.absent)

    @property
    def seconds_left(self) -> float | None:
        """Seconds left at the mean rate so far, or None before the first task has ended."""
        ended = self.done + len(self.failed)
        return (time.monotonic() - self.begun) / ended * self.remaining if ended else None

    @property
    def exit_code(self) -> int:
        """Exit status: 130 if the run was stopped, 1 if a task failed, else 0. Missing data is not a failure."""
        return 130 if self.interrupted else 1 if self.failed else 0


def run_all(tasks: Sequence[Task], store: ResultStore, executor: Executor, show: Callable[[Tally], None]) -> Tally:
    """Run the tasks that have no record and write a record for each.

    Ctrl-C and SIGTERM stop the workers. Finished records stay, and the next call continues from there.

    Args:
        tasks: The tasks. Tasks that occur twice run once.
        store: Where records are found and written.
        executor: Runs the tasks.
        show: Called with the tally whenever it has changed.

    Returns:
        The tally at the end.
    """
    for folder in {store.root / task.benchmark / task.folder for task in tasks}:
        remove_leftovers(folder)
    distinct = {identity(task.describe()): task for task in tasks}
    todo = group_by_data([task for task in distinct.values() if store.find(task) is None])
    tally = Tally(len(distinct), already_recorded=len(distinct) - len(todo))
    show(tally)
    if not todo:
        return tally
    try:
        with _terminable(), closing(executor.run(todo)) as events:
            for i, event in events:
                _count(tally, i, todo[i], event, store)
                show(tally)
    except KeyboardInterrupt:
        tally.interrupted = True
    tally.running.clear()
    show(tally)
    return tally


def _count(tally: Tally, i: int, task: Task, event: Started | Retry | Outcome, store: ResultStore) -> None:
    tally.running.pop(i, None)
    match event:
        case Started():
            tally.running[i] = task.label, time.monotonic()
        case Retry(why):
            tally.retried.append((task.label, why))
        case Failed(why):
            tally.failed.append((task.label, why))
        case MissingData():
            tally.absent.append((task.label, event))
        case _:
            try:
                store.add(task, event)
            except FileExistsError as error:
                if damaged := [path for path in store.rejected if str(path) in str(error)]:
                    tally.failed.append((task.label, f"{store.rejected[damaged[0]]}; remove it and run again"))
                    return
                tally.recorded_elsewhere += 1
            tally.done += 1


def group_by_data(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks grouped by their data, in the order in which each data set first occurs.

    Races on the same data with the same seed follow each other, those with few candidates first, because a process that
    runs them all trains every candidate once.
    """
    groups: dict[Any, dict[Any, list[Task]]] = {}
    for task in tasks:
        data = task.benchmark, canonical(dict(task.options)), task.protocol
        groups.setdefault(data, {}).setdefault(shared_work(task), []).append(task)
    parts = [part for group in groups.values() for part in group.values()]
    return [t for part in parts for t in sorted(part, key=lambda t: len(t.candidates) if isinstance(t, AutoRun) else 0)]


def shared_work(task: Task) -> tuple[Any, ...] | None:
    """Return a key that is the same for races which share their trainings, or None for any other task."""
    if not isinstance(task, AutoRun):
        return None
    return task.benchmark, canonical(dict(task.options)), task.protocol, task.seed


def fetch(tasks: Sequence[Task], settings: Settings) -> list[str]:
    """Download the missing files of the tasks' domains, unless offline.

    Returns:
        A message for each file that could not be downloaded.
    """
    store, errors = settings.store(), list[str]()
    wanted = dict.fromkeys(f for t in tasks for d in t.protocol.domains for f in benchmark_of(t).files(d))
    for file in [] if store.offline else wanted:
        if not store.has(file):
            try:
                store.fetch(file)
            except DataError as error:  # other tasks may not need the file; those that do report it as missing
                errors.append(str(error))
    return errors


@contextmanager
def _terminable() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C. Only the main thread can do so; in other threads nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
