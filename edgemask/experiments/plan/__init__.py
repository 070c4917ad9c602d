"""`plan`: predict the time and memory of a fit on this machine before it runs.

A separate process measures a few epochs of the configuration on stand-ins of the graphs at growing sizes, called
levels. If the graphs are small, the last level is the graphs themselves. Fitted growth laws (`plan.costs`) extrapolate
the measurements to the whole graphs.
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

# Seconds. A third or later level is measured only if it is expected to end within this time after the warm-up.
PATIENCE = 15.0


@dataclass(frozen=True)
class Stage:
    """One training of a fit: on all sources, or on all sources except one.

    Attributes:
        name: Name of the stage, which says what it trains on.
        epochs: Number of epochs.
        seconds: Predicted time of training and evaluation.
    """

    name: str
    epochs: int
    seconds: float


@dataclass(frozen=True)
class Plan:
    """The predicted time and memory of a fit.

    Attributes:
        device: Where the fit runs.
        rule: Name of the selection rule.
        recipe: The settings of the fit.
        stages: The trainings that the fit runs, each with its time for training and evaluation.
        nodes: Nodes of all sources.
        edges: Edges of all sources, before enrichment.
        epoch_edges: Edges that an epoch uses in all sources, after enrichment.
        start_seconds: Time to start a process.
        enrich_seconds: Time to enrich all graphs, if nothing is cached.
        epoch_seconds: Time of an epoch on all sources.
        peak_mib: Peak memory on `device` in MiB.
        host_mib: Peak memory of the process on the host in MiB. On a CPU it equals `peak_mib`.
        free_mib: Free memory on `device` in MiB.
        host_free_mib: Free memory on the host in MiB.
        measured: Number of source nodes of each level that was measured.
        whole: Whether the last level was the graphs themselves.
    """

    device: torch.device
    rule: str
    recipe: Recipe
    stages: tuple[Stage, ...]
    nodes: int
    edges: int
    epoch_edges: int
    start_seconds: float
    enrich_seconds: float
    epoch_seconds: float
    peak_mib: float
    host_mib: float
    free_mib: float
    host_free_mib: float
    measured: tuple[int, ...]
    whole: bool

    @property
    def train_seconds(self) -> float:
        """Time of all stages, with their evaluations."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def total_seconds(self) -> float:
        """Time of the whole fit."""
        return self.start_seconds + self.enrich_seconds + self.train_seconds

    @property
    def fits(self) -> bool:
        """Whether the free memory of the device and of the host is enough."""
        return self.peak_mib <= self.free_mib and self.host_mib <= self.host_free_mib

    @property
    def machine(self) -> str:
        """The name of the GPU, or the number of CPU threads."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return f"cpu, {torch.get_num_threads()} threads"

    @property
    def basis(self) -> str:
        """A sentence that says how the prediction was made."""
        if self.whole:
            return "measured on these graphs (enrichment and a few epochs)"
        sizes = ", ".join(f"{n:,}" for n in self.measured)
        return f"extrapolated from a few epochs on stand-ins of {sizes} nodes"

    def suggestions(self) -> list[str]:
        """Return settings that would reduce the memory and that the recipe does not use already."""
        r, suggestions = self.recipe, []
        added = self.epoch_edges > 2 * self.edges
        if r.batch_size is None:
            suggestions.append("batch_size=1024 with fan_out=10 (train on sampled neighbourhoods)")
        if r.inference_batch is None:
            suggestions.append("inference_batch=65536 (predict in blocks of nodes)")
        if r.spectral_budget is None and r.clusters and added:
            suggestions.append("spectral_budget=5 (at most 5 spectral pairs per node)")
        if r.k > 5 and added:
            suggestions.append(f"k={r.k // 2} (fewer neighbours)")
        if r.backbone == "gat":
            suggestions.append("backbone=gcn, or fewer heads")
        return suggestions


def plan(
    graphs: Sequence[Graph],
    recipe: Recipe,
    device: str | torch.device = "auto",
    *,
    method: str = "edgemask-dg-star",
    validation: Sequence[Graph] = (),
) -> Plan:
    """Predict the time and memory of a fit: enrichment and every training that the selection rule runs.

    Args:
        graphs: Labelled source graphs of the fit.
        recipe: All settings of the fit.
        device: `cpu`, `cuda`, `cuda:N`, or `auto` (cuda if there is one, else cpu).
        method: Name of a registered method.
        validation: Labelled graphs used only for model selection.

    Raises:
        GraphError: The graphs do not fit together or have no labels.
        InputError: The method, device or a setting cannot be used, or the configuration fails on the stand-ins.
    """
    torch_device, sources, validation = resolve_device(str(device)), list(graphs), list(validation)
    make = method_spec(method).make
    fit = Fit(make, recipe, sources, validation, device=torch_device)
    # Build the method once, so that settings it cannot use are reported before anything is measured.
    make(recipe, sources[0].num_features, sources[0].num_classes, 0, torch_device)
    start, measured = measure(sources, validation, recipe, method, torch_device)
    cost = Costs(recipe, measured)
    sizes = Sizes(
        nodes=np.array([g.num_nodes for g in sources]),
        edges=np.array([epoch_edges(recipe, g, measured[-1], i) for i, g in enumerate(sources)]),
        train=np.array([(g.first_labels >= 0).sum() for g in sources]),
    )
    evaluations = ceil(recipe.epochs / recipe.eval_every) if fit.rule.scores_epochs else 0
    stages = []
    for left_out in fit.stages:
        own = sizes.only(np.array([g.name != left_out for g in sources]))
        seconds = cost.of("build", own) + recipe.epochs * cost.epoch(own) + evaluations * cost.of("score", sizes)
        stages.append(Stage(ALL if left_out is None else f"without {left_out}", recipe.epochs, seconds))
    enriched = enriched_graphs(recipe, sources, validation)
    host_free = free_memory()
    return Plan(
        device=torch_device,
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
        free_mib=torch.cuda.mem_get_info(torch_device)[0] / 2**20 if torch_device.type == "cuda" else host_free,
        host_free_mib=host_free,
        measured=tuple(sum(m["nodes"]) for m in measured),
        whole=sum(measured[-1]["nodes"]) == sizes.nodes.sum() and recipe.batch_size is None,
    )


# ---- measurement ---------------------------------------------------------------------------------------


class Probe:
    """A new process that measures levels (`plan.probe`).

    Use it as a context manager: the process ends with the block.

    Args:
        method: Name of a registered method.
        device: Where the process computes.
        folder: Folder for the log of the process.

    Attributes:
        seconds: Time that the process took to start.

    Raises:
        InputError: The process has ended without an answer. The message gives the last line of its log.
    """

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
        """Measure a level that `write_level` wrote, and return the measurements of `probe.measure`.

        Raises:
            InputError: The configuration fails on this level.
        """
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
        lines = self.log.read_text().strip().splitlines() or [f"exit status {self.process.returncode}"]
        raise InputError(f"the configuration does not run on a small part of these graphs: {lines[-1]}")


def measure(
    sources: Sequence[Graph], validation: Sequence[Graph], recipe: Recipe, method: str, device: torch.device
) -> tuple[float, list[dict[str, Any]]]:
    """Measure stand-ins of growing size.

    The first two levels are always measured, and further ones within `PATIENCE`.

    Args:
        sources: The whole source graphs.
        validation: The whole validation graphs.
        recipe: The settings of the fit.
        method: Name of a registered method.
        device: Where to measure.

    Returns:
        The time to start a process in seconds, and the measurements of each level.

    Raises:
        InputError: The configuration fails on the stand-ins.
    """
    sizes = level_sizes([*sources, *validation])
    measured: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, Probe(method, device, Path(folder)) as probe:
        for i, size in enumerate(sizes):
            start = time.perf_counter()
            level = write_level(size, sources, validation, recipe, Path(folder))
            if not i:
                probe.measure(level)  # warm-up: the time to load and compile on first use is not counted
                deadline = time.perf_counter() + PATIENCE
            measured.append(probe.measure(level))
            now, last = time.perf_counter(), i + 1 == len(sizes)
            if i and not last and now + next_level_seconds(measured[-1], now - start, sizes[i + 1] / size) > deadline:
                break
    return probe.seconds, measured


def next_level_seconds(measured: dict[str, Any], seconds: float, growth: float) -> float:
    """Predict how many seconds the next level will take: a larger stand-in of the graphs, see `measure`.

    The neighbour search is assumed to grow with the square of the size, and everything else in proportion to it.

    Args:
        measured: Measurements of the last level.
        seconds: Time the last level took.
        growth: Size of the next level, relative to the last one.
    """
    search = sum(graph["seconds"].get("knn", 0.0) for graph in measured["enrich"])
    return float(search * growth**2 + (seconds - search) * growth)
