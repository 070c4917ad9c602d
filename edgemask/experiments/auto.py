"""Run a race between candidates (`auto`) under one protocol and make the record of the run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import torch

from edgemask.config import Recipe
from edgemask.enrich import Cache
from edgemask.errors import DataError, InputError
from edgemask.experiments.records import Record, description
from edgemask.experiments.run import machine, score_targets
from edgemask.graph import Graph
from edgemask.model import Model
from edgemask.protocol import Protocol
from edgemask.runtime.device import peak_memory
from edgemask.training.calibration import calibration_error
from edgemask.training.candidates import AUTO_RECIPE, DEFAULTS, choose_candidates
from edgemask.training.heat import RememberedHeats
from edgemask.training.race import Race


@dataclass(frozen=True)
class AutoRun:
    """A race between candidates.

    Runs with the same data and seed share the trainings of their candidates if one process performs them. Their
    recorded time is that of a run which shares nothing.

    Args:
        benchmark: Name of the benchmark.
        options: Options with which the benchmark is loaded.
        protocol: Sources, validation domains, targets and metrics.
        seed: The seed from which all randomness of the run derives.
        recipe: Settings of all candidates; those that differ from `AUTO_RECIPE` are changed.
        candidates: Names of the candidates, as `choose_candidates` takes them.
    """

    benchmark: str
    options: Mapping[str, Any]
    protocol: Protocol
    seed: int
    recipe: Recipe = AUTO_RECIPE
    candidates: tuple[str, ...] = DEFAULTS

    method = folder = "auto"

    @property
    def label(self) -> str:
        """Name of the run in messages."""
        return f"{self.benchmark} {self.protocol.name} {self.method} seed {self.seed}"

    def describe(self) -> dict[str, Any]:
        """Return everything that decides the result, except the data."""
        return description(self, method=self.method, candidates=list(self.candidates))

    def perform(self, domains: Mapping[str, Graph], *, device: torch.device, cache: Cache | None = None) -> Record:
        """Race, predict the targets, and only then score the predictions. If no candidate is left, the record says so.

        Args:
            domains: Graphs by name. Targets may be missing as long as there is one.
            device: The device to compute on.
            cache: Where enrichment is cached.

        Returns:
            The record, without its key and digest.

        Raises:
            DataError: No target of the protocol is among the domains.
        """
        present = tuple(n for n in self.protocol.targets if n in domains)
        if not present:
            targets = ", ".join(self.protocol.targets)
            raise DataError(f"protocol {self.protocol.name!r}: there is no data for any target ({targets})")
        protocol = replace(self.protocol, targets=present)
        training, exam = protocol.open(domains)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        described = self.describe() | {
            "data": {name: domains[name].hash for name in self.protocol.domains if name in domains},
            "missing": [n for n in self.protocol.targets if n not in domains],
            "curves": {},
            "machine": machine(device),
        }
        changed = {k: v for k, v in vars(self.recipe).items() if v != getattr(AUTO_RECIPE, k)}
        candidates = choose_candidates(self.candidates, training.sources, **changed)
        heats = _heats(tuple(sorted((name, g.hash) for name, g in domains.items())), self.seed)
        metric, start, saved = protocol.metrics[0], time.perf_counter(), heats.saved
        race = Race(
            candidates,
            training.sources,
            training.validation,
            metric=metric,
            seed=self.seed,
            device=device,
            cache=cache,
            executor=heats,
        )
        try:
            model = race.run()
        except InputError as error:
            return described | {
                "select": {"rule": "auto"},
                "metrics": {},
                "failed": {"kind": type(error).__name__, "message": str(error)},
                "seconds": {"train": time.perf_counter() - start + heats.saved - saved},
                "peak_memory_mib": peak_memory(device),
            }
        trained, shared = time.perf_counter(), heats.saved - saved
        predictions = {g.name: model.probabilities(g, cache=cache) for g in training.targets}
        predicted = time.perf_counter()
        return described | {
            "select": selection(model),
            "leaderboard": [asdict(standing) for standing in model.leaderboard],
            "metrics": score_targets(exam, predictions),
            "calibration_error": {n: calibration_error(domains[n], p) for n, p in predictions.items()},
            "notes": model.notes,
            "seconds": {"train": trained - start + shared, "predict": predicted - trained},
            "peak_memory_mib": peak_memory(device),
        }


@lru_cache(maxsize=1)
def _heats(domains: tuple[tuple[str, str], ...], seed: int) -> RememberedHeats:
    """Return the heats of this process on some graphs with a seed. It remembers those of its last race."""
    return RememberedHeats()


def selection(model: Model) -> dict[str, Any]:
    """Return what a race has chosen: the rule, the score of each candidate, the members and the expected score."""
    return {
        "rule": model.rule,
        "scores": {s.name: s.score for s in model.leaderboard},
        "members": {
            m.name: {"propagation": [m.propagation.alpha, m.propagation.of], "temperature": m.temperature}
            for m in model.members
        },
        "expected": None if model.expected is None else asdict(model.expected),
    }
