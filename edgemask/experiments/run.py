"""One run of one method under one protocol, and its record."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import scipy
import torch

from edgemask import inference
from edgemask._version import __version__
from edgemask.config import Recipe
from edgemask.enrich import Cache
from edgemask.errors import DataError, DivergenceError, InputError
from edgemask.experiments import extras
from edgemask.experiments.records import RESULTS_REVISION, Record
from edgemask.graph import Array, Graph
from edgemask.methods.registry import method_spec
from edgemask.protocol import Exam, Protocol
from edgemask.runtime.device import peak_memory
from edgemask.training.fit import ALL, Fit
from edgemask.training.trainer import EvalGraph, Trainer

ORACLE = "oracle (looks at the target)"


@dataclass(frozen=True)
class Run:
    """All that decides a training run's result, and what else to look at once it is trained (`bench.extras`)."""

    benchmark: str
    options: Mapping[str, Any]
    protocol: Protocol
    method: str
    recipe: Recipe
    seed: int
    also: tuple[str, ...] = ()  # of "oracle", "theory", "explorer"

    def __post_init__(self) -> None:
        for name in self.also:
            if name not in extras.NAMES:
                raise InputError(f"also: no extra {name!r} (extras: {', '.join(extras.NAMES)})")

    @property
    def folder(self) -> str:
        return self.method

    @property
    def label(self) -> str:
        return f"{self.benchmark} {self.protocol.name} {self.method} seed {self.seed}"

    def describe(self) -> dict[str, Any]:
        """What decides the result, but for the data."""
        return {
            "benchmark": self.benchmark,
            "options": dict(self.options),
            "protocol": dict(vars(self.protocol)),
            "method": self.method,
            "recipe": self.recipe.to_json(),
            "seed": self.seed,
            "code": RESULTS_REVISION,
        } | ({"also": list(self.also)} if self.also else {})

    def perform(self, domains: Mapping[str, Graph], *, device: torch.device, cache: Cache | None = None) -> Record:
        return attempt(self, domains, device=device, cache=cache)


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
    watched: list[EvalGraph] = []
    last: dict[str, torch.Tensor] = {}

    def look(trainer: Trainer, stage: str) -> None:
        """Keep what would be predicted of the targets now; nothing is scored before training has ended."""
        if on_epoch:
            on_epoch(trainer, stage)
        if stage == ALL and trainer.done:
            last.update(trainer.weights())
        if "oracle" in run.also and stage == ALL and (trainer.epoch % run.recipe.eval_every == 0 or trainer.done):
            if not watched:
                watched.extend(EvalGraph.of(g, trainer.method, cache) for g in training.targets)
            seen = {w.graph.name: trainer.probabilities(w) for w in watched}
            for alpha in run.recipe.alpha:
                glimpses.append((trainer.epoch, alpha, {name: p[alpha] for name, p in seen.items()}))

    start = time.perf_counter()
    fit = Fit(
        method_spec(run.method).make,
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
    method, alpha = trainer.method, choice.alpha

    def predicted() -> dict[str, Array]:
        graphs = training.targets
        return {g.name: inference.probabilities(method, g, alpha, seed=run.seed, cache=cache) for g in graphs}

    predictions = predicted()
    predict_seconds = time.perf_counter() - start
    rules = {choice.rule: {"epoch": choice.epoch, "alpha": alpha, "metrics": marks(exam, predictions)}}
    more = extras.measure_extras(run.also, fit, trainer, choice, [domains[n] for n in present], cache)
    if choice.rule != "last":  # the same strength at the final epoch
        method.networks.load_state_dict(last)
        rules["last"] = {"epoch": trainer.epoch, "alpha": alpha, "metrics": marks(exam, predicted())}
    if glimpses:
        rules[ORACLE] = best_glimpse(glimpses, exam, protocol.metrics[0], alpha)
    return {
        **described(run, domains),
        "select": {
            "rule": choice.rule,
            "alpha": alpha,
            "epoch": choice.epoch,
            "scores": {f"{a:g}": v for a, v in choice.scores.items()},
        },
        "metrics": rules[choice.rule]["metrics"],
        "rules": rules,
        **more,
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
        **described(run, domains),
        "select": {"rule": run.recipe.select},
        "metrics": {},
        "failed": failed,
        "missing": [n for n in run.protocol.targets if n not in domains],
        "curves": {},
        "seconds": {"train": time.perf_counter() - start},
        "peak_memory_mib": peak_memory(device),
        "machine": machine(device),
    }


def described(run: Run, domains: Mapping[str, Graph]) -> Record:
    return run.describe() | {"data": {name: domains[name].hash for name in run.protocol.domains if name in domains}}


def marks(exam: Exam, predictions: Mapping[str, Array]) -> dict[str, dict[str, float]]:
    return {name: exam.score(name, p) for name, p in predictions.items()}


def best_glimpse(
    glimpses: list[tuple[int, float, dict[str, Array]]], exam: Exam, metric: str, chosen: float
) -> dict[str, Any]:
    """The epoch and strength that are best on the targets themselves, what no honest rule can promise; and the mean
    over the targets by epoch at the strength that was chosen."""
    scored = [(epoch, alpha, marks(exam, seen)) for epoch, alpha, seen in glimpses]

    def mean(metrics: dict[str, dict[str, float]], name: str) -> float:
        return float(np.mean([m[name] for m in metrics.values()]))

    epoch, alpha, metrics = max(scored, key=lambda g: mean(g[2], metric))
    along = [(e, m) for e, a, m in scored if a == chosen]
    names = next(iter(metrics.values()))
    curve = {"epoch": [e for e, _ in along]} | {n: [float(f"{mean(m, n):.5g}") for _, m in along] for n in names}
    return {"epoch": epoch, "alpha": alpha, "metrics": metrics, "curve": curve}


def curves(history: list[dict[str, float]]) -> dict[str, list[float | None]]:
    """One list per recorded quantity, a value per epoch (None where it was not recorded)."""
    names = dict.fromkeys(name for record in history for name in record)
    return {n: [None if n not in r else float(f"{r[n]:.5g}") for r in history] for n in names}


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
