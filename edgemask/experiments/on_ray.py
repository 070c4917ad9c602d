"""Tasks on a Ray cluster, each with the GPU share and the memory that `plan` predicts for it there.

The driver hands out no more than the cluster holds at once, so a task that is handed out is all but running, and a
node that joins or is lost changes what is handed out next. Ray itself runs a task again whose process or node is lost.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numba

from edgemask.errors import InputError
from edgemask.experiments.local import environment
from edgemask.experiments.needs import Need, alike, need, unknown
from edgemask.experiments.records import Task
from edgemask.experiments.runner import Event, Failed, Outcome, Retry, Settings, Started, out_of_memory, perform

RETRIES = 3  # of a task whose process or node is lost
PLANNING = 0.1  # of a GPU, for a plan: it measures memory, which neighbours do not change
PATIENCE = 1.0  # seconds after which the cluster's size is looked at again
Amounts = Mapping[str, float]  # by the name of a resource: CPU, GPU, memory in bytes


class OnRay:
    """`address`: auto (the cluster that this machine is part of), local (one of this machine alone), or HOST:PORT."""

    def __init__(self, settings: Settings, address: str):
        self.settings, self.address = settings, address

    def run(self, tasks: Sequence[Task]) -> Generator[Event]:
        """Plan each kind of task once on the cluster, then run its tasks where there is room. A task that ran out of a
        shared GPU's memory is tried once more on a whole one, before that is believed of it."""
        with connected(self.address) as ray:
            settings = abroad(self.settings, ray)
            planning = amounts(Need(0.0 if settings.device == "cpu" else PLANNING))
            kinds: dict[str, list[int]] = {}
            for i, task in enumerate(tasks):
                kinds.setdefault(alike(task), []).append(i)
            unplanned, ready, crowded = deque(kinds), deque[tuple[int, Need]](), set[int]()
            cluster = Cluster(ray, settings)
            while unplanned or ready or cluster.busy:
                while ready and cluster.room(asked := amounts(ready[0][1])):
                    i, _ = ready.popleft()
                    cluster.send(work, i, asked, tasks[i])
                    yield i, Started()
                while ready and not cluster.possible(asked := amounts(ready[0][1])):
                    yield ready.popleft()[0], Failed(f"no node of the cluster has {shown(asked)}")
                while unplanned and not ready and cluster.room(planning):
                    kind = unplanned.popleft()
                    cluster.send(foresee, kind, planning, tasks[kinds[kind][0]])
                if unplanned and not cluster.busy and not cluster.possible(planning):
                    raise InputError(f"no node of the cluster has {shown(planning)}")
                for what, asked, result in cluster.landed():
                    if isinstance(what, str):
                        first = tasks[kinds[what][0]].label
                        if not isinstance(result, Need):
                            reason = f"{first} could not be planned, so its like get a whole GPU: {result.why}"
                            warnings.warn(reason, stacklevel=2)
                            result = unknown(settings)
                        ready += [(i, result) for i in kinds[what]]
                    elif out_of_memory(result) and asked["GPU"] < 1 and what not in crowded:
                        crowded.add(what)
                        ready.append((what, Need(1.0, asked["memory"] / 2**20)))
                        yield what, Retry("the GPU it shared ran out of memory; it will have a whole one")
                    else:
                        yield what, result


class Cluster:
    """What the cluster has, and what is on it: tasks by their place in the list, plans by their kind."""

    def __init__(self, ray: Any, settings: Settings):
        self.ray, self.settings = ray, settings
        self.flying: dict[Any, tuple[str | int, Amounts]] = {}

    @property
    def busy(self) -> bool:
        return bool(self.flying)

    def possible(self, asked: Amounts) -> bool:
        """Whether one of the nodes has as much."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return any(all(node.get(name, 0) >= amount for name, amount in asked.items()) for node in nodes)

    def room(self, asked: Amounts) -> bool:
        """Whether one of the nodes has as much, and the cluster as a whole has it to spare."""
        whole = self.ray.cluster_resources()
        taken = {name: sum(held[name] for _, held in self.flying.values()) for name in asked}
        spare = all(taken[name] + asked[name] <= whole.get(name, 0) for name in asked)
        return spare and self.possible(asked)

    def send(self, call: Callable[[Task, Settings], Any], what: str | int, asked: Amounts, task: Task) -> None:
        remote = self.ray.remote(call).options(
            num_cpus=asked["CPU"],
            num_gpus=asked["GPU"],
            memory=int(asked["memory"]) or None,
            max_retries=RETRIES,
        )
        self.flying[remote.remote(task, self.settings)] = what, asked

    def landed(self) -> Iterator[tuple[str | int, Amounts, Any]]:
        """What has ended by now, and with which result."""
        if not self.flying:
            time.sleep(PATIENCE)  # nothing fits at the moment
            return
        refs, _ = self.ray.wait(list(self.flying), timeout=PATIENCE)
        for ref in refs:
            what, asked = self.flying.pop(ref)
            try:
                result = self.ray.get(ref)
            except self.ray.exceptions.RayError as error:  # lost more often than it is retried, or not to be loaded
                result = Failed(str(error).strip())
            yield what, asked, result


def work(task: Task, settings: Settings) -> Outcome:
    numba.set_num_threads(1)  # OpenMP's threads Ray sets itself
    return perform(task, settings)


def foresee(task: Task, settings: Settings) -> Need | Failed:
    numba.set_num_threads(1)
    try:
        return need(task, settings)
    except Exception as error:  # a task that cannot be planned may still be run
        return Failed(f"{type(error).__name__}: {error}")


def amounts(need: Need) -> Amounts:
    return {"CPU": 1.0, "GPU": round(need.gpus, 4), "memory": float(round((need.memory_mib or 0) * 2**20))}


def shown(asked: Amounts) -> str:
    gpu = f", {asked['GPU']:g} of a GPU" if asked["GPU"] else ""
    return f"{asked['CPU']:g} CPU{gpu} and {asked['memory'] / 2**30:.1f} GiB of memory"


def abroad(settings: Settings, ray: Any) -> Settings:
    """The settings as a worker of the cluster can take them: its working folder is another, and its device is said."""
    device = settings.device
    if device == "auto":
        device = "cuda" if ray.cluster_resources().get("GPU") else "cpu"
    root, cache = (path and path.absolute() for path in (settings.data_root, settings.cache))
    return replace(settings, device=device, data_root=root, cache=cache)


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to a cluster; at the end what still runs there for us is stopped."""
    try:
        import ray
    except ImportError as error:
        raise InputError("a Ray cluster needs Ray: pip install 'edgemask[cluster]'") from error
    handler = signal.getsignal(signal.SIGTERM)
    own = address == "local"
    with environment({"RAY_USAGE_STATS_ENABLED": "0"} if own else {}):  # a cluster of our own reports to nobody
        more: dict[str, Any] = {"include_dashboard": False} if own else {}
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING, **more)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray has put its own in the place
    try:
        yield ray
    finally:
        ray.shutdown()
