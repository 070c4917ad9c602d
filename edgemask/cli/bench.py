"""The commands `bench`, `methods` and `version`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from edgemask._version import __version__
from edgemask.cli.common import (
    Candidates,
    DataRoot,
    Device,
    Jobs,
    Offline,
    Ray,
    Settings,
    out,
    split_names,
    wide,
    writable_folder,
)
from edgemask.cli.comparisons import described
from edgemask.cli.completion import BENCHMARK_NAMES, METHOD_NAMES, METHOD_OR_AUTO, RECIPE_NAMES
from edgemask.cli.json_output import Json, output
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
from edgemask.report.comparison import Comparison
from edgemask.report.render import rich_table
from edgemask.report.tables import benchmark_table, failures, with_oracle
from edgemask.runtime.device import resolve_device
from edgemask.training.candidates import AUTO_RECIPE, choose_candidates

app = typer.Typer()


@app.command()
def methods(
    name: Annotated[
        str | None,
        typer.Argument(help="A method. Without it, all methods are listed.", autocompletion=METHOD_NAMES),
    ] = None,
    json: Json = False,
) -> None:
    """List the methods, or the hyper-parameters of one method.

    For every hyper-parameter the table shows its default, its legal values and the range that `edgemask tune` searches.
    """
    with output("methods", json) as result:
        if name is None:
            rows = [_method(key) for key in METHODS]
            result.show({"methods": rows, "hyperparameters": None}, lambda: _print_methods(rows))
        else:
            method_spec(name)
            values = _hyperparameters(name)
            fields = {"methods": [_method(name)], "hyperparameters": values}
            result.show(fields, lambda: _print_method(_method(name), values))


def _method(name: str) -> dict[str, Any]:
    """Return a method as JSON values."""
    spec = METHODS[name]
    about = {"name": name, "description": spec.summary, "citation": spec.citation}
    return about | {"cost": cost_class(name), "status": spec.status}


def _hyperparameters(name: str) -> list[dict[str, Any]]:
    """Return the hyper-parameters of a method as JSON values."""
    spec, rows = METHODS[name], []
    for key, hyper in {**spec.make.hyper, **COMMON}.items():
        own = key in spec.make.hyper
        value = dict(spec.recipe.hyper).get(key, hyper.default) if own else getattr(spec.recipe, key)
        rows.append(
            {
                "name": key,
                "default": value,
                "low": None if hyper.choices else hyper.low,
                "high": None if hyper.choices else hyper.high,
                "choices": list(hyper.choices),
                "law": hyper.law,
                "search": None if hyper.choices else list(hyper.search_range),
                "description": hyper.about,
            }
        )
    return rows


def _print_methods(rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title="methods", title_justify="left")
    for column in ("name", "description", "citation", "cost", "status"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    wide().print(table)
    out.print(
        "cost: training time relative to erm-gcn. `edgemask methods NAME` lists the hyper-parameters of a method.",
        soft_wrap=True,
    )


def _print_method(method: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    text = f"{method['name']}: {method['description']}\n{method['citation']}\nstatus: {method['status']}"
    out.print(text, soft_wrap=True)
    table = Table(title="hyper-parameters", title_justify="left")
    for column in ("name", "default", "legal values", "search range", "description"):
        table.add_column(column, overflow="fold")
    for row in rows:
        value, choices = row["default"], row["choices"]
        legal = ", ".join(choices) if choices else f"{row['low']:g} … {row['high']:g}"
        law = row["law"] if choices else f"{row['law']}, {row['search'][0]:g} … {row['search'][1]:g}"
        table.add_row(
            row["name"], f"{value:g}" if not isinstance(value, str) else value, legal, law, row["description"]
        )
    wide().print(table)


@app.command()
def bench(
    benchmark: Annotated[
        str, typer.Argument(help="A benchmark. `edgemask data list` lists them.", autocompletion=BENCHMARK_NAMES)
    ],
    method: Annotated[
        list[str],
        typer.Option(
            help="`auto`, or a method. `edgemask methods` lists them. Can be repeated.", autocompletion=METHOD_OR_AUTO
        ),
    ] = [AUTO],  # noqa: B006
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Run seeds 0 to SEEDS - 1 (default: as many as the protocol says).")
    ] = None,
    protocol: Annotated[
        list[str] | None, typer.Option(help="Run only this protocol or set of protocols. Can be repeated.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Use the recipe robust, paper or released instead of the method's own.", autocompletion=RECIPE_NAMES
        ),
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
    json: Json = False,
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
    if ray is None:
        resolve_device(device)
    writable_folder(results)
    worker_settings = runner.Settings(data_root, offline or None, device)
    with output("bench", json) as result:
        code = run_tasks([t for own in tasks.values() for t in own], open_store(results), worker_settings, jobs, ray)
        store = ResultStore(results)
        groups = {label: [r for t in own if (r := store.find(t))] for label, own in tasks.items()}
        records = [r for group in groups.values() for r in group]
        missing = {p.name: files for p in protocols if (files := missing_files(source, p, worker_settings.store()))}
        absent = [name for name in missing if name not in {r["protocol"]["name"] for r in records}]
        table = None
        if records:
            title, data = f"{benchmark}: {source.card.title}, percent", worker_settings.store()
            majority = {
                p.name: majority_metrics(p, load_domains(source, p, data, source.options_under(p, options)))
                for p in protocols
                if p.name not in missing
            }
            table = benchmark_table(title, with_oracle(groups), absent, majority=majority)
        fields = {
            "benchmark": benchmark,
            "results": results,
            "records": len(records),
            "table": None if table is None else described(table),
            "failures": {label: failed for label, group in groups.items() if (failed := failures(group))},
            "missing_targets": sorted({name for r in records for name in r["missing"]}),
            "missing_files": {name: missing[name] for name in absent},
        }
        result.show(fields, lambda: _print_bench(fields, table))
    if not records:
        code = code or 1
    if code:
        raise typer.Exit(code)


def _print_bench(fields: Mapping[str, Any], table: Comparison | None) -> None:
    """Print the table of a benchmark, failed runs and missing data."""
    if table is not None:
        wide().print(rich_table(table))
    lines = [f"{label}: {failed}" for label, failed in fields["failures"].items()]
    if targets := fields["missing_targets"]:
        lines.append(f"data not available: {', '.join(targets)}")
    lines += [f"{name}: data not available: {', '.join(files)}" for name, files in fields["missing_files"].items()]
    for line in lines:
        out.print(line, soft_wrap=True)
    if table is None:
        out.print(
            f"no run was possible: `edgemask data fetch {fields['benchmark']}` downloads the data or says where to get "
            "it",
            soft_wrap=True,
        )
    else:
        folder = fields["results"] / fields["benchmark"]
        out.print(f"records: {folder}", soft_wrap=True)


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
def version(json: Json = False) -> None:
    """Print the version."""
    with output("version", json) as result:
        result.show({}, lambda: out.print(__version__))
