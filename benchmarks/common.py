"""What the parts share: inputs, clocks, peak memory, a fresh process for each measurement, records."""

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
from edgemask.experiments.plan.probe import Memory
from edgemask.graph import Graph
from edgemask.nn import backend
from edgemask.nn.kernels import reference

Figures = dict[str, Any]
RESULTS = Path(__file__).resolve().parent.parent / "results" / "speed"
SLEEP = 60_000_000  # cycles of a GPU, some 30 ms
LIBRARIES = ("torch", "torch-geometric", "triton", "numba", "numpy", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Setup:
    """Where and how everything of one call is measured."""

    device: str
    threads: int
    folder: str  # of inputs made once for all measurements
    data_root: str | None = None
    shared: bool = False  # this process is a fresh one already, and all measurements of the part share it

    @property
    def where(self) -> torch.device:
        return torch.device(self.device)

    def graph(self, name: str = "acmv9") -> Graph:
        """A citation graph, read from the data once and from a plain file after: reading the original takes memory."""
        path = Path(self.folder) / f"{name}.npz"
        if not path.exists():
            store = Store(self.data_root, offline=True)
            write_graph(benchmark("citation").load([name], store=store)[name], path)
        return read_graph(path)


# ---- clocks --------------------------------------------------------------------------------------------


def seconds(call: Callable[[], object], device: torch.device, inner: int = 1) -> float:
    """Seconds of one call: on a GPU between two events on its stream, with nothing else under way.

    Of `inner` calls in a row, on a GPU alone, the time of the device is taken: it sleeps first, so that all of them are
    launched before the first is run, and launching them is no part of their time.
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
    """Median seconds of each call, the calls taking turns: `least` times or more, until `within` seconds are over."""
    for _ in range(warm_up):
        for call in calls.values():
            seconds(call, device)
    taken: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + within
    for turn in range(most):
        if turn >= least and time.perf_counter() > end:
            break
        for name, call in calls.items():
            taken[name].append(seconds(call, device, inner))
    return {
        name: {"seconds": median(t), "spread": [min(t), max(t)], "repeats": len(t), "in_a_row": inner}
        for name, t in taken.items()
    }


# ---- processes -----------------------------------------------------------------------------------------


def isolated(setup: Setup, job: Callable[..., Figures], /, **arguments: Any) -> Figures:
    """`job(setup, **arguments)` in a fresh process, with the setup's number of threads in every library."""
    if setup.shared:
        Memory(setup.where).reset()
        return job(setup, **arguments)
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        asked = {"module": job.__module__, "job": job.__name__, "setup": vars(setup), "arguments": arguments}
        command = [sys.executable, "-m", "benchmarks.common", json.dumps(asked), str(answer)]
        names = ("OMP", "OPENBLAS", "MKL", "NUMBA")
        threads = {f"{name}_NUM_THREADS": str(setup.threads) for name in names}
        subprocess.run(command, check=True, env=os.environ | threads, cwd=Path(__file__).parent.parent)
        figures: Figures = json.loads(answer.read_text())
        return figures


def perform(asked: str, answer: str) -> None:
    """What `isolated` runs in the fresh process. On a GPU, whose memory is counted by what is allocated, it serves for
    all measurements of a part: starting another takes longer than most of them."""
    job = json.loads(asked)
    setup = Setup(**job["setup"])
    torch.set_num_threads(setup.threads)
    module = importlib.import_module(job["module"])
    figures = getattr(module, job["job"])(replace(setup, shared=setup.where.type == "cuda"), **job["arguments"])
    Path(answer).write_text(json.dumps(figures))


@contextmanager
def plain_operators(wanted: bool) -> Iterator[None]:
    """Run the networks on the plain torch operators, where wanted, in place of the device's own."""
    chosen = backend.backend
    with ExitStack() as stack:
        for module in [m for name, m in sys.modules.items() if name.startswith("edgemask.")] if wanted else []:
            if getattr(module, "backend", None) is chosen:
                stack.enter_context(patch.object(module, "backend", lambda *_: reference))
        yield


@contextmanager
def peaks(device: torch.device) -> Iterator[dict[str, dict[str, float]]]:
    """MiB on the host and on the device, filled in when the block ends: held when it began (`inputs`), at most while it
    ran (`block`), and at most since the process began (`process`)."""
    meter = Memory(device)
    loaded = meter.peak()
    meter.reset()
    held = {"inputs": meter.peak()}
    yield held
    held["block"] = meter.peak()
    held["process"] = {where: max(loaded[where], value) for where, value in held["block"].items()}


# ---- records -------------------------------------------------------------------------------------------


def machine(setup: Setup) -> Figures:
    cuda = setup.where.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(setup.where) if cuda else f"{os.cpu_count()} cores",
        "kind": setup.where.type,
        "threads": setup.threads,
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version()} | {n: installed(n) for n in LIBRARIES if installed(n)},
    }


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def write_record(setup: Setup, part: str, figures: Figures, results: Path = RESULTS) -> Path:
    """One file per part and machine; a new measurement replaces the old."""
    here = machine(setup)
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{part}-{here['device'].lower().replace(' ', '-')}.json"
    path.write_text(json.dumps({"part": part, "machine": here, "figures": figures}, indent=1) + "\n")
    return path


def read_record(path: Path) -> Figures:
    """A record from disk; anything else is a `ValueError` naming the file."""
    try:
        record: Figures = json.loads(path.read_text(encoding="utf-8"))
        record["part"], record["machine"]["device"], record["figures"]
    except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a record of a speed measurement: {error!r}") from error
    return record


if __name__ == "__main__":
    perform(*sys.argv[1:])
