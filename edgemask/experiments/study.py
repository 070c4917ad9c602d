"""Methods and protocols of a comparison on the user's own graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from edgemask.config import RECIPES, Recipe, parse_settings
from edgemask.enrich import Cache
from edgemask.errors import GraphError, InputError, InputTypeError
from edgemask.estimator import AUTO, SETTINGS, STAR
from edgemask.estimator.inputs import restricted, to_graphs
from edgemask.experiments.auto import AutoRun
from edgemask.experiments.majority import MajorityRun, majority_metrics
from edgemask.experiments.records import Record, Task
from edgemask.experiments.run import Run, attempt, described
from edgemask.experiments.stored import OWN, aligned, content_hash, keep
from edgemask.graph import Graph, is_sequence
from edgemask.legal import did_you_mean
from edgemask.methods.registry import METHODS, MethodSpec, method_spec
from edgemask.methods.sources import check_magnitude
from edgemask.metrics import scored_nodes
from edgemask.protocol import Protocol, leave_one_out
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
        with names.shown():
            record = attempt(run, renamed | targets, device=device, cache=cache)
        record |= described(self, domains)
        record["metrics"] = _named(record["metrics"])
        if failed := record.get("failed"):
            failed["message"] = names.message(failed["message"])
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
    names = [methods] if isinstance(methods, str) else list(methods) if isinstance(methods, Iterable) else []
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
        if name in known:
            raise InputError(f"setting {name!r} defines these methods: choose others by name, or give it to one method")
        raise InputError(f"setting {name!r} is not a setting of these methods{did_you_mean(name, known)}")
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
        roles = [
            _converted(values, prefix, read)
            for values, prefix in ((graphs, "graph"), (targets, "target"), (validation, "validation"))
        ]
        named = _distinct([graph for own in roles for graph in own])
        sources, tested, scored = (tuple(graph.name for graph in own) for own in roles)
        if not tested and len(sources) < 2:
            raise GraphError(
                f"without a target, each graph is left out in turn, which needs at least 2 graphs, got {len(sources)}; "
                "targets=… (on the command line: --target) names the graphs to score"
            )
        if not sources:
            raise GraphError("no graphs to train on were given")
        if tested:
            name = f"{'+'.join(sources)}→{','.join(tested)}"
            one = Protocol(name, sources, tested, tuple(metrics), scored, seeds)
            protocols: tuple[Protocol, ...] = (one,)
        else:
            protocols = tuple(replace(p, validation=scored) for p in leave_one_out(sources, metrics, repeats=seeds))
        for protocol in protocols:  # errors of graphs and metrics, before anything is trained
            _check_labels(protocol, named)
            together = aligned(named, protocol, scale)
            for graph in together.values():
                check_magnitude(graph)
            majority_metrics(protocol, together)
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
