"""Training of one method on its sources: epochs, averaged weights, scores, and the state of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgemask.config import Recipe
from edgemask.enrich import Cache
from edgemask.errors import CheckpointError, CollapseWarning, DivergenceError, SchemaError, warn
from edgemask.graph import Array, Graph
from edgemask.inference import raw_logits, reading_edges, smoothed
from edgemask.legal import Legal
from edgemask.methods.base import Method, Source
from edgemask.methods.edgemask import collapsed
from edgemask.methods.execution import seeded
from edgemask.metrics import score, thresholded
from edgemask.nn.tensors import Edges, GraphTensors
from edgemask.runtime import checkpoint
from edgemask.runtime.buffers import BufferPool, from_pool
from edgemask.runtime.precision import precision
from edgemask.schema import NUMBER, Fields, Items, Row, Table, check
from edgemask.seeds import derive


@dataclass(frozen=True)
class EvalGraph:
    """A graph that is predicted during training, with the edges it is predicted on.

    Selection rules score the predictions on its labels, within its `eval` mask if it has one.
    """

    graph: Graph
    domain: GraphTensors
    edges: Edges

    @classmethod
    def of(cls, domain: GraphTensors, method: Method, cache: Cache | None) -> EvalGraph:
        """Prepare the tensors that `reading_domain` returned for a method."""
        return cls(domain.graph, domain, reading_edges(method.recipe, domain, method.seed, cache))


@dataclass
class BestState:
    """The best state so far for one propagation strength, with a copy of its weights."""

    score: float
    epoch: int
    weights: dict[str, Tensor]


@dataclass
class Trainer:
    """One method on its sources, epoch by epoch.

    Attributes:
        method: The method that is trained.
        sources: What it is trained on.
        eval_graphs: Graphs that `scores` scores.
        metric: The metric of the scores.
        keep_best: Score every `eval_every` epochs and keep the best weights. If False, score only when asked.
        epoch: Number of epochs trained so far.
        average: Averaged weights, if the recipe averages.
        history: One record per epoch.
        best: The best state per propagation strength.
        pool: Memory of large CPU arrays, reused from epoch to epoch.
    """

    method: Method
    sources: Sequence[Source]
    eval_graphs: Sequence[EvalGraph] = ()
    metric: str = "micro_f1"
    keep_best: bool = True
    epoch: int = 0
    average: dict[str, Tensor] | None = None
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[float, BestState] = field(default_factory=dict)
    pool: BufferPool = field(default_factory=BufferPool)

    @property
    def done(self) -> bool:
        """Whether training has ended: all epochs were run, or `patience` has run out."""
        return self.epoch >= self.method.recipe.epochs or self.stalled

    @property
    def stalled(self) -> bool:
        """Whether the last `patience` evaluations brought no better score."""
        patience = self.method.recipe.patience
        if not patience:
            return False
        scores = [[v for k, v in record.items() if k.startswith("select")] for record in self.history]
        best = [max(own) for own in scores if own]
        return bool(best) and patience <= len(best) - 1 - int(np.argmax(best))

    def step(self) -> dict[str, float]:
        """Train for one epoch and return its record. All randomness is derived from the seed and the epoch.

        Raises:
            DivergenceError: A loss is NaN or infinite.
        """
        method, recipe = self.method, self.method.recipe
        rounding = precision(recipe.precision, method.device)
        with rounding, from_pool(self.pool), seeded(derive(method.seed, "epoch", self.epoch), method.device):
            record = method.world.mean(method.update(self.sources, self.epoch))
        method.world.check_together(method.networks)
        self.epoch += 1
        for name, value in record.items():
            if name.startswith("loss") and not np.isfinite(value):
                raise DivergenceError(f"epoch {self.epoch}: the {name} is {value}; lower lr, now {recipe.lr:g}")
        self._update_average()
        if self.eval_graphs and self.keep_best and (self.epoch % recipe.eval_every == 0 or self.done):
            for alpha, value in self.scores().items():
                record[f"select {alpha:g}"] = value
                if alpha not in self.best or value > self.best[alpha].score:
                    self.best[alpha] = BestState(value, self.epoch, self.weights())
        self._check_collapse(record)
        self.history.append({"epoch": float(self.epoch), **record})
        return record

    def check_weights(self) -> None:
        """Check that the weights can predict. The loss of the last epoch was computed before its last step.

        Raises:
            DivergenceError: A weight is NaN or infinite.
        """
        if not self.method.finite_weights:
            lr = self.method.recipe.lr
            raise DivergenceError(f"epoch {self.epoch}: the weights are no longer finite; lower lr, now {lr:g}")

    def _check_collapse(self, record: dict[str, float]) -> None:
        """Warn once if the mask of a source has collapsed, and mark the epoch."""
        names = collapsed(record)
        if not names or any("collapse" in r for r in self.history):
            return
        record["collapse"] = 1.0
        if self.method.world.first:
            warn(
                f"epoch {self.epoch}: the mask of {', '.join(names)} has collapsed: its original edges keep less than "
                f"2 % of their weight on average; {collapse_advice(self.method.recipe)}",
                CollapseWarning,
            )

    @property
    def _averages(self) -> bool:
        """Whether the weights are averaged at this epoch."""
        recipe = self.method.recipe
        return bool(recipe.average) and self.epoch > int(recipe.average_from * recipe.epochs)

    def _update_average(self) -> None:
        recipe = self.method.recipe
        if not self._averages:
            return
        now = self.method.networks.state_dict()
        if self.average is None:
            self.average = {name: t.detach().clone() for name, t in now.items()}
        else:
            torch._foreach_lerp_(list(self.average.values()), [now[name] for name in self.average], recipe.average)

    def weights(self) -> dict[str, Tensor]:
        """Return a copy of the weights that inference would use now: the averaged ones if the recipe averages."""
        chosen = self.method.networks.state_dict() if self.average is None else self.average
        return {name: t.detach().clone() for name, t in chosen.items()}

    def scores(self) -> dict[float, float]:
        """Return the mean metric over the evaluation graphs for each candidate strength."""
        return self.method.world.on_rank_zero(self._scores)

    def _scores(self) -> dict[float, float]:
        values: dict[float, list[float]] = {alpha: [] for alpha in self.method.recipe.alpha}
        of_labels = thresholded((self.metric,))
        for evaluated in self.eval_graphs:
            for alpha, p in self.probabilities(evaluated, of_labels=of_labels).items():
                values[alpha].append(score((self.metric,), evaluated.graph, p, of_labels=of_labels)[self.metric])
        return {alpha: float(np.mean(own)) for alpha, own in values.items()}

    def probabilities(self, evaluated: EvalGraph, *, of_labels: bool = False) -> dict[float, Array]:
        """Return a graph's class probabilities for each candidate strength, with the weights of `weights`.

        Args:
            evaluated: The graph.
            of_labels: See `edgemask.inference.to_probabilities`.
        """
        method, logits = self.method, self.logits(evaluated)
        return {a: smoothed(method, evaluated.domain, logits, a, of_labels=of_labels) for a in method.recipe.alpha}

    def logits(self, evaluated: EvalGraph) -> Tensor:
        """Return a graph's logits before propagation, with the weights of `weights`."""
        if self.average is None:
            return raw_logits(self.method, evaluated.domain, evaluated.edges)
        now = self.method.networks.state_dict()  # tensors that share the memory of the weights
        names = list(self.average)
        weights, kept = [now[name] for name in names], [now[name].clone() for name in names]
        torch._foreach_copy_(weights, [self.average[name] for name in names])
        try:
            return raw_logits(self.method, evaluated.domain, evaluated.edges)
        finally:
            torch._foreach_copy_(weights, kept)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return everything the next epoch depends on: tensors, and plain numbers."""
        tensors, numbers = self.method.state()
        tensors = {f"method/{k}": v for k, v in tensors.items()}
        for name, t in (self.average or {}).items():
            tensors[f"average/{name}"] = t
        for alpha, best in self.best.items():
            tensors |= {f"best-{alpha!r}/{name}": t for name, t in best.weights.items()}
        best_numbers = {repr(a): [b.score, b.epoch] for a, b in self.best.items()}
        return tensors, {"epoch": self.epoch, "history": self.history, "method": numbers, "best": best_numbers}

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Restore what `state` returned.

        Raises:
            SchemaError: The numbers do not fit the recipe.
            CheckpointError: The tensors do not fit the method, its sources or the numbers.
        """
        check(numbers, self._schema(), "trainer")
        self.epoch, self.history = numbers["epoch"], list(numbers["history"])
        if [record.get("epoch") for record in self.history] != list(range(1, self.epoch + 1)):
            raise SchemaError(f"trainer, history: expected one record for each of {self.epoch} epochs")
        on_device = {name: t.to(self.method.device) for name, t in tensors.items()}
        self.method.load_state(checkpoint.unpack("method", tensors), numbers["method"])
        self.method.check_state(self.sources)
        self.average = checkpoint.unpack("average", on_device) or None
        self.best = {
            float(a): BestState(value, epoch, checkpoint.unpack(f"best-{a}", on_device))
            for a, (value, epoch) in numbers["best"].items()
        }
        if (self.average is not None) != self._averages:
            raise CheckpointError("tensors average/… do not fit the recipe")
        for weights in [self.average or {}] * self._averages + [best.weights for best in self.best.values()]:
            checkpoint.check_tensors(weights, self.method.networks.state_dict())

    def _schema(self) -> Fields:
        """Return the schema of the numbers that `state` returns."""
        recipe, method_numbers = self.method.recipe, self.method.state()[1]
        best = Row((NUMBER, Legal(1, recipe.epochs, whole=True)))
        return Fields(
            {
                "epoch": Legal(0, recipe.epochs, whole=True),
                "history": Items(Table(NUMBER), most=recipe.epochs),
                "method": Fields(dict.fromkeys(method_numbers, Legal())),
                "best": Fields({}, dict.fromkeys(map(repr, recipe.alpha), best)),
            }
        )


def collapse_advice(recipe: Recipe) -> str:
    """Suggest a setting that prevents a collapse and that the recipe does not already use."""
    if recipe.bound == "budget":
        return f"raise rho, now {recipe.rho:g}"
    if not recipe.adversarial:
        return "with adversarial=False only the sparsity term drives the mask: set adversarial=True"
    attention = ", or use gate='attention'" if recipe.backbone == "gat" and recipe.gate == "message" else ""
    return f"bound the adversary with bound='budget'{attention}"
