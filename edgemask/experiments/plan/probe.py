"""The process that measures a few epochs of configurations on given graphs for `plan`.

`python -m edgemask.experiments.plan.probe DEVICE THREADS` reads levels (`plan.standins`) from standard input, one line
of JSON each, and answers each level with one line of JSON on standard output.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

from edgemask.config import Recipe
from edgemask.data import read_graph
from edgemask.enrich import Cache, Declared
from edgemask.errors import EdgemaskError
from edgemask.experiments.plan.standins import enriched_graphs, enrichment_key
from edgemask.graph import Graph
from edgemask.methods.registry import method_spec
from edgemask.methods.sources import Prepared, make_sampler
from edgemask.runtime.atomic import temporary_folder
from edgemask.runtime.device import STATUS, peak_rss
from edgemask.training.candidates import Candidate
from edgemask.training.contender import Contender
from edgemask.training.fit import Fit
from edgemask.training.trainer import Trainer

EPOCHS = 4  # largest number of epochs on a level
ENOUGH = 1.5  # no further epoch starts after this many seconds of epochs


class Stopwatch(Cache):
    """A cache that records in `seconds` how long each kind of array took."""

    def __init__(self, folder: str | Path):
        super().__init__(folder)
        self.seconds: dict[str, float] = {}

    def get(
        self, kind: str, x: Any, parameters: Mapping[str, Any], declared: Declared, compute: Callable[[], Any]
    ) -> Any:
        """Return the array as `Cache.get` does, and record the time.

        Args:
            kind: What the array holds, such as `knn`. It is also the key in `seconds`.
            x: Feature matrix.
            parameters: Settings of the computation.
            declared: Shape, type and range of the array.
            compute: Computes the array when it is not stored.
        """
        start = time.perf_counter()
        array = super().get(kind, x, parameters, declared, compute)
        self.seconds[kind] = time.perf_counter() - start
        return array


class Memory:
    """Peak memory since the last `reset` in MiB: of the process and, if the device is a GPU, of the device."""

    def __init__(self, device: torch.device):
        self.device = device
        if device.type == "cuda":
            torch.cuda.init()  # type: ignore[no-untyped-call]  # statistics can only be reset after it

    def reset(self) -> None:
        """Free unused memory and restart the measurement of the peak."""
        gc.collect()
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc keeps freed memory, unless it is asked
            trim(0)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        if STATUS.exists():
            STATUS.with_name("clear_refs").write_text("5")  # sets VmHWM to the current resident memory

    def peak(self) -> dict[str, float]:
        """Return the peak on the `host` and on the `device`. On a CPU both are the same."""
        host = peak_rss()
        cuda = self.device.type == "cuda"
        return {"host": host, "device": torch.cuda.max_memory_allocated(self.device) / 2**20 if cuda else host}


def seconds(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@dataclass
class Enrichment:
    """The cost of enriching the graphs of a level.

    Attributes:
        graphs: For each enriched graph, its nodes and the seconds of each part.
        peak: Peak memory in MiB, on the `host` and on the `device`.
    """

    graphs: list[dict[str, Any]]
    peak: dict[str, float]


@dataclass
class Level:
    """Prepared graphs and the measured enrichment, which the candidates of a race share on one level.

    Attributes:
        folder: Where enrichment is cached.
        prepared: Prepared graphs, which are kept as in a race.
        enrichments: The measured enrichment by its settings.
    """

    folder: str
    prepared: Prepared = field(init=False)
    enrichments: dict[tuple[Any, ...], Enrichment] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.prepared = Prepared(Cache(self.folder), keep=True)


def measure(method: str, recipe: Recipe, sources: list[Graph], validation: list[Graph], device: torch.device) -> Any:
    """Enrich the graphs, build the trainer of all sources, run a few epochs and score once.

    Args:
        method: Name of a registered method.
        recipe: The settings of the level.
        sources: The source graphs of the level.
        validation: The validation graphs of the level.
        device: The device to compute on.

    Returns:
        JSON values. For each source: `nodes`, `train` (nodes the loss uses), `original` (edges before enrichment),
        `edges` (edges of an epoch), `knn_pairs` and `spectral_pairs`. For each enriched graph: `enrich`, its nodes and
        the seconds of each part. Seconds: `build`, `score`, `round`, and `shared`, the part of an epoch that its rounds
        share. MiB: `peaks`, the peak memory of enrichment and of training.
    """
    memory = Memory(device)
    with temporary_folder("edgemask-probe") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small graphs and short trainings warn; the fit itself will warn if needed
        enrichment = measure_enrichment(recipe, sources, validation, memory, folder)
        memory.reset()
        fit = Fit(method_spec(method).make, recipe, sources, validation, device=device, cache=Cache(folder))
        start = time.perf_counter()
        trainer = fit.trainer(None)
        build = time.perf_counter() - start
        epochs: list[float] = []
        while len(epochs) < EPOCHS and sum(epochs) < ENOUGH:
            epochs.append(seconds(trainer.step))
        score = seconds(trainer.scores) if trainer.eval_graphs else 0.0
        peak = memory.peak()
        return described(sources, [trainer], median(epochs[1:] or epochs), enrichment, peak) | {
            "build": build,
            "score": score,
        }


def measure_candidate(
    method: str, recipe: Recipe, sources: list[Graph], validation: list[Graph], device: torch.device, level: Level
) -> Any:
    """Train a candidate as a race does: all its trainings together, with an evaluation after every epoch.

    Args:
        method: Name of a registered method.
        recipe: The settings of the level. They evaluate after every epoch.
        sources: The source graphs of the level.
        validation: The validation graphs of the level.
        device: The device to compute on.
        level: What candidates share on this level.

    Returns:
        The same values as `measure`, where `build`, `score` and the peak of training are those of all trainings
        together, and `round` and `shared` are those of training on every source once. Also `first`, the seconds of the
        first epoch of all trainings, and `heat`, the seconds to start and end a round: to read the saved state, to save
        it again, to estimate the error of the score, and what the first epoch takes in addition to a later one.
    """
    memory = Memory(device)
    with temporary_folder("edgemask-probe") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        key = enrichment_key(recipe)
        if key not in level.enrichments:
            level.enrichments[key] = measure_enrichment(recipe, sources, validation, memory, level.folder)
        memory.reset()

        def contender() -> Contender:
            return Contender(
                Candidate(method, method_spec(method).make, recipe), sources, validation, metric="micro_f1", seed=0,
                device=device, prepared=level.prepared,
            )  # fmt: skip

        racing, path = contender(), Path(folder) / "state"
        build = seconds(racing.scored_graphs)
        epochs: list[float] = []
        scores: list[float] = []
        while len(epochs) < EPOCHS and sum(epochs) + sum(scores) < ENOUGH:
            stamps = [time.perf_counter()]
            racing.advance(lambda *_: stamps.append(time.perf_counter()))  # noqa: B023
            epochs.append(stamps[-1] - stamps[0])
            scores.append(time.perf_counter() - stamps[-1])
        epoch = median(epochs[1:] or epochs)
        racing.save(path, {})
        peak = memory.peak()
        racing.release_memory()

        def restart() -> None:
            again = contender()
            again.load(path, {})
            again.replicates()
            again.save(path, {})

        heat = seconds(restart) + max(0.0, epochs[0] - epoch)
        return described(sources, racing.trainers, epoch, level.enrichments[key], peak) | {
            "build": build,
            "score": median(scores[1:] or scores),
            "heat": heat,
            "first": epochs[0],
        }


def measure_enrichment(
    recipe: Recipe, sources: list[Graph], validation: list[Graph], memory: Memory, folder: str | Path
) -> Enrichment:
    """Enrich all graphs of a level that a recipe enriches, with a cache in a folder."""
    memory.reset()
    measured = []
    for graph in enriched_graphs(recipe, sources, validation):
        cache = Stopwatch(folder)
        whole = seconds(lambda: make_sampler(recipe, graph, memory.device, cache))  # noqa: B023
        rest = whole - sum(cache.seconds.values())
        measured.append({"nodes": graph.num_nodes, "seconds": {**cache.seconds, "rest": rest}})
    return Enrichment(measured, memory.peak())


def described(
    sources: list[Graph], trainers: Sequence[Trainer], epoch: float, enrichment: Enrichment, peak: dict[str, float]
) -> dict[str, Any]:
    """Return the sizes of a level, and the times and peaks that all measurements have in common.

    Args:
        sources: The source graphs of the level.
        trainers: The trainings that were measured together.
        epoch: Seconds of one epoch of all trainings.
        enrichment: The measured enrichment.
        peak: Peak memory of training.
    """
    times = sum(len(trainer.sources) for trainer in trainers) / len(sources)  # trainings of each source per epoch
    method, rounds, shared = trainers[0].method, 1, 0.0
    if method.recipe.batch_size:
        shared = sum(seconds(lambda: t.method.batches(t.sources, 0)) for t in trainers) / times  # noqa: B023
        rounds = max(t.method.batches(t.sources, 0).rounds for t in trainers)
    by_name = {s.domain.graph.name: s for trainer in trainers for s in trainer.sources}
    prepared = [by_name[g.name] for g in sources]
    return {
        "nodes": [g.num_nodes for g in sources],
        "train": [len(s.train) for s in prepared],
        "original": [g.num_edges for g in sources],
        "edges": [method.sample(s, 0).num_real for s in prepared],
        "knn_pairs": [s.sampler.num_knn_pairs if s.sampler else 0 for s in prepared],
        "spectral_pairs": [s.sampler.num_spectral_pairs if s.sampler else 0 for s in prepared],
        "enrich": enrichment.graphs,
        "shared": shared,
        "round": max(epoch / times - shared, 0.0) / rounds,
        "peaks": [enrichment.peak, peak],
    }


def answer(level: Mapping[str, Any], device: torch.device, shared: dict[str, Level]) -> Any:
    """Measure a level. Candidates of a race that name the same folder share what they prepare there.

    Args:
        level: The level, as `plan.standins` wrote it.
        device: The device to compute on.
        shared: What the candidates of the last folder share. It is updated.
    """
    sources, validation = ([read_graph(path) for path in level[key]] for key in ("sources", "validation"))
    method, recipe, folder = level["method"], Recipe.from_json(level["recipe"]), level["shared"]
    if folder is None:
        return measure(method, recipe, sources, validation, device)
    if folder not in shared:
        shared.clear()
        shared[folder] = Level(folder)
    return measure_candidate(method, recipe, sources, validation, device, shared[folder])


def main(device: str, threads: str) -> None:
    """Answer levels until standard input ends. The first answer, `{}`, says that the process has started.

    If a level fails, the answer is `{"failed": reason}`.
    """
    torch.set_num_threads(int(threads))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # other output goes to standard error, so that it is not taken for an answer
    print("{}", file=answers, flush=True)
    gc.collect()
    gc.freeze()  # the collections before each measurement need not visit what was imported
    shared: dict[str, Level] = {}
    for line in sys.stdin:
        try:
            found = answer(json.loads(line), torch.device(device), shared)
        except Exception as error:
            plain = isinstance(error, EdgemaskError)
            found = {"failed": str(error) if plain else traceback.format_exception_only(error)[-1].strip()}
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
