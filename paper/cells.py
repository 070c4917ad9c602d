"""Values that table cells show: each maps a record to a number, or to None if the record has no such value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from edgemask.experiments.records import Record

BINARY = ":loss=binary"  # part of the name of a candidate with a loss on all labels of a node


@dataclass(frozen=True)
class Score:
    """A score in percent.

    Args:
        metrics: The metrics whose mean is shown; the protocol's first metric if empty.
        how: `avg` for the average over the targets, `min` for the lowest target.
        rule: Start of the name of another selection rule in the record; the run's own rule if empty.
    """

    metrics: tuple[str, ...] = ()
    how: Literal["avg", "min"] = "avg"
    rule: str = ""

    def __call__(self, record: Record) -> float | None:
        by_target = record["metrics"]
        if self.rule:
            rules = [r for name, r in record["rules"].items() if name.startswith(self.rule)]
            if not rules:
                return None
            by_target = rules[0]["metrics"]
        names = self.metrics or tuple(record["protocol"]["metrics"][:1])
        targets = [fmean(100 * scores[m] for m in names) for scores in by_target.values()]
        return fmean(targets) if self.how == "avg" else min(targets)


@dataclass(frozen=True)
class PeriodScore:
    """A metric in percent, averaged over the targets of one period.

    Args:
        metric: Name of the metric.
        targets: Names of the targets of the period. Targets that a record does not have are ignored.
    """

    metric: str
    targets: tuple[str, ...]

    def __call__(self, record: Record) -> float | None:
        scores = [100 * record["metrics"][t][self.metric] for t in self.targets if t in record["metrics"]]
        return fmean(scores) if scores else None


@dataclass(frozen=True)
class Measured:
    """A measure of the enriched graphs, averaged over the domains."""

    name: str

    def __call__(self, record: Record) -> float | None:
        return fmean(m[self.name] for m in record["metrics"].values())


@dataclass(frozen=True)
class Pruned:
    """The percentage of edges that the mask prunes, averaged over the sources that have such edges.

    Args:
        origin: Origin of the edges, such as `original` or `augmented`.
        retained: Return the percentage of retained edges instead.
    """

    origin: str
    retained: bool = False

    def __call__(self, record: Record) -> float | None:
        shares = [g[self.origin]["pruned"] for g in record.get("mask", {}).values() if self.origin in g]
        if not shares:
            return None
        share = 100 * fmean(shares)
        return 100 - share if self.retained else share


@dataclass(frozen=True)
class MeanMask:
    """The mean mask of the original edges after an epoch, averaged over the sources."""

    epoch: int

    def __call__(self, record: Record) -> float | None:
        curves = [c for name, c in record["curves"].items() if name.startswith("mask original")]
        values = [c[self.epoch - 1] for c in curves if len(c) >= self.epoch and c[self.epoch - 1] is not None]
        return fmean(values) if values else None


def expected_score(record: Record) -> float | None:
    """Return the score in percent that a race expects on an unseen graph."""
    expected = record["select"].get("expected")
    return 100 * expected["score"] if expected else None


def expected_error(record: Record) -> float | None:
    """Return how far the expected score is from the average score of the targets, in points."""
    expected, score = expected_score(record), Score()(record)
    return None if expected is None or score is None else abs(expected - score)


def within_interval(record: Record) -> float | None:
    """Return the percentage of targets whose score lies in the interval that a race expects."""
    expected, metric = record["select"].get("expected"), record["protocol"]["metrics"][0]
    if not expected:
        return None
    return 100 * fmean(expected["low"] <= m[metric] <= expected["high"] for m in record["metrics"].values())


def calibration_error(record: Record) -> float | None:
    """Return the expected calibration error in points, averaged over the targets."""
    errors = record.get("calibration_error")
    return 100 * fmean(errors.values()) if errors else None


@dataclass(frozen=True)
class Member:
    """100 if a candidate is a member of the model that a race returns, with any loss, else 0."""

    name: str

    def __call__(self, record: Record) -> float | None:
        members = record["select"]["members"]
        return 100.0 * any(member.partition(BINARY)[0] == self.name for member in members)


def binary_member(record: Record) -> float | None:
    """Return 100 if a member of the model that a race returns has the loss on all labels, else 0."""
    return 100.0 * any(BINARY in member for member in record["select"]["members"])


def seconds(record: Record) -> float | None:
    """Return the training time in seconds."""
    return float(record["seconds"]["train"])


def _theory(find: Callable[[Record], float | None]) -> Callable[[Record], float | None]:
    return lambda record: find(record["theory"]) if "theory" in record else None


THEORY: dict[str, Callable[[Record], float | None]] = {
    "KKT gap, learned": _theory(lambda t: t["masks"]["learned"]["kkt"]["gap"]),
    "KKT gap, randomly permuted": _theory(lambda t: t["masks"]["random"]["kkt"]["gap"]),
    "KKT gap, ascent": _theory(lambda t: t["masks"]["ascent, best"]["kkt"]["gap"]),
    "loss, learned": _theory(lambda t: t["masks"]["learned"]["loss"]),
    "loss, randomly permuted": _theory(lambda t: t["masks"]["random"]["loss"]),
    "surrogate: |primal - dual|": _theory(lambda t: abs(t["surrogate_primal"] - t["surrogate_dual"])),
    "surrogate agreement (AUC)": _theory(lambda t: t["agreement"]["surrogate, ρ"]["auc"]),
    "smallest duality gap": _theory(lambda t: min(b["gap"] for b in t["duality"])),
    "TaskNet gradient error": _theory(lambda t: t["gradients"]["task_difference"]),
    "MaskNet gradient error": _theory(lambda t: t["gradients"]["mask_difference"]),
}
