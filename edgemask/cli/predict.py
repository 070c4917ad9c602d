"""The command `predict`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from edgemask.cli.common import (
    GRAPH_FORMS,
    Device,
    InferenceBatch,
    Reading,
    check_inputs,
    out,
    reading,
    writable_folder,
)
from edgemask.cli.json_output import Json, output
from edgemask.cli.loading import load, node_names
from edgemask.cli.tables import WRITERS, Predictions, check_format, print_csv
from edgemask.errors import InputError
from edgemask.runtime.atomic import writable
from edgemask.runtime.device import resolve_device

app = typer.Typer()


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A model file that `edgemask fit` wrote.")],
    graphs: Annotated[
        list[Path],
        typer.Argument(
            help="Graphs with the same features as the training graphs. Labels are ignored. Each is "
            + GRAPH_FORMS
            + ".",
            metavar="GRAPH...",
        ),
    ],
    target: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="A .csv, .parquet or .npz file to write (default: print CSV to standard output). With several graphs, "
            "a folder in which each graph gets a .csv file.",
        ),
    ] = None,
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
    inference_batch: InferenceBatch = None,
    json: Json = False,
) -> None:
    """Predict the class of every node of one or several graphs.

    The result is a table with the class and the class probabilities of every node. A node is named by its id if the
    graph has ids, otherwise by its row. The graphs are read with the options with which the model was trained; --read
    overrides them.
    """
    options, files = reading(read), output_files(graphs, target, json)
    resolve_device(device)
    check_inputs([model, *graphs])
    with output("predict", json) as result:
        loaded, documents = load(model, device, inference_batch), []
        for path, file in zip(graphs, files, strict=True):
            graph = loaded.read_graph(path, options)
            found = Predictions(node_names(graph), loaded.classes_, loaded.predict_proba(graph))
            if file is not None:
                WRITERS[file.suffix.lower()](found, file)
            elif not json:
                print_csv(found)
            documents.append({"graph": path, "name": graph.name, "output": file, **described(found, file is None)})
        result.show({"model": model, "graphs": documents}, lambda: print_files(files))


def output_files(graphs: Sequence[Path], target: Path | None, as_json: bool) -> list[Path | None]:
    """Return the file of each graph's predictions after checking that it can be written; None for standard output.

    Args:
        graphs: The graphs.
        target: The option `--output`.
        as_json: Whether the predictions are printed as JSON, where several graphs have room.

    Raises:
        InputError: The format is unknown, several graphs have no folder, or two of them would share a file.
        FileError: A file cannot be written.
    """
    if target is None:
        if len(graphs) > 1 and not as_json:
            raise InputError(f"{len(graphs)} graphs need a folder for their predictions: give --output FOLDER")
        return [None] * len(graphs)
    if len(graphs) == 1 and not target.is_dir():
        check_format(target)
        writable(target)
        return [target]
    if target.suffix.lower() in WRITERS:
        raise InputError(f"--output must be a folder for several graphs, got {target}")
    files = [target / f"{Path(str(path).partition(',')[0]).stem}.csv" for path in graphs]
    for path, file in zip(graphs, files, strict=True):
        if files.count(file) > 1:
            raise InputError(f"several graphs, such as {path}, would be written to {file}: predict them one by one")
    writable_folder(target)
    for file in files:
        writable(file)
    return list(files)


def described(found: Predictions, complete: bool) -> dict[str, Any]:
    """Return predictions as JSON values.

    Args:
        found: The predictions.
        complete: Include every node. Otherwise only the numbers of nodes are included.
    """
    counts = np.bincount(found.p.argmax(1), minlength=len(found.classes))
    summary: dict[str, Any] = {"nodes": len(found.p), "classes": found.classes, "counts": counts}
    return summary | ({"node": found.node, "class": found.predicted, "p": found.p} if complete else {})


def print_files(files: Sequence[Path | None]) -> None:
    """Print the names of the files, if there are several."""
    for file in files if len(files) > 1 else ():
        out.print(str(file), soft_wrap=True)
