"""The runner: performs the tasks whose records are not there, wherever an executor takes them, and records each once.

A worker (`perform`) returns the record and writes nothing; the driver (`run_all`) alone writes. An executor
(`bench.local`, `bench.on_ray`) carries tasks to workers and tells what becomes of them, event by event.
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

from edgemask.data import Store, benchmark
from edgemask.enrich import Cache, default_cache
from edgemask.errors import DataError, InputError
from edgemask.experiments.records import (
    Record,
    ResultStore,
    Task,
    canonical,
    identity,
    load_domains,
    missing_files,
)
from edgemask.graph import Graph
from edgemask.protocol import Protocol as Split
from edgemask.runtime.device import resolve_device

HELD = 3  # protocols whose graphs a worker keeps
FRAMES = 3  # of a failure's traceback that are told


@dataclass(frozen=True)
class Settings:
    """Where a worker looks for data (None: `Store`'s own default there), what it computes on, and where it keeps
    what enrichment computed (None: `default_cache`)."""

    data_root: Path | None = None
    offline: bool | None = None
    device: str = "auto"
    cache: Path | None = None

    def store(self) -> Store:
        return Store(self.data_root, offline=self.offline)


# ---- what becomes of a task --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Started:
    """A worker has the task."""


@dataclass(frozen=True)
class Retry:
    """The task waits for another attempt."""

    why: str


@dataclass(frozen=True)
class Failed:
    """The task ended without a record."""

    why: str


@dataclass(frozen=True)
class MissingData:
    """The task's data is not where its worker looked: on which machine, in which folder, which files."""

    host: str
    root: str
    files: tuple[str, ...]


Outcome = Record | Failed | MissingData
Event = tuple[int, Started | Retry | Outcome]  # of the task at this place of the list


class Executor(Protocol):
    """Runs every task once to an outcome; closing the generator stops all workers."""

    def run(self, tasks: Sequence[Task]) -> Generator[Event]: ...


# ---- in a worker -------------------------------------------------------------------------------------------


def perform(task: Task, settings: Settings) -> Outcome:
    """Perform a task on the data that is here: its record, as JSON holds it, or why there is none."""
    outcome = _outcome(task, settings)
    gc.collect()  # an exception's frames held tensors until here
    torch.cuda.empty_cache()
    return outcome


def _outcome(task: Task, settings: Settings) -> Outcome:
    try:
        store = settings.store()
        if files := missing_files(benchmark(task.benchmark), task.protocol, store):
            return MissingData(socket.gethostname(), str(store.root), tuple(files))
        domains = domains_of(task, settings)
        cache = default_cache() if settings.cache is None else Cache(settings.cache)
        record = task.perform(domains, device=resolve_device(settings.device), cache=cache)
        if identity(record) != identity(task.describe()):
            raise InputError(f"{task.label}: perform returned the record of another task")
        sealable: Record = json.loads(json.dumps(record))
        return sealable
    except Exception as error:  # whatever one task does wrong, the others go on
        return Failed("".join(traceback.format_exception(error, limit=-FRAMES)).strip())


def domains_of(task: Task, settings: Settings) -> dict[str, Graph]:
    """The graphs of a task, kept for the next tasks on the same data."""
    return _domains(task.benchmark, canonical(dict(task.options)), task.protocol, settings)


@lru_cache(maxsize=HELD)
def _domains(name: str, options: str, protocol: Split, settings: Settings) -> dict[str, Graph]:
    return load_domains(benchmark(name), protocol, settings.store(), json.loads(options))


def out_of_memory(outcome: Outcome) -> bool:
    """Whether a record says that the device had too little memory, which may have been its neighbours' doing."""
    return isinstance(outcome, dict) and outcome.get("failed", {}).get("kind") == "OutOfMemoryError"


# ---- the driver --------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """How far the tasks are. Tasks are named by their label; `running` says since when (`time.monotonic`)."""

    total: int
    found: int = 0  # recorded before
    done: int = 0  # recorded now
    theirs: int = 0  # of them, those that another driver recorded first
    running: dict[int, tuple[str, float]] = field(default_factory=dict)
    failed: list[tuple[str, str]] = field(default_factory=list)  # and why
    absent: list[tuple[str, MissingData]] = field(default_factory=list)
    again: list[tuple[str, str]] = field(default_factory=list)  # and why
    interrupted: bool = False
    begun: float = field(default_factory=time.monotonic)

    @property
    def remaining(self) -> int:
        return self.total - self.found - self.done - len(self.failed) - len(self.absent)

    @property
    def seconds_left(self) -> float | None:
        """At the mean rate so far; None before the first task has ended."""
        ended = self.done + len(self.failed)
        return (time.monotonic() - self.begun) / ended * self.remaining if ended else None

    @property
    def exit_code(self) -> int:
        """0 where nothing failed (data that is not here is no failure), 130 where it was stopped."""
        return 130 if self.interrupted else 1 if self.failed else 0


def run_all(tasks: Sequence[Task], store: ResultStore, executor: Executor, show: Callable[[Tally], None]) -> Tally:
    """Run the tasks that have no record and record each; `show` is called with the tally whenever it has changed.

    Ctrl-C and SIGTERM stop the workers and leave what is recorded; the next call goes on from there.
    """
    distinct = {identity(task.describe()): task for task in tasks}
    todo = near([task for task in distinct.values() if store.find(task) is None])
    tally = Tally(len(distinct), found=len(distinct) - len(todo))
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
            tally.again.append((task.label, why))
        case Failed(why):
            tally.failed.append((task.label, why))
        case MissingData():
            tally.absent.append((task.label, event))
        case _:
            try:
                store.add(task, event)
            except FileExistsError as error:
                if damaged := [path for path in store.rejected if str(path) in str(error)]:
                    tally.failed.append((task.label, f"{store.rejected[damaged[0]]}; remove it to have it made anew"))
                    return
                tally.theirs += 1
            tally.done += 1


def near(tasks: Sequence[Task]) -> list[Task]:
    """Tasks on the same data side by side, in the order in which each data first comes."""
    groups: dict[Any, list[Task]] = {}
    for task in tasks:
        groups.setdefault((task.benchmark, canonical(dict(task.options)), task.protocol), []).append(task)
    return [task for group in groups.values() for task in group]


def fetch(tasks: Sequence[Task], settings: Settings) -> list[str]:
    """Fetch the files of the tasks' domains that are not here, unless offline; returns what could not be had."""
    store, refused = settings.store(), list[str]()
    wanted = dict.fromkeys(f for t in tasks for d in t.protocol.domains for f in benchmark(t.benchmark).files(d))
    for file in [] if store.offline else wanted:
        if not store.has(file):
            try:
                store.fetch(file)
            except DataError as error:  # other tasks may not need it, and those that do will say so
                refused.append(str(error))
    return refused


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM as Ctrl-C, where this is the thread that signals reach."""
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
