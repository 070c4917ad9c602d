"""Compare and tune methods on the user's own graphs, with the runner and the records of the benchmarks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from edgemask.config import RECIPES, Recipe
from edgemask.enrich import default_cache
from edgemask.errors import FailedRunWarning, InputError, warn
from edgemask.estimator import AUTO, STAR
from edgemask.estimator.inputs import training_graphs
from edgemask.experiments.local import InProcess, Local
from edgemask.experiments.on_ray import OnRay
from edgemask.experiments.progress import last_line, progress
from edgemask.experiments.records import Record, ResultStore, Task, canonical
from edgemask.experiments.runner import Executor, Settings, Tally, run_all
from edgemask.experiments.stored import OWN
from edgemask.experiments.study import Study, makers
from edgemask.experiments.tune import Search, Trial, best, source_score
from edgemask.legal import Legal
from edgemask.methods.registry import method_spec
from edgemask.metrics import parse
from edgemask.protocol import Training
from edgemask.runtime.atomic import temporary_folder
from edgemask.runtime.device import resolve_device
from edgemask.runtime.safe_text import SafeConsole
from edgemask.training.naming import Canonical
from edgemask.training.race import MAJORITY


def compare(
    graphs: Any,
    methods: Sequence[str] = (AUTO,),
    *,
    targets: Any = None,
    validation: Any = None,
    seeds: int = 5,
    metric: str | Sequence[str] = "micro_f1",
    settings: Mapping[str, Any] | None = None,
    candidates: Sequence[str] | None = None,
    read: Mapping[str, Any] | None = None,
    scale: bool = True,
    references: bool = True,
    results: str | Path | None = None,
    jobs: int = 1,
    ray: str | None = None,
    device: str = "auto",
    verbose: int = 0,
) -> pd.DataFrame:
    """Compare methods on your own graphs.

    Without targets, each graph is left out in turn: a method is trained on the others and scored on this one. With
    targets, it is trained on all graphs and scored on each target. Training and selection never see a label of the
    graph that is scored, and columns are matched and scaled with the training graphs alone.

    Args:
        graphs: Labelled graphs in any form that `EdgeMaskClassifier` accepts, or paths. If a graph has a mask `train`,
            only the labels inside it are used in training; if it has a mask `eval` or `test`, it is scored on it.
        methods: `auto`, methods (`edgemask methods` lists them), or stock recipes of `edgemask-dg-star`. A name may be
            followed by settings, as in `edgemask-dg:backbone=mix:rho=0.7`.
        targets: Labelled graphs to score. None leaves out each graph in turn.
        validation: Labelled graphs that are used for selection only.
        seeds: Number of runs of each method, with the seeds 0, 1, …
        metric: The metric, or several. Selection maximises the first one.
        settings: Settings of all methods and references, such as `{"epochs": 100}`.
        candidates: Candidates of `auto`, as for `EdgeMaskClassifier`.
        read: Options with which paths and objects of other libraries are converted to graphs.
        scale: Standardise numeric feature columns that have names.
        references: Also run the references: the majority class, `erm-mlp` and `erm-gcn-enriched`.
        results: Folder of the records. A run that has a record there is not run again. None uses a temporary folder.
        jobs: Number of processes. With 1, everything runs in this process.
        ray: Address of a Ray cluster that runs everything instead: `auto`, `local` or `HOST:PORT`.
        device: `cpu`, `cuda`, `cuda:N`, or `auto`.
        verbose: 1 shows progress on standard error.

    Returns:
        A row per method, target and seed, with the columns `method`, `target`, `sources`, `protocol`, `seed`, one per
        metric, `rule` (how the model was selected), `seconds`, `failed` (why there is no score; else empty) and
        `record` (the key of the record). `edgemask.report.own.paired` tests the differences.

    Raises:
        InputError: A method, setting or other argument is not legal.
        MetricError: A metric is unknown, or not defined for a target.
        GraphError: The graphs do not fit together, have no labels, or there are too few.
        FileError: The folder of results cannot be used.

    Examples:
        >>> from edgemask import benchmark, compare
        >>> graphs = benchmark("synthetic").load(nodes=80)
        >>> frame = compare(graphs.values(), ["erm-gcn"], seeds=1, settings={"epochs": 2}, references=False)
        >>> frame[["method", "target", "sources", "seed"]].values.tolist()[0]
        ['erm-gcn', 'alpha', 'beta+gamma', 0]
    """
    metrics = (metric,) if isinstance(metric, str) else tuple(metric)
    check_values(metrics, seeds)
    Legal(1, whole=True).check("jobs", jobs)
    made = makers(methods, settings, candidates=candidates, references=references)
    if ray is None:
        resolve_device(device)
    study = Study.of(graphs, targets, validation, metrics=metrics, seeds=seeds, read=read, scale=scale)
    tasks = study.tasks(made)
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder("edgemask-compare")) if results is None else Path(results)
        store, where = ResultStore(folder), Settings(folder, True, device)
        study.store(folder)
        executor: Executor = InProcess(where) if jobs == 1 else Local(where, jobs)
        executor = executor if ray is None else OnRay(where, ray)
        show = stack.enter_context(progress(SafeConsole(stderr=True))) if verbose else lambda _: None
        tally = run_all([task for own in tasks.values() for task in own], store, executor, show)
    if tally.interrupted:
        raise KeyboardInterrupt
    frame = task_frame(tasks, store, tally)
    for _, row in frame[frame["failed"] != ""].drop_duplicates("failed").iterrows():
        message = f"{row['method']} on {row['target']}, seed {row['seed']}, has no score: {last_line(row['failed'])}"
        warn(message, FailedRunWarning)
    return frame


def check_values(metrics: Sequence[str], seeds: int) -> None:
    """Check metrics and the number of seeds.

    Raises:
        MetricError: A metric is unknown.
        InputError: There is no metric, or `seeds` is not a positive integer.
    """
    for name in metrics:
        parse(name)
    if not metrics:
        raise InputError("metric must name at least one metric, such as 'micro_f1'")
    Legal(1, whole=True).check("seeds", seeds)


def task_frame(tasks: Mapping[str, Sequence[Task]], store: ResultStore, tally: Tally | None = None) -> pd.DataFrame:
    """Return the results of tasks by the name of their method. `tally` says why tasks have no record."""
    reasons = dict(tally.failed) if tally else {}

    def record(task: Task) -> Record:
        why = {"message": reasons.get(task.label, "not run")}
        lost = {"select": {"rule": ""}, "metrics": {}, "failed": why, "seconds": {}, "key": ""}
        return store.find(task) or task.describe() | lost

    return record_frame({name: [record(task) for task in own] for name, own in tasks.items()})


def record_frame(groups: Mapping[str, Sequence[Record]]) -> pd.DataFrame:
    """Return records by the name of their method as a table; `compare` describes it.

    The record of the majority class is repeated for every seed, so that it can be paired with other runs.
    """
    seeds = sorted({r["seed"] for name, own in groups.items() if name != MAJORITY for r in own}) or [0]
    rows = []
    for name, own in groups.items():
        for record in own:
            protocol = record["protocol"]
            for target in protocol["targets"]:
                values = record["metrics"].get(target, {})
                for seed in seeds if name == MAJORITY else [record["seed"]]:
                    rows.append(
                        {
                            "method": name,
                            "target": target,
                            "sources": "+".join(protocol["sources"]),
                            "protocol": protocol["name"],
                            "seed": seed,
                            **{metric: values.get(metric, float("nan")) for metric in protocol["metrics"]},
                            "rule": record["select"]["rule"],
                            "seconds": float(sum(record["seconds"].values())),
                            "failed": record.get("failed", {}).get("message", ""),
                            "record": record["key"],
                        }
                    )
    return pd.DataFrame(rows)


# ---- tune ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tuned:
    """The result of a search.

    Attributes:
        method: Name of the method.
        settings: The best settings, which `EdgeMaskClassifier(method, **settings)` takes.
        score: Score of the best settings on sources that were left out.
        trials: All trials. The first one has the default settings.
    """

    method: str
    settings: dict[str, Any]
    score: float
    trials: list[Trial]


def tune(
    graphs: Any,
    method: str,
    *,
    trials: int = 20,
    recipe: str | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    metric: str = "micro_f1",
    read: Mapping[str, Any] | None = None,
    scale: bool = True,
    results: str | Path | None = None,
    device: str = "auto",
    on_trial: Callable[[int, Trial], None] | None = None,
) -> Tuned:
    """Search the hyper-parameters of a method on your own graphs.

    A trial is scored by leaving out each graph in turn. With one graph, a fifth of its labels is withheld.

    Args:
        graphs: Labelled graphs in any accepted form, or paths. A mask `train` restricts the labels that are used.
        method: A method, or a stock recipe of `edgemask-dg-star`.
        trials: Number of trials. The first one has the default settings.
        recipe: A stock recipe that replaces the method's own.
        settings: Settings that the search starts from.
        seed: Seed of the search and of the fits.
        metric: The metric of the scores.
        read: Options with which paths and objects of other libraries are converted to graphs.
        scale: Standardise numeric feature columns that have names.
        results: Folder in which trials are stored. A stored trial is not run again. None stores nothing.
        device: `cpu`, `cuda`, `cuda:N`, or `auto`.
        on_trial: Called after each new trial with its number from 0 and the trial.

    Raises:
        InputError: A method, setting or other argument is not legal, or all trials failed.
        MetricError: The metric is unknown.
        GraphError: The graphs do not fit together or have no labels.
        MissingDependencyError: Optuna is not installed, and there is more than one trial.
    """
    check_values((metric,), 1)
    Legal(1, whole=True).check("trials", trials)
    name, full = tuned_recipe(method, recipe, settings or {})
    resolved = resolve_device(device)
    _, sources, _ = training_graphs(graphs, None, None, dict(read or {}), scale)
    training = Training(Canonical(sources).sources, (), (), (metric,))
    data = {graph.name: graph.hash for graph in training.sources}
    search = Search(OWN, f"sources, {metric}", name, full, data, seed)
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder("edgemask-tune")) if results is None else Path(results)
        identity = hashlib.sha256(canonical(search.describe()).encode()).hexdigest()[:16]
        path = folder / OWN / f"{name}-seed{seed}-{identity}.json"
        value = partial(source_score, name, training=training, seed=seed, device=resolved, cache=default_cache())
        done = search.run(trials, value, path, on_trial)
    top = best(done)
    return Tuned(name, dict(top.settings), top.score or 0.0, done)


def tuned_recipe(method: str, recipe: str | None, settings: Mapping[str, Any]) -> tuple[str, Recipe]:
    """Return the name and the recipe of a method, or of a stock recipe, that a search starts from.

    Raises:
        InputError: A name or value is not legal.
    """
    if method == AUTO:
        raise InputError(f"{AUTO!r} chooses among methods and has no hyper-parameters of its own: name one method")
    name, stock = (STAR, recipe or method) if method in RECIPES else (method, recipe)
    return name, method_spec(name).under(stock, **settings)
