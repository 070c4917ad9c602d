"""Run tasks from the command line: the part that `bench` and `reproduce` share."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path

from edgemask.cli.common import err
from edgemask.enrich import default_cache
from edgemask.experiments.local import Local
from edgemask.experiments.on_ray import OnRay
from edgemask.experiments.progress import progress, summary
from edgemask.experiments.records import ResultStore, Task
from edgemask.experiments.runner import Executor, Settings, fetch, run_all


def open_store(results: Path) -> ResultStore:
    """Read the records of a folder, and print the files that are not valid records."""
    store = ResultStore(results)
    print_rejected(store)
    gc.freeze()  # the garbage collector need not visit thousands of records again and again
    return store


def print_rejected(store: ResultStore, after: int = 0) -> None:
    """Print the files of a store that are not valid records, without the first `after` of them."""
    for why in list(store.rejected.values())[after:]:
        err.print(f"ignored: {why}", soft_wrap=True)


def run_tasks(
    tasks: Sequence[Task], store: ResultStore, settings: Settings, jobs: int | None = None, ray: str | None = None
) -> int:
    """Run the tasks that have no record, in local processes or on a Ray cluster.

    Args:
        tasks: The tasks.
        store: Where records are found and written.
        settings: Data root, device and cache of the workers.
        jobs: Number of local processes.
        ray: Address of a Ray cluster. If it is given, `jobs` is ignored.

    Returns:
        The exit status: 0, 1 if a run failed, 130 if the user stopped it.

    Raises:
        MissingFileError: The user has no home.
    """
    if ray is None and settings.cache is None:
        default_cache()  # without a folder for it, every run would fail
    for why in fetch(tasks, settings):
        err.print(why, soft_wrap=True)
    executor: Executor = Local(settings, jobs) if ray is None else OnRay(settings, ray)
    with progress(err) as show:
        tally = run_all(tasks, store, executor, show)
    err.print(summary(tally), soft_wrap=True)
    return tally.exit_code
