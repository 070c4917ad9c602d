"""Readers of graphs: `.npz`, `.mat`, CSV, Parquet and `graph.json`."""

from __future__ import annotations

import io
import json
import random
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from attacks.fuzz.archives import archive_mutation
from attacks.fuzz.cases import Case, Files, Target, files_in
from attacks.fuzz.matlab import mat_mutation, saved
from attacks.fuzz.mutate import json_mutation
from attacks.fuzz.tables import csv_mutation, parquet_mutation
from attacks.fuzz.targets.oracles import check_graph, check_unchanged
from edgemask import Graph, read_graph
from edgemask.data.csv_folder import write_csv
from edgemask.data.files import applicable_options
from edgemask.data.mat import write_mat
from edgemask.data.npz import write_npz
from edgemask.data.parquet import write_parquet

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
    for graph in graphs() if given is None else given:
        with tempfile.TemporaryDirectory() as folder:
            write(graph, Path(folder) / name)
            files.append(files_in(Path(folder)))
    return files


def reader(path: str, *, checksums: bool = False) -> Callable[[Case, Path], None]:
    """Return a function that reads the graph at a path and checks it.

    Args:
        path: Path of the graph.
        checksums: Whether checksums in the file cover its whole content.
    """

    def read(case: Case, folder: Path) -> None:
        applicable_options(folder / path, {"label": "grade"})
        graph = read_graph(folder / path)
        check_graph(graph, folder)
        if checksums:
            check_unchanged(case, graph, folder, lambda base: read_graph(base / path))

    return read


def reader_with_options(options: Mapping[str, Mapping[str, Any]]) -> Callable[[Case, Path], None]:
    """Return a function that reads a folder with the options that belong to its name, and checks the graph."""

    def read(case: Case, folder: Path) -> None:
        name = min(case.files).partition("/")[0]
        given = dict(options[name])
        pair = given.pop("pair", "")
        path = ",".join(str(folder / name / f"{part}{pair}") for part in ("nodes", "edges")) if pair else folder / name
        check_graph(read_graph(path, **given), folder)

    return read


# ---- tables ------------------------------------------------------------------------------------------------------

PEOPLE = b"id,age,city,member,grade\nann,31,Oslo,true,a\nbob,12,Rome,false,b\neve,5.5,Oslo,true,\njim,1e3,,false,a\n"
FRIENDS = b"source,destination,weight\nann,bob,1\nbob,eve,2.5\neve,jim,0\n"
PLAIN = b"source,destination\n0,1\n1,2\n"
FLAWS = {"duplicates": "merge", "self_loops": "drop", "undirected": True}
NAMED: dict[str, dict[str, Any]] = {
    "named": {"label": "grade", "features": "age,city", "text": "age", "weight": "weight", **FLAWS},
    "classes": {"id": "who", "label": "kind", "classes": ["a", "b"], "source": "x", "destination": "y"},
    "degrees": {"features": ["degree", "clustering"], "label": "grade"},
    "pair": {"pair": ".csv", "label": "grade", **FLAWS},
}


def csv_bases() -> list[Files]:
    """Return CSV folders, written by hand and by the package."""
    info = {"name": "people", "label": "grade", "undirected": True, "text": ["city"], "weight": "weight"}
    layout = b"id,x0,x1,label,mask:train\n0,1,2,a,1\n1,3,4,b,0\n2,5,6,,1\n"
    several = b"id,features,label:a,label:b\n0,0:1 3:2.5,1,0\n1,,,\n2,2:-1,1,1\n"
    by_hand = [
        {"g/nodes.csv": PEOPLE, "g/edges.csv": FRIENDS, "g/graph.json": json.dumps(info).encode()},
        {"g/nodes.csv": PEOPLE, "g/edges.csv": FRIENDS, "g/graph.json": b'{"label": "grade", "features": ["age"]}'},
        {"g/nodes.csv": layout, "g/edges.csv": PLAIN},
        {"g/nodes.csv": several, "g/edges.csv": PLAIN, "g/graph.json": b'{"features": 4, "classes": ["a", "b"]}'},
    ]
    return by_hand + written(write_csv, "g")


def named_bases() -> list[Files]:
    """Return CSV folders that need options."""
    kinds = b"who,size,kind,val_mask\n7,1,a,yes\n8,2,b,no\n9,3,,1\n"
    return [
        {"named/nodes.csv": PEOPLE, "named/edges.csv": FRIENDS + b"ann,ann,1\nbob,ann,3\nann,bob,4\n"},
        {"classes/nodes.csv": kinds, "classes/edges.csv": b"x,y,when\n7,8,1\n8,9,2\n"},
        {"degrees/nodes.csv": PEOPLE, "degrees/edges.csv": FRIENDS},
        {"pair/nodes.csv": PEOPLE, "pair/edges.csv": FRIENDS},
    ]


def frames() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return tables of many types."""
    nodes = pd.DataFrame(
        {
            "id": ["ann", "bob", "eve"],
            "age": [31, 12, 7],
            "height": np.array([1.7, 1.5, 1.2], np.float32),
            "city": pd.Categorical(["Oslo", "Rome", "Oslo"]),
            "member": [True, False, True],
            "grade": ["a", None, "b"],
            "train_mask": [True, True, False],
        }
    )
    edges = pd.DataFrame({"source": ["ann", "bob"], "destination": ["bob", "eve"], "weight": [1.0, 0.5]})
    return nodes, edges


def parquet_bases() -> list[Files]:
    """Return folders of Parquet files, written by the package and by pandas."""
    tables: Files = {"g/graph.json": b'{"label": "grade", "text": "city"}'}
    for name, frame in zip(("nodes", "edges"), frames(), strict=True):
        buffer = io.BytesIO()
        frame.to_parquet(buffer)
        tables[f"g/{name}.parquet"] = buffer.getvalue()
    return [tables, *written(write_parquet, "g")]


def without_file(rng: random.Random, files: Files) -> Files:
    """Remove a file, or replace it by another one."""
    name = rng.choice(sorted(files))
    rest = {k: v for k, v in files.items() if k != name}
    return rest if rng.random() < 0.5 and rest else files | {name: rng.choice(sorted(files.values()))}


# ---- .mat --------------------------------------------------------------------------------------------------------


def mat_bases() -> list[Files]:
    """Return `.mat` files in the citation layout, written by the package."""
    dense, sparse, *others = (graph.replace(masks={}) for graph in graphs())
    assert sparse.y is not None
    labels = np.where(sparse.y.any(1, keepdims=True), sparse.y, -1)  # the layout has no labelled node without a class
    return written(write_mat, "g.mat", [dense, sparse.replace(y=labels), *others])


def plain_mat_bases() -> list[Files]:
    """Return `.mat` files in the citation layout as others write them, without compression."""
    network = sp.csc_array(np.eye(4, k=1))
    group = np.array([[1, 0], [0, 1], [1, 1], [0, 0]], np.uint8)
    fields = {"attrb": np.arange(12.0).reshape(4, 3), "group": group, "network": network}
    return [{"g.mat": saved(f, compressed=False)} for f in (fields, fields | {"attrb": sp.csc_array(np.eye(4))})]


INFO = [[1, 2, 5, 0, 0, 2006, 9], [2, 0, 0, 7, 31, 2005, 9], [1, 1, 5, 0, 30, 0, 0]]


def school_bases() -> list[Files]:
    """Return files of schools in the layout of Facebook-100."""
    friends = sp.csc_array(np.eye(3, k=1) + np.eye(3, k=-1))
    fields = {"A": friends, "local_info": np.array(INFO, np.float64)}
    return [{"school.mat": saved(fields, compressed=compressed)} for compressed in (False, True)]


TARGETS = (
    Target(
        "npz",
        lambda: written(write_npz, "g.npz"),
        reader("g.npz", checksums=True),
        (archive_mutation("g.npz", text="info"),),
        share=3,
    ),
    Target(
        "csv",
        csv_bases,
        reader("g"),
        (csv_mutation(".csv"), csv_mutation(".csv"), json_mutation("g/graph.json"), without_file),
        share=3,
    ),
    Target("csv-options", named_bases, reader_with_options(NAMED), (csv_mutation(".csv"),), share=2),
    Target(
        "parquet",
        parquet_bases,
        reader("g"),
        (parquet_mutation, parquet_mutation, json_mutation("g/graph.json"), without_file),
        share=2,
    ),
    Target("mat", mat_bases, reader("g.mat", checksums=True), (mat_mutation,), share=2),
    Target("mat-plain", plain_mat_bases, reader("g.mat"), (mat_mutation,)),
    Target("school", school_bases, reader("school.mat"), (mat_mutation,)),
)
