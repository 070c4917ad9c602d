"""The command `tune`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from edgemask.cli.common import (
    GRAPH_FORMS,
    DataRoot,
    Device,
    Offline,
    Reading,
    RecipeName,
    Seed,
    Settings,
    check_inputs,
    err,
    reading,
    wide,
    writable_folder,
)
from edgemask.cli.completion import METHOD_NAMES, METRIC_NAMES
from edgemask.cli.json_output import Json, output
from edgemask.config import parse_settings
from edgemask.data import BENCHMARKS, Store
from edgemask.data import benchmark as find
from edgemask.enrich import default_cache
from edgemask.errors import DataError, FileError, InputError
from edgemask.experiments import own
from edgemask.experiments.records import load_domains, missing_files
from edgemask.experiments.tune import Search, Trial, best, source_score
from edgemask.legal import did_you_mean
from edgemask.metrics import parse
from edgemask.protocol import Protocol
from edgemask.runtime.device import resolve_device

app = typer.Typer()
OnTrial = Callable[[int, Trial], None]
Trials = Callable[[OnTrial], list[Trial]]  # runs a search


@app.command()
def tune(
    graphs: Annotated[
        list[str],
        typer.Argument(
            help=f"Labelled graphs, each {GRAPH_FORMS}; or a benchmark, which `edgemask data list` lists.",
            metavar="GRAPH...",
        ),
    ],
    method: Annotated[
        list[str],
        typer.Option(help="A method. `edgemask methods` lists them. Can be repeated.", autocompletion=METHOD_NAMES),
    ],
    trials: Annotated[
        int, typer.Option(min=1, help="Number of trials of each method. The first trial has the default values.")
    ] = 20,
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="With a benchmark: use only this protocol. Can be repeated (default: all)."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="With graphs: the metric (default: micro_f1).", autocompletion=METRIC_NAMES),
    ] = None,
    recipe: RecipeName = None,
    settings: Settings = [],  # noqa: B006
    read: Reading = [],  # noqa: B006
    seed: Seed = 0,
    results: Annotated[Path, typer.Option(help="Folder in which the trials are stored.")] = Path("tuned"),
    device: Device = "auto",
    data_root: DataRoot = None,
    offline: Offline = False,
    json: Json = False,
) -> None:
    """Search hyper-parameters using only the labels of the source graphs.

    With several sources, a trial is scored by leaving out each source in turn. With one source, it is scored on a fifth
    of the labels, which are not used in training. The labels of the target graphs are never used. A trial that is
    already stored is not run again.
    """
    values, options = parse_settings(settings), reading(read)
    for name in method:
        own.tuned_recipe(name, recipe, values)
    resolve_device(device)
    benchmark = graphs[0] if len(graphs) == 1 and graphs[0] in BENCHMARKS else None
    if benchmark is not None:
        if metric is not None or read:
            raise InputError("--metric and --read are for graphs: the protocols of a benchmark have their own metrics")
        protocols = find(benchmark).select_protocols(protocol or ())
    else:
        if protocol:
            raise InputError(f"--protocol needs a benchmark, got {', '.join(graphs)}")
        parse(metric or "micro_f1")
        _check_files(graphs)
    writable_folder(results)
    with output("tune", json) as result:
        searches: list[tuple[str, str, Trials]] = []
        if benchmark is not None:
            store = Store(data_root, offline=offline or None)
            for p in protocols:
                searches += _benchmark_searches(
                    benchmark,
                    p,
                    store,
                    method,
                    recipe,
                    values,
                    seed=seed,
                    trials=trials,
                    results=results,
                    device=device,
                )
        else:
            for name in method:

                def run(on_trial: OnTrial, name: str = name) -> list[Trial]:
                    return own.tune(
                        graphs, name, trials=trials, recipe=recipe, settings=values, seed=seed, results=results,
                        metric=metric or "micro_f1", read=options, device=device, on_trial=on_trial,
                    ).trials  # fmt: skip

                searches.append(("", name, run))
        rows = [_searched(p, name, trials, run) for p, name, run in searches]
        fields = {"benchmark": benchmark, "graphs": [] if benchmark else graphs, "results": results, "searches": rows}
        title = f"{benchmark or ', '.join(graphs)}: best of {trials} trials on the sources"
        result.show(fields, lambda: wide().print(_table(title, rows)))


def _check_files(graphs: Sequence[str]) -> None:
    """Check that graphs exist. A single name may be that of a benchmark."""
    try:
        check_inputs([Path(graph) for graph in graphs])
    except FileError as error:
        near = did_you_mean(graphs[0], BENCHMARKS) if len(graphs) == 1 else ""
        raise FileError(f"{error}, and no benchmark{near}" if len(graphs) == 1 else str(error)) from error


def _benchmark_searches(
    benchmark: str,
    protocol: Protocol,
    store: Store,
    methods: Sequence[str],
    recipe: str | None,
    values: Mapping[str, Any],
    *,
    seed: int,
    trials: int,
    results: Path,
    device: str,
) -> list[tuple[str, str, Trials]]:
    """Return the searches under one protocol of a benchmark.

    Raises:
        DataError: The data of the protocol is not available.
    """
    source = find(benchmark)
    if missing := missing_files(source, protocol, store):
        raise DataError(f"protocol {protocol.name!r}: data not available: {', '.join(missing)}")
    training, _ = protocol.open(load_domains(source, protocol, store, dict(protocol.options)))
    data = {g.name: g.hash for g in training.sources}
    folder = results / benchmark / protocol.name.replace("→", "-to-")
    searches: list[tuple[str, str, Trials]] = []
    for given in methods:
        name, full = own.tuned_recipe(given, recipe, values)
        value = partial(
            source_score, name, training=training, seed=seed, device=resolve_device(device), cache=default_cache()
        )
        search = Search(benchmark, protocol.name, name, full, data, seed)
        searches.append((protocol.name, given, partial(search.run, trials, value, folder / f"{given}-seed{seed}.json")))
    return searches


def _searched(protocol: str, method: str, trials: int, run: Trials) -> dict[str, Any]:
    """Run a search, print its trials, and return its result as JSON values."""

    def print_trial(number: int, trial: Trial) -> None:
        shown = trial.failed or f"{100 * (trial.score or 0):.2f}"
        err.print(f"{method} trial {number + 1} of {trials}: {shown}", soft_wrap=True)

    try:
        done = run(print_trial)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt("interrupted: the trials stay, and the same command continues from here") from error
    top = best(done)
    return {
        "protocol": protocol,
        "method": method,
        "default": done[0].score,
        "best": top.score,
        "settings": top.settings,
        "options": " ".join(
            f"--set {k}={v:.4g}" if isinstance(v, float) else f"--set {k}={v}" for k, v in top.settings.items()
        ),
        "failed": sum(trial.score is None for trial in done),
        "trials": [vars(trial) for trial in done],
    }


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the results of searches as a table."""
    table = Table(title=title, title_justify="left")
    for column in ("protocol", "method", "defaults", "best", "failed", "settings"):
        right = column in ("defaults", "best", "failed")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in rows:
        scores = ["failed" if row[name] is None else f"{100 * row[name]:.2f}" for name in ("default", "best")]
        table.add_row(row["protocol"], row["method"], *scores, str(row["failed"]), row["options"])
    return table
