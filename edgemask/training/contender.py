"""One candidate of a race: its trainings, and the best predictions of the graphs that it is scored on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgemask.errors import CheckpointError, SchemaError
from edgemask.graph import Array, Graph
from edgemask.inference import Propagation, propagated
from edgemask.legal import Legal
from edgemask.methods.sources import Prepared
from edgemask.metrics import score
from edgemask.model import PROPAGATION
from edgemask.runtime import checkpoint
from edgemask.runtime.buffers import BufferPool
from edgemask.schema import ANYTHING, COUNT, Fields, Items, Row, check
from edgemask.training.candidates import Candidate
from edgemask.training.fit import ALL, Fit
from edgemask.training.selection import INDIFFERENCE
from edgemask.training.trainer import Trainer
from edgemask.training.uncertainty import replicates

SAVE_SECONDS = 20.0  # time between two saved states of a training
PATIENCE = 20  # evaluations in a row without a better score, after which a training ends

OnEpoch = Callable[[Trainer, str], None]
# The schemas of the numbers of a trainer are those of `Trainer.load_state`.
FINAL = Fields({"task": ANYTHING, "trainer": ANYTHING})
STATE = Fields(
    {
        "task": ANYTHING,
        "epoch": COUNT,
        "seconds": Legal(0),
        "since_best": COUNT,
        "curve": Items(Row((COUNT, Legal())), 1),
        "trainers": Items(ANYTHING),
        "best": Row((Legal(), COUNT, *PROPAGATION.schemas)),
    }
)


@dataclass
class BestEvaluation:
    """The best evaluation of a contender so far.

    Attributes:
        score: Mean metric over the scored graphs.
        epoch: Epoch of the evaluation.
        propagation: How the predictions were propagated.
        predictions: N × C class probabilities by scored graph, in float32.
        weights: The weights, if the training that is scored is the final one.
    """

    score: float
    epoch: int
    propagation: Propagation
    predictions: dict[str, Array]
    weights: dict[str, Tensor]


class Contender:
    """A candidate in training.

    Its trainings (one for each source that is left out, or a single one) advance together and are scored together, so
    that the epoch and the propagation are the best ones on average over all scored graphs.

    Args:
        candidate: The candidate.
        sources: Labelled graphs to train on.
        validation: Labelled graphs used only for selection.
        metric: The metric to maximise.
        seed: Seed of the fit.
        device: Where to train.
        prepared: Source graphs on the device, shared by all contenders.

    Attributes:
        best: The best evaluation; None before the first one.
        epoch: Epochs trained so far.
        seconds: Time spent on training and evaluation.
        curve: Best score so far after each evaluation, by epoch.
    """

    def __init__(
        self,
        candidate: Candidate,
        sources: Sequence[Graph],
        validation: Sequence[Graph],
        *,
        metric: str,
        seed: int,
        device: torch.device,
        prepared: Prepared,
    ):
        self.candidate, self.name = candidate, candidate.name
        self.fit = Fit(
            candidate.make, candidate.recipe, sources, validation, metric=metric, seed=seed, device=device,
            prepared=prepared,
        )  # fmt: skip
        self.rule = self.fit.rule
        # With a rule that scores the final training, that training is the only stage.
        self.stages: list[str | None] = [s for s in self.fit.stages if s is not None] or [None]
        self.trainers: list[Trainer] = []
        self.best: BestEvaluation | None = None
        self.epoch, self.seconds, self.since_best = 0, 0.0, 0
        self.curve: dict[int, float] = {}
        recipe = candidate.recipe
        ways = [Propagation(a, of) for of in ("logits", "probabilities") for a in recipe.alpha if a > 0]
        self.ways = ([Propagation()] if 0.0 in recipe.alpha else []) + ways

    @property
    def ended(self) -> bool:
        """Whether training has ended: all epochs were run, or the score has not improved for a long time."""
        return self.epoch >= self.candidate.recipe.epochs or self.since_best >= PATIENCE

    def predict_seconds(self) -> float:
        """Predict the time until the first evaluation, by training each stage for its first epoch."""
        start = time.monotonic()
        self._open()
        begin = time.monotonic()
        for trainer in self.trainers:
            if trainer.epoch == 0:
                trainer.step()
        self.seconds += time.monotonic() - start
        return (time.monotonic() - begin) * min(self.candidate.recipe.eval_every, self.candidate.recipe.epochs)

    def advance(self, on_epoch: OnEpoch | None = None) -> None:
        """Train until the next evaluation, and evaluate.

        Args:
            on_epoch: Called after every epoch with the trainer and the name of its stage.
        """
        start, every = time.monotonic(), self.candidate.recipe.eval_every
        self._open()
        target = min(self.epoch + every, self.candidate.recipe.epochs)
        for trainer, stage in zip(self.trainers, self.stages, strict=True):
            while trainer.epoch < target:
                trainer.step()
                if on_epoch:
                    on_epoch(trainer, ALL if stage is None else f"without {stage}")
        self.epoch = target
        self._evaluate()
        self.seconds += time.monotonic() - start

    def _open(self) -> None:
        if not self.trainers:
            self.trainers = [self.fit.trainer(stage, keep_best=False) for stage in self.stages]

    def _evaluate(self) -> None:
        """Score all graphs with the current weights, and keep the predictions if they are the best so far."""
        metric, found = self.fit.metric, {}
        graphs = [(trainer, evaluated) for trainer in self.trainers for evaluated in trainer.eval_graphs]
        for trainer, evaluated in graphs:
            logits = trainer.logits(evaluated)
            found[evaluated.graph.name] = propagated(trainer.method, evaluated.domain, logits, self.ways)
        scores = [
            float(np.mean([score((metric,), e.graph, found[e.graph.name][i])[metric] for _, e in graphs]))
            for i in range(len(self.ways))
        ]
        near = [i for i, value in enumerate(scores) if value >= max(scores) - INDIFFERENCE]
        chosen = min(near, key=lambda i: self.ways[i])
        self.since_best += 1
        if self.best is None or scores[chosen] > self.best.score:
            self.since_best = 0
            predictions = {name: own[chosen].astype(np.float32) for name, own in found.items()}
            weights = self.trainers[0].weights() if self.rule.scores_epochs else {}
            self.best = BestEvaluation(scores[chosen], self.epoch, self.ways[chosen], predictions, weights)
        self.curve[self.epoch] = self.best.score

    @property
    def gain(self) -> float:
        """Gain of the best score in the second half of the epochs so far; infinite if there is no earlier score."""
        earlier = [score for epoch, score in self.curve.items() if epoch <= self.epoch / 2]
        return self.curve[self.epoch] - earlier[-1] if earlier else math.inf

    def scored_graphs(self) -> dict[str, Graph]:
        """Return the graphs that the contender is scored on, by name."""
        self._open()
        return {e.graph.name: e.graph for trainer in self.trainers for e in trainer.eval_graphs}

    def replicates(self) -> dict[str, Array]:
        """Return the jackknife replicates of the best score on each scored graph."""
        assert self.best is not None
        graphs = self.scored_graphs()
        return {n: replicates(self.fit.metric, graphs[n], p) for n, p in self.best.predictions.items()}

    def release_memory(self) -> None:
        """Free memory that the next epoch does not need."""
        for trainer in self.trainers:
            trainer.method.release()
            trainer.method.networks.zero_grad(set_to_none=True)
            trainer.pool = BufferPool()

    def finish(
        self, on_epoch: OnEpoch | None = None, path: Path | None = None, task: Mapping[str, Any] | None = None
    ) -> Trainer:
        """Return a trainer whose networks hold the final weights.

        They are the best weights of the training that was scored or, if sources were left out, those of a training on
        all sources that ends at the chosen epoch.

        Args:
            on_epoch: Called after every epoch with the trainer and the name of its stage.
            path: File to save the state of the final training to, and to continue from.
            task: What identifies the training in that file.
        """
        assert self.best is not None
        if self.best.weights:
            self._open()
            trainer = self.trainers[0]
            trainer.method.networks.load_state_dict(self.best.weights)
            return trainer
        trainer = self.fit.trainer(None, keep_best=False)
        if path is not None and path.exists():
            tensors, meta = checkpoint.read(path, "checkpoint", FINAL)
            if meta["task"] != task:
                raise CheckpointError(f"{path} is a checkpoint of another task")
            with checkpoint.unusable(path, "checkpoint"):
                trainer.load_state(tensors, meta["trainer"])
        saved = time.monotonic()
        while trainer.epoch < self.best.epoch:
            trainer.step()
            if on_epoch:
                on_epoch(trainer, ALL)
            if path is not None and time.monotonic() - saved > SAVE_SECONDS:
                saved, (tensors, numbers) = time.monotonic(), trainer.state()
                checkpoint.write(path, "checkpoint", tensors, {"task": task, "trainer": numbers})
        trainer.method.networks.load_state_dict(trainer.weights())
        trainer.check_weights()
        return trainer

    def save(self, path: Path, task: Mapping[str, Any]) -> None:
        """Write the state after an evaluation to a file, from which `load` continues exactly."""
        assert self.best is not None
        tensors: dict[str, Tensor] = {}
        numbers: dict[str, Any] = {
            "task": dict(task), "epoch": self.epoch, "seconds": self.seconds, "since_best": self.since_best,
            "curve": list(self.curve.items()), "trainers": [],
        }  # fmt: skip
        for i, trainer in enumerate(self.trainers):
            own, plain = trainer.state()
            tensors |= {f"trainer-{i}/{name}": t for name, t in own.items()}
            numbers["trainers"].append(plain)
        how = self.best.propagation
        numbers["best"] = [self.best.score, self.best.epoch, how.alpha, how.of]
        tensors |= {f"best-weights/{name}": t for name, t in self.best.weights.items()}
        tensors |= {f"best-predictions/{n}": torch.from_numpy(p) for n, p in self.best.predictions.items()}
        checkpoint.write(path, "contender", tensors, numbers)

    def load(self, path: Path, task: Mapping[str, Any]) -> None:
        """Restore the state that `save` wrote.

        Raises:
            CheckpointError: The file is damaged, or holds the state of another task.
        """
        tensors, numbers = checkpoint.read(path, "contender", STATE)
        if numbers["task"] != dict(task):
            raise CheckpointError(f"{path} is a checkpoint of another task")
        with checkpoint.unusable(path, "contender"):
            self._load(tensors, numbers)

    def _load(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        self._open()
        check(numbers["trainers"], Items(ANYTHING, len(self.trainers), len(self.trainers)), "trainers")
        for i, (trainer, plain) in enumerate(zip(self.trainers, numbers["trainers"], strict=True)):
            trainer.load_state(checkpoint.unpack(f"trainer-{i}", tensors), plain)
        self.epoch, self.seconds, self.since_best = numbers["epoch"], numbers["seconds"], numbers["since_best"]
        self.curve = dict(numbers["curve"])
        if {trainer.epoch for trainer in self.trainers} != {self.epoch}:
            raise SchemaError(f"epoch: the trainings have ended at other epochs than {self.epoch}")
        value, epoch, alpha, of = numbers["best"]
        if max(self.curve) != self.epoch or epoch not in self.curve or Propagation(alpha, of) not in self.ways:
            raise SchemaError("best: expected an evaluated epoch, and a propagation of the recipe")
        predictions, graphs = checkpoint.unpack("best-predictions", tensors), self.scored_graphs()
        checkpoint.check_tensors(predictions, {n: torch.empty(g.num_nodes, g.num_classes) for n, g in graphs.items()})
        weights = checkpoint.unpack("best-weights", tensors)
        checkpoint.check_tensors(
            weights, self.trainers[0].method.networks.state_dict() if self.rule.scores_epochs else {}
        )
        on_device = {n: t.to(self.fit.device) for n, t in weights.items()}
        arrays = {n: t.numpy() for n, t in predictions.items()}
        self.best = BestEvaluation(value, epoch, Propagation(alpha, of), arrays, on_device)
