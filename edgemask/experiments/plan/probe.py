"""The process that measures a few epochs of a configuration on given graphs for `plan`.

`python -m edgemask.experiments.plan.probe METHOD DEVICE THREADS` reads levels (`plan.standins`) from standard input,
one line of JSON each, and answers each level with one line of JSON on standard output.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch

from edgemask.config import Recipe
from edgemask.data import read_graph
from edgemask.enrich import Cache
from edgemask.experiments.plan.standins import enriched_graphs
from edgemask.graph import Graph
from edgemask.methods.registry import method_spec
from edgemask.methods.sources import make_sampler
from edgemask.runtime.device import STATUS, peak_rss
from edgemask.training.fit import Fit

EPOCHS = 4  # largest number of epochs on a level
ENOUGH = 1.5  # no further epoch starts after this many seconds of epochs


class Stopwatch(Cache):
    """A cache that records in `seconds` how long each kind of array took."""

    def __init__(self, folder: str | Path):
        super().__init__(folder)
        self.seconds: dict[str, float] = {}

    def get(self, kind: str, x: Any, parameters: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """Return the array as `Cache.get` does, and record the time."""
        start = time.perf_counter()
        array = super().get(kind, x, parameters, compute)
        self.seconds[kind] = time.perf_counter() - start
        return array


class Memory:
    """Peak memory since the last `reset` in MiB: of the process and, if the device is a GPU, of the device."""

    def __init__(self, device: torch.device):
        self.device = device
        if device.type == "cuda":
            torch.cuda.init()  # type: ignore[no-untyped-call]  # statistics can only be reset after it

    def reset(self) -> None:
        """Free unused objects and restart the measurement of the peak."""
        gc.collect()
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
    memory.reset()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small graphs and short trainings warn; the fit itself will warn if needed
        enrich = []
        for graph in enriched_graphs(recipe, sources, validation):
            cache = Stopwatch(folder)
            whole = seconds(lambda: make_sampler(recipe, graph, device, cache))  # noqa: B023
            rest = whole - sum(cache.seconds.values())
            enrich.append({"nodes": graph.num_nodes, "seconds": {**cache.seconds, "rest": rest}})
        peaks = [memory.peak()]
        memory.reset()
        fit = Fit(method_spec(method).make, recipe, sources, validation, device=device, cache=Cache(folder))
        start = time.perf_counter()
        trainer = fit.trainer(None)
        build = time.perf_counter() - start
        epochs: list[float] = []
        while len(epochs) < EPOCHS and sum(epochs) < ENOUGH:
            epochs.append(seconds(trainer.step))
        score = seconds(trainer.scores) if trainer.eval_graphs else 0.0
        peaks.append(memory.peak())
        trained, rounds, shared = trainer.method, 1, 0.0
        if recipe.batch_size:
            shared = seconds(lambda: trained.batches(trainer.sources, 0))
            rounds = trained.batches(trainer.sources, 0).rounds
        epoch = median(epochs[1:] or epochs)
        samplers = [s.sampler for s in trainer.sources]
        return {
            "nodes": [g.num_nodes for g in sources],
            "train": [len(s.train) for s in trainer.sources],
            "original": [g.num_edges for g in sources],
            "edges": [trained.sample(s, 0).num_real for s in trainer.sources],
            "knn_pairs": [s.num_knn_pairs if s else 0 for s in samplers],
            "spectral_pairs": [s.num_spectral_pairs if s else 0 for s in samplers],
            "enrich": enrich,
            "build": build,
            "shared": shared,
            "round": max(epoch - shared, 0.0) / rounds,
            "score": score,
            "peaks": peaks,
        }


def main(method: str, device: str, threads: str) -> None:
    """Answer levels until standard input ends. The first answer, `{}`, says that the process has started."""
    torch.set_num_threads(int(threads))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # other output goes to standard error, so that it is not taken for an answer
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        level = json.loads(line)
        sources, validation = ([read_graph(path) for path in level[key]] for key in ("sources", "validation"))
        answer = measure(method, Recipe.from_json(level["recipe"]), sources, validation, torch.device(device))
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
