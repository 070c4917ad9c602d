"""A job file for a Slurm array: every element runs its share of the tasks, all into one folder of records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from shlex import join, quote
from typing import TypeVar

from edgemask.errors import InputError
from edgemask.experiments.needs import Need, alike, need
from edgemask.experiments.records import Task
from edgemask.experiments.runner import Settings

T = TypeVar("T")
ELEMENTS = 32  # where their number is left to us
START = 60.0  # seconds until an element's first task begins, on a busy file system
MARGIN = 2.0  # on predicted time: an element that is cut off is run again by hand
DRIVER_MIB = 1024  # of the process that hands out the tasks


def shard(tasks: Sequence[T], i: int, n: int) -> list[T]:
    """Part i of n: every n-th task, so that dear and cheap ones are dealt alike.

    To be cut from all tasks, recorded or not: else elements that start at different times would disagree.
    """
    if not 0 <= i < n:
        raise InputError(f"shard must be I/N with I from 0 to N - 1, got {i}/{n}")
    return list(tasks[i::n])


def job_file(
    suites: Sequence[str],
    tasks: Sequence[Task],
    settings: Settings,
    *,
    results: Path,
    elements: int | None = None,
    seeds: int | None = None,
    jobs: int = 1,
    cpus: int = 1,
    gpus: int = 0,
    partition: str | None = None,
    minutes: int | None = None,
    memory_mib: int | None = None,
    predict: Callable[[Task, Settings], Need] = need,
) -> str:
    """A script for `sbatch` that runs the tasks of some suites (of so many seeds), each element in `jobs` processes.

    Time and memory that are not given are predicted on this machine: those of the dearest element as if its tasks ran
    one by one, with a margin.
    """
    elements = min(len(tasks), ELEMENTS) if elements is None else elements
    if not 1 <= elements <= len(tasks):
        raise InputError(f"elements must be from 1 to the number of tasks, {len(tasks)}, got {elements}")
    if minutes is None or memory_mib is None:
        kinds = {alike(task): task for task in tasks}
        needs = {kind: predict(task, settings) for kind, task in kinds.items()}
        seconds, memory = [n.seconds for n in needs.values() if n.seconds], [n.memory_mib for n in needs.values()]
        if not seconds:
            raise InputError(f"nothing of {', '.join(suites)} can be predicted here: give minutes and memory_mib")
        usual = {kind: max(seconds) if n.seconds is None else n.seconds for kind, n in needs.items()}
        dearest = max(sum(usual[alike(task)] for task in shard(tasks, i, elements)) for i in range(elements))
        minutes = ceil((START + MARGIN * dearest) / 60) if minutes is None else minutes
        memory_mib = DRIVER_MIB + jobs * ceil(max(m for m in memory if m)) if memory_mib is None else memory_mib
    name = suites[0] if len(suites) == 1 else f"{len(suites)}-suites"
    asked = {
        "job-name": f"edgemask-{name}",
        "array": f"0-{elements - 1}",
        "output": f"edgemask-{name}-%A_%a.log",
        "time": minutes,
        "mem": f"{memory_mib}M",
        "ntasks": 1,
        "cpus-per-task": cpus,
    }
    asked |= ({"gpus": gpus} if gpus else {}) | ({"partition": partition} if partition else {})
    options = ["--results", str(results.absolute()), "--device", settings.device, "--jobs", str(jobs)]
    options += [] if settings.data_root is None else ["--data-root", str(settings.data_root.absolute())]
    options += [] if seeds is None else ["--seeds", str(seeds)]
    options += ["--offline"] if settings.offline else []
    cache = [] if settings.cache is None else [f"export EDGEMASK_CACHE={quote(str(settings.cache.absolute()))}"]
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH --{name}={value}" for name, value in asked.items()),
        "# What is recorded is not run again: after a failure, or out of time, submit the same file once more, or some",
        "# elements of it with --array. The number of parts is therefore written out, not asked of Slurm.",
        "set -euo pipefail",
        *cache,
        f'exec edgemask reproduce {join(suites)} --shard "$SLURM_ARRAY_TASK_ID/{elements}" {join(options)}',
    ]
    return "\n".join(lines) + "\n"
