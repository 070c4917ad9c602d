"""Tables that other programs open: predictions in several formats, and CSV cells that a spreadsheet does not run."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from edgemask.errors import InputError, MissingDependencyError
from edgemask.graph import Array
from edgemask.runtime.atomic import replacing
from edgemask.runtime.safe_text import guarded, naming, printable

CHUNK = 100_000  # nodes that are formatted and written at a time


@dataclass(frozen=True)
class Predictions:
    """The predictions of one graph.

    Args:
        node: Ids or rows of the N nodes.
        classes: The C classes.
        p: N × C probabilities.
    """

    node: Array
    classes: Array
    p: Array

    @property
    def predicted(self) -> Array:
        """The most probable class of every node."""
        return np.asarray(self.classes[self.p.argmax(1)])

    def frames(self, shown: Callable[[Any], Any]) -> Iterator[pd.DataFrame]:
        """Yield the predictions in parts of at most `CHUNK` rows. An empty graph has one empty part.

        Args:
            shown: Converts the names of nodes and classes.
        """
        classes = np.array([shown(c) for c in self.classes.tolist()])
        for start in range(0, max(1, len(self.p)), CHUNK):
            rows = slice(start, start + CHUNK)
            frame = pd.DataFrame(self.p[rows], columns=[f"p:{c}" for c in self.classes.tolist()])
            frame.insert(0, "class", classes[self.p[rows].argmax(1)])
            frame.insert(0, "node", [shown(n) for n in self.node[rows].tolist()])
            yield frame


def print_csv(predictions: Predictions) -> None:
    """Print predictions as CSV in UTF-8. Control characters are escaped if standard output is a terminal."""
    terminal = sys.stdout.isatty()
    with naming("standard output"):
        sys.stdout.flush()
        for text in _csv_texts(predictions):
            sys.stdout.buffer.write((printable(text) if terminal else text).encode("utf-8", "backslashreplace"))
        sys.stdout.buffer.flush()


def _csv_texts(predictions: Predictions) -> Iterator[str]:
    for i, frame in enumerate(predictions.frames(guarded)):
        yield frame.to_csv(index=False, header=not i, quoting=_quoting(frame))


def write_csv(predictions: Predictions, path: Path) -> None:
    """Write predictions as CSV."""
    with replacing(path, text=True) as sink:
        for text in _csv_texts(predictions):
            sink.write(text)


def write_npz(predictions: Predictions, path: Path) -> None:
    """Write predictions as NumPy arrays `node`, `class`, `p` and `classes`."""
    fields: dict[str, Any] = {"node": predictions.node, "class": predictions.predicted, "p": predictions.p}
    with replacing(path) as sink:
        np.savez(sink, classes=predictions.classes, **fields)


def write_parquet(predictions: Predictions, path: Path) -> None:
    """Write predictions as a Parquet file with the columns of the CSV file.

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """
    pa, pq = _pyarrow()
    with replacing(path) as sink:
        writer = None
        for frame in predictions.frames(lambda value: value):
            table = pa.Table.from_pandas(frame, preserve_index=False)
            writer = writer or pq.ParquetWriter(sink, table.schema)
            writer.write_table(table)
        assert writer is not None
        writer.close()


def _pyarrow() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingDependencyError("writing .parquet files needs pyarrow: install edgemask[parquet]") from error


WRITERS: dict[str, Callable[[Predictions, Path], None]] = {
    ".csv": write_csv,
    ".parquet": write_parquet,
    ".npz": write_npz,
}


def check_format(path: Path) -> None:
    """Check that predictions can be written in the format of a file's suffix.

    Raises:
        InputError: The suffix is not that of a known format.
        MissingDependencyError: The format needs a package that is not installed.
    """
    if path.suffix.lower() not in WRITERS:
        raise InputError(f"{path}: predictions are written to files with the suffix {' or '.join(WRITERS)}")
    if path.suffix.lower() == ".parquet":
        _pyarrow()


def write_guarded(frame: pd.DataFrame, path: Path, text_columns: Sequence[str]) -> None:
    """Write a DataFrame as CSV, with `guarded` cells in its text columns.

    Args:
        frame: The table.
        path: The file.
        text_columns: Columns with names of nodes and classes.
    """
    safe = frame.assign(**{name: [guarded(v) for v in frame[name].tolist()] for name in text_columns})
    with replacing(path, text=True) as sink:
        safe.to_csv(sink, index=False, quoting=_quoting(safe))


def _quoting(frame: pd.DataFrame) -> Literal[0, 2]:
    """Return how to quote the cells of a table: all texts if one has a carriage return, which pandas does not quote."""
    texts = (frame[name].unique() for name in frame if not is_numeric_dtype(frame[name]))
    found = any("\r" in str(text) for text in chain(frame.columns, *texts))
    return csv.QUOTE_NONNUMERIC if found else csv.QUOTE_MINIMAL
