"""A protocol says who is trained on, who chooses, who is judged and by what; `open` enforces it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgemask.errors import GraphError, InputError, MetricError
from edgemask.graph import Graph, collect
from edgemask.metrics import parse, score


@dataclass(frozen=True)
class Protocol:
    """Train on `sources`, choose on `validation` (or on sources alone when it is empty), report `metrics`
    on each of `targets`, over `repeats` seeds. The first metric is the headline."""

    name: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    metrics: tuple[str, ...]
    validation: tuple[str, ...] = ()
    repeats: int = 5

    def __post_init__(self) -> None:
        for role in ("sources", "targets", "metrics"):
            if not getattr(self, role):
                raise InputError(f"protocol {self.name!r}: no {role}")
        roles = [("source", self.sources), ("validation", self.validation), ("target", self.targets)]
        seen: dict[str, str] = {}
        for role, names in roles:
            for name in names:
                if name in seen:
                    roles_of = f"twice a {role}" if seen[name] == role else f"both {seen[name]} and {role}"
                    raise InputError(f"protocol {self.name!r}: {name!r} is {roles_of}")
                seen[name] = role
        for metric in self.metrics:
            try:
                parse(metric)
            except MetricError as error:
                raise InputError(f"protocol {self.name!r}: {error}") from error
        if self.repeats < 1:
            raise InputError(f"protocol {self.name!r}: repeats must be at least 1, got {self.repeats}")

    @property
    def domains(self) -> tuple[str, ...]:
        return (*self.sources, *self.validation, *self.targets)

    def open(self, domains: Mapping[str, Graph]) -> tuple[Training, Exam]:
        """Split domains into what training may see and the sealed exam.

        `Training` holds sources and validation with labels and the targets without any: the labels of a
        target are in `Exam` alone, which training and selection are never handed.
        """
        missing = [name for name in self.domains if name not in domains]
        if missing:
            raise GraphError(f"protocol {self.name!r}: domain {missing[0]!r} was not given")
        for name in self.domains:
            if domains[name].name != name:  # the exam is asked by name: a mix-up would score the wrong answers
                raise GraphError(f"protocol {self.name!r}: domain {name!r} is a graph named {domains[name].name!r}")
        collect([domains[name] for name in self.domains])
        for name in self.domains:
            if not domains[name].labelled.any():
                raise GraphError(f"graph {name!r}, y: protocol {self.name!r} needs labels, it has none")
        training = Training(
            sources=tuple(domains[n] for n in self.sources),
            validation=tuple(domains[n] for n in self.validation),
            targets=tuple(domains[n].without_labels() for n in self.targets),
            metrics=self.metrics,
        )
        return training, Exam(self.metrics, {n: domains[n] for n in self.targets})


@dataclass(frozen=True)
class Training:
    """All that training and selection may see. The targets carry no labels."""

    sources: tuple[Graph, ...]
    validation: tuple[Graph, ...]
    targets: tuple[Graph, ...]
    metrics: tuple[str, ...]


class Exam:
    """The targets' labels, and nothing but scoring against them."""

    def __init__(self, metrics: Sequence[str], answers: Mapping[str, Graph]):
        self._metrics, self._answers = tuple(metrics), dict(answers)

    def score(self, target: str, probabilities: np.ndarray[Any, Any]) -> dict[str, float]:
        """Every metric of the protocol on one target, from its N × C class probabilities."""
        if target not in self._answers:
            raise InputError(f"no target {target!r} (targets: {', '.join(self._answers)})")
        return score(self._metrics, self._answers[target], probabilities)


def leave_one_out(
    names: Sequence[str], metrics: Sequence[str], *, repeats: int = 5, short: Mapping[str, str] | None = None
) -> tuple[Protocol, ...]:
    """Leave one domain out, for any set of domains: each in turn is the target of all the others."""
    if len(names) < 2:
        raise InputError(f"leave-one-domain-out needs at least 2 domains, got {len(names)}")
    short = short or {}
    return tuple(
        Protocol(
            name="+".join(short.get(n, n) for n in names if n != target) + "→" + short.get(target, target),
            sources=tuple(n for n in names if n != target),
            targets=(target,),
            metrics=tuple(metrics),
            repeats=repeats,
        )
        for target in names
    )
