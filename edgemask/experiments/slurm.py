"""Write a job file for a Slurm array job. Every element runs its part of the tasks; all share one results folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from shlex import join, quote
from typing import TypeVar

from edgemask.errors import InputError
from edgemask.experiments.needs import Need, need, need_key
from edgemask.experiments.records import Task
from edgemask.experiments.runner import Settings

T = TypeVar("T")
ELEMENTS = 32  # largest number of elements that is chosen automatically
START = 60.0  # seconds until the first task of an element begins, on a busy file system
MARGIN = 2.0  # factor on the predicted time: an element that runs out of time must be submitted again by hand
DRIVER_MIB = 1024  # memory of the process that hands out the tasks


def shard(tasks: Sequence[T], i: int, n: int) -> list[T]:
    """Return part i of n: every n-th task, so that long and short tasks are spread evenly.

    Split the list of all tasks, whether they have a record or not. Otherwise elements that start at different times
    would split different lists.

    Args:
        tasks: All tasks.
        i: Number of the part, from 0 to n - 1.
        n: Number of parts.

    Raises:
        InputError: `i` is not from 0 to n - 1.

    >>> shard("abcde", 1, 2)
    ['b', 'd']
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
    """Return a script for `sbatch` that runs the tasks of some suites.

    If time or memory is not given, it is predicted on this machine: the time of the longest element with its tasks one
    after the other, and the memory of the largest task, each with a margin.

    Args:
        suites: Names of the suites.
        tasks: All tasks of the suites.
        settings: Data root, device and cache of the workers.
        results: Folder of the records.
        elements: Number of elements of the array. By default one per task, at most 32.
        seeds: Passed on as `--seeds`.
        jobs: Processes per element.
        cpus: Cores per element.
        gpus: GPUs per element.
        partition: Partition of the cluster.
        minutes: Time limit of an element.
        memory_mib: Memory of an element.
        predict: Predicts what a task needs.

    Raises:
        InputError: `elements` is out of range, or time or memory is neither given nor predictable.
    """
    elements = min(len(tasks), ELEMENTS) if elements is None else elements
    if not 1 <= elements <= len(tasks):
        raise InputError(f"elements must be from 1 to the number of tasks, {len(tasks)}, got {elements}")
    if minutes is None or memory_mib is None:
        kinds = {need_key(task): task for task in tasks}
        needs = {kind: predict(task, settings) for kind, task in kinds.items()}
        seconds, memory = [n.seconds for n in needs.values() if n.seconds], [n.memory_mib for n in needs.values()]
        if not seconds:
            raise InputError(
                f"the time and memory of {', '.join(suites)} cannot be predicted here: give minutes and memory_mib"
            )
        times = {kind: max(seconds) if n.seconds is None else n.seconds for kind, n in needs.items()}
        longest = max(sum(times[need_key(task)] for task in shard(tasks, i, elements)) for i in range(elements))
        minutes = ceil((START + MARGIN * longest) / 60) if minutes is None else minutes
        memory_mib = DRIVER_MIB + jobs * ceil(max(m for m in memory if m)) if memory_mib is None else memory_mib
    name = suites[0] if len(suites) == 1 else f"{len(suites)}-suites"
    requests = {
        "job-name": f"edgemask-{name}",
        "array": f"0-{elements - 1}",
        "output": f"edgemask-{name}-%A_%a.log",
        "time": minutes,
        "mem": f"{memory_mib}M",
        "ntasks": 1,
        "cpus-per-task": cpus,
    }
    requests |= ({"gpus": gpus} if gpus else {}) | ({"partition": partition} if partition else {})
    options = ["--results", str(results.absolute()), "--device", settings.device, "--jobs", str(jobs)]
    options += [] if settings.data_root is None else ["--data-root", str(settings.data_root.absolute())]
    options += [] if seeds is None else ["--seeds", str(seeds)]
    options += ["--offline"] if settings.offline else []
    cache = [] if settings.cache is None else [f"export EDGEMASK_CACHE={quote(str(settings.cache.absolute()))}"]
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH --{name}={value}" for name, value in requests.items()),
        "# Runs that have a record are not run again. After a failure or a timeout, submit this file again, or some of",
        "# its elements with --array. For this reason the number of parts below is fixed and not a Slurm variable.",
        "set -euo pipefail",
        *cache,
        f'exec edgemask reproduce {join(suites)} --shard "$SLURM_ARRAY_TASK_ID/{elements}" {join(options)}',
    ]
    return "\n".join(lines) + "\n"
