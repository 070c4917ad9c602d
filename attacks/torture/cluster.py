"""A Ray cluster on this machine, whose nodes can be killed. A node that was killed is replaced by a new one."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from attacks.torture.children import PATIENCE, Action, Place, command, start

NODES = 2
REPOSITORY = Path(__file__).resolve().parents[2]
CLUSTER = "cluster"  # file beside the working directory with the address and the processes of the nodes


def on_cluster(*arguments: str) -> Action:
    """Return an action that runs a command of edgemask on the cluster of its case."""

    def run() -> object:
        return command(*arguments, "--ray", Path(f"../{CLUSTER}").read_text("utf-8").split()[0])()

    return run


@contextmanager
def cluster(place: Place) -> Iterator[None]:
    """Run a cluster of `NODES` nodes with one CPU each, for the commands of a case.

    Raises:
        RuntimeError: The cluster does not start.
    """
    folder = Path(f"/tmp/ray-{os.getpid()}")  # the names of sockets must be short
    folder.mkdir()
    child = start(lambda: _serve(folder), place)
    try:
        end = time.monotonic() + PATIENCE
        while not (place.root / CLUSTER).exists():
            if child.wait(0.05) or time.monotonic() > end:
                raise RuntimeError(f"the cluster does not start: {child.text()}")
        yield
    finally:
        child.kill(signal.SIGTERM, alone=True)
        child.wait(30)
        for pid in _processes(f"RAY_TMPDIR={folder}"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.kill()
        child.wait(PATIENCE)
        shutil.rmtree(folder, ignore_errors=True)


def _serve(folder: Path) -> None:
    """Start a cluster, write its file, and replace nodes that were killed. Runs in a process of its own."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder), "PYTHONPATH": str(REPOSITORY)}
    Cluster: Any = import_module("ray.cluster_utils").Cluster
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    common = {"object_store_memory": 100 * 2**20, "plasma_directory": str(folder)}
    held, nodes, parent = Cluster(), list[Any](), os.getppid()
    try:
        held.add_node(num_cpus=0, include_dashboard=False, **common)
        while os.getppid() == parent:
            lost = [node for node in nodes if _raylet(node).poll() is not None]
            for node in lost:
                nodes.remove(node)
                held.remove_node(node, allow_graceful=False)
            if len(nodes) < NODES:
                nodes += [held.add_node(num_cpus=1, **common) for _ in range(NODES - len(nodes))]
                (part := Path(f"../{CLUSTER}.part")).write_text(
                    " ".join([held.address, *(str(_raylet(node).pid) for node in nodes)]), "utf-8"
                )
                part.replace(f"../{CLUSTER}")
            time.sleep(0.1)
    finally:
        held.shutdown()


def _raylet(node: Any) -> Any:
    """Return the process that manages a node."""
    return node.all_processes["raylet"][0].process


def kill_node(place: Place, chance: random.Random) -> None:
    """Kill a node of the cluster of a case, with its workers."""
    raylet = chance.choice([int(pid) for pid in (place.root / CLUSTER).read_text("utf-8").split()[1:]])
    for pid in [raylet, *_descendants(raylet)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, with those that they have started."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (process / "stat").read_text("utf-8").rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(process.name))
    found = list(children.get(pid, ()))
    for own in found:  # grows while it is read
        found += children.get(own, ())
    return found


def _processes(variable: str) -> Iterator[int]:
    """Yield the processes that were started with an environment variable."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if variable.encode() in (process / "environ").read_bytes().split(b"\0"):
                yield int(process.name)
