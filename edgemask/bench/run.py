"""One run of one method under one protocol, and its record."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import torch

from edgemask import inference
from edgemask._version import __version__
from edgemask.atomic import replacing
from edgemask.data import Benchmark, DataError, Store
from edgemask.enrich import Cache
from edgemask.graph import Array, Graph
from edgemask.methods.registry import entry
from edgemask.protocol import Exam, Protocol
from edgemask.recipe import Recipe
from edgemask.training import ALL, DivergenceError, Fit, Trainer, Watched

Record = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """All that decides a run's result. `key` is a hash of it and of the data's content."""

    benchmark: str
    options: Mapping[str, Any]
    protocol: Protocol
    method: str
    recipe: Recipe
    seed: int
    oracle: bool = False  # also record the best epoch and strength on the target, for comparison only

    def describe(self, domains: Mapping[str, Graph]) -> dict[str, Any]:
        looked = {"oracle_asked": True} if self.oracle else {}
        return looked | {
            "benchmark": self.benchmark,
            "options": dict(self.options),
            "protocol": asdict(self.protocol),
            "method": self.method,
            "recipe": self.recipe.to_json(),
            "seed": self.seed,
            "data": {name: domains[name].hash for name in self.protocol.domains if name in domains},
            "code": __version__,
        }

    def key(self, domains: Mapping[str, Graph]) -> str:
        """Of the recipe only what differs from the defaults counts, so that a new setting orphans no record."""
        text = json.dumps(self.describe(domains) | {"recipe": self.recipe.changes()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def path(self, results: Path, domains: Mapping[str, Graph]) -> Path:
        transfer = self.protocol.name.replace("→", "-to-").replace(",", "-").replace("+", "-")
        name = f"{transfer}-seed{self.seed}-{self.key(domains)}.json"
        return results / self.benchmark / self.method / name


def missing_files(benchmark: Benchmark, protocol: Protocol, store: Store) -> list[str]:
    """The files not in the store without which a protocol cannot be run at all: those of its sources and
    validation domains, and of its targets when none of them is there."""
    here = set(benchmark.available(store))
    needed = [*protocol.sources, *protocol.validation]
    needed += [] if here & set(protocol.targets) else protocol.targets
    files = dict.fromkeys(f for d in needed if d not in here for f in benchmark.files(d))
    return [f.path for f in files if not store.has(f)]


def load_domains(
    benchmark: Benchmark, protocol: Protocol, store: Store, options: Mapping[str, Any]
) -> dict[str, Graph]:
    """The domains of a protocol; targets whose files are not in the store are left out (sources may not be)."""
    there = set(benchmark.available(store))
    wanted = [n for n in protocol.domains if n in there or n not in protocol.targets]
    return benchmark.load(wanted, store=store, **options)


def execute(
    run: Run,
    domains: Mapping[str, Graph],
    *,
    device: torch.device,
    cache: Cache | None = None,
    on_epoch: Callable[[Trainer, str], None] | None = None,
) -> Record:
    """Train, choose, predict, and only then open the exam; returns the record."""
    present = tuple(n for n in run.protocol.targets if n in domains)
    if not present:
        raise DataError(f"protocol {run.protocol.name!r}: no target's data is here ({', '.join(run.protocol.targets)})")
    protocol = Protocol(**asdict(run.protocol) | {"targets": present})
    training, exam = protocol.open(domains)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    glimpses: list[tuple[int, float, dict[str, Array]]] = []
    watched: list[Watched] = []

    def look(trainer: Trainer, stage: str) -> None:
        """Keep what would be predicted of the targets now; nothing is scored before training has ended."""
        if on_epoch:
            on_epoch(trainer, stage)
        if run.oracle and stage == ALL and (trainer.epoch % run.recipe.eval_every == 0 or trainer.done):
            if not watched:
                watched.extend(Watched.of(g, trainer.method, cache) for g in training.targets)
            seen = {w.graph.name: trainer.probabilities(w) for w in watched}
            for alpha in run.recipe.alpha:
                glimpses.append((trainer.epoch, alpha, {name: p[alpha] for name, p in seen.items()}))

    start = time.perf_counter()
    fit = Fit(
        entry(run.method).make,
        run.recipe,
        training.sources,
        training.validation,
        metric=protocol.metrics[0],
        seed=run.seed,
        device=device,
        cache=cache,
        on_epoch=look,
    )
    trainer, choice = fit.run()
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    predictions = {
        g.name: inference.probabilities(trainer.method, g, choice.alpha, seed=run.seed, cache=cache)
        for g in training.targets
    }
    predict_seconds = time.perf_counter() - start
    return {
        "key": run.key(domains),
        **run.describe(domains),
        "select": {
            "rule": choice.rule,
            "alpha": choice.alpha,
            "epoch": choice.epoch,
            "scores": {f"{a:g}": v for a, v in choice.scores.items()},
        },
        "metrics": {name: exam.score(name, p) for name, p in predictions.items()},
        **({"oracle": best_glimpse(glimpses, exam, protocol.metrics[0])} if run.oracle else {}),
        "missing": [n for n in run.protocol.targets if n not in domains],
        "curves": curves(trainer.history),
        "seconds": {"train": seconds, "predict": predict_seconds},
        "peak_memory_mib": peak_memory(device),
        "machine": machine(device),
    }


def attempt(run: Run, domains: Mapping[str, Graph], *, device: torch.device, **options: Any) -> Record:
    """`execute`, with a record of what stopped it where training diverged or the device ran out of memory."""
    start = time.perf_counter()
    try:
        return execute(run, domains, device=device, **options)
    except (DivergenceError, torch.cuda.OutOfMemoryError) as error:
        failed = {"kind": type(error).__name__, "message": str(error)}
    return {
        "key": run.key(domains),
        **run.describe(domains),
        "select": {"rule": run.recipe.select},
        "metrics": {},
        "failed": failed,
        "missing": [n for n in run.protocol.targets if n not in domains],
        "curves": {},
        "seconds": {"train": time.perf_counter() - start},
        "peak_memory_mib": peak_memory(device),
        "machine": machine(device),
    }


def best_glimpse(glimpses: list[tuple[int, float, dict[str, Array]]], exam: Exam, metric: str) -> dict[str, Any]:
    """The epoch and strength that are best on the targets themselves: what no honest rule can promise."""
    scored = [(e, a, {name: exam.score(name, p) for name, p in seen.items()}) for e, a, seen in glimpses]
    epoch, alpha, metrics = max(scored, key=lambda g: float(np.mean([m[metric] for m in g[2].values()])))
    return {"epoch": epoch, "alpha": alpha, "metrics": metrics}


def curves(history: list[dict[str, float]]) -> dict[str, list[float | None]]:
    """One list per recorded quantity, a value per epoch (None where it was not recorded)."""
    names = dict.fromkeys(name for record in history for name in record)
    return {n: [None if n not in r else float(f"{r[n]:.5g}") for r in history] for n in names}


def peak_memory(device: torch.device) -> float:
    """MiB: of the device on a GPU, of this process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def machine(device: torch.device) -> dict[str, str]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{os.cpu_count()} cores"
    return {
        "device": f"{device.type}, {name}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_geometric": version("torch-geometric"),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "edgemask": __version__,
    }


def write_record(record: Record, path: Path) -> None:
    """Write a record once, atomically; a record that is there is never written again."""
    if path.exists():
        raise FileExistsError(f"{path} exists: records are never rewritten")
    with replacing(path, text=True) as sink:
        json.dump(record, sink, ensure_ascii=False)
        sink.write("\n")


def read_record(path: Path) -> Record:
    """A record from disk; one that is damaged or in the wrong place is a `ValueError` naming it."""
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
        key = record["key"]
        record["metrics"], record["select"]["rule"]
    except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a result record: {error!r}") from error
    if not path.stem.endswith(f"-{key}"):
        raise ValueError(f"{path} holds the record of another run ({key})")
    return record
