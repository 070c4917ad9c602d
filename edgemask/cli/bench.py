"""`edgemask bench`, `methods`, `demo`, `version`: runs on the built-in benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from edgemask._version import __version__
from edgemask.cli.common import DataRoot, Device, Jobs, Offline, Ray, Seed, Settings, out, pairs, wide
from edgemask.cli.demo import run_demo
from edgemask.cli.running import open_store, run_tasks
from edgemask.config import COMMON
from edgemask.data import benchmark as find_benchmark
from edgemask.experiments import runner
from edgemask.experiments.records import ResultStore, missing_files
from edgemask.experiments.run import Run
from edgemask.methods.registry import METHODS, cost_class, method_spec
from edgemask.report.render import rich_table
from edgemask.report.tables import benchmark_table, failures, with_oracle

app = typer.Typer()


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Show one method with its hyper-parameters.")] = None,
) -> None:
    """List the methods, or one method's hyper-parameters: default, legal range, search law."""

    if name is None:
        table = Table(title="methods", title_justify="left")
        for column in ("name", "what", "citation", "cost", "status"):
            table.add_column(column, overflow="fold")
        for known, found in METHODS.items():
            table.add_row(known, found.summary, found.citation, cost_class(known), found.status)
        wide().print(table)
        out.print(
            "cost: training time relative to erm-gcn; `edgemask methods NAME` shows hyper-parameters", soft_wrap=True
        )
        return
    found = method_spec(name)
    out.print(
        escape(f"{name}: {found.summary}\n{found.citation}\nstatus: {found.status}"), highlight=False, soft_wrap=True
    )
    table = Table(title="hyper-parameters", title_justify="left")
    for column in ("name", "default", "legal", "search", "what"):
        table.add_column(column, overflow="fold")
    for key, hyper in {**found.make.hyper, **COMMON}.items():
        low, high = hyper.search_range
        legal = ", ".join(hyper.choices) if hyper.choices else f"{hyper.low:g} … {hyper.high:g}"
        law = hyper.law if hyper.choices else f"{hyper.law}, {low:g} … {high:g}"
        own = key in found.make.hyper
        value = dict(found.recipe.hyper).get(key, hyper.default) if own else getattr(found.recipe, key)
        table.add_row(key, f"{value:g}" if not isinstance(value, str) else value, legal, law, hyper.about)
    wide().print(table)


@app.command()
def bench(
    benchmark: Annotated[str, typer.Argument(help="A benchmark (`edgemask data list`).")],
    method: Annotated[list[str], typer.Option(help="A method (`edgemask methods`). Repeatable.")],
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds, from 0 [default: the protocol's].")] = None,
    protocol: Annotated[list[str] | None, typer.Option(help="Run only this protocol. Repeatable.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Use a stock recipe instead of the method's own.")] = None,
    settings: Settings = [],  # noqa: B006
    option: Annotated[
        list[str], typer.Option(metavar="NAME=VALUE", help="An option of the benchmark. Repeatable.")
    ] = [],  # noqa: B006
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Also show the epoch and strength that are best on the target.")
    ] = False,
    results: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("results"),
    jobs: Jobs = None,
    ray: Ray = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    offline: Offline = False,
) -> None:
    """Run methods on a benchmark and print a table.

    Every run leaves one record. A run that has a record is not run again.
    """
    source, options = find_benchmark(benchmark), pairs(option)
    source.check_options(options)
    protocols = [source.protocol(name) for name in protocol] if protocol else source.protocols
    recipes = {name: method_spec(name).under(recipe, **pairs(settings)) for name in method}
    labels = {n: n + (f" ({recipe})" if recipe else "") + "".join(f" {s}" for s in settings) for n in method}
    tasks = {
        label: [
            Run(benchmark, {**source.options, **options}, p, name, recipes[name], seed, ("oracle",) if oracle else ())
            for p in protocols
            for seed in range(seeds or p.repeats)
        ]
        for name, label in labels.items()
    }
    where = runner.Settings(data_root, offline or None, device)
    code = run_tasks([t for own in tasks.values() for t in own], open_store(results), where, jobs, ray)
    store = ResultStore(results)
    groups = {label: [r for t in own if (r := store.find(t))] for label, own in tasks.items()}
    records = [r for group in groups.values() for r in group]
    missing = {p.name: files for p in protocols if (files := missing_files(source, p, where.store()))}
    absent = [name for name in missing if name not in {r["protocol"]["name"] for r in records}]
    if records:
        title = f"{benchmark}: {source.card.title}, percent"
        wide().print(rich_table(benchmark_table(title, with_oracle(groups), absent)))
    for label, group in groups.items():
        if failed := failures(group):
            out.print(escape(f"{label}: {failed}"), highlight=False, soft_wrap=True)
    if targets := sorted({name for r in records for name in r["missing"]}):
        out.print(escape(f"data not available: {', '.join(targets)}"), highlight=False, soft_wrap=True)
    for name in absent:
        out.print(escape(f"{name}: data not available: {', '.join(missing[name])}"), highlight=False, soft_wrap=True)
    if not records:
        out.print(f"nothing was run: `edgemask data fetch {benchmark}` says where each file comes from", soft_wrap=True)
        raise typer.Exit(code or 1)
    out.print(f"records: {results / benchmark}", markup=False, highlight=False, soft_wrap=True)
    if code:
        raise typer.Exit(code)


@app.command()
def demo(
    picture: Annotated[Path, typer.Option(help="File of the picture.")] = Path("out/demo.png"),
    seed: Seed = 0,
) -> None:
    """Train on two synthetic graphs and test on a third, whose wiring is different.

    Compares EdgeMask-DG* with an MLP and a GCN.
    """
    run_demo(wide(), picture, seed)


@app.command()
def version() -> None:
    """Print the version."""
    out.print(__version__, highlight=False)
