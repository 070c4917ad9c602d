"""The commands `results check` and `results pack`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from edgemask.cli.common import err, out
from edgemask.errors import FileError
from edgemask.experiments.records import ResultStore, pack

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Verify and pack the records of runs.")
Folder = Annotated[Path, typer.Argument(help="Folder in which the records are stored.")]


def _existing_store(folder: Path) -> ResultStore:
    """Read the records of a folder.

    Raises:
        FileError: The folder does not exist, or is not a folder.
    """
    if not folder.exists():
        raise FileError(f"there is no folder {folder}")
    return ResultStore(folder)


@app.command("check")
def check_results(results: Folder = Path("results")) -> None:
    """Verify every record in a folder.

    The digest of a record shows whether it was changed after it was written. The exit status is 1 if a file is not a
    valid record.
    """
    store = _existing_store(results)
    out.print(f"{results}: {len(store)} records", markup=False, highlight=False, soft_wrap=True)
    for why in store.rejected.values():
        err.print(escape(why), highlight=False, soft_wrap=True)
    if store.rejected:
        raise typer.Exit(1)


@app.command("pack")
def pack_results(results: Folder = Path("results")) -> None:
    """Join the record files of a folder into one file per benchmark and method.

    Every run writes one JSON file. This command joins these files, deletes them, and compresses the training curves.
    The records and their digests stay the same, and the other commands read both forms.
    """
    store = _existing_store(results)
    written = pack(store)
    for path in written:
        out.print(str(path), markup=False, highlight=False, soft_wrap=True)
    size = sum(path.stat().st_size for path in results.rglob("*") if path.is_file()) / 2**20
    out.print(f"{len(store)} records in {results}, {size:.1f} MiB", markup=False, highlight=False, soft_wrap=True)
