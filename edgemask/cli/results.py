"""`edgemask results`: the records of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from edgemask.cli.common import err, out
from edgemask.experiments.records import ResultStore, pack

app = typer.Typer(no_args_is_help=True, help="Check and pack result records.")
Folder = Annotated[Path, typer.Argument(help="Folder of the records.")]


@app.command("check")
def check_results(results: Folder = Path("results")) -> None:
    """Verify the digest of every record. The exit status is 1 if a file is not a valid record."""
    store = ResultStore(results)
    out.print(f"{results}: {len(store)} records", markup=False, highlight=False, soft_wrap=True)
    for why in store.rejected.values():
        err.print(escape(why), highlight=False, soft_wrap=True)
    if store.rejected:
        raise typer.Exit(1)


@app.command("pack")
def pack_results(results: Folder = Path("results")) -> None:
    """Join record files into one file per benchmark and method, with the same records and digests."""
    store = ResultStore(results)
    written = pack(store)
    for path in written:
        out.print(str(path), markup=False, highlight=False, soft_wrap=True)
    size = sum(path.stat().st_size for path in results.rglob("*") if path.is_file()) / 2**20
    out.print(f"{len(store)} records in {results}, {size:.1f} MiB", markup=False, highlight=False, soft_wrap=True)
