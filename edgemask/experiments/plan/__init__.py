"""`plan`: time and memory of a fit on this machine, said before it runs.

A few epochs of the configuration are measured in a process of their own, on stand-ins of the graphs at growing sizes
(where the graphs are small, the graphs themselves last), and carried over to the whole by fitted laws of growth.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import torch

from edgemask.config import Recipe
from edgemask.errors import InputError
from edgemask.experiments.plan.costs import Costs, Sizes, enrichment, epoch_edges
from edgemask.experiments.plan.standins import enriched_graphs, level_sizes, write_level
from edgemask.graph import Graph
from edgemask.methods.registry import method_spec
from edgemask.runtime.device import free_memory, resolve_device
from edgemask.training.fit import ALL, Fit

PATIENCE = 15.0  # seconds within which all levels but the first two must be measured


@dataclass(frozen=True)
class Stage:
    """One training of the fit: on all sources, or on all but one."""

    name: str
    epochs: int
    seconds: float


@dataclass(frozen=True)
class Plan:
    """A prediction. Seconds: of enrichment, of an epoch on all sources, of training with every stage and evaluation.
    MiB at the peak: on `device`, and of the process on the host (the same on a CPU); and what is free on each."""

    device: torch.device
    rule: str
    recipe: Recipe
    stages: tuple[Stage, ...]
    nodes: int  # of all sources, as are the edges
    edges: int
    epoch_edges: int  # after enrichment
    start_seconds: float
    enrich_seconds: float
    epoch_seconds: float
    peak_mib: float
    host_mib: float
    free_mib: float
    host_free_mib: float
    measured: tuple[int, ...]  # nodes of the levels
    whole: bool  # the last of them is the graphs themselves

    @property
    def train_seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)

    @property
    def total_seconds(self) -> float:
        return self.start_seconds + self.enrich_seconds + self.train_seconds

    @property
    def fits(self) -> bool:
        return self.peak_mib <= self.free_mib and self.host_mib <= self.host_free_mib

    @property
    def machine(self) -> str:
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return f"cpu, {torch.get_num_threads()} threads"

    @property
    def basis(self) -> str:
        """How the prediction was made."""
        if self.whole:
            return "enrichment and a few epochs measured on these graphs"
        return f"a few epochs measured on stand-ins of {', '.join(f'{n:,}' for n in self.measured)} nodes, extrapolated"

    def suggestions(self) -> list[str]:
        """What would need less memory, of what the recipe has not set already."""
        r, said = self.recipe, []
        added = self.epoch_edges > 2 * self.edges
        if r.batch_size is None:
            said.append("batch_size=1024 with fan_out=10 (train on sampled neighbourhoods)")
        if r.inference_batch is None:
            said.append("inference_batch=65536 (predict in blocks of nodes)")
        if r.spectral_budget is None and r.clusters and added:
            said.append("spectral_budget=5 (at most so many spectral pairs per node)")
        if r.k > 5 and added:
            said.append(f"k={r.k // 2} (fewer neighbours)")
        if r.backbone == "gat":
            said.append("backbone=gcn, or fewer heads")
        return said


def plan(
    graphs: Sequence[Graph],
    recipe: Recipe,
    device: str | torch.device = "auto",
    *,
    method: str = "edgemask-dg-star",
    validation: Sequence[Graph] = (),
) -> Plan:
    """Predict the fit of a registered method on these sources: enrichment, every stage of the selection, memory."""
    where, sources, validation = resolve_device(str(device)), list(graphs), list(validation)
    make = method_spec(method).make
    fit = Fit(make, recipe, sources, validation, device=where)
    make(recipe, sources[0].num_features, sources[0].num_classes, 0, where)  # refuses what does not go together
    start, measured = measure(sources, validation, recipe, method, where)
    cost = Costs(recipe, measured)
    sizes = Sizes(
        nodes=np.array([g.num_nodes for g in sources]),
        edges=np.array([epoch_edges(recipe, g, measured[-1], i) for i, g in enumerate(sources)]),
        train=np.array([(g.first_labels >= 0).sum() for g in sources]),
    )
    looks = ceil(recipe.epochs / recipe.eval_every) if fit.rule.scores_epochs else 0
    stages = []
    for left_out in fit.stages:
        own = sizes.only(np.array([g.name != left_out for g in sources]))
        taken = cost.of("build", own) + recipe.epochs * cost.epoch(own) + looks * cost.of("score", sizes)
        stages.append(Stage(ALL if left_out is None else f"without {left_out}", recipe.epochs, taken))
    enriched = enriched_graphs(recipe, sources, validation)
    host_free = free_memory()
    return Plan(
        device=where,
        rule=fit.rule.name,
        recipe=recipe,
        stages=tuple(stages),
        nodes=int(sizes.nodes.sum()),
        edges=sum(g.num_edges for g in sources),
        epoch_edges=round(sizes.edges.sum()),
        start_seconds=start,
        enrich_seconds=sum(
            enrichment(recipe, g.num_nodes, [m["enrich"][i] for m in measured]) for i, g in enumerate(enriched)
        ),
        epoch_seconds=cost.epoch(sizes),
        peak_mib=cost.peak("device", sizes),
        host_mib=cost.peak("host", sizes),
        free_mib=torch.cuda.mem_get_info(where)[0] / 2**20 if where.type == "cuda" else host_free,
        host_free_mib=host_free,
        measured=tuple(sum(m["nodes"]) for m in measured),
        whole=sum(measured[-1]["nodes"]) == sizes.nodes.sum() and recipe.batch_size is None,
    )


# ---- the machine ---------------------------------------------------------------------------------------


class Probe:
    """A fresh process that measures levels; `seconds` is what it took to start."""

    def __init__(self, method: str, device: torch.device, folder: Path):
        self.log = folder / "log"
        threads = str(torch.get_num_threads())
        command = [sys.executable, "-m", "edgemask.experiments.plan.probe", method, str(device), threads]
        start = time.perf_counter()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=log, text=True)
        self._answer()
        self.seconds = time.perf_counter() - start

    def measure(self, level: dict[str, Any]) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(level) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        if line := self.process.stdout.readline():
            return json.loads(line)
        self.process.wait()
        said = self.log.read_text().strip().splitlines() or [f"exit status {self.process.returncode}"]
        raise InputError(f"the configuration does not run on a small part of these graphs: {said[-1]}")


def measure(
    sources: Sequence[Graph], validation: Sequence[Graph], recipe: Recipe, method: str, device: torch.device
) -> tuple[float, list[dict[str, Any]]]:
    """Seconds to start, and what was measured of each level: two at least, and more while patience lasts."""
    sizes = level_sizes([*sources, *validation])
    measured: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, Probe(method, device, Path(folder)) as probe:
        for i, size in enumerate(sizes):
            begun = time.perf_counter()
            level = write_level(size, sources, validation, recipe, Path(folder))
            if not i:
                probe.measure(level)  # what is loaded or compiled on first use is no cost
                deadline = time.perf_counter() + PATIENCE
            measured.append(probe.measure(level))
            now, last = time.perf_counter(), i + 1 == len(sizes)
            if i and not last and now + forecast(measured[-1], now - begun, sizes[i + 1] / size) > deadline:
                break
    return probe.seconds, measured


def forecast(measured: dict[str, Any], seconds: float, growth: float) -> float:
    """How long a larger level will take, where its neighbour search grows with the square."""
    search = sum(graph["seconds"].get("knn", 0.0) for graph in measured["enrich"])
    return float(search * growth**2 + (seconds - search) * growth)
