"""Readers of graphs: `.npz`, `.mat`, CSV, Parquet and `graph.json`."""

from __future__ import annotations

import csv
import io
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from attacks.fuzz.archives import archive_mutation
from attacks.fuzz.cases import Case, Files, Target, files_in
from attacks.fuzz.mutate import TEXTS, json_mutation, mutate_text
from attacks.fuzz.targets.oracles import check_graph
from edgemask import Graph, read_graph
from edgemask.data.csv_folder import write_csv
from edgemask.data.npz import write_npz

EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (4, 1)]


def graphs() -> list[Graph]:
    """Return small graphs that use all fields between them."""
    x = np.array([[0.5, 1.0], [2.0, -1.0], [0.0, 3.0], [1.5, 0.0], [4.0, 1.0]])
    mask = np.array([True, False, True, False, True])
    return [
        Graph("dense", x, EDGES, [0, 1, -1, 1, 0], ("no", "yes"), {"train": mask, "val": ~mask}, undirected=True),
        Graph(
            "sparse",
            sp.csr_array(x),
            EDGES,
            [[1, 0], [1, 1], [-1, -1], [0, 0], [0, 1]],
            ("a", "b"),
            weights=[1, 2, 0.5, 1, 3],
            node_ids=["n0", "n1", "n2", "n3", "n4"],
        ),
        Graph(
            "named",
            x,
            EDGES,
            ["r", "s", None, "r", "s"],
            feature_names=("age", "city=Oslo"),
            text_columns=("city",),
            node_ids=[10, 20, 30, 40, 50],
        ),
        Graph("bare", x[:3], [(0, 1), (1, 2)]),
    ]


def written(write: Callable[[Graph, Path], None], name: str, given: list[Graph] | None = None) -> list[Files]:
    """Return graphs as written to a file or folder of the given name."""
    files = []
    for graph in given or graphs():
        with tempfile.TemporaryDirectory() as folder:
            write(graph, Path(folder) / name)
            files.append(files_in(Path(folder)))
    return files


def reader(path: str, **options: Any) -> Callable[[Case, Path], None]:
    """Return a function that reads the graph at a path and checks it."""

    def read(case: Case, folder: Path) -> None:
        check_graph(read_graph(folder / path, **options), folder)

    return read


# ---- CSV ---------------------------------------------------------------------------------------------------------


def csv_tables() -> list[Files]:
    """Return folders of CSV files as people write them."""
    nodes = b"id,age,city,member,grade\nann,31,Oslo,true,a\nbob,12,Rome,false,b\neve,5.5,Oslo,true,\njim,1e3,,false,a\n"
    edges = b"source,destination,weight\nann,bob,1\nbob,eve,2.5\neve,jim,0\n"
    info = json.dumps({"name": "people", "label": "grade", "undirected": True, "text": ["city"], "weight": "weight"})
    layout = b"id,x0,x1,label,mask:train\n0,1,2,a,1\n1,3,4,b,0\n2,5,6,,1\n"
    sparse = b"id,features,label:a,label:b\n0,0:1 3:2.5,1,0\n1,,,\n2,2:-1,1,1\n"
    plain = b"source,destination\n0,1\n1,2\n"
    return [
        {"g/nodes.csv": nodes, "g/edges.csv": edges, "g/graph.json": info.encode()},
        {
            "g/nodes.csv": nodes,
            "g/edges.csv": edges,
            "g/graph.json": b'{"label": "grade", "features": ["age", "city"]}',
        },
        {"g/nodes.csv": layout, "g/edges.csv": plain},
        {"g/nodes.csv": sparse, "g/edges.csv": plain, "g/graph.json": b'{"features": 4, "classes": ["a", "b"]}'},
    ]


def csv_bases() -> list[Files]:
    """Return CSV folders, written by hand and by the package."""
    return csv_tables() + written(write_csv, "g")


def mutate_csv(rng: random.Random, files: Files) -> Files:
    """Change a cell, a row or a column of a CSV file."""
    name = rng.choice(sorted(f for f in files if f.endswith(".csv")))
    try:
        rows = list(csv.reader(io.StringIO(files[name].decode(), newline="")))
    except (UnicodeDecodeError, csv.Error):
        return files
    if not rows or not rows[0]:
        return files
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
            other.insert(
                column,
                value if i else rng.choice(["x2", "label", "id", "weight", "mask:m", "label:c", "features", value]),
            )
    elif action == 9:
        rows[0][rng.randrange(len(rows[0]))] = rng.choice(
            ["id", "label", "x9", "x01", "mask:", "_mask", "label:", *TEXTS]
        )
    elif action == 10:
        row.append(rng.choice(TEXTS))
    else:
        rng.shuffle(row)
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator=rng.choice(("\n", "\n", "\r\n", "\r")))
    try:
        writer.writerows(rows)
    except csv.Error:
        return files
    text = rng.choice(("", "", "", "\ufeff")) + buffer.getvalue()
    return files | {name: text.encode("utf-8", rng.choice(("surrogatepass", "replace")))}


def without_file(rng: random.Random, files: Files) -> Files:
    """Remove a file, or replace it by another one."""
    name = rng.choice(sorted(files))
    rest = {k: v for k, v in files.items() if k != name}
    return rest if rng.random() < 0.5 else files | {name: rng.choice(sorted(files.values()))}


def read_csv_pair(case: Case, folder: Path) -> None:
    """Read the two files of a CSV folder without its `graph.json`."""
    path = f"{folder / 'g' / 'nodes.csv'},{folder / 'g' / 'edges.csv'}"
    check_graph(read_graph(path, duplicates="merge", self_loops="drop", undirected=True), folder)


TARGETS = (
    Target(
        "npz", lambda: written(write_npz, "g.npz"), reader("g.npz"), (archive_mutation("g.npz", text="info"),), share=3
    ),
    Target(
        "csv", csv_bases, reader("g"), (mutate_csv, mutate_csv, json_mutation("g/graph.json"), without_file), share=3
    ),
    Target("csv-pair", csv_bases, read_csv_pair, (mutate_csv,)),
)
