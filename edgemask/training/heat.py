"""A heat: the part of a race that one process runs for one candidate.

A heat starts from the saved state of its candidate and ends with a new one. It can run in this process, in another one
or on another machine, with the same result.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from edgemask.enrich import Cache
from edgemask.errors import DivergenceError, InputError
from edgemask.graph import Array, Graph
from edgemask.inference import Propagation
from edgemask.methods.sources import Prepared
from edgemask.runtime.atomic import temporary_folder
from edgemask.runtime.device import out_of_memory
from edgemask.runtime.processes import Inline
from edgemask.runtime.threads import threads_for
from edgemask.training.candidates import Candidate
from edgemask.training.contender import SAVE_SECONDS, Contender
from edgemask.training.trainer import Trainer

ENRICHING_SECONDS = 2.5e-4  # rough time to enrich one node on two cores, to decide whether a budget allows it

OnEpoch = Callable[[Trainer, str], None]


@dataclass(frozen=True)
class Task:
    """Everything that all heats of a race have in common.

    Args:
        sources: Labelled graphs to train on.
        validation: Labelled graphs used only for selection.
        metric: The metric to maximise.
        seed: All randomness is derived from it.
        device: Where to train.
        cache: Folder in which enrichment is cached.
    """

    sources: tuple[Graph, ...]
    validation: tuple[Graph, ...]
    metric: str
    seed: int
    device: str
    cache: Path | None

    @property
    def identity(self) -> tuple[Any, ...]:
        """Everything that makes the heats of two races the same, apart from their candidates."""
        hashes = [tuple((g.name, g.hash) for g in graphs) for graphs in (self.sources, self.validation)]
        return *hashes, self.metric, self.seed, self.device


@dataclass(frozen=True)
class Heat:
    """A heat of one candidate.

    Args:
        task: The race.
        candidate: The candidate.
        until: Epoch at which the heat ends. None trains the final model on all sources instead.
        seconds: Time after which the heat ends early, once it has a score.
        first: Time that the first score may take. If it is predicted to take longer, the heat is not run.
        path: File with the state of the candidate, which is updated. None keeps the state in `state` instead.
        state: Content of that file, if the process that runs the heat cannot read it.
    """

    task: Task
    candidate: Candidate
    until: int | None
    seconds: float = math.inf
    first: float = math.inf
    path: Path | None = None
    state: bytes | None = None


@dataclass(frozen=True)
class Result:
    """The result of a heat.

    Attributes:
        score: Best score so far; None if there is none.
        epoch: Epoch of that score.
        propagation: Propagation of that score.
        predictions: N × C class probabilities of the scored graphs at that epoch, by name.
        replicates: Jackknife replicates of that score, by name of the scored graph.
        trained: Epochs trained so far.
        gain: Gain of the best score in the second half of these epochs.
        ended: Whether training has ended before the last epoch, because the score no longer improved.
        seconds: Time of all heats of the candidate so far.
        held: Whether the state holds the weights of the best epoch, so that no final training is needed.
        needs: If the heat was not run because it would have taken too long: predicted seconds until the first score.
        failed: Why the candidate failed; empty if it did not.
        short_of_time: Whether the heat ended early because its time was over.
        state: New content of the state file, if the heat had no path.
        weights: Final weights, after a final heat. They are no tensors, because torch would send those to another
            process through a socket in a folder of temporary files, which stays there if the process is killed.
        numbers: Further numbers of the trained method, after a final heat.
        history: Training history, after a final heat.
    """

    score: float | None = None
    epoch: int = 0
    propagation: Propagation = field(default_factory=Propagation)
    predictions: dict[str, Array] = field(default_factory=dict)
    replicates: dict[str, Array] = field(default_factory=dict)
    trained: int = 0
    gain: float = 0.0
    ended: bool = False
    seconds: float = 0.0
    held: bool = False
    needs: float | None = None
    failed: str = ""
    short_of_time: bool = False
    state: bytes | None = None
    weights: dict[str, Array] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)


@lru_cache(maxsize=1)
def _prepared(graphs: tuple[str, ...], cache: Path | None) -> Prepared:
    """Return the prepared graphs of a race. A process keeps those of one race, so that its heats share them."""
    return Prepared(None if cache is None else Cache(cache), keep=True)


def forget_graphs() -> None:
    """Free the prepared graphs that this process keeps for the next heat."""
    _prepared.cache_clear()


def run_heat(heat: Heat, on_epoch: OnEpoch | None = None) -> Result:
    """Run a heat. If the candidate diverges or does not fit into memory, the result says so.

    Args:
        heat: The heat.
        on_epoch: Called after every epoch with the trainer and the name of its stage.

    Raises:
        Exception: Any error that is not the candidate's, such as a full disk.
    """
    if heat.path is not None:
        return _attempted(heat, heat.path, on_epoch)
    with temporary_folder("edgemask-heat") as folder:
        path = folder / "state"
        if heat.state is not None:
            path.write_bytes(heat.state)
        result = _attempted(heat, path, on_epoch)
        return replace(result, state=path.read_bytes() if path.exists() else None)


class RememberedHeats(Inline):
    """An executor that runs each heat once, in this process, and remembers its result.

    Races on the same graphs with the same seed share the trainings of their candidates. A race finds a training that
    another race has run to the same epoch; it repeats a training only if it has to go on from there.

    Attributes:
        saved: Seconds that the remembered heats took when they were run.
    """

    def __init__(self) -> None:
        # By graphs and candidate, and the epoch at which the heat ends.
        self.results: dict[tuple[tuple[Any, ...], int | None], tuple[Future[Any], float]] = {}
        self.saved = 0.0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a heat, or return the result of the same heat.

        Args:
            fn: `run_heat`.
            *args: The heat. Its time must not be limited.
            **kwargs: Further arguments of `run_heat`.
        """
        heat: Heat = args[0]
        assert heat.seconds == heat.first == math.inf
        assert heat.path is not None
        training, until = (heat.task.identity, heat.candidate), heat.until
        key = training, until
        if key in self.results:
            future, seconds = self.results[key]
            self.saved += seconds
            return future
        start = time.monotonic()
        if until is None and not heat.path.exists():  # all heats before this one were remembered
            fn(replace(heat, until=max(u for own, u in self.results if own == training and u is not None)))
        future = super().submit(fn, heat, **kwargs)
        if future.exception() is None:
            self.results[key] = future, time.monotonic() - start
        return future


def _attempted(heat: Heat, path: Path, on_epoch: OnEpoch | None) -> Result:
    start = time.monotonic()
    try:
        with threads_for((*heat.task.sources, *heat.task.validation)):
            return _run(heat, path, on_epoch)
    except (DivergenceError, InputError, MemoryError, RuntimeError) as error:
        memory = out_of_memory(error)
        if not memory and not isinstance(error, DivergenceError | InputError):
            raise
        return Result(failed="not enough memory" if memory else str(error), seconds=time.monotonic() - start)


def _run(heat: Heat, path: Path, on_epoch: OnEpoch | None) -> Result:
    """Run a heat with its state in a file."""
    task, start = heat.task, time.monotonic()
    prepared = _prepared(tuple(g.hash for g in (*task.sources, *task.validation)), task.cache)
    contender = Contender(
        heat.candidate,
        task.sources,
        task.validation,
        metric=task.metric,
        seed=task.seed,
        device=torch.device(task.device),
        prepared=prepared,
    )
    identity = {"candidate": contender.name, **contender.fit._task()}
    if path.exists():
        contender.load(path, identity)
    if heat.until is None:
        trainer = contender.finish(on_epoch, path.with_name(f"final-{path.name}"), identity)
        weights = {name: t.detach().cpu().numpy() for name, t in trainer.method.networks.state_dict().items()}
        numbers = trainer.method.state()[1]
        return _result(contender, weights=weights, numbers=numbers, history=trainer.history)
    if contender.best is None and heat.first < math.inf:
        needs = 0.0
        if heat.candidate.recipe.enriched and not prepared.has_enriched:
            needs = ENRICHING_SECONDS * sum(g.num_nodes for g in task.sources)
        if needs <= heat.first:
            needs = contender.predict_seconds()
        if needs > heat.first:
            return Result(needs=needs, seconds=contender.seconds)
    short, saved = False, time.monotonic()
    recipe, end = heat.candidate.recipe, start + heat.seconds
    while contender.epoch < heat.until and not contender.ended and not short:
        if contender.best is not None:
            step = contender.seconds / contender.epoch * recipe.eval_every
            short = time.monotonic() + step > end
        if not short:
            contender.advance(on_epoch)
            if time.monotonic() - saved > SAVE_SECONDS:
                contender.save(path, identity)
                saved = time.monotonic()
    contender.save(path, identity)
    contender.release_memory()
    return _result(contender, replicates=contender.replicates(), short_of_time=short)


def _result(contender: Contender, **more: Any) -> Result:
    best = contender.best
    assert best is not None
    return Result(
        best.score,
        best.epoch,
        best.propagation,
        best.predictions,
        trained=contender.epoch,
        gain=contender.gain,
        ended=contender.ended,
        seconds=contender.seconds,
        held=bool(best.weights),
        **more,
    )
