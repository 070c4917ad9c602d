"""What a cell shows of a record: a score, a time, a share of edges, a measure; None where a record has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np

from edgemask.experiments.records import Record


@dataclass(frozen=True)
class Score:
    """Percent: the mean of some metrics (none: the protocol's first), averaged over targets or the lowest of them,
    under the run's own selection rule or another that its record holds."""

    metrics: tuple[str, ...] = ()
    how: Literal["avg", "min"] = "avg"
    rule: str = ""

    def __call__(self, record: Record) -> float | None:
        held = record["metrics"]
        if self.rule:
            rules = [r for name, r in record["rules"].items() if name.startswith(self.rule)]
            if not rules:
                return None
            held = rules[0]["metrics"]
        names = self.metrics or tuple(record["protocol"]["metrics"][:1])
        targets = [fmean(100 * scores[m] for m in names) for scores in held.values()]
        return fmean(targets) if self.how == "avg" else min(targets)


@dataclass(frozen=True)
class Third:
    """Percent: a metric over the first, second or last third of the targets, in their order."""

    metric: str
    number: int

    def __call__(self, record: Record) -> float | None:
        thirds = np.array_split(np.array(record["protocol"]["targets"]), 3)
        held = [100 * record["metrics"][t][self.metric] for t in thirds[self.number] if t in record["metrics"]]
        return fmean(held) if held else None


@dataclass(frozen=True)
class Measured:
    """A measure of graphs, mean over the domains."""

    name: str

    def __call__(self, record: Record) -> float | None:
        return fmean(m[self.name] for m in record["metrics"].values())


@dataclass(frozen=True)
class Pruned:
    """Percent of an origin's edges that the mask prunes, or retains, mean over the sources that have any."""

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
    """Mean mask of the original edges after an epoch, mean over the sources."""

    epoch: int

    def __call__(self, record: Record) -> float | None:
        curves = [c for name, c in record["curves"].items() if name.startswith("mask original")]
        values = [c[self.epoch - 1] for c in curves if len(c) >= self.epoch and c[self.epoch - 1] is not None]
        return fmean(values) if values else None


def seconds(record: Record) -> float | None:
    return float(record["seconds"]["train"])


def _theory(find: Callable[[Record], float | None]) -> Callable[[Record], float | None]:
    return lambda record: find(record["theory"]) if "theory" in record else None


THEORY: dict[str, Callable[[Record], float | None]] = {
    "KKT gap, learned": _theory(lambda t: t["masks"]["learned"]["kkt"]["gap"]),
    "KKT gap, dealt at random": _theory(lambda t: t["masks"]["random"]["kkt"]["gap"]),
    "KKT gap, ascent": _theory(lambda t: t["masks"]["ascent, best"]["kkt"]["gap"]),
    "loss, learned": _theory(lambda t: t["masks"]["learned"]["loss"]),
    "loss, dealt at random": _theory(lambda t: t["masks"]["random"]["loss"]),
    "surrogate: |primal - dual|": _theory(lambda t: abs(t["surrogate_primal"] - t["surrogate_dual"])),
    "surrogate agrees (AUC)": _theory(lambda t: t["agreement"]["surrogate, ρ"]["auc"]),
    "least duality gap": _theory(lambda t: min(b["gap"] for b in t["duality"])),
    "gradient of the TaskNet, error": _theory(lambda t: t["gradients"]["task_difference"]),
    "gradient of the MaskNet, error": _theory(lambda t: t["gradients"]["mask_difference"]),
}
