"""The commands `data list`, `data info`, `data verify` and `data fetch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from edgemask.cli.common import DataRoot, Offline, err, out, wide
from edgemask.data import BENCHMARKS, Benchmark, Store, benchmark
from edgemask.errors import DataError
from edgemask.protocol import Protocol

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="List, describe, verify and download benchmark data."
)


@app.command("list")
def data_list(data_root: DataRoot = None) -> None:
    """List the benchmarks and show which files are missing."""
    store = Store(data_root, offline=True)
    table = Table(title=f"benchmarks (data root {escape(str(store.root))})", title_justify="left")
    for column in ("name", "description", "available domains (not verified)", "missing files"):
        table.add_column(column, overflow="fold")
    for bench in BENCHMARKS.values():
        available = bench.available(store)
        absent = sorted(
            {f.path for d in bench.domains if d not in available for f in bench.files(d) if not store.has(f)}
        )
        shown = ", ".join(absent[:3]) + (f", … ({len(absent)} files)" if len(absent) > 3 else "")
        table.add_row(bench.name, bench.card.title, f"{len(available)} of {len(bench.domains)}", shown or "–")
    wide().print(table)


@app.command("info")
def data_info(
    name: Annotated[str, typer.Argument(help="A benchmark. `edgemask data list` lists them.")],
    data_root: DataRoot = None,
) -> None:
    """Print the data card, protocols, options and files of a benchmark."""
    bench, store = benchmark(name), Store(data_root, offline=True)
    card = Table(show_header=False, box=None, pad_edge=False)
    card.add_column(style="bold", no_wrap=True)
    card.add_column(overflow="fold")
    for field in ("title", "nodes", "edges", "features", "labels", "shift", "split", "metric", "licence", "origin"):
        card.add_row(field, getattr(bench.card, field))
    card.add_row("citation", bench.card.citation)
    if bench.card.notes:
        card.add_row("notes", bench.card.notes)
    available = bench.available(store)
    for kind, protocol in _protocols(bench):
        parts = [f"train {', '.join(protocol.sources)}"]
        parts += [f"validate {', '.join(protocol.validation)}"] if protocol.validation else []
        absent = [t for t in protocol.domains if t not in available]
        note = f" [data not available: {', '.join(absent)}]" if absent else ""
        targets = f"test {', '.join(protocol.targets)}"
        card.add_row(kind, f"{protocol.name}: {'; '.join([*parts, targets])}; {', '.join(protocol.metrics)}{note}")
    for option, default in bench.options.items():
        card.add_row("option", f"{option} = {default!r}")
    for file in _files([name]):
        card.add_row(
            "file", f"{store.present_alternative(file).path} ({'available' if store.has(file) else 'missing'})"
        )
    out.print(card, markup=False, highlight=False)


def _protocols(bench: Benchmark) -> list[tuple[str, Protocol]]:
    """Return the protocols of a benchmark, each with `protocol` or the name of its set."""
    sets = [(f"set {name}", protocol) for name, own in bench.sets.items() for protocol in own]
    return [*(("protocol", protocol) for protocol in bench.protocols), *sets]


@app.command("verify")
def data_verify(
    names: Annotated[list[str] | None, typer.Argument(help="Names of benchmarks (default: all).")] = None,
    data_root: DataRoot = None,
) -> None:
    """Compare every file with its checksum.

    The exit status is 1 if the content of a file differs. Missing files are listed, but are not an error.
    """
    store, altered = Store(data_root, offline=True), 0
    for file in _files(names):
        status = store.status(file)
        altered += status == "altered"
        colour = {"present": "green", "missing": "yellow", "altered": "bold red"}[status]
        out.print(f"[{colour}]{status:8}[/] {store.present_alternative(file).path}", highlight=False)
        if status == "altered":
            try:
                store.get(file)
            except RuntimeError as error:
                out.print(f"         {escape(str(error))}", highlight=False, soft_wrap=True)
    if altered:
        raise typer.Exit(1)


@app.command("fetch")
def data_fetch(
    names: Annotated[list[str] | None, typer.Argument(help="Names of benchmarks (default: all).")] = None,
    data_root: DataRoot = None,
    offline: Offline = False,
) -> None:
    """Download missing files from their public sources.

    The checksum of every file is verified before the file is stored.
    """
    store, failed = Store(data_root, offline=offline or None), 0
    for file in _files(names):
        try:
            present = store.has(file)
            path = store.get(file)
            state = "present" if present else "fetched"
            out.print(f"[green]{state}[/] {escape(str(path))}", highlight=False, soft_wrap=True)
        except DataError as error:
            failed += 1
            err.print(f"[bold red]failed[/]  {escape(str(error))}", highlight=False, soft_wrap=True)
    if failed:
        raise typer.Exit(1)


def _files(names: Sequence[str] | None) -> list[Any]:
    """Return the files of some benchmarks, or of all."""
    chosen = [benchmark(n) for n in names] if names else list(BENCHMARKS.values())
    return list(dict.fromkeys(f for b in chosen for d in b.domains for f in b.files(d)))
