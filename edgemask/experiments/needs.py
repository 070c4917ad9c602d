"""What a task will take, as `plan` predicts it: for schedulers that must find a place for it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from edgemask.data import benchmark
from edgemask.experiments.plan import plan
from edgemask.experiments.records import Task, canonical, missing_files
from edgemask.experiments.run import Run
from edgemask.experiments.runner import Settings, domains_of

MARGIN = 1.25  # on predicted memory
CONTEXT_MIB = 1024  # of a GPU, for what a process holds beside its tensors


@dataclass(frozen=True)
class Need:
    """GPUs (a fraction by memory), MiB of the host, and seconds of one task; None where it is not known."""

    gpus: float
    memory_mib: float | None = None
    seconds: float | None = None


def alike(task: Task) -> str:
    """The same for tasks with the same needs: those that differ in their seed alone."""
    said = task.describe()
    return canonical({name: value for name, value in said.items() if name not in ("seed", "code", "also")})


def need(task: Task, settings: Settings) -> Need:
    """Predicted by a few epochs measured on this machine and its device, where the task trains and its data is here."""
    if not isinstance(task, Run) or missing_files(benchmark(task.benchmark), task.protocol, settings.store()):
        return unknown(settings)
    graphs = domains_of(task, settings)
    ahead = plan(
        [graphs[name] for name in task.protocol.sources],
        task.recipe,
        settings.device,
        method=task.method,
        validation=[graphs[name] for name in task.protocol.validation],
    )
    gpus = 0.0
    if ahead.device.type == "cuda":
        memory = torch.cuda.get_device_properties(ahead.device).total_memory / 2**20
        gpus = min(1.0, (MARGIN * ahead.peak_mib + CONTEXT_MIB) / memory)
    return Need(gpus, MARGIN * ahead.host_mib, ahead.total_seconds)


def unknown(settings: Settings) -> Need:
    """What is not predicted gets a whole GPU where there are any."""
    return Need(0.0 if settings.device == "cpu" else 1.0)
