"""The commands `bench`, `methods`, `demo` and `version`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from edgemask._version import __version__
from edgemask.cli.common import Candidates, DataRoot, Device, Jobs, Offline, Ray, Seed, Settings, out, split_names, wide
from edgemask.cli.demo import run_demo
from edgemask.cli.running import open_store, run_tasks
from edgemask.config import COMMON, parse_settings
from edgemask.data import benchmark as find_benchmark
from edgemask.errors import InputError
from edgemask.estimator import AUTO
from edgemask.experiments import runner
from edgemask.experiments.auto import AutoRun
from edgemask.experiments.majority import majority_metrics
from edgemask.experiments.records import ResultStore, Task, load_domains, missing_files
from edgemask.experiments.run import Run
from edgemask.methods.registry import METHODS, cost_class, method_spec
from edgemask.protocol import Protocol
from edgemask.report.render import rich_table
from edgemask.report.tables import benchmark_table, failures, with_oracle
from edgemask.training.candidates import AUTO_RECIPE, choose_candidates

app = typer.Typer()


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="A method. Without it, all methods are listed.")] = None,
) -> None:
    """List the methods, or the hyper-parameters of one method.

    For every hyper-parameter the table shows its default, its legal values and the range that `edgemask tune` searches.
    """
    if name is None:
        table = Table(title="methods", title_justify="left")
        for column in ("name", "description", "citation", "cost", "status"):
            table.add_column(column, overflow="fold")
        for key, spec in METHODS.items():
            table.add_row(key, spec.summary, spec.citation, cost_class(key), spec.status)
        wide().print(table)
        out.print(
            "cost: training time relative to erm-gcn. `edgemask methods NAME` lists the hyper-parameters of a method.",
            soft_wrap=True,
        )
        return
    spec = method_spec(name)
    out.print(
        escape(f"{name}: {spec.summary}\n{spec.citation}\nstatus: {spec.status}"), highlight=False, soft_wrap=True
    )
    table = Table(title="hyper-parameters", title_justify="left")
    for column in ("name", "default", "legal values", "search range", "description"):
        table.add_column(column, overflow="fold")
    for key, hyper in {**spec.make.hyper, **COMMON}.items():
        low, high = hyper.search_range
        legal = ", ".join(hyper.choices) if hyper.choices else f"{hyper.low:g} … {hyper.high:g}"
        law = hyper.law if hyper.choices else f"{hyper.law}, {low:g} … {high:g}"
        own = key in spec.make.hyper
        value = dict(spec.recipe.hyper).get(key, hyper.default) if own else getattr(spec.recipe, key)
        table.add_row(key, f"{value:g}" if not isinstance(value, str) else value, legal, law, hyper.about)
    wide().print(table)


@app.command()
def bench(
    benchmark: Annotated[str, typer.Argument(help="A benchmark. `edgemask data list` lists them.")],
    method: Annotated[
        list[str],
        typer.Option(help="`auto`, or a method. `edgemask methods` lists them. Can be repeated."),
    ] = [AUTO],  # noqa: B006
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Run seeds 0 to SEEDS - 1 (default: as many as the protocol says).")
    ] = None,
    protocol: Annotated[
        list[str] | None, typer.Option(help="Run only this protocol or set of protocols. Can be repeated.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Use the recipe robust, paper or released instead of the method's own.")
    ] = None,
    settings: Settings = [],  # noqa: B006
    option: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUE", help="Set an option of the benchmark (`edgemask data info`). Can be repeated."
        ),
    ] = [],  # noqa: B006
    candidates: Candidates = None,
    oracle: Annotated[
        bool,
        typer.Option(
            "--oracle",
            help="Also show the score of the epoch and propagation strength that are best on the target graph.",
        ),
    ] = False,
    results: Annotated[Path, typer.Option(help="Folder in which the records are stored.")] = Path("results"),
    jobs: Jobs = None,
    ray: Ray = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    offline: Offline = False,
) -> None:
    """Run methods on a benchmark and print a table.

    Every run is stored as one record. A run that already has a record is not run again.
    """
    source, options = find_benchmark(benchmark), parse_settings(option)
    source.check_options(options)
    protocols = source.select_protocols(protocol or ())
    also = ("oracle",) if oracle else ()
    makers = {name: _task_maker(name, recipe, settings, candidates, also) for name in method}
    labels = {n: n + (f" ({recipe})" if recipe else "") + "".join(f" {s}" for s in settings) for n in method}
    tasks = {
        label: [
            makers[name](benchmark, source.options_under(p, options), p, seed)
            for p in protocols
            for seed in range(seeds or p.repeats)
        ]
        for name, label in labels.items()
    }
    worker_settings = runner.Settings(data_root, offline or None, device)
    code = run_tasks([t for own in tasks.values() for t in own], open_store(results), worker_settings, jobs, ray)
    store = ResultStore(results)
    groups = {label: [r for t in own if (r := store.find(t))] for label, own in tasks.items()}
    records = [r for group in groups.values() for r in group]
    missing = {p.name: files for p in protocols if (files := missing_files(source, p, worker_settings.store()))}
    absent = [name for name in missing if name not in {r["protocol"]["name"] for r in records}]
    if records:
        title, data = f"{benchmark}: {source.card.title}, percent", worker_settings.store()
        majority = {
            p.name: majority_metrics(p, load_domains(source, p, data, source.options_under(p, options)))
            for p in protocols
            if p.name not in missing
        }
        wide().print(rich_table(benchmark_table(title, with_oracle(groups), absent, majority=majority)))
    for label, group in groups.items():
        if failed := failures(group):
            out.print(escape(f"{label}: {failed}"), highlight=False, soft_wrap=True)
    if targets := sorted({name for r in records for name in r["missing"]}):
        out.print(escape(f"data not available: {', '.join(targets)}"), highlight=False, soft_wrap=True)
    for name in absent:
        out.print(escape(f"{name}: data not available: {', '.join(missing[name])}"), highlight=False, soft_wrap=True)
    if not records:
        out.print(
            f"no run was possible: `edgemask data fetch {benchmark}` downloads the data or says where to get it",
            soft_wrap=True,
        )
        raise typer.Exit(code or 1)
    out.print(f"records: {results / benchmark}", markup=False, highlight=False, soft_wrap=True)
    if code:
        raise typer.Exit(code)


def _task_maker(
    method: str, recipe: str | None, settings: Sequence[str], candidates: str | None, also: tuple[str, ...]
) -> Callable[[str, Mapping[str, Any], Protocol, int], Task]:
    """Return a function that makes the tasks of a method: (benchmark, options, protocol, seed) → task.

    Raises:
        InputError: The method, the recipe, a candidate or a setting is not legal, or they do not go together.
    """
    values = parse_settings(settings)
    if method != AUTO:
        own = method_spec(method).under(recipe, **values)
        return lambda where, options, protocol, seed: Run(where, options, protocol, method, own, seed, also)
    if recipe is not None or also:
        raise InputError("method auto takes neither --recipe nor --oracle")
    names = tuple(c.name for c in choose_candidates(split_names(candidates), [], **values))
    shared = AUTO_RECIPE.replace(**values)
    return lambda where, options, protocol, seed: AutoRun(where, options, protocol, seed, shared, names)


@app.command()
def demo(
    picture: Annotated[Path, typer.Option(help="Where to write the picture.")] = Path("out/demo.png"),
    seed: Seed = 0,
) -> None:
    """Train on two synthetic graphs and test on a third.

    The graphs have the same classes but different edges. EdgeMask-DG* is compared with an MLP and a GCN.
    """
    run_demo(wide(), picture, seed)


@app.command()
def version() -> None:
    """Print the version."""
    out.print(__version__, highlight=False)
