"""The commands `results check` and `results pack`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgemask.cli.common import err, out
from edgemask.cli.json_output import Json, output
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
def check_results(results: Folder = Path("results"), json: Json = False) -> None:
    """Verify every record in a folder.

    The digest of a record shows whether it was changed after it was written. The exit status is 1 if a file is not a
    valid record.
    """
    with output("results.check", json) as result:
        store = _existing_store(results)
        rejected = list(store.rejected.values())
        text = f"{results}: {len(store)} records"
        result.show(
            {"folder": results, "records": len(store), "rejected": rejected},
            lambda: out.print(text, soft_wrap=True),
        )
    for why in rejected:
        err.print(why, soft_wrap=True)
    if store.rejected:
        raise typer.Exit(1)


@app.command("pack")
def pack_results(results: Folder = Path("results"), json: Json = False) -> None:
    """Join the record files of a folder into one file per benchmark and method.

    Every run writes one JSON file. This command joins these files, deletes them, and compresses the training curves.
    The records and their digests stay the same, and the other commands read both forms.
    """
    with output("results.pack", json) as result:
        store = _existing_store(results)
        written = pack(store)
        size = sum(path.stat().st_size for path in results.rglob("*") if path.is_file())
        lines = [*map(str, written), f"{len(store)} records in {results}, {size / 2**20:.1f} MiB"]
        result.show(
            {"folder": results, "records": len(store), "written": written, "bytes": size},
            lambda: out.print("\n".join(lines), soft_wrap=True),
        )
