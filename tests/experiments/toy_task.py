"""A task that behaves as a test asks. `python toy_task.py` runs a list of them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgemask.config import Recipe
from edgemask.data import benchmark
from edgemask.experiments.local import Local
from edgemask.experiments.progress import progress, summary
from edgemask.experiments.records import ResultStore
from edgemask.experiments.runner import Settings, run_all

OPTIONS = {**benchmark("synthetic").options, "nodes": 80}


@dataclass(frozen=True)
class Toy:
    """A task that logs its start and end, sleeps and returns a record, unless `act` says otherwise."""

    seed: int
    log: str
    seconds: float = 0.0
    act: str = ""  # raise, die, die once, crowded once, foreign, no json
    benchmark: str = "synthetic"
    options: Mapping[str, Any] = None  # type: ignore[assignment]
    transfer: int = 0  # which of the benchmark's protocols
    recipe: Recipe = Recipe()
    hold: bool = False  # wait until the file `LOG.released` exists

    kind = "toy"
    folder = "toy"

    def __post_init__(self) -> None:
        if self.options is None:
            object.__setattr__(self, "options", OPTIONS)

    @property
    def protocol(self):
        return benchmark(self.benchmark).protocols[self.transfer]

    @property
    def label(self) -> str:
        return f"toy {self.seed}"

    def describe(self) -> dict[str, Any]:
        return {
            "benchmark": self.benchmark,
            "options": dict(self.options),
            "protocol": self.protocol.describe(),
            "kind": self.kind,
            "recipe": self.recipe.to_json(),
            "seed": self.seed,
            "code": "1",
        }

    def perform(self, domains, *, device, cache=None) -> dict[str, Any]:
        before = notes(self.log).count(f"begun {self.seed}")
        note(self.log, f"begun {self.seed}")
        note(f"{self.log}.processes", f"{self.seed} {os.getppid()} {os.getpid()}")
        time.sleep(self.seconds)
        deadline = time.monotonic() + 60
        while self.hold and not Path(f"{self.log}.released").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        if self.act == "raise":
            raise KeyError("a mistake")
        if self.act == "die" or (self.act == "die once" and not before):
            os.kill(os.getpid(), signal.SIGKILL)
        note(self.log, f"ended {self.seed}")
        record = self.describe() | {
            "data": {name: domains[name].hash for name in self.protocol.domains},
            "metrics": {"gamma": {"micro_f1": 0.5}},
            "threads": {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")},
        }
        if self.act == "crowded once" and not before:
            record |= {"metrics": {}, "failed": {"kind": "OutOfMemoryError", "message": "no room"}}
        if self.act == "foreign":
            record["seed"] = self.seed + 1000
        if self.act == "no json":
            record["metrics"] = {"gamma": object()}
        return record


def note(log: str, line: str) -> None:
    with open(log, "a", encoding="utf-8") as sink:  # one short write is atomic even with other writers
        sink.write(line + "\n")


def notes(log: str) -> list[str]:
    with suppress(FileNotFoundError):
        return Path(log).read_text(encoding="utf-8").splitlines()
    return []


def broken(*_: object) -> None:
    sys.exit(7)


if __name__ == "__main__":
    from edgemask.runtime.safe_text import SafeConsole

    root, log, count, seconds, jobs = sys.argv[1:]
    toys = [Toy(seed, log, float(seconds)) for seed in range(int(count))]
    with progress(SafeConsole(stderr=True)) as show:
        tally = run_all(toys, ResultStore(root), Local(Settings(device="cpu"), int(jobs)), show)
    print(summary(tally))
    sys.exit(tally.exit_code)
