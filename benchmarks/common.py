"""Shared parts of the benchmarks: inputs, clocks, peak memory, measurements in new processes, and records."""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

from edgemask.data import Store, benchmark, read_graph, write_graph
from edgemask.errors import SchemaError
from edgemask.experiments.plan.probe import Memory
from edgemask.graph import Graph
from edgemask.nn import backend
from edgemask.nn.kernels import reference
from edgemask.schema import ANYTHING, COUNT, TEXT, Fields, Table, parse

Figures = dict[str, Any]
RESULTS = Path(__file__).resolve().parent.parent / "results" / "speed"
SLEEP = 60_000_000  # GPU cycles, about 30 ms
MACHINE = Fields({"device": TEXT, "kind": TEXT, "threads": COUNT, "system": TEXT, "versions": Table(TEXT)})
RECORD = Fields({"part": TEXT, "machine": MACHINE, "figures": Table(ANYTHING)})
LIBRARIES = ("torch", "torch-geometric", "triton", "numba", "numpy", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Setup:
    """Device, threads and folders of all measurements of one call.

    Args:
        device: Name of the torch device.
        threads: Number of threads of every library.
        folder: Folder for inputs that are prepared once for all measurements.
        data_root: Folder of the benchmark data.
        shared: Whether this is already a new process, which all measurements of the part share.
    """

    device: str
    threads: int
    folder: str
    data_root: str | None = None
    shared: bool = False

    @property
    def where(self) -> torch.device:
        """The device."""
        return torch.device(self.device)

    def graph(self, name: str = "acmv9") -> Graph:
        """Return a citation graph.

        The original file is read once. Later calls read a plain copy, because reading the original takes more memory.
        """
        path = Path(self.folder) / f"{name}.npz"
        if not path.exists():
            store = Store(self.data_root, offline=True)
            write_graph(benchmark("citation").load([name], store=store)[name], path)
        return read_graph(path)


# ---- clocks --------------------------------------------------------------------------------------------


def seconds(call: Callable[[], object], device: torch.device, inner: int = 1) -> float:
    """Return the seconds of one call.

    On a GPU this is the time between two events on its stream, while nothing else runs.

    Args:
        call: The call to time.
        device: Where it computes.
        inner: On a GPU, the number of calls in a row. If it is above 1, the device first sleeps until all calls are
            launched, so that the result excludes the time of launching them.
    """
    if device.type != "cuda":
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    if inner > 1:
        torch.cuda._sleep(SLEEP)
    first.record()
    for _ in range(inner):
        call()
    last.record()
    torch.cuda.synchronize(device)
    return float(first.elapsed_time(last)) / 1e3 / inner


def repeated(
    calls: Mapping[str, Callable[[], object]],
    device: torch.device,
    *,
    warm_up: int = 1,
    least: int = 3,
    most: int = 30,
    within: float = 6.0,
    inner: int = 1,
) -> dict[str, Figures]:
    """Time several calls, one after the other in every round.

    Args:
        calls: The calls by name.
        device: Where they compute.
        warm_up: Rounds before the measurement.
        least: Smallest number of rounds.
        most: Largest number of rounds.
        within: Seconds after which no round is started, once there are `least` rounds.
        inner: Calls in a row, as in `seconds`.

    Returns:
        For each call the median of its seconds, their range, and the number of rounds.
    """
    for _ in range(warm_up):
        for call in calls.values():
            seconds(call, device)
    taken: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + within
    for done in range(most):
        if done >= least and time.perf_counter() > end:
            break
        for name, call in calls.items():
            taken[name].append(seconds(call, device, inner))
    return {
        name: {"seconds": median(t), "spread": [min(t), max(t)], "repeats": len(t), "in_a_row": inner}
        for name, t in taken.items()
    }


# ---- processes -----------------------------------------------------------------------------------------


def isolated(setup: Setup, job: Callable[..., Figures], /, **arguments: Any) -> Figures:
    """Run `job(setup, **arguments)` in a new process, with the setup's number of threads in every library.

    Args:
        setup: Device, threads and data of the measurement.
        job: A function of a module, which the new process imports by name.
        **arguments: Arguments of the job, as JSON values.

    Returns:
        The figures that the job returned.
    """
    if setup.shared:
        Memory(setup.where).reset()
        return job(setup, **arguments)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "answer.json"
        task = {"module": job.__module__, "job": job.__name__, "setup": vars(setup), "arguments": arguments}
        command = [sys.executable, "-m", "benchmarks.common", json.dumps(task), str(output)]
        names = ("OMP", "OPENBLAS", "MKL", "NUMBA")
        threads = {f"{name}_NUM_THREADS": str(setup.threads) for name in names}
        subprocess.run(command, check=True, env=os.environ | threads, cwd=Path(__file__).parent.parent)
        figures: Figures = json.loads(output.read_text())
        return figures


def perform(task: str, output: str) -> None:
    """Run a task of `isolated` in the new process, and write its figures to the file `output`.

    On a GPU, all measurements of a part share this process: starting another process takes longer than most of them,
    and peak memory is counted by allocations, which can be reset.
    """
    job = json.loads(task)
    setup = Setup(**job["setup"])
    torch.set_num_threads(setup.threads)
    module = importlib.import_module(job["module"])
    figures = getattr(module, job["job"])(replace(setup, shared=setup.where.type == "cuda"), **job["arguments"])
    Path(output).write_text(json.dumps(figures))


@contextmanager
def plain_operators(wanted: bool) -> Iterator[None]:
    """Inside a block, run the networks on the plain torch operators if `wanted`, instead of those of the device."""
    chosen = backend.backend
    with ExitStack() as stack:
        for module in [m for name, m in sys.modules.items() if name.startswith("edgemask.")] if wanted else []:
            if getattr(module, "backend", None) is chosen:
                stack.enter_context(patch.object(module, "backend", lambda *_: reference))
        yield


@contextmanager
def peaks(device: torch.device) -> Iterator[dict[str, dict[str, float]]]:
    """Measure MiB on the host and on the device during a block.

    The yielded dictionary holds the memory in use at the start of the block (`inputs`). When the block ends, the peak
    of the block (`block`) and the peak since the start of the process (`process`) are added.
    """
    meter = Memory(device)
    before = meter.peak()
    meter.reset()
    peak = {"inputs": meter.peak()}
    yield peak
    peak["block"] = meter.peak()
    peak["process"] = {where: max(before[where], value) for where, value in peak["block"].items()}


# ---- records -------------------------------------------------------------------------------------------


def machine(setup: Setup) -> Figures:
    """Describe the machine: device, threads, system and versions of the libraries."""
    cuda = setup.where.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(setup.where) if cuda else f"{os.cpu_count()} cores",
        "kind": setup.where.type,
        "threads": setup.threads,
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version()} | {n: installed(n) for n in LIBRARIES if installed(n)},
    }


def installed(name: str) -> str:
    """Return the version of a package, or an empty string if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def write_record(setup: Setup, part: str, figures: Figures, results: Path = RESULTS) -> Path:
    """Write the record of a part on this machine, and return its file. It replaces an older record.

    Args:
        setup: Device, threads and data of the measurement.
        part: Name of the part.
        figures: Its figures.
        results: Folder of the records.
    """
    description = machine(setup)
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{part}-{description['device'].lower().replace(' ', '-')}.json"
    path.write_text(json.dumps({"part": part, "machine": description, "figures": figures}, indent=1) + "\n")
    return path


def read_record(path: Path) -> Figures:
    """Read a record.

    Raises:
        ValueError: The file is not a record. The message names the file.
    """
    try:
        record: Figures = parse(path.read_bytes(), RECORD, "record")
    except SchemaError as error:
        raise ValueError(f"{path} is not a record of a speed measurement: {error}") from error
    return record


if __name__ == "__main__":
    perform(*sys.argv[1:])
