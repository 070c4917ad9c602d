"""Run tasks on a Ray cluster. Each task gets the share of a GPU and the memory that `plan` predicts for it there.

The driver submits only as many tasks as fit on the cluster at once, so a submitted task starts almost immediately, and
nodes that join or are lost change what is submitted next. Ray itself repeats a task whose process or node is lost.
"""

from __future__ import annotations

import concurrent.futures
import logging
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numba

from edgemask.errors import InputError, MissingDependencyError, warn
from edgemask.experiments.local import environment
from edgemask.experiments.needs import Need, need, need_key, unknown
from edgemask.experiments.records import Task
from edgemask.experiments.runner import Event, Failed, Outcome, Retry, Settings, Started, out_of_memory, perform

RETRIES = 3  # attempts of Ray to repeat a task whose process or node is lost
PLANNING = 0.1  # share of a GPU for a plan: it measures its own memory, which other processes do not change
PATIENCE = 1.0  # seconds to wait before the size of the cluster is checked again
Amounts = Mapping[str, float]  # amounts by resource: CPU, GPU, memory (bytes)


class OnRay:
    """An executor that runs tasks on a Ray cluster.

    Args:
        settings: Data root, device and cache of the workers.
        address: `auto` (the cluster that this machine belongs to), `local` (a new cluster on this machine only) or
            `HOST:PORT`.
    """

    def __init__(self, settings: Settings, address: str):
        self.settings, self.address = settings, address

    def run(self, tasks: Sequence[Task]) -> Generator[Event]:
        """Plan each kind of task once on the cluster, then run its tasks and yield their events.

        A task that runs out of the memory of a shared GPU is tried a second time on a whole GPU, and only then is its
        failure recorded.

        Raises:
            MissingDependencyError: Ray is not installed.
            InputError: No node of the cluster can run a task.
        """
        with connected(self.address) as ray:
            settings = worker_settings(self.settings, ray)
            planning = amounts(Need(0.0 if settings.device == "cpu" else PLANNING))
            kinds: dict[str, list[int]] = {}
            for i, task in enumerate(tasks):
                kinds.setdefault(need_key(task), []).append(i)
            unplanned, ready, crowded = deque(kinds), deque[tuple[int, Need]](), set[int]()
            cluster = Cluster(ray, settings)
            while unplanned or ready or cluster.busy:
                while ready and cluster.has_free(asked := amounts(ready[0][1])):
                    i, _ = ready.popleft()
                    cluster.send(work, i, asked, tasks[i])
                    yield i, Started()
                while ready and not cluster.has_node_for(asked := amounts(ready[0][1])):
                    yield ready.popleft()[0], Failed(f"no node of the cluster has {resources_text(asked)}")
                while unplanned and not ready and cluster.has_free(planning):
                    kind = unplanned.popleft()
                    cluster.send(predict_need, kind, planning, tasks[kinds[kind][0]])
                if unplanned and not cluster.busy and not cluster.has_node_for(planning):
                    raise InputError(f"no node of the cluster has {resources_text(planning)}")
                for what, asked, result in cluster.finished():
                    if isinstance(what, str):
                        first = tasks[kinds[what][0]].label
                        if not isinstance(result, Need):
                            reason = f"{first} could not be planned, so all runs like it get a whole GPU: {result.why}"
                            warn(reason)
                            result = unknown(settings)
                        ready += [(i, result) for i in kinds[what]]
                    elif out_of_memory(result) and asked["GPU"] < 1 and what not in crowded:
                        crowded.add(what)
                        ready.append((what, Need(1.0, asked["memory"] / 2**20)))
                        yield what, Retry("the shared GPU ran out of memory; the run is repeated on a whole GPU")
                    else:
                        yield what, result


class Cluster:
    """A Ray cluster and the jobs submitted to it.

    Attributes:
        submitted: Submitted jobs with the resources they asked for. A task is named by its index, a plan by its kind.
    """

    def __init__(self, ray: Any, settings: Settings):
        self.ray, self.settings = ray, settings
        self.submitted: dict[Any, tuple[str | int, Amounts]] = {}

    @property
    def busy(self) -> bool:
        """Whether a submitted job has not ended."""
        return bool(self.submitted)

    def has_node_for(self, asked: Amounts) -> bool:
        """Return whether a node has these resources in total."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return any(all(node.get(name, 0) >= amount for name, amount in asked.items()) for node in nodes)

    def has_free(self, asked: Amounts) -> bool:
        """Return whether a node has these resources in total and the cluster as a whole has them free."""
        whole = self.ray.cluster_resources()
        taken = {name: sum(used[name] for _, used in self.submitted.values()) for name in asked}
        spare = all(taken[name] + asked[name] <= whole.get(name, 0) for name in asked)
        return spare and self.has_node_for(asked)

    def send(self, call: Callable[[Task, Settings], Any], what: str | int, asked: Amounts, task: Task) -> None:
        """Submit `call(task, settings)` as a job.

        Args:
            call: The function to run on the cluster: `work` or `predict_need`.
            what: Name of the job: the index of the task, or the kind of task of a plan.
            asked: Resources that the job asks for.
            task: The task.
        """
        remote = self.ray.remote(call).options(
            num_cpus=asked["CPU"],
            num_gpus=asked["GPU"],
            memory=int(asked["memory"]) or None,
            max_retries=RETRIES,
        )
        self.submitted[remote.remote(task, self.settings)] = what, asked

    def finished(self) -> Iterator[tuple[str | int, Amounts, Any]]:
        """Yield the jobs that have ended, with their resources and results."""
        if not self.submitted:
            time.sleep(PATIENCE)  # no job fits at the moment
            return
        refs, _ = self.ray.wait(list(self.submitted), timeout=PATIENCE)
        for ref in refs:
            what, asked = self.submitted.pop(ref)
            try:
                result = self.ray.get(ref)
            except self.ray.exceptions.RayError as error:  # lost too often, or the worker could not load it
                result = Failed(str(error).strip())
            yield what, asked, result


class RayExecutor(concurrent.futures.Executor):
    """An executor of `concurrent.futures` whose calls run on a Ray cluster.

    Args:
        ray: The connected `ray` module.
        cpus: CPU cores of each call.
        gpus: GPUs of each call; a fraction is a share of one.
    """

    def __init__(self, ray: Any, cpus: float = 1.0, gpus: float = 0.0):
        self.ray, self.cpus, self.gpus = ray, cpus, gpus

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        """Submit a call. Ray repeats it if its process or node is lost.

        Args:
            fn: The function to call. It is pickled, like its arguments.
            *args: Its positional arguments.
            **kwargs: Its keyword arguments.

        Returns:
            The future of the result.
        """
        remote = self.ray.remote(fn).options(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=RETRIES)
        future: concurrent.futures.Future[Any] = remote.remote(*args, **kwargs).future()
        return future


@contextmanager
def ray_executor(address: str, device: str) -> Iterator[tuple[RayExecutor, int]]:
    """Connect to a cluster and yield an executor and the number of calls that it runs at a time.

    Args:
        address: `auto`, `local` or `HOST:PORT`, as for `OnRay`.
        device: The device of the calls: with `cuda`, each call has a GPU; otherwise a CPU core.

    Raises:
        MissingDependencyError: Ray is not installed.
    """
    with connected(address) as ray:
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0)) if device != "cpu" else 0
        yield RayExecutor(ray, 1.0, 1.0 if gpus else 0.0), gpus or max(1, int(resources.get("CPU", 1)))


def work(task: Task, settings: Settings) -> Outcome:
    """Run a task with one thread. Runs on the cluster."""
    numba.set_num_threads(1)  # Ray limits the threads of OpenMP itself
    return perform(task, settings)


def predict_need(task: Task, settings: Settings) -> Need | Failed:
    """Predict the resources of a task. Runs on the cluster."""
    numba.set_num_threads(1)
    try:
        return need(task, settings)
    except Exception as error:  # a task that cannot be planned can still be run
        return Failed(f"{type(error).__name__}: {error}")


def amounts(need: Need) -> Amounts:
    """Return the resources to request for a need. Every task has one CPU."""
    return {"CPU": 1.0, "GPU": round(need.gpus, 4), "memory": float(round((need.memory_mib or 0) * 2**20))}


def resources_text(asked: Amounts) -> str:
    """Return the resources as text for messages."""
    gpu = f", {asked['GPU']:g} of a GPU" if asked["GPU"] else ""
    return f"{asked['CPU']:g} CPU{gpu} and {asked['memory'] / 2**30:.1f} GiB of memory"


def worker_settings(settings: Settings, ray: Any) -> Settings:
    """Return the settings for workers on other machines: with absolute paths and without the device `auto`."""
    device = settings.device
    if device == "auto":
        device = "cuda" if ray.cluster_resources().get("GPU") else "cpu"
    root, cache = (path and path.absolute() for path in (settings.data_root, settings.cache))
    return replace(settings, device=device, data_root=root, cache=cache)


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to a cluster and yield the `ray` module. At the end, stop all jobs of this driver.

    Args:
        address: `auto`, `local` or `HOST:PORT`, as for `OnRay`.

    Yields:
        The connected `ray` module.

    Raises:
        MissingDependencyError: Ray is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingDependencyError("running on a cluster needs Ray: install edgemask[cluster]") from error
    handler = signal.getsignal(signal.SIGTERM)
    own = address == "local"
    with environment({"RAY_USAGE_STATS_ENABLED": "0"} if own else {}):  # a local cluster sends no usage statistics
        more: dict[str, Any] = {"include_dashboard": False} if own else {}
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING, **more)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray has installed its own handler
    try:
        yield ray
    finally:
        ray.shutdown()
