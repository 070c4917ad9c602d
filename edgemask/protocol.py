"""Evaluation protocols: which domains are used for training, selection and testing, and with which metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgemask.errors import GraphError, InputError, MetricError
from edgemask.graph import Graph, collect
from edgemask.legal import Legal
from edgemask.metrics import parse, score, thresholded


@dataclass(frozen=True)
class Protocol:
    """An evaluation protocol.

    Args:
        name: Name of the protocol.
        sources: Domains to train on.
        targets: Domains to test on. Their labels are used for the metrics only.
        metrics: Metrics to report on each target. The first one is the main metric.
        validation: Domains used for model selection. If empty, selection uses the sources only.
        repeats: Number of seeds.
        options: Options of the benchmark with which the domains are loaded, as (name, value) pairs.

    Raises:
        InputError: A role is empty, a domain has two roles, a metric is unknown, or `repeats` is not a positive
            integer.
    """

    name: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    metrics: tuple[str, ...]
    validation: tuple[str, ...] = ()
    repeats: int = 5
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        for role in ("sources", "targets", "metrics"):
            if not getattr(self, role):
                raise InputError(f"protocol {self.name!r}: {role} must not be empty")
        roles = [("source", self.sources), ("validation", self.validation), ("target", self.targets)]
        role_of: dict[str, str] = {}
        for role, names in roles:
            for name in names:
                if name in role_of:
                    both = f"{role} twice" if role_of[name] == role else f"both {role_of[name]} and {role}"
                    raise InputError(f"protocol {self.name!r}: domain {name!r} is {both}")
                role_of[name] = role
        for metric in self.metrics:
            try:
                parse(metric)
            except MetricError as error:
                raise InputError(f"protocol {self.name!r}: {error}") from error
        Legal(1, whole=True).check(f"protocol {self.name!r}: repeats", self.repeats)

    @property
    def domains(self) -> tuple[str, ...]:
        """All domains: sources, validation domains and targets, in this order."""
        return (*self.sources, *self.validation, *self.targets)

    def describe(self) -> dict[str, Any]:
        """Return what identifies the protocol in a record, except its options, which have their own field."""
        return {name: value for name, value in vars(self).items() if name != "options"}

    def open(self, domains: Mapping[str, Graph]) -> tuple[Training, Exam]:
        """Split domains into the data for training and the data for testing.

        `Training` contains sources and validation domains with labels, and targets without labels. Only `Exam` contains
        the labels of the targets. Training and selection never receive it.

        Args:
            domains: Graphs by name. Graphs that the protocol does not use are ignored.

        Raises:
            GraphError: A domain is missing, has another name or no labels, or is not compatible with the others.
        """
        missing = [name for name in self.domains if name not in domains]
        if missing:
            raise GraphError(f"protocol {self.name!r}: domain {missing[0]!r} is missing")
        for name in self.domains:
            if domains[name].name != name:  # a wrong name would score against the labels of another graph
                raise GraphError(
                    f"protocol {self.name!r}: domain {name!r} is a graph with the name {domains[name].name!r}"
                )
        collect([domains[name] for name in self.domains])
        for name in self.domains:
            if not domains[name].labelled.any():
                raise GraphError(f"graph {name!r}, y: protocol {self.name!r} needs labels, but it has none")
        training = Training(
            sources=tuple(domains[n] for n in self.sources),
            validation=tuple(domains[n] for n in self.validation),
            targets=tuple(domains[n].without_labels() for n in self.targets),
            metrics=self.metrics,
        )
        return training, Exam(self.metrics, {n: domains[n] for n in self.targets})


@dataclass(frozen=True)
class Training:
    """The data for training and selection.

    Attributes:
        sources: Labelled graphs to train on.
        validation: Labelled graphs used only for model selection.
        targets: Graphs to predict, without their labels.
        metrics: Metrics of the protocol. The first one is used for selection.
    """

    sources: tuple[Graph, ...]
    validation: tuple[Graph, ...]
    targets: tuple[Graph, ...]
    metrics: tuple[str, ...]


class Exam:
    """The labels of the targets. They can be used for scoring only."""

    def __init__(self, metrics: Sequence[str], answers: Mapping[str, Graph]):
        self._metrics, self._answers = tuple(metrics), dict(answers)

    def score(self, target: str, probabilities: np.ndarray[Any, Any]) -> dict[str, float]:
        """Compute the protocol's metrics on one target.

        Args:
            target: Name of the target.
            probabilities: N × C class probabilities of its nodes. If the protocol has a thresholded metric, the
                probabilities of the labels, whose rows need not sum to 1.

        Returns:
            The values by metric.

        Raises:
            InputError: The protocol has no such target.
            MetricError: A metric is not defined for the target, or the probabilities are not valid.
        """
        if target not in self._answers:
            raise InputError(f"no target {target!r} (targets: {', '.join(self._answers)})")
        return score(self._metrics, self._answers[target], probabilities, of_labels=thresholded(self._metrics))


def leave_one_out(
    names: Sequence[str], metrics: Sequence[str], *, repeats: int = 5, short: Mapping[str, str] | None = None
) -> tuple[Protocol, ...]:
    """Return one protocol per domain, which trains on all other domains and tests on this one.

    Args:
        names: Names of the domains.
        metrics: Metrics to report.
        repeats: Number of seeds.
        short: Short names of domains, used in the names of the protocols.

    Raises:
        InputError: There are fewer than two domains, or a metric is unknown.

    >>> [protocol.name for protocol in leave_one_out(["a", "b", "c"], ["accuracy"])]
    ['b+c→a', 'a+c→b', 'a+b→c']
    """
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
