"""The score of a guess: the most frequent class of the sources, predicted for every node of the targets."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from edgemask.config import Recipe
from edgemask.enrich import Cache
from edgemask.errors import DataError, GraphError
from edgemask.experiments.records import Record, description
from edgemask.experiments.run import machine
from edgemask.graph import Graph
from edgemask.protocol import Protocol
from edgemask.runtime.device import peak_memory
from edgemask.training.race import MAJORITY


@dataclass(frozen=True)
class MajorityRun:
    """A task that scores the majority class of the sources. Nothing is trained.

    Args:
        benchmark: Name of the benchmark.
        options: Options with which the benchmark is loaded.
        protocol: Sources, targets and metrics.
        seed: Part of the record only. The scores do not depend on it, so one record is enough.
    """

    benchmark: str
    options: Mapping[str, Any]
    protocol: Protocol
    seed: int = 0

    kind = folder = "majority"
    recipe = Recipe()

    @property
    def label(self) -> str:
        """Name of the task in messages."""
        return f"{self.benchmark} {self.protocol.name} {MAJORITY}"

    def describe(self) -> dict[str, Any]:
        """Return everything that decides the result, except the data."""
        return description(self, kind=self.kind)

    def perform(self, domains: Mapping[str, Graph], *, device: torch.device, cache: Cache | None = None) -> Record:
        """Score every available target and return the record.

        Args:
            domains: Graphs by name. Targets may be missing as long as there is one.
            device: The device that the record names. Nothing is computed on it.
            cache: Not used.

        Raises:
            DataError: No target of the protocol is among the domains.
            GraphError: The domains do not fit the protocol, or no node of the sources has a class.
            MetricError: A metric is not defined for a target.
        """
        start = time.perf_counter()
        metrics = majority_metrics(self.protocol, domains)
        return self.describe() | {
            "data": {name: domains[name].hash for name in self.protocol.domains if name in domains},
            "select": {"rule": "reference"},
            "metrics": metrics,
            "missing": [name for name in self.protocol.targets if name not in domains],
            "seconds": {"score": time.perf_counter() - start},
            "peak_memory_mib": peak_memory(device),
            "machine": machine(device),
        }


def majority_metrics(protocol: Protocol, domains: Mapping[str, Graph]) -> dict[str, dict[str, float]]:
    """Score the majority class of the sources on every target of a protocol.

    The predicted probabilities of every node are the class frequencies of the sources' labelled nodes. A node with
    several labels counts with its first one, as in training with cross-entropy. The labels of the targets are used for
    scoring only.

    Args:
        protocol: Sources, targets and metrics.
        domains: Graphs by name. Targets may be missing as long as there is one.

    Returns:
        The values by target and metric. Missing targets are left out.

    Raises:
        DataError: No target of the protocol is among the domains.
        GraphError: The domains do not fit the protocol, or no node of the sources has a class.
        MetricError: A metric is not defined for a target.
    """
    present = tuple(name for name in protocol.targets if name in domains)
    if not present:
        targets = ", ".join(protocol.targets)
        raise DataError(f"protocol {protocol.name!r}: there is no data for any target ({targets})")
    training, exam = replace(protocol, targets=present).open(domains)
    labels = np.concatenate([g.first_labels[g.first_labels >= 0] for g in training.sources])
    if not len(labels):
        raise GraphError(f"protocol {protocol.name!r}: no node of the sources has a class")
    frequencies = np.bincount(labels, minlength=training.sources[0].num_classes) / len(labels)
    return {g.name: exam.score(g.name, np.tile(frequencies, (g.num_nodes, 1))) for g in training.targets}
