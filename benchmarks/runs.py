"""One whole run of the default recipe on a citation transfer, as in `edgemask bench citation`."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from benchmarks.common import Figures, Setup, isolated, peaks
from edgemask.data import Store, benchmark
from edgemask.enrich import Cache
from edgemask.experiments.records import load_domains
from edgemask.experiments.run import Run, execute
from edgemask.methods.registry import method_spec

TRANSFER, METHOD = "AC→D", "edgemask-dg-star"


def part(setup: Setup) -> Figures:
    """Measure the run in a new process."""
    return isolated(setup, whole)


def whole(setup: Setup) -> Figures:
    """Measure enrichment, leave-one-source-out selection, training and prediction. The cache is empty at the start."""
    source = benchmark("citation")
    protocol = source.protocol(TRANSFER)
    domains = load_domains(source, protocol, Store(setup.data_root, offline=True), {})
    run = Run("citation", dict(source.options), protocol, METHOD, method_spec(METHOD).under(None), 0)
    warm_up = replace(run, recipe=run.recipe.replace(epochs=4))  # for loading, compiling and capturing on first use
    execute(warm_up, domains, device=setup.where, cache=Cache(Path(setup.folder) / "first"))
    with peaks(setup.where) as peak:
        start = time.perf_counter()
        record = execute(run, domains, device=setup.where, cache=Cache(Path(setup.folder) / "run"))
        seconds = time.perf_counter() - start
    (metrics,) = record["metrics"].values()
    return {
        "transfer": TRANSFER,
        "recipe": "robust",
        "seconds": seconds,
        "peak": peak,
        "rule": record["select"]["rule"],
        "metrics": metrics,
    }
