"""Measure the effect of enrichment on the graphs of a protocol, with a record of its own. Nothing is trained."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from edgemask.config import Recipe
from edgemask.enrich import Cache
from edgemask.enrich.measures import enrichment_measures
from edgemask.errors import DataError
from edgemask.experiments.records import Record, description
from edgemask.experiments.run import machine
from edgemask.graph import Graph
from edgemask.inference import enriched_edges
from edgemask.nn.tensors import skeleton
from edgemask.protocol import Protocol
from edgemask.runtime.device import peak_memory


@dataclass(frozen=True)
class Enrichment:
    """A task that measures the enriched graphs of a protocol's domains.

    Args:
        benchmark: Name of the benchmark.
        options: Options with which the benchmark is loaded.
        protocol: The protocol whose domains are measured.
        recipe: The settings of enrichment.
        seed: The seed of the enriched sample.
    """

    benchmark: str
    options: Mapping[str, Any]
    protocol: Protocol
    recipe: Recipe
    seed: int

    kind = "enrichment"
    folder = "enrichment"

    @property
    def label(self) -> str:
        """Name of the task in messages."""
        return f"{self.benchmark} {self.protocol.name} {self.kind} seed {self.seed}"

    def describe(self) -> dict[str, Any]:
        """Return everything that decides the result, except the data."""
        return description(self, kind=self.kind)

    def perform(self, domains: Mapping[str, Graph], *, device: torch.device, cache: Cache | None = None) -> Record:
        """Measure every available domain on the enriched edges that inference uses, and return the record.

        Args:
            domains: Graphs by name.
            device: The device to compute on.
            cache: Where enrichments are read from and stored.

        Raises:
            DataError: No domain of the protocol is among `domains`.
        """
        available = {name: domains[name] for name in self.protocol.domains if name in domains}
        if not available:
            raise DataError(
                f"protocol {self.protocol.name!r}: there is no data for any domain ({', '.join(self.protocol.domains)})"
            )
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        metrics, seconds = {}, {"enrich": 0.0, "measure": 0.0}
        for name, graph in available.items():
            start = time.perf_counter()
            edges = enriched_edges(self.recipe, skeleton(graph, device), self.seed, cache)
            pairs = torch.stack([edges.src[edges.real], edges.dst[edges.real]]).cpu().numpy()
            enriched = time.perf_counter()
            metrics[name] = enrichment_measures(graph, pairs)
            seconds["enrich"] += enriched - start
            seconds["measure"] += time.perf_counter() - enriched
        return {
            **self.describe(),
            "data": {name: graph.hash for name, graph in available.items()},
            "select": {"rule": "none: nothing is trained"},
            "metrics": metrics,
            "missing": [name for name in self.protocol.domains if name not in domains],
            "seconds": seconds,
            "peak_memory_mib": peak_memory(device),
            "machine": machine(device),
        }
