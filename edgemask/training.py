"""Training one method on sources: epochs, averaged weights, a selection rule by name, exact resume."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgemask import checkpoint
from edgemask.distributed import World, place, processes
from edgemask.enrich import Cache
from edgemask.game import collapsed
from edgemask.graph import Array, Graph, GraphError, collect
from edgemask.inference import raw_logits, reading_domain, reading_edges, to_probabilities
from edgemask.methods.base import Method, Source, make_source, seeded
from edgemask.metrics import score
from edgemask.nn.pages import Pages, from_pages
from edgemask.nn.precision import precision
from edgemask.nn.propagate import propagate
from edgemask.nn.tensors import Domain, Edges
from edgemask.recipe import Recipe
from edgemask.seeds import derive, numpy_stream

ALL = "all sources"  # the name of the last stage of a fit
SOURCE_VAL = 0.2  # share of each source's labelled nodes that `source-val` withholds
INDIFFERENCE = 0.002  # of two strengths closer than this on the selection's metric, the weaker is taken


class DivergenceError(ValueError):
    """Training that has left the numbers: the message names the epoch and the source."""


class CollapseWarning(UserWarning):
    """The adversary has removed all but all of the original edges."""


@dataclass(frozen=True)
class Watched:
    """A graph that is looked at while training goes on, and the edges it is read on. A selection rule scores on its
    labels (`eval` mask respected)."""

    graph: Graph
    domain: Domain
    edges: Edges

    @classmethod
    def of(cls, graph: Graph, method: Method, cache: Cache | None) -> Watched:
        domain = reading_domain(method.recipe, graph, method.device)
        return cls(graph, domain, reading_edges(method.recipe, domain, method.seed, cache))


@dataclass
class Best:
    """The best state seen so far for one propagation strength; the weights are copies."""

    score: float
    epoch: int
    weights: dict[str, Tensor]


@dataclass
class Trainer:
    """One method on its sources, epoch by epoch; `watched` graphs are scored every `eval_every` epochs."""

    method: Method
    sources: Sequence[Source]
    watched: Sequence[Watched] = ()
    metric: str = "micro_f1"
    keep_best: bool = True  # score the watched graphs every few epochs; else only when `scores` is asked
    epoch: int = 0
    average: dict[str, Tensor] | None = None
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[float, Best] = field(default_factory=dict)
    pages: Pages = field(default_factory=Pages)  # of one epoch's arrays on a CPU, for the next

    @property
    def done(self) -> bool:
        return self.epoch >= self.method.recipe.epochs or self.stalled

    @property
    def stalled(self) -> bool:
        """Whether `patience` evaluations in a row have brought no better score."""
        patience = self.method.recipe.patience
        tops = [max(v for k, v in r.items() if k.startswith("select")) for r in self.history if _scored(r)]
        return 0 < patience <= len(tops) - 1 - int(np.argmax(tops)) if tops else False

    def step(self) -> dict[str, float]:
        """One epoch, all its randomness derived from (seed, epoch)."""
        method, recipe = self.method, self.method.recipe
        exactly = precision(recipe.precision, method.device)
        with exactly, from_pages(self.pages), seeded(derive(method.seed, "epoch", self.epoch), method.device):
            record = method.world.mean(method.update(self.sources, self.epoch))
        method.world.check_together(method.networks)
        self.epoch += 1
        for name, value in record.items():
            if name.startswith("loss") and not np.isfinite(value):
                raise DivergenceError(f"epoch {self.epoch}: the {name} is {value}; lower lr, now {recipe.lr:g}")
        self._update_average()
        if self.watched and self.keep_best and (self.epoch % recipe.eval_every == 0 or self.done):
            for alpha, value in self.scores().items():
                record[f"select {alpha:g}"] = value
                if alpha not in self.best or value > self.best[alpha].score:
                    self.best[alpha] = Best(value, self.epoch, self.weights())
        if (names := collapsed(record)) and not any("collapse" in r for r in self.history):
            record["collapse"] = 1.0
            if method.world.first:
                warnings.warn(
                    f"epoch {self.epoch}: the mask of {', '.join(names)} has collapsed, the original edges keep under "
                    f"2 % of their weight on average; {advice(recipe)}",
                    CollapseWarning,
                    stacklevel=2,
                )
        self.history.append({"epoch": float(self.epoch), **record})
        return record

    def _update_average(self) -> None:
        recipe = self.method.recipe
        if not recipe.average or self.epoch <= int(recipe.average_from * recipe.epochs):
            return
        now = self.method.networks.state_dict()
        if self.average is None:
            self.average = {name: t.detach().clone() for name, t in now.items()}
        else:
            torch._foreach_lerp_(list(self.average.values()), [now[name] for name in self.average], recipe.average)

    def weights(self) -> dict[str, Tensor]:
        """A copy of the weights inference would use now: the averaged ones where the recipe averages."""
        chosen = self.method.networks.state_dict() if self.average is None else self.average
        return {name: t.detach().clone() for name, t in chosen.items()}

    def scores(self) -> dict[float, float]:
        """Mean metric over the watched graphs for each candidate strength, under `weights()`."""
        return self.method.world.agreed(self._scores)

    def _scores(self) -> dict[float, float]:
        totals: dict[float, list[float]] = {alpha: [] for alpha in self.method.recipe.alpha}
        for watched in self.watched:
            for alpha, p in self.probabilities(watched).items():
                totals[alpha].append(score((self.metric,), watched.graph, p)[self.metric])
        return {alpha: float(np.mean(values)) for alpha, values in totals.items()}

    def probabilities(self, watched: Watched) -> dict[float, Array]:
        """Class probabilities of a graph for each candidate strength, under `weights()`."""
        method, domain = self.method, watched.domain
        current = {name: t.clone() for name, t in method.networks.state_dict().items()}
        method.networks.load_state_dict(self.weights())
        logits = raw_logits(method, domain, watched.edges)
        method.networks.load_state_dict(current)
        steps = method.recipe.steps
        return {a: to_probabilities(propagate(domain.edges, logits, a, steps)) for a in method.recipe.alpha}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, numbers = self.method.state()
        tensors = {f"method/{k}": v for k, v in tensors.items()}
        for name, t in (self.average or {}).items():
            tensors[f"average/{name}"] = t
        for alpha, best in self.best.items():
            tensors |= {f"best-{alpha!r}/{name}": t for name, t in best.weights.items()}
        best_numbers = {repr(a): [b.score, b.epoch] for a, b in self.best.items()}
        return tensors, {"epoch": self.epoch, "history": self.history, "method": numbers, "best": best_numbers}

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        on_device = {name: t.to(self.method.device) for name, t in tensors.items()}
        self.method.load_state(checkpoint.unpack("method", tensors), numbers["method"])
        self.epoch, self.history = int(numbers["epoch"]), list(numbers["history"])
        self.average = checkpoint.unpack("average", on_device) or None
        self.best = {
            float(a): Best(value, epoch, checkpoint.unpack(f"best-{a}", on_device))
            for a, (value, epoch) in numbers["best"].items()
        }


@dataclass(frozen=True)
class Choice:
    """What selection decided, how, and on what evidence."""

    rule: str
    alpha: float
    epoch: int
    scores: dict[float, float]  # candidate strength → score on the selection's data (empty for `last`)


class Fit:
    """Training under a selection rule.

    `last`                  the final epoch; nothing is chosen
    `source-val`            epoch and strength, on 20 % of each source's labels, withheld from the loss
    `validation`            epoch and strength, on the validation domains
    `leave-one-source-out`  strength, by training on all sources but one and scoring on that one, for each;
                            then all sources are trained on, to the final epoch
    `auto`                  `validation` where there are validation domains, else `leave-one-source-out` where
                            there are two sources, else `source-val`

    With a `checkpoint` path the state is written there every `checkpoint_every` epochs, and a fit that finds
    a checkpoint of the same task continues it; on a CPU the result is the same to the bit.

    Processes that `torchrun` started train together, each on its part of the recipe's `shards`, with the same result
    as one process up to rounding; the first alone calls `on_epoch` and writes.
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
        checkpoint_path: str | Path | None = None,
        checkpoint_every: int = 10,
        on_epoch: Callable[[Trainer, str], None] | None = None,
    ):
        check_sources(sources, validation)
        if checkpoint_every < 1:
            raise ValueError(f"checkpoint_every must be at least 1, got {checkpoint_every}")
        self.make, self.recipe, self.metric, self.seed = make, recipe, metric, seed
        self.device, self.cache, self.world = place(torch.device(device)), cache, World()
        self.sources, self.validation = tuple(sources), tuple(validation)
        self.rule = resolve_rule(recipe, self.sources, self.validation)
        self.path = None if checkpoint_path is None else Path(checkpoint_path)
        self.every, self.on_epoch = checkpoint_every, on_epoch
        # what is still to be trained: a held-out source each, then all of them (None)
        held = [g.name for g in self.sources] if self.rule == "leave-one-source-out" else []
        self.stages: list[str | None] = [*held, None]
        self.held_out: dict[str, dict[str, float]] = {}

    def run(self) -> tuple[Trainer, Choice]:
        """Train to the end; the returned trainer's networks hold the chosen weights."""
        with processes(self.device, self._how_to_go_on()) as self.world:
            self.world.check(self.recipe.shards)
            return self._run()

    def _run(self) -> tuple[Trainer, Choice]:
        resumed, self.held_out = self.world.agreed(self._read_checkpoint)
        for stage in self.stages[len(self.held_out) :]:
            trainer = self._trainer(stage)
            if resumed is not None:
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
        return trainer, self._choose(trainer)

    def _trainer(self, stage: str | None) -> Trainer:
        train = [g for g in self.sources if g.name != stage]
        watch: list[Graph] = [g for g in self.sources if g.name == stage]
        keep = [np.flatnonzero(g.first_labels >= 0) for g in train]
        if self.rule == "validation":
            watch = list(self.validation)
        elif self.rule == "source-val":
            keep, watch = zip(*(withhold(g, self.seed) for g in train), strict=True)  # type: ignore[assignment]
        seed = self.seed if stage is None else derive(self.seed, "without", stage)
        method = self.make(self.recipe, train[0].num_features, train[0].num_classes, seed, self.device)
        method.join(self.world)
        with self.world.in_turn():
            given = zip(train, keep, strict=True)
            sources = [make_source(self.recipe, g, nodes, self.device, self.cache) for g, nodes in given]
            watched = [Watched.of(g, method, self.cache) for g in watch]
        return Trainer(method, sources, watched, self.metric, keep_best=stage is None)

    def _choose(self, trainer: Trainer) -> Choice:
        networks = trainer.method.networks
        if self.rule == "last":
            networks.load_state_dict(trainer.weights())
            return Choice(self.rule, self.recipe.alpha[0], trainer.epoch, {})
        if self.rule == "leave-one-source-out":
            scores = {
                alpha: float(np.mean([held[repr(alpha)] for held in self.held_out.values()]))
                for alpha in self.recipe.alpha
            }
            networks.load_state_dict(trainer.weights())
            return Choice(self.rule, weakest_good(scores), trainer.epoch, scores)
        scores = {alpha: best.score for alpha, best in trainer.best.items()}
        alpha = weakest_good(scores)
        networks.load_state_dict(trainer.best[alpha].weights)
        return Choice(self.rule, alpha, trainer.best[alpha].epoch, scores)

    def _task(self) -> dict[str, Any]:
        """What makes two fits the same; a checkpoint of another task is refused."""
        return {
            "recipe": self.recipe.to_json(),
            "method": getattr(self.make, "__name__", str(self.make)),
            "sources": [[g.name, g.hash] for g in self.sources],
            "validation": [[g.name, g.hash] for g in self.validation],
            "metric": self.metric,
            "seed": self.seed,
        }

    def _how_to_go_on(self) -> str:
        if self.path is None:
            return "nothing was kept: with --checkpoint, the same command again would continue"
        return f"the same command again, with --checkpoint {self.path}, continues from the last state written there"

    def _write_checkpoint(self, trainer: Trainer) -> None:
        if self.path is None:
            return
        tensors, numbers = trainer.state()
        checkpoint.write(
            self.path, "checkpoint", tensors, {"task": self._task(), "held_out": self.held_out, "trainer": numbers}
        )

    def _read_checkpoint(self) -> tuple[tuple[dict[str, Tensor], dict[str, Any]] | None, dict[str, dict[str, float]]]:
        """A trainer's state, if there is one, and the held-out scores of the stages before it."""
        if self.path is None or not self.path.exists():
            return None, {}
        tensors, meta = checkpoint.read(self.path, "checkpoint")
        theirs, ours = _flat(meta["task"]), _flat(self._task())
        for key in theirs | ours:
            if theirs.get(key) != ours.get(key):
                raise checkpoint.CheckpointError(
                    f"{self.path} is a checkpoint of another task: its {key} is {theirs.get(key)}, here {ours.get(key)}"
                )
        return (tensors, meta["trainer"]), meta["held_out"]


def _flat(task: Mapping[str, Any]) -> dict[str, Any]:
    """A task with the recipe's settings one by one."""
    return {k: v for k, v in task.items() if k != "recipe"} | dict(task.get("recipe", {}))


def advice(recipe: Recipe) -> str:
    """What to change against a collapse, of what this recipe has not changed already."""
    if recipe.bound == "budget":
        return f"raise rho, now {recipe.rho:g}"
    if not recipe.adversarial:
        return "with adversarial=False the sparsity term alone drives the mask: set adversarial=True"
    attention = ", or use gate='attention'" if recipe.backbone == "gat" and recipe.gate == "message" else ""
    return f"bound the adversary with bound='budget'{attention}"


def _scored(record: Mapping[str, float]) -> bool:
    return any(key.startswith("select") for key in record)


def resolve_rule(recipe: Recipe, sources: Sequence[Graph], validation: Sequence[Graph]) -> str:
    """The rule a recipe's `select` means for these domains."""
    rule: str = recipe.select
    if rule == "auto":
        rule = "validation" if validation else "leave-one-source-out" if len(sources) > 1 else "source-val"
    if recipe.patience and rule not in ("validation", "source-val"):
        raise ValueError(f"patience needs a rule that scores every few epochs, here the rule is {rule!r}")
    if rule == "validation" and not validation:
        raise ValueError("select = 'validation' needs validation domains, none were given")
    if rule == "leave-one-source-out" and len(sources) < 2:
        raise ValueError(f"select = 'leave-one-source-out' needs at least 2 sources, got {len(sources)}")
    return rule


def check_sources(sources: Sequence[Graph], validation: Sequence[Graph] = ()) -> None:
    """Sources and validation domains fit together, have labels, and more than one class."""
    if not sources:
        raise GraphError("no source graphs given")
    collect([*sources, *validation])
    for graph in (*sources, *validation):
        if graph.y is None or not graph.labelled.any():
            raise GraphError(f"graph {graph.name!r}, y: training needs labels, it has none")
    for graph in sources:
        seen = np.unique(graph.first_labels[graph.first_labels >= 0])
        if len(seen) < 2:
            only = f"every label is {graph.classes[int(seen[0])]!r}" if len(seen) else "no node has a class"
            raise GraphError(f"graph {graph.name!r}, y: {only}; a source needs at least 2 classes")


def withhold(graph: Graph, seed: int) -> tuple[Any, Graph]:
    """Split a source's labelled nodes: the nodes to train on, and the graph with the withheld ones to score on."""
    stream, held = numpy_stream(seed, "source-val", graph.name), np.zeros(graph.num_nodes, dtype=bool)
    for c in range(graph.num_classes):  # class by class, so that both parts have every class they can
        nodes = stream.permutation(np.flatnonzero(graph.first_labels == c))
        held[nodes[: round(SOURCE_VAL * len(nodes))]] = True
    if not held.any():
        raise GraphError(f"graph {graph.name!r}, y: too few labels to withhold a fifth of any class for source-val")
    return np.flatnonzero((graph.first_labels >= 0) & ~held), graph.with_(masks={**graph.masks, "eval": held})


def weakest_good(scores: Mapping[float, float]) -> float:
    """The smallest strength whose score is within a hair of the best: propagation must earn its place."""
    best = max(scores.values())
    return min(alpha for alpha, value in scores.items() if value >= best - INDIFFERENCE)
