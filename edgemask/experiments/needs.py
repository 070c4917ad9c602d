"""The resources that a task needs, as `plan` predicts them. Schedulers use them to place tasks."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from edgemask.experiments.auto import AutoRun
from edgemask.experiments.plan import Plan, plan
from edgemask.experiments.plan.race import RacePlan, plan_race
from edgemask.experiments.records import Task, canonical, missing_files
from edgemask.experiments.run import Run
from edgemask.experiments.runner import Settings, domains_of
from edgemask.experiments.stored import benchmark_of
from edgemask.training.candidates import AUTO_RECIPE, choose_candidates

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


def need_key(task: Task) -> str:
    """Return a text that is equal for tasks with the same needs, that is, tasks that differ only in their seed."""
    description = task.describe()
    return canonical({name: value for name, value in description.items() if name not in ("seed", "code", "also")})


def need(task: Task, settings: Settings) -> Need:
    """Predict the resources of a task from a few epochs measured on this machine and its device.

    The time of a race is the longest that it may take. If the task does not train, or its data is missing, nothing is
    measured and `unknown` is returned.
    """
    if not isinstance(task, Run | AutoRun):
        return unknown(settings)
    if missing_files(benchmark_of(task), task.protocol, settings.store()):
        return unknown(settings)
    graphs = domains_of(task, settings)
    sources, validation = ([graphs[name] for name in own] for own in (task.protocol.sources, task.protocol.validation))
    prediction: Plan | RacePlan
    if isinstance(task, AutoRun):
        changed = {k: v for k, v in vars(task.recipe).items() if v != getattr(AUTO_RECIPE, k)}
        candidates = choose_candidates(task.candidates, sources, **changed)
        prediction = plan_race(sources, candidates, settings.device, validation=validation)
        seconds = prediction.most_seconds
    else:
        prediction = plan(sources, task.recipe, settings.device, method=task.method, validation=validation)
        seconds = prediction.total_seconds
    gpus = 0.0
    if prediction.device.type == "cuda":
        memory = torch.cuda.get_device_properties(prediction.device).total_memory / 2**20
        gpus = min(1.0, (MARGIN * prediction.peak_mib + CONTEXT_MIB) / memory)
    return Need(gpus, MARGIN * prediction.host_mib, seconds)


def unknown(settings: Settings) -> Need:
    """Return the need of a task that cannot be predicted: a whole GPU, unless the device is a CPU."""
    return Need(0.0 if settings.device == "cpu" else 1.0)
