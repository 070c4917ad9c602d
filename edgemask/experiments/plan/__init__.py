"""`plan`: predict the time and memory of a fit on this machine before it runs.

A separate process measures a few epochs of the configuration on stand-ins of the graphs at growing sizes, called
levels. If the graphs are small, the last level is the graphs themselves. Fitted growth laws (`plan.costs`) extrapolate
the measurements to the whole graphs. `plan.race` does the same for a race between candidates.
"""

from __future__ import annotations

import json
import subprocess
import sys
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
from edgemask.runtime.atomic import temporary_folder
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
class Prediction:
    """The common part of the predictions of a fit and of a race.

    Attributes:
        device: Where the fit runs.
        rule: Name of the selection rule.
        nodes: Nodes of all sources.
        edges: Edges of all sources, before enrichment.
        start_seconds: Time to start a process.
        enrich_seconds: Time to enrich all graphs, if nothing is cached.
        free_mib: Free memory on `device` in MiB.
        host_free_mib: Free memory on the host in MiB.
        measured: Number of source nodes of each level that was measured.
        whole: Whether the last level was the graphs themselves.
    """

    device: torch.device
    rule: str
    nodes: int
    edges: int
    start_seconds: float
    enrich_seconds: float
    free_mib: float
    host_free_mib: float
    measured: tuple[int, ...]
    whole: bool

    @property
    def machine(self) -> str:
        """The name of the GPU, or the number of CPU threads."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return f"cpu, {torch.get_num_threads()} threads"

    @property
    def basis(self) -> str:
        """A phrase that says how the prediction was made."""
        if self.whole:
            return "measured on these graphs (enrichment and a few epochs)"
        sizes = ", ".join(f"{n:,}" for n in self.measured)
        return f"extrapolated from a few epochs on stand-ins of {sizes} nodes"


@dataclass(frozen=True)
class Plan(Prediction):
    """The predicted time and memory of a fit of one method.

    Attributes:
        recipe: The settings of the fit.
        stages: The trainings that the fit runs, each with its time for training and evaluation.
        epoch_edges: Edges that an epoch uses in all sources, after enrichment.
        epoch_seconds: Time of an epoch on all sources.
        peak_mib: Peak memory on `device` in MiB.
        host_mib: Peak memory of the process on the host in MiB. On a CPU it equals `peak_mib`.
    """

    recipe: Recipe
    stages: tuple[Stage, ...]
    epoch_edges: int
    epoch_seconds: float
    peak_mib: float
    host_mib: float

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
    start, levels, failed = measure(sources, validation, [(method, recipe)], torch_device)
    if failed:
        raise InputError(f"the configuration does not run on a small part of these graphs: {failed[0]}")
    measured = levels[0]
    cost, sizes = Costs(recipe, measured), whole_sizes(recipe, sources, measured)
    evaluations = ceil(recipe.epochs / recipe.eval_every) if fit.rule.scores_epochs else 0
    stages = []
    for left_out in fit.stages:
        own = sizes.only(np.array([g.name != left_out for g in sources]))
        seconds = cost.of("build", own) + recipe.epochs * cost.epoch(own) + evaluations * cost.of("score", sizes)
        stages.append(Stage(ALL if left_out is None else f"without {left_out}", recipe.epochs, seconds))
    free, host_free = free_mib(torch_device)
    return Plan(
        device=torch_device,
        rule=fit.rule.name,
        recipe=recipe,
        stages=tuple(stages),
        nodes=int(sizes.nodes.sum()),
        edges=sum(g.num_edges for g in sources),
        epoch_edges=round(sizes.edges.sum()),
        start_seconds=start,
        enrich_seconds=enrichment_seconds(recipe, sources, validation, measured),
        epoch_seconds=cost.epoch(sizes),
        peak_mib=cost.peak("device", sizes),
        host_mib=cost.peak("host", sizes),
        free_mib=free,
        host_free_mib=host_free,
        measured=tuple(sum(m["nodes"]) for m in measured),
        whole=sum(measured[-1]["nodes"]) == sizes.nodes.sum() and recipe.batch_size is None,
    )


def whole_sizes(recipe: Recipe, sources: Sequence[Graph], measured: Sequence[dict[str, Any]]) -> Sizes:
    """Return the sizes of the whole source graphs, given the measurements of the levels."""
    return Sizes(
        nodes=np.array([g.num_nodes for g in sources]),
        edges=np.array([epoch_edges(recipe, g, measured[-1], i) for i, g in enumerate(sources)]),
        train=np.array([(g.first_labels >= 0).sum() for g in sources]),
    )


def enrichment_seconds(
    recipe: Recipe, sources: Sequence[Graph], validation: Sequence[Graph], measured: Sequence[dict[str, Any]]
) -> float:
    """Predict the time to enrich all graphs that a recipe enriches, given the measurements of the levels."""
    graphs = enriched_graphs(recipe, sources, validation)
    return sum(enrichment(recipe, g.num_nodes, [m["enrich"][i] for m in measured]) for i, g in enumerate(graphs))


def free_mib(device: torch.device) -> tuple[float, float]:
    """Return the free memory in MiB, on the device and on the host."""
    host = free_memory()
    return torch.cuda.mem_get_info(device)[0] / 2**20 if device.type == "cuda" else host, host


# ---- measurement ---------------------------------------------------------------------------------------


class Probe:
    """A new process that measures levels (`plan.probe`).

    Use it as a context manager: the process ends with the block.

    Args:
        device: Where the process computes.
        folder: Folder for the log of the process.

    Attributes:
        seconds: Time that the process took to start.

    Raises:
        InputError: The process has ended without an answer. The message gives the last line of its log.
    """

    def __init__(self, device: torch.device, folder: Path):
        self.log = folder / "log"
        command = [sys.executable, "-m", "edgemask.experiments.plan.probe", str(device), str(torch.get_num_threads())]
        start = time.perf_counter()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=log, text=True)
        self._answer()
        self.seconds = time.perf_counter() - start

    def measure(self, level: dict[str, Any]) -> Any:
        """Measure a level that `write_level` wrote, and return the answer of the process.

        Returns:
            The measurements of `probe.measure`, or `{"failed": reason}` if the configuration fails on this level.

        Raises:
            InputError: The process has ended without an answer.
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
    sources: Sequence[Graph],
    validation: Sequence[Graph],
    configurations: Sequence[tuple[str, Recipe]],
    device: torch.device,
    *,
    race: bool = False,
    patience: float = PATIENCE,
) -> tuple[float, list[list[dict[str, Any]]], dict[int, str]]:
    """Measure configurations on stand-ins of growing size, in one process.

    The first two levels are always measured, and further ones within `patience`. All configurations are measured on
    the same levels.

    Args:
        sources: The whole source graphs.
        validation: The whole validation graphs.
        configurations: For each configuration, the name of a registered method and the settings of the fit.
        device: Where to measure.
        race: Whether the configurations are candidates of a race.
        patience: Seconds. A third or later level is measured only if it is expected to end within this time after the
            warm-up.

    Returns:
        The time to start a process in seconds, the measurements of each level for each configuration, and the reason
        for each configuration that fails on a stand-in, by its index.

    Raises:
        InputError: The process has ended without an answer.
    """
    sizes, indices = level_sizes([*sources, *validation]), range(len(configurations))
    measured: list[list[dict[str, Any]]] = [[] for _ in indices]
    failed: dict[int, str] = {}
    with temporary_folder("edgemask-plan") as folder, Probe(device, folder) as probe:
        for number, size in enumerate(sizes):
            start = time.perf_counter()
            levels = [write_level(size, sources, validation, *c, folder, race=race) for c in configurations]
            if not number:
                # Warm-up: the time to load and compile on first use is not counted.
                for i in indices:
                    own = {"shared": str(folder / "warm-up")} if race else {}
                    if "failed" in (answer := probe.measure(levels[i] | own)):
                        failed[i] = answer["failed"]
                deadline = time.perf_counter() + patience
            for i in indices:
                if i in failed:
                    continue
                if "failed" in (answer := probe.measure(levels[i])):
                    failed[i] = answer["failed"]
                else:
                    measured[i].append(answer)
            now, last = time.perf_counter(), number + 1 == len(sizes)
            left = [measured[i][-1] for i in indices if i not in failed]
            if not left or last:
                break
            if number and now + next_level_seconds(left, now - start, sizes[number + 1] / size) > deadline:
                break
    return probe.seconds, measured, failed


def next_level_seconds(measured: Sequence[dict[str, Any]], seconds: float, growth: float) -> float:
    """Predict how many seconds the next level will take: a larger stand-in of the graphs, see `measure`.

    The exact neighbour search is assumed to grow with the square of the size, and everything else in proportion to it.
    The search with an index is the one whose recall is measured.

    Args:
        measured: Measurements of the last level, for each configuration. They share their enrichment.
        seconds: Time the last level took.
        growth: Size of the next level, relative to the last one.
    """
    exact = [[graph["seconds"] for graph in m["enrich"] if "recall" not in graph["seconds"]] for m in measured]
    search = max(sum(seconds.get("knn", 0.0) for seconds in own) for own in exact)
    return float(search * growth**2 + (seconds - search) * growth)
