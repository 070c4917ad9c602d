"""`edgemask methods`, `bench`, `demo`: runs under a benchmark's protocols."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from edgemask.cli.common import (
    DataRoot,
    Device,
    Offline,
    Seed,
    Settings,
    err,
    out,
    pairs,
    progress,
    wide,
)

app = typer.Typer()


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Show one method with its hyper-parameters.")] = None,
) -> None:
    """List the methods, or one method's hyper-parameters: default, legal range, search law."""
    from edgemask.methods.hyper import COMMON
    from edgemask.methods.registry import METHODS, cost_class, entry

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
    found = entry(name)
    out.print(
        escape(f"{name}: {found.summary}\n{found.citation}\nstatus: {found.status}"), highlight=False, soft_wrap=True
    )
    table = Table(title="hyper-parameters", title_justify="left")
    for column in ("name", "default", "legal", "search", "what"):
        table.add_column(column, overflow="fold")
    for key, hyper in {**found.make.hyper, **COMMON}.items():
        low, high = hyper.search or (hyper.low, hyper.high)
        legal = ", ".join(hyper.choices) if hyper.choices else f"{hyper.low:g} … {hyper.high:g}"
        law = hyper.law if hyper.choices else f"{hyper.law}, {low:g} … {high:g}"
        own = key in found.make.hyper
        value = dict(found.recipe.hyper).get(key, hyper.default) if own else getattr(found.recipe, key)
        table.add_row(key, f"{value:g}" if not isinstance(value, str) else value, legal, law, hyper.about)
    wide().print(table)


@app.command()
def bench(
    benchmark: Annotated[str, typer.Argument(help="A benchmark (`edgemask data list`).")],
    method: Annotated[list[str], typer.Option(help="A method (`edgemask methods`); repeatable.")],
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds, 0 … n-1 [default: the protocol's].")] = None,
    protocol: Annotated[list[str] | None, typer.Option(help="Only these protocols.")] = None,
    recipe: Annotated[str | None, typer.Option(help="A stock recipe in place of the method's own.")] = None,
    settings: Settings = [],  # noqa: B006
    option: Annotated[
        list[str], typer.Option(metavar="NAME=VALUE", help="An option of the benchmark; repeatable.")
    ] = [],  # noqa: B006
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Also show the best epoch and strength on the target, beside the rule's.")
    ] = False,
    results: Annotated[Path, typer.Option(help="Where the records are written.")] = Path("results"),
    device: Device = "auto",
    data_root: DataRoot = None,
    offline: Offline = False,
) -> None:
    """Run methods under a benchmark's protocols and print the table; one record per run is kept.

    A run whose record is already there is not run again.
    """
    from edgemask.bench.run import Run, attempt
    from edgemask.bench.store import ResultStore, load_domains, missing_files
    from edgemask.bench.tables import footer, table, with_oracle
    from edgemask.data import DataError, Store
    from edgemask.data import benchmark as find
    from edgemask.enrich import default_cache
    from edgemask.estimator import resolve_device
    from edgemask.methods.registry import entry

    source, options = find(benchmark), pairs(option)
    protocols = [source.protocol(name) for name in protocol] if protocol else source.protocols
    store, where = Store(data_root, offline=offline or None), resolve_device(device)
    settled = {name: entry(name).under(recipe, **pairs(settings)) for name in method}
    labels = {n: n + (f" ({recipe})" if recipe else "") + "".join(f" {s}" for s in settings) for n in method}
    groups: dict[str, list[dict[str, Any]]] = {label: [] for label in labels.values()}
    absent: dict[str, list[str]] = {}
    held = ResultStore(results)
    for why in held.rejected.values():
        err.print(escape(f"not trusted: {why}"), highlight=False, soft_wrap=True)
    for file in dict.fromkeys(f for p in protocols for d in p.domains for f in source.files(d)):
        if not store.offline and not store.has(file):
            try:
                store.fetch(file)
            except DataError as error:  # a run without it may be possible; the table says what is missing
                err.print(escape(str(error)), highlight=False, soft_wrap=True)
    for p in protocols:
        if lacking := missing_files(source, p, store):
            absent[p.name] = lacking
            continue
        domains = load_domains(source, p, store, options)
        for name, label in labels.items():
            for seed in range(seeds or p.repeats):
                also = ("oracle",) if oracle else ()
                run = Run(benchmark, {**source.options, **options}, p, name, settled[name], seed, also)
                record = held.find(run, domains)
                if record is None:
                    with progress(f"{name} {p.name} seed {seed}") as on_epoch:
                        record = attempt(run, domains, device=where, cache=default_cache(), on_epoch=on_epoch)
                    held.add(run, record)
                groups[label].append(record)
    wide().print(table(f"{benchmark}: {source.card.title}", with_oracle(groups), list(absent)))
    records = [r for group in groups.values() for r in group]
    if records:
        out.print(footer(records), highlight=False)
    for name, paths in absent.items():
        out.print(escape(f"{name}: data not available: {', '.join(paths)}"), highlight=False, soft_wrap=True)
    if not records:
        out.print(f"nothing was run: `edgemask data fetch {benchmark}` says where each file comes from", soft_wrap=True)
        raise typer.Exit(1)
    out.print(f"records: {results / benchmark}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def demo(
    picture: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("out/demo.png"),
    seed: Seed = 0,
) -> None:
    """Train on two synthetic graphs, test on a third with other wiring: EdgeMask-DG* against MLP and GCN."""
    from edgemask.bench.demo import run_demo

    run_demo(wide(), picture, seed)
