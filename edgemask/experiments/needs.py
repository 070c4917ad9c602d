"""The resources that a task needs, as `plan` predicts them. Schedulers use them to place tasks."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from edgemask.data import benchmark
from edgemask.experiments.plan import plan
from edgemask.experiments.records import Task, canonical, missing_files
from edgemask.experiments.run import Run
from edgemask.experiments.runner import Settings, domains_of

MARGIN = 1.25  # factor on predicted memory
CONTEXT_MIB = 1024  # GPU memory that a process uses in addition to its tensors


@dataclass(frozen=True)
class Need:
    """The resources of one task.

    Args:
        gpus: Number of GPUs; a fraction is a share of one GPU's memory.
        memory_mib: Host memory, or None if it is not known.
        seconds: Duration, or None if it is not known.
    """

    gpus: float
    memory_mib: float | None = None
    seconds: float | None = None


def alike(task: Task) -> str:
    """Return a text that is equal for tasks with the same needs, that is, tasks that differ only in their seed."""
    description = task.describe()
    return canonical({name: value for name, value in description.items() if name not in ("seed", "code", "also")})


def need(task: Task, settings: Settings) -> Need:
    """Predict the resources of a task from a few epochs measured on this machine and its device.

    If the task does not train, or its data is missing, nothing is measured and `unknown` is returned.
    """
    if not isinstance(task, Run) or missing_files(benchmark(task.benchmark), task.protocol, settings.store()):
        return unknown(settings)
    graphs = domains_of(task, settings)
    prediction = plan(
        [graphs[name] for name in task.protocol.sources],
        task.recipe,
        settings.device,
        method=task.method,
        validation=[graphs[name] for name in task.protocol.validation],
    )
    gpus = 0.0
    if prediction.device.type == "cuda":
        memory = torch.cuda.get_device_properties(prediction.device).total_memory / 2**20
        gpus = min(1.0, (MARGIN * prediction.peak_mib + CONTEXT_MIB) / memory)
    return Need(gpus, MARGIN * prediction.host_mib, prediction.total_seconds)


def unknown(settings: Settings) -> Need:
    """Return the need of a task that cannot be predicted: a whole GPU, unless the device is a CPU."""
    return Need(0.0 if settings.device == "cpu" else 1.0)
