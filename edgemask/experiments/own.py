"""Compare and tune methods on the user's own graphs, with the runner and the records of the benchmarks."""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.console import Console

from edgemask.config import RECIPES, Recipe, parse_settings
from edgemask.enrich import Cache, default_cache
from edgemask.errors import FailedRunWarning, GraphError, InputError, InputTypeError
from edgemask.estimator import AUTO, SETTINGS, STAR
from edgemask.estimator.inputs import restricted, to_graphs, training_graphs
from edgemask.experiments.auto import AutoRun
from edgemask.experiments.local import InProcess, Local
from edgemask.experiments.majority import MajorityRun, majority_metrics
from edgemask.experiments.on_ray import OnRay
from edgemask.experiments.progress import last_line, progress
from edgemask.experiments.records import Record, ResultStore, Task, canonical
from edgemask.experiments.run import Run, attempt, described
from edgemask.experiments.runner import Executor, Settings, Tally, run_all
from edgemask.experiments.stored import OWN, aligned, content_hash, keep
from edgemask.experiments.tune import Search, Trial, best, source_score
from edgemask.graph import Graph, is_sequence
from edgemask.legal import Legal, did_you_mean
from edgemask.methods.registry import METHODS, MethodSpec, method_spec
from edgemask.metrics import parse, scored_nodes
from edgemask.protocol import Protocol, Training, leave_one_out
from edgemask.runtime.device import resolve_device
from edgemask.training.candidates import AUTO_RECIPE, choose_candidates
from edgemask.training.naming import Canonical
from edgemask.training.race import MAJORITY

REFERENCES = ("erm-mlp", "erm-gcn-enriched")  # beside the majority class, which is not a method
LEAVE_ONE_OUT, TARGETS = "leave one graph out", "targets"
Maker = Callable[[Mapping[str, Any], Protocol, int], Task]  # (options, protocol, seed) → task


@dataclass(frozen=True)
class OwnRun(Run):
    """A training run on the user's own graphs. Its result depends neither on their names nor on their order."""

    def perform(self, domains: Mapping[str, Graph], *, device: torch.device, cache: Cache | None = None) -> Record:
        """Run with canonical names of the graphs, as `EdgeMaskClassifier` does, and return the record with the user's.

        Args:
            domains: Graphs by name.
            device: The device to compute on.
            cache: Where enrichment is cached.
        """
        sources, validation = ([domains[n] for n in own] for own in (self.protocol.sources, self.protocol.validation))
        names = Canonical(sources, validation)
        renamed = {g.name: g for g in (*names.sources, *names.validation)}
        protocol = replace(
            self.protocol,
            sources=tuple(g.name for g in names.sources),
            validation=tuple(g.name for g in names.validation),
            targets=tuple(_target(n) for n in self.protocol.targets),
        )
        targets = {_target(n): domains[n].replace(name=_target(n)) for n in self.protocol.targets}
        run = Run(self.benchmark, self.options, protocol, self.method, self.recipe, self.seed, self.also)
        record = attempt(run, renamed | targets, device=device, cache=cache)
        record |= described(self, domains)
        record["metrics"] = _named(record["metrics"])
        for rule in record.get("rules", {}).values():
            rule["metrics"] = _named(rule["metrics"])
        record["curves"] = {names.text(name): curve for name, curve in record["curves"].items()}
        if "mask" in record:
            record["mask"] = {names.given[name]: shares for name, shares in record["mask"].items()}
        return record


def _target(name: str) -> str:
    """Return a name that no source has: `source-0` may be the user's name of a target."""
    return f"target {name}"


def _named(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("target "): values for name, values in metrics.items()}


# ---- methods ---------------------------------------------------------------------------------------------


def makers(
    methods: Sequence[str],
    settings: Mapping[str, Any] | None = None,
    *,
    candidates: Sequence[str] | None = None,
    references: bool = True,
) -> dict[str, Maker]:
    """Return for each method, and each reference, a function that makes its tasks.

    Args:
        methods: `auto`, methods, or stock recipes of `edgemask-dg-star`; each may be followed by settings, as in
            `edgemask-dg:backbone=mix:rho=0.7`.
        settings: Settings of all methods, also of the references. A method ignores those that define it, such as the
            backbone of `erm-gcn`, and the hyper-parameters of other methods.
        candidates: Candidates of `auto`.
        references: Whether the majority class, `erm-mlp` and `erm-gcn-enriched` take part.

    Raises:
        InputTypeError: `methods` is not a list of names.
        InputError: A method, candidate or setting is unknown, or a value is not legal.
    """
    names = [methods] if isinstance(methods, str) else list(methods)
    if not names or not all(isinstance(name, str) for name in names):
        raise InputTypeError(f"methods must be a list of at least one name, such as ['auto', 'irm'], got {methods!r}")
    given, made, used = dict(settings or {}), dict[str, Maker](), set[str]()
    for name in names:
        if name == AUTO:
            specs = [_spec(c.name) for c in choose_candidates(candidates, [])]
            shared = {k: v for k, v in given.items() if k in SETTINGS and any(s and k not in s.defining for s in specs)}
            chosen = tuple(c.name for c in choose_candidates(candidates, [], **shared))
            made[name] = partial(_auto_task, AUTO_RECIPE.replace(**shared), chosen)
            used |= shared.keys()
        else:
            made[name], taken = _maker(name, given)
            used |= taken
    if candidates is not None and AUTO not in names:
        raise InputError(f"candidates needs method {AUTO!r}, got {', '.join(names)}")
    for name in [n for n in REFERENCES if n not in made] if references else []:
        made[name], taken = _maker(name, given)
        used |= taken
    for name in given.keys() - used:
        known = {*SETTINGS, *(h for n in names if (spec := _spec(n)) for h in spec.make.hyper)}
        why = "defines these methods: choose others by name" if name in known else "is not a setting of these methods"
        raise InputError(f"setting {name!r} {why}{did_you_mean(name, known - {name})}")
    return made | ({MAJORITY: _majority_task} if references else {})


def _spec(name: str) -> MethodSpec | None:
    """Return the method of a name with settings; None for `auto`."""
    method = name.partition(":")[0]
    return None if method == AUTO else method_spec(STAR if method in RECIPES else method)


def _maker(name: str, given: Mapping[str, Any]) -> tuple[Maker, set[str]]:
    """Return the function that makes the tasks of a method, and the names of the settings that it uses."""
    method, *own = name.split(":")
    if method not in (*METHODS, *RECIPES):
        known = (AUTO, *RECIPES, *METHODS)
        raise InputError(f"no method {method!r} (methods: {', '.join(known)}){did_you_mean(method, known)}")
    spec = _spec(name)
    if spec is None:
        raise InputError(f"method {name!r}: {AUTO} takes settings of all methods and candidates only")
    taken = {k: v for k, v in given.items() if k in spec.make.hyper or (k in SETTINGS and k not in spec.defining)}
    try:
        recipe = spec.under(method if method in RECIPES else None, **taken | parse_settings(own))
    except InputError as error:
        raise InputError(f"method {name!r}: {error}") from error
    return partial(_run_task, STAR if method in RECIPES else method, recipe), set(taken)


def _run_task(method: str, recipe: Recipe, options: Mapping[str, Any], protocol: Protocol, seed: int) -> Task:
    return OwnRun(OWN, options, protocol, method, recipe, seed)


def _auto_task(
    recipe: Recipe, candidates: tuple[str, ...], options: Mapping[str, Any], protocol: Protocol, seed: int
) -> Task:
    return AutoRun(OWN, options, protocol, seed, recipe, candidates)


def _majority_task(options: Mapping[str, Any], protocol: Protocol, seed: int) -> Task:
    return MajorityRun(OWN, options, protocol)


# ---- graphs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Study:
    """Graphs and the protocols under which methods are compared on them.

    Attributes:
        graphs: The graphs by name.
        protocols: One protocol per graph that is left out, or one with all targets.
        options: What the records say about the graphs: their hashes, and whether columns are scaled.
    """

    graphs: Mapping[str, Graph]
    protocols: tuple[Protocol, ...]
    options: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        graphs: Any,
        targets: Any = None,
        validation: Any = None,
        *,
        metrics: Sequence[str] = ("micro_f1",),
        seeds: int = 5,
        read: Mapping[str, Any] | None = None,
        scale: bool = True,
    ) -> Study:
        """Read graphs and check that they fit together; see `compare` for the arguments and errors."""
        given = {
            "graph": _converted(graphs, "graph", read),
            "target": _converted(targets, "target", read),
            "validation": _converted(validation, "validation", read),
        }
        named = _distinct([graph for own in given.values() for graph in own])
        every, start = list(named), len(given["graph"])
        sources, tested, scored = every[:start], every[start : start + len(given["target"])], every[start:]
        scored = scored[len(tested) :]
        if not tested and len(sources) < 2:
            raise GraphError(
                f"without a target, each graph is left out in turn, which needs at least 2 graphs, got {len(sources)}; "
                "targets=… (on the command line: --target) names the graphs to score"
            )
        if not sources:
            raise GraphError("no graphs to train on were given")
        if tested:
            name = f"{'+'.join(sources)}→{','.join(tested)}"
            one = Protocol(name, tuple(sources), tuple(tested), tuple(metrics), tuple(scored), seeds)
            protocols: tuple[Protocol, ...] = (one,)
        else:
            protocols = tuple(
                replace(p, validation=tuple(scored)) for p in leave_one_out(sources, metrics, repeats=seeds)
            )
        for protocol in protocols:  # errors of graphs and metrics, before anything is trained
            _check_labels(protocol, named)
            majority_metrics(protocol, aligned(named, protocol, scale))
        hashes = {name: content_hash(graph) for name, graph in named.items()}
        split = TARGETS if tested else LEAVE_ONE_OUT
        return cls(named, protocols, {"graphs": hashes, "scale": scale, "split": split})

    def tasks(self, made: Mapping[str, Maker]) -> dict[str, list[Task]]:
        """Return the tasks of each method. The majority class does not depend on the seed and has one per protocol."""
        return {
            name: [
                make(self.options, protocol, seed)
                for protocol in self.protocols
                for seed in range(1 if name == MAJORITY else protocol.repeats)
            ]
            for name, make in made.items()
        }

    def store(self, results: Path) -> None:
        """Write the graphs to a folder of results, where workers find them."""
        keep(list(self.graphs.values()), results)


def _converted(values: Any, prefix: str, read: Mapping[str, Any] | None) -> list[Graph]:
    """Return graphs in any accepted form. Graphs of several files with the same name are called after their paths."""
    if values is None:
        return []
    several = list(values) if is_sequence(values) else [values]
    graphs = to_graphs(several, prefix, dict(read or {}))
    names = [graph.name for graph in graphs]
    return [
        graph.replace(name=str(value)) if isinstance(value, str | Path) and names.count(graph.name) > 1 else graph
        for value, graph in zip(several, graphs, strict=True)
    ]


def _distinct(graphs: Sequence[Graph]) -> dict[str, Graph]:
    """Return graphs by name.

    Raises:
        GraphError: Two graphs have the same name or the same content.
    """
    named, contents = dict[str, Graph](), dict[str, str]()
    for graph in graphs:
        twin = contents.setdefault(content_hash(graph), graph.name)
        if twin != graph.name or (graph.name in named and content_hash(named[graph.name]) == content_hash(graph)):
            raise GraphError(
                f"graph {graph.name!r} is the same as graph {twin!r}, so it would be trained on and scored; without "
                "targets, each graph is left out in turn"
            )
        if graph.name in named:
            raise GraphError(
                f"two graphs are called {graph.name!r}; rename one, for example with graph.replace(name='other')"
            )
        named[graph.name] = graph
    return named


def _check_labels(protocol: Protocol, graphs: Mapping[str, Graph]) -> None:
    """Check that every graph of a protocol has labels that can be used in its role."""
    labelled = {n: restricted(graphs[n], "train").labelled for n in protocol.sources}
    labelled |= {n: restricted(graphs[n], "val").labelled for n in protocol.validation}
    labelled |= {n: scored_nodes(graphs[n]) for n in protocol.targets}
    for name, nodes in labelled.items():
        if not nodes.any():
            role = "scores" if name in protocol.targets else "training"
            raise GraphError(f"graph {name!r}, y: {role} of a comparison needs labels, but it has none")


# ---- compare ---------------------------------------------------------------------------------------------


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
        >>> graphs = benchmark("synthetic").load(nodes=60)
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
    study = Study.of(
        graphs, targets, validation, metrics=metrics, seeds=seeds, read=read, scale=scale
    )
    tasks = study.tasks(made)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()) if results is None else results)
        store, where = ResultStore(folder), Settings(folder, True, device)
        study.store(folder)
        executor: Executor = InProcess(where) if jobs == 1 else Local(where, jobs)
        executor = executor if ray is None else OnRay(where, ray)
        show = stack.enter_context(progress(Console(stderr=True))) if verbose else lambda _: None
        tally = run_all([task for own in tasks.values() for task in own], store, executor, show)
    if tally.interrupted:
        raise KeyboardInterrupt
    frame = task_frame(tasks, store, tally)
    for _, row in frame[frame["failed"] != ""].drop_duplicates("failed").iterrows():
        message = f"{row['method']} on {row['target']}, seed {row['seed']}, has no score: {last_line(row['failed'])}"
        warnings.warn(message, FailedRunWarning, stacklevel=2)
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
        folder = stack.enter_context(tempfile.TemporaryDirectory()) if results is None else results
        identity = hashlib.sha256(canonical(search.describe()).encode()).hexdigest()[:16]
        path = Path(folder) / OWN / f"{name}-seed{seed}-{identity}.json"
        value = partial(source_score, name, training=training, seed=seed, device=resolved, cache=default_cache())
        done = search.run(trials, value, path, on_trial)
    top = best(done)
    return Tuned(name, dict(top.settings), top.score or 0.0, done)


def tuned_recipe(method: str, recipe: str | None, settings: Mapping[str, Any]) -> tuple[str, Recipe]:
    """Return the name and the recipe of a method, or of a stock recipe of `edgemask-dg-star`, that a search starts from.

    Raises:
        InputError: A name or value is not legal.
    """
    if method == AUTO:
        raise InputError(f"{AUTO!r} chooses among methods and has no hyper-parameters of its own: name one method")
    name, stock = (STAR, recipe or method) if method in RECIPES else (method, recipe)
    return name, method_spec(name).under(stock, **settings)
