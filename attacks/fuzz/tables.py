"""Mutations of tables: CSV and other text, and Parquet."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from attacks.fuzz.mutate import TEXTS, dump_json, mutate_bytes, mutate_json, mutate_text

Files = dict[str, bytes]
HEADERS = ("x2", "x9", "x01", "label", "id", "weight", "mask:m", "mask:", "_mask", "label:", "label:c", "features")


def csv_mutation(suffix: str, delimiter: str = ",") -> Callable[[random.Random, Files], Files]:
    """Return a mutation of a cell, a row or a column of the files with a suffix."""

    def mutate(rng: random.Random, files: Files) -> Files:
        names = sorted(f for f in files if f.endswith(suffix))
        if not names:
            return files
        name = rng.choice(names)
        try:
            rows = list(csv.reader(io.StringIO(files[name].decode(), newline=""), delimiter=delimiter))
        except (UnicodeDecodeError, csv.Error):
            return files
        if not rows or not rows[0]:
            return files
        change_rows(rng, rows)
        buffer = io.StringIO(newline="")
        writer = csv.writer(buffer, delimiter=delimiter, lineterminator=rng.choice(("\n", "\n", "\n", "\r\n", "\r")))
        try:
            writer.writerows(rows)
        except csv.Error:
            return files
        text = rng.choice(("", "", "", "\ufeff")) + buffer.getvalue()
        return files | {name: text.encode("utf-8", rng.choice(("surrogatepass", "replace")))}

    return mutate


def change_rows(rng: random.Random, rows: list[list[str]]) -> None:
    """Change a cell, a row or a column of a table."""
    row, action = rng.choice(rows), rng.randrange(12)
    column = rng.randrange(len(row)) if row else 0
    if action < 4 and row:
        row[column] = rng.choice([*TEXTS, *(cell for other in rows for cell in other)])
    elif action == 4 and row:
        row[column] = mutate_text(rng, row[column])
    elif action == 5:
        rows.remove(row)
    elif action == 6:
        rows.insert(rng.randint(0, len(rows)), list(row))
    elif action == 7:
        for other in rows:
            del other[column : column + 1]
    elif action == 8:
        value = rng.choice(TEXTS)
        for i, other in enumerate(rows):
            other.insert(column, value if i else rng.choice([*HEADERS, value]))
    elif action == 9 and rows[0]:
        rows[0][rng.randrange(len(rows[0]))] = rng.choice([*HEADERS, *TEXTS])
    elif action == 10:
        row.append(rng.choice(TEXTS))
    else:
        rng.shuffle(row)


# ---- Parquet -----------------------------------------------------------------------------------------------------

COLUMNS: list[Any] = [
    *(
        [1, None],
        [1.5, float("nan")],
        ["a", "\x00"],
        [True, None],
        [b"\xff", b""],
        [[1], [2, 3]],
        [[], None],
        [{"a": 1}],
    ),
    *([10**18, -1], [0, 1], ["0", "1"], [3.4e38, 1e39], ["x" * 5000, "\x1b[2J"], [-1, 2**62], ["=1+1", "\n"]),
]
TYPES: list[Any] = [
    *(
        pa.int8(),
        pa.uint8(),
        pa.int64(),
        pa.uint64(),
        pa.float16(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
    ),
    *(
        pa.bool_(),
        pa.date32(),
        pa.timestamp("ns"),
        pa.decimal128(38, 2),
        pa.large_string(),
        pa.null(),
        pa.duration("s"),
    ),
    *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.int64()), pa.time64("us")),
]
COMPRESSIONS = ("none", "snappy", "gzip", "zstd")


def parquet_mutation(rng: random.Random, files: Files) -> Files:
    """Change a column of a Parquet file, its type, its name, or the description of the table."""
    name = rng.choice(sorted(f for f in files if f.endswith(".parquet")))
    try:
        table = change_table(rng, parquet.read_table(io.BytesIO(files[name])))
        sink = io.BytesIO()
        parquet.write_table(table, sink, compression=rng.choice(COMPRESSIONS), row_group_size=rng.choice((1, 3, 100)))
    except Exception:  # an earlier mutation has damaged the file, or the type does not fit the values
        return mutate_bytes(rng, files)
    return files | {name: sink.getvalue()}


def change_table(rng: random.Random, table: Any) -> Any:
    """Return a table with a change."""
    i, action = rng.randrange(table.num_columns), rng.randrange(11)
    column, own = table.column(i), table.column_names[i]
    if action < 3:
        values = column.to_pylist()
        if values:
            values[rng.randrange(len(values))] = rng.choice(rng.choice(COLUMNS))
        return table.set_column(i, own, pa.array(values, column.type))
    if action == 3:
        return table.set_column(i, own, column.cast(rng.choice(TYPES), safe=False))
    if action == 4:
        values = (rng.choice(COLUMNS) * (1 + table.num_rows))[: table.num_rows]
        return table.set_column(i, own, pa.array(values))
    if action == 5:
        return table.remove_column(i)
    if action == 6:
        return table.append_column(rng.choice([own, *HEADERS, *TEXTS]), column)
    if action == 7:
        return table.rename_columns(
            [rng.choice([*HEADERS, *TEXTS]) if j == i else n for j, n in enumerate(table.column_names)]
        )
    if action == 8:
        return table.take(pa.array(np.array(rng.choices(range(max(1, table.num_rows)), k=rng.randint(0, 9)), np.int64)))
    if action == 9:
        return table.replace_schema_metadata(None)
    stored = dict(table.schema.metadata or {})
    described = json.loads(stored.get(b"pandas", b"{}"))
    return table.replace_schema_metadata(stored | {b"pandas": dump_json(mutate_json(rng, described)).encode()})
