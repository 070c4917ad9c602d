"""`Fit`: train one method under a selection rule, with checkpoints and exact resume."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgemask._version import __version__
from edgemask.config import Recipe
from edgemask.enrich import Cache
from edgemask.errors import CheckpointError, InputError, SchemaError
from edgemask.graph import Graph
from edgemask.methods.base import Method
from edgemask.methods.sources import Prepared
from edgemask.runtime import checkpoint
from edgemask.runtime.distributed import World, place, processes
from edgemask.runtime.threads import threads_for
from edgemask.schema import ANYTHING, NUMBER, Fields, Table, check, short
from edgemask.seeds import derive
from edgemask.training.selection import Choice, check_sources, resolve_rule
from edgemask.training.trainer import EvalGraph, Trainer

ALL = "all sources"  # name of the stage that trains on all sources
TASK = Fields({"recipe": Table(ANYTHING)}, others=True)
STATE = Fields({"task": TASK, "held_out": Table(Table(NUMBER)), "trainer": ANYTHING})  # `Trainer` has its schema


class Fit:
    """Training of one method under a selection rule.

    With a checkpoint path, the state is written every `checkpoint_every` epochs, and a fit that finds a checkpoint of
    the same task continues it. On a CPU the result is the same to the bit.

    Processes started by `torchrun` train together: each takes its part of the recipe's `shards`, and the result is
    that of one process up to rounding. Only the first process calls `on_epoch` and writes files.

    Args:
        make: Class of the method.
        recipe: All settings. `recipe.select` names the selection rule (`edgemask.training.selection`).
        sources: Labelled graphs to train on.
        validation: Labelled graphs used only for selection.
        metric: Metric that selection maximises.
        seed: All randomness is derived from it.
        device: Where to train.
        cache: Where enrichment is cached.
        prepared: Prepared source graphs to share with other fits on the same device.
        checkpoint_path: File to write checkpoints to, and to continue from.
        checkpoint_every: Epochs between two checkpoints.
        on_epoch: Called after every epoch with the trainer and the name of the stage.
        one_class: Accept sources in which all nodes have the same class.

    Raises:
        GraphError: The graphs do not fit together or have no labels.
        InputError: The selection rule cannot be used with these graphs.
    """

    def __init__(
        self,
        make: Callable[[Recipe, int, int, int, torch.device], Method],
        recipe: Recipe,
        sources: Sequence[Graph],
        validation: Sequence[Graph] = (),
        *,
        metric: str = "micro_f1",
        seed: int = 0,
        device: str | torch.device = "cpu",
        cache: Cache | None = None,
        prepared: Prepared | None = None,
        checkpoint_path: str | Path | None = None,
        checkpoint_every: int = 10,
        on_epoch: Callable[[Trainer, str], None] | None = None,
        one_class: bool = False,
    ):
        check_sources(sources, validation, one_class=one_class)
        if checkpoint_every < 1:
            raise InputError(f"checkpoint_every must be at least 1, got {checkpoint_every}")
        self.make, self.recipe, self.metric, self.seed = make, recipe, metric, seed
        self.device, self.world = place(torch.device(device)), World()
        self.prepared = Prepared(cache) if prepared is None else prepared
        self.sources, self.validation = tuple(sources), tuple(validation)
        self.rule = resolve_rule(recipe, self.sources, self.validation)
        self.path = None if checkpoint_path is None else Path(checkpoint_path)
        self.every, self.on_epoch = checkpoint_every, on_epoch
        self.stages = self.rule.stages(self.sources)
        self.held_out: dict[str, dict[str, float]] = {}  # as JSON: strengths are written by `repr`

    def run(self) -> tuple[Trainer, Choice]:
        """Train to the end.

        Returns:
            The trainer of the last stage, whose networks hold the chosen weights, and what was chosen.
        """
        with self._threads(), processes(self.device, self._how_to_continue()) as self.world:
            self.world.check(self.recipe.shards)
            trainer = self._run(self.stages)
            choice = self.rule.choose(trainer, self.held_out_scores())
            trainer.check_weights()
            return trainer, choice

    def run_held_out(self) -> dict[str, dict[float, float]]:
        """Run only the stages that leave a source out, and return their scores by source and strength."""
        with self._threads(), processes(self.device, self._how_to_continue()) as self.world:
            self.world.check(self.recipe.shards)
            self._run([stage for stage in self.stages if stage is not None])
            return self.held_out_scores()

    def _threads(self) -> AbstractContextManager[None]:
        return threads_for((*self.sources, *self.validation))

    def held_out_scores(self) -> dict[str, dict[float, float]]:
        """Return the scores of the stages that have ended, by held-out source and strength."""
        return {name: {float(a): v for a, v in scores.items()} for name, scores in self.held_out.items()}

    def trainer(self, stage: str | None, *, keep_best: bool | None = None) -> Trainer:
        """Build the trainer of a stage.

        Args:
            stage: Name of the source to leave out; None for all sources.
            keep_best: Whether the trainer scores itself. By default only the trainer on all sources does.
        """
        split = self.rule.split(self.sources, self.validation, stage, self.seed)
        seed = self.seed if stage is None else derive(self.seed, "without", stage)
        first = split.train[0]
        method = self.make(self.recipe, first.num_features, first.num_classes, seed, self.device)
        method.attach(self.world)
        with self.world.rank_zero_first():
            pairs = zip(split.train, split.nodes, strict=True)
            sources = [self.prepared.source(self.recipe, g, nodes, self.device) for g, nodes in pairs]
            domains = [self.prepared.reading(self.recipe, g, self.device) for g in split.score_on]
            scored = [EvalGraph.of(d, method, self.prepared.cache) for d in domains]
        keep = stage is None if keep_best is None else keep_best
        return Trainer(method, sources, scored, self.metric, keep_best=keep)

    def _run(self, stages: Sequence[str | None]) -> Trainer:
        resumed, self.held_out = self.world.on_rank_zero(self._read_checkpoint)
        for stage in stages[len(self.held_out) :]:
            trainer = self.trainer(stage)
            if resumed is not None:
                with checkpoint.unusable(self.path or "", "checkpoint"):
                    trainer.load_state(*resumed)
                resumed = None
            while not trainer.done:
                trainer.step()
                if self.on_epoch and self.world.first:
                    self.on_epoch(trainer, ALL if stage is None else f"without {stage}")
                if self.path and self.world.first and (trainer.epoch % self.every == 0 or trainer.done):
                    self._write_checkpoint(trainer)
            trainer.method.release()
            if stage is not None:
                self.held_out[stage] = {repr(a): v for a, v in trainer.scores().items()}
        return trainer

    def _task(self) -> dict[str, Any]:
        """Return everything that makes two fits the same. A checkpoint of another task is refused."""
        return {
            "version": __version__,
            "recipe": self.recipe.to_json(),
            "method": getattr(self.make, "__name__", str(self.make)),
            "sources": [[g.name, g.hash] for g in self.sources],
            "validation": [[g.name, g.hash] for g in self.validation],
            "metric": self.metric,
            "seed": self.seed,
        }

    def _how_to_continue(self) -> str:
        if self.path is None:
            return "nothing was saved: with --checkpoint, the same command would continue"
        return f"run the same command with --checkpoint {self.path} to continue from the last state written there"

    def _write_checkpoint(self, trainer: Trainer) -> None:
        if self.path is None:
            return
        tensors, numbers = trainer.state()
        checkpoint.write(
            self.path, "checkpoint", tensors, {"task": self._task(), "held_out": self.held_out, "trainer": numbers}
        )

    def _read_checkpoint(self) -> tuple[tuple[dict[str, Tensor], dict[str, Any]] | None, dict[str, dict[str, float]]]:
        """Return a trainer's state, if there is one, and the held-out scores of the stages before it."""
        if self.path is None or not self.path.exists():
            return None, {}
        tensors, meta = checkpoint.read(self.path, "checkpoint", STATE)
        theirs, ours = _flatten(meta["task"]), _flatten(self._task())
        for key, own in ours.items():
            if (other := theirs.get(key)) != own:
                raise CheckpointError(
                    f"{self.path} is a checkpoint of another task: its {key} is {short(other)}, here {short(own)}"
                )
        with checkpoint.unusable(self.path, "checkpoint"):
            ended = self.stages[: len(meta["held_out"])]
            scores = Fields(dict.fromkeys(map(repr, self.recipe.alpha), NUMBER))
            check(meta["held_out"], Fields(dict.fromkeys(map(str, ended), scores)), "held_out")
            if len(ended) == len(self.stages):
                raise SchemaError("held_out: all stages have ended, and none is left to continue")
        return (tensors, meta["trainer"]), {str(stage): meta["held_out"][stage] for stage in ended}


def _flatten(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task with the recipe's settings as entries of their own."""
    return {k: v for k, v in task.items() if k != "recipe"} | dict(task.get("recipe", {}))
