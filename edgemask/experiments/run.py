"""Run one method under one protocol and make the record of the run."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
from edgemask.experiments.records import Record, description
from edgemask.graph import Array, Graph
from edgemask.methods.registry import method_spec
from edgemask.methods.sources import reading_domain
from edgemask.metrics import thresholded
from edgemask.protocol import Exam, Protocol
from edgemask.runtime.device import peak_memory
from edgemask.training.fit import ALL, Fit
from edgemask.training.trainer import EvalGraph, Trainer

ORACLE = "oracle (looks at the target)"


@dataclass(frozen=True)
class Run:
    """A training run: everything that decides its result, and the extras to measure once it is trained.

    Args:
        benchmark: Name of the benchmark.
        options: Options with which the benchmark is loaded.
        protocol: Sources, validation domains, targets and metrics.
        method: Name of the method.
        recipe: All settings.
        seed: The seed from which all randomness of the run derives.
        also: Extras to record: "oracle", "theory", "explorer" (`edgemask.experiments.extras`).

    Raises:
        InputError: An extra is unknown.
    """

    benchmark: str
    options: Mapping[str, Any]
    protocol: Protocol
    method: str
    recipe: Recipe
    seed: int
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.also:
            if name not in extras.NAMES:
                raise InputError(f"also: there is no extra {name!r} (extras: {', '.join(extras.NAMES)})")

    @property
    def folder(self) -> str:
        """Folder of the record within the benchmark's folder."""
        return self.method

    @property
    def label(self) -> str:
        """Name of the run in messages."""
        return f"{self.benchmark} {self.protocol.name} {self.method} seed {self.seed}"

    def describe(self) -> dict[str, Any]:
        """Return everything that decides the result, except the data."""
        return description(self, method=self.method, **({"also": list(self.also)} if self.also else {}))

    def perform(self, domains: Mapping[str, Graph], *, device: torch.device, cache: Cache | None = None) -> Record:
        """Run and return the record. A run that diverges or runs out of memory also gets a record (`attempt`).

        Args:
            domains: Graphs by name. Targets may be missing as long as there is one.
            device: The device to compute on.
            cache: Where enrichments are read from and stored.
        """
        return attempt(self, domains, device=device, cache=cache)


def execute(
    run: Run,
    domains: Mapping[str, Graph],
    *,
    device: torch.device,
    cache: Cache | None = None,
    on_epoch: Callable[[Trainer, str], None] | None = None,
) -> Record:
    """Train, select and predict, and only then score the predictions.

    Args:
        run: The run.
        domains: Graphs by name. Targets may be missing as long as there is one.
        device: The device to compute on.
        cache: Where enrichment is cached.
        on_epoch: Called after every epoch with the trainer and the stage of the fit.

    Returns:
        The record, without its key and digest.

    Raises:
        DataError: No target of the protocol is among the domains.
        DivergenceError: The loss became NaN or infinite.
    """
    present = tuple(n for n in run.protocol.targets if n in domains)
    if not present:
        targets = ", ".join(run.protocol.targets)
        raise DataError(f"protocol {run.protocol.name!r}: there is no data for any target ({targets})")
    protocol = replace(run.protocol, targets=present)
    training, exam = protocol.open(domains)
    of_labels = thresholded(protocol.metrics)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    snapshots: list[tuple[int, float, dict[str, Array]]] = []
    target_graphs: list[EvalGraph] = []
    last: dict[str, torch.Tensor] = {}

    def after_epoch(trainer: Trainer, stage: str) -> None:
        """Keep the last weights and, for the oracle, the current predictions. Scoring waits until training ends."""
        if on_epoch:
            on_epoch(trainer, stage)
        if stage == ALL and trainer.done:
            last.update(trainer.weights())
        if "oracle" in run.also and stage == ALL and (trainer.epoch % run.recipe.eval_every == 0 or trainer.done):
            if not target_graphs:
                tensors = [reading_domain(run.recipe, g, device) for g in training.targets]
                target_graphs.extend(EvalGraph.of(t, trainer.method, cache) for t in tensors)
            probabilities = {t.graph.name: trainer.probabilities(t, of_labels=of_labels) for t in target_graphs}
            for alpha in run.recipe.alpha:
                snapshots.append((trainer.epoch, alpha, {name: p[alpha] for name, p in probabilities.items()}))

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
        on_epoch=after_epoch,
    )
    trainer, choice = fit.run()
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    method, alpha = trainer.method, choice.alpha

    def predict() -> dict[str, Array]:
        settings: dict[str, Any] = {"seed": run.seed, "cache": cache, "of_labels": of_labels}
        return {g.name: inference.probabilities(method, g, alpha, **settings) for g in training.targets}

    predictions = predict()
    predict_seconds = time.perf_counter() - start
    rules = {choice.rule: {"epoch": choice.epoch, "alpha": alpha, "metrics": score_targets(exam, predictions)}}
    more = extras.measure_extras(run.also, fit, trainer, choice, [domains[n] for n in present], cache)
    if choice.rule != "last":  # score the weights of the final epoch too, at the same strength
        method.networks.load_state_dict(last)
        rules["last"] = {"epoch": trainer.epoch, "alpha": alpha, "metrics": score_targets(exam, predict())}
    if snapshots:
        rules[ORACLE] = best_snapshot(snapshots, exam, protocol.metrics[0], alpha)
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
    """Call `execute`. If training diverges or the device runs out of memory, return a record that says so.

    Args:
        run: The run.
        domains: Graphs by name.
        device: The device to compute on.
        **options: Further arguments of `execute`.
    """
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
    """Return everything that decides the result of a run, with the hashes of its data."""
    return run.describe() | {"data": {name: domains[name].hash for name in run.protocol.domains if name in domains}}


def score_targets(exam: Exam, predictions: Mapping[str, Array]) -> dict[str, dict[str, float]]:
    """Return the metrics of every target's predicted probabilities."""
    return {name: exam.score(name, p) for name, p in predictions.items()}


def best_snapshot(
    snapshots: list[tuple[int, float, dict[str, Array]]], exam: Exam, metric: str, chosen: float
) -> dict[str, Any]:
    """Return the epoch and strength that score best on the targets. A rule without target labels cannot find them.

    Args:
        snapshots: Epoch, strength and predicted probabilities by target.
        exam: Scores predictions.
        metric: The metric that decides, as a mean over the targets.
        chosen: The strength that selection chose.

    Returns:
        Epoch, strength and metrics of the best snapshot, and the curve by epoch at the chosen strength.
    """
    scored = [(epoch, alpha, score_targets(exam, predictions)) for epoch, alpha, predictions in snapshots]

    def mean(metrics: dict[str, dict[str, float]], name: str) -> float:
        return float(np.mean([m[name] for m in metrics.values()]))

    epoch, alpha, metrics = max(scored, key=lambda snapshot: mean(snapshot[2], metric))
    along = [(e, m) for e, a, m in scored if a == chosen]
    names = next(iter(metrics.values()))
    curve = {"epoch": [e for e, _ in along]} | {n: [float(f"{mean(m, n):.5g}") for _, m in along] for n in names}
    return {"epoch": epoch, "alpha": alpha, "metrics": metrics, "curve": curve}


def curves(history: list[dict[str, float]]) -> dict[str, list[float | None]]:
    """Return one list per recorded quantity with a value per epoch, or None where it was not recorded."""
    names = dict.fromkeys(name for record in history for name in record)
    return {n: [None if n not in r else float(f"{r[n]:.5g}") for r in history] for n in names}


def machine(device: torch.device) -> dict[str, str]:
    """Return the device and the versions of Python and the libraries."""
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
