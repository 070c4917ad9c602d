"""The commands `data list`, `data info`, `data verify` and `data fetch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from edgemask.cli.common import DataRoot, Offline, err, out, wide
from edgemask.cli.completion import BENCHMARK_NAMES
from edgemask.cli.json_output import Json, output
from edgemask.data import BENCHMARKS, Benchmark, Store, benchmark
from edgemask.errors import DataError
from edgemask.protocol import Protocol

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="List, describe, verify and download benchmark data."
)


Name = Annotated[
    str, typer.Argument(help="A benchmark. `edgemask data list` lists them.", autocompletion=BENCHMARK_NAMES)
]
Names = Annotated[
    list[str] | None, typer.Argument(help="Names of benchmarks (default: all).", autocompletion=BENCHMARK_NAMES)
]


@app.command("list")
def data_list(data_root: DataRoot = None, json: Json = False) -> None:
    """List the benchmarks and show which files are missing."""
    store = Store(data_root, offline=True)
    rows: list[dict[str, Any]] = []
    for bench in BENCHMARKS.values():
        available = bench.available(store)
        absent = {f.path for d in bench.domains if d not in available for f in bench.files(d) if not store.has(f)}
        row = {"name": bench.name, "title": bench.card.title, "domains": bench.domains, "available": available}
        rows.append({**row, "missing_files": sorted(absent)})
    with output("data.list", json) as result:
        result.show({"root": store.root, "benchmarks": rows}, lambda: _print_list(store, rows))


def _print_list(store: Store, rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title=f"benchmarks (data root {store.root})", title_justify="left")
    for column in ("name", "description", "available domains (not verified)", "missing files"):
        table.add_column(column, overflow="fold")
    for row in rows:
        absent = row["missing_files"]
        shown = ", ".join(absent[:3]) + (f", … ({len(absent)} files)" if len(absent) > 3 else "")
        table.add_row(row["name"], row["title"], f"{len(row['available'])} of {len(row['domains'])}", shown or "–")
    wide().print(table)


@app.command("info")
def data_info(name: Name, data_root: DataRoot = None, json: Json = False) -> None:
    """Print the data card, protocols, options and files of a benchmark."""
    bench, store = benchmark(name), Store(data_root, offline=True)
    available = bench.available(store)
    protocols = [
        {
            "kind": kind,
            "name": protocol.name,
            "sources": protocol.sources,
            "validation": protocol.validation,
            "targets": protocol.targets,
            "metrics": protocol.metrics,
            "missing": [domain for domain in protocol.domains if domain not in available],
        }
        for kind, protocol in _protocols(bench)
    ]
    files = [{"path": store.present_alternative(f).path, "available": store.has(f)} for f in _files([name])]
    fields: dict[str, Any] = {"name": name, "card": asdict(bench.card), "protocols": protocols}
    fields |= {"options": bench.every_option, "files": files}
    with output("data.info", json) as result:
        result.show(fields, lambda: _print_info(fields))


def _print_info(fields: Mapping[str, Any]) -> None:
    card = Table(show_header=False, box=None, pad_edge=False)
    card.add_column(style="bold", no_wrap=True)
    card.add_column(overflow="fold")
    for topic, text in fields["card"].items():
        if text:
            card.add_row(topic, text)
    for protocol in fields["protocols"]:
        parts = [f"train {', '.join(protocol['sources'])}"]
        parts += [f"validate {', '.join(protocol['validation'])}"] if protocol["validation"] else []
        note = f" [data not available: {', '.join(protocol['missing'])}]" if protocol["missing"] else ""
        shown = "; ".join([*parts, f"test {', '.join(protocol['targets'])}"])
        card.add_row(protocol["kind"], f"{protocol['name']}: {shown}; {', '.join(protocol['metrics'])}{note}")
    for option, default in fields["options"].items():
        card.add_row("option", f"{option} = {default!r}")
    for file in fields["files"]:
        card.add_row("file", f"{file['path']} ({'available' if file['available'] else 'missing'})")
    out.print(card)


def _protocols(bench: Benchmark) -> list[tuple[str, Protocol]]:
    """Return the protocols of a benchmark, each with `protocol` or the name of its set."""
    sets = [(f"set {name}", protocol) for name, own in bench.sets.items() for protocol in own]
    return [*(("protocol", protocol) for protocol in bench.protocols), *sets]


@app.command("verify")
def data_verify(names: Names = None, data_root: DataRoot = None, json: Json = False) -> None:
    """Compare every file with its checksum.

    The exit status is 1 if the content of a file differs. Missing files are listed, but are not an error.
    """
    store, rows = Store(data_root, offline=True), list[dict[str, Any]]()
    for file in _files(names):
        row = {"path": store.present_alternative(file).path, "status": store.status(file), "message": ""}
        if row["status"] == "altered":
            try:
                store.get(file)
            except DataError as error:
                row["message"] = str(error)
        rows.append(row)
    with output("data.verify", json) as result:
        result.show({"root": store.root, "files": rows}, lambda: _print_files(rows))
    if any(row["status"] == "altered" for row in rows):
        raise typer.Exit(1)


def _print_files(rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        colour = {"present": "green", "missing": "yellow", "altered": "bold red"}[row["status"]]
        out.print(Text.assemble((f"{row['status']:8}", colour), f" {row['path']}"), soft_wrap=True)
        if row["message"]:
            out.print(f"         {row['message']}", soft_wrap=True)


@app.command("fetch")
def data_fetch(names: Names = None, data_root: DataRoot = None, offline: Offline = False, json: Json = False) -> None:
    """Download missing files from their public sources.

    The checksum of every file is verified before the file is stored. The exit status is 1 if a file is not available.
    """
    store, rows = Store(data_root, offline=offline or None), list[dict[str, Any]]()
    with output("data.fetch", json) as result:
        for file in _files(names):
            try:
                status = "present" if store.has(file) else "fetched"
                path = store.get(file)
                rows.append({"path": path, "status": status, "message": ""})
                if not json:
                    out.print(Text.assemble((status, "green"), f" {path}"), soft_wrap=True)
            except DataError as error:
                rows.append({"path": store.root / file.path, "status": "failed", "message": str(error)})
                err.print(Text.assemble(("failed", "bold red"), f"  {error}"), soft_wrap=True)
        result.show({"root": store.root, "files": rows}, lambda: None)
    if any(row["status"] == "failed" for row in rows):
        raise typer.Exit(1)


def _files(names: Sequence[str] | None) -> list[Any]:
    """Return the files of some benchmarks, or of all."""
    chosen = [benchmark(n) for n in names] if names else list(BENCHMARKS.values())
    return list(dict.fromkeys(f for b in chosen for d in b.domains for f in b.files(d)))
