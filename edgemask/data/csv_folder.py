"""Read and write graphs as folders of CSV files. `read_csv` documents the files."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from edgemask.data.forms import error_prefix, read_info
from edgemask.errors import GraphError
from edgemask.graph import MISSING, Array, Graph
from edgemask.runtime.atomic import replacing

BOOLEANS = {"1": True, "0": False, "true": True, "false": False}


def write_csv(graph: Graph, folder: str | Path) -> None:
    """Write a graph to a folder of CSV files in the layout of `read_csv`.

    Node ids are 0 … N - 1. Each number is written as the shortest text that is read as the same float32. If the graph
    is undirected, each edge is written once.

    Args:
        graph: The graph to write.
        folder: Path of the folder. It is created if it does not exist.

    Raises:
        GraphError: CSV cannot store the graph: a class has an empty name, or a node has too many sparse features.
    """
    folder, labels, undirected = Path(folder), _label_cells(graph), graph.is_undirected
    folder.mkdir(parents=True, exist_ok=True)
    columns = ["features"] if graph.is_sparse else [f"x{i}" for i in range(graph.num_features)]
    with replacing(folder / "nodes.csv", text=True) as file:
        table = csv.writer(file)
        table.writerow(["id", *next(labels), *(f"mask:{name}" for name in graph.masks), *columns])
        for node, label in enumerate(labels):
            masks = [int(mask[node]) for mask in graph.masks.values()]
            table.writerow([node, *label, *masks, *_feature_cells(graph, node)])
    with replacing(folder / "edges.csv", text=True) as file:
        table = csv.writer(file)
        table.writerow(["source", "destination"])
        table.writerows(edge for edge in graph.edges.T.tolist() if not undirected or edge[0] < edge[1])
    info = {"name": graph.name, "classes": graph.classes, "features": graph.num_features}
    with replacing(folder / "graph.json", text=True) as file:
        json.dump({**info, "undirected": undirected}, file, ensure_ascii=False, indent=2)


def _label_cells(graph: Graph) -> Iterator[list[Any]]:
    """Yield the names of the label columns, then the label cells of each node."""
    if graph.y is None:
        yield from ([] for _ in range(graph.num_nodes + 1))
    elif graph.is_multilabel:
        yield [f"label:{name}" for name in graph.classes]
        yield from (["" if c == MISSING else c for c in row] for row in graph.y.tolist())
    else:
        if "" in graph.classes:
            raise GraphError(f"graph {graph.name!r}, classes: CSV cannot distinguish the name '' from a missing label")
        yield ["label"]
        yield from (["" if c == MISSING else graph.classes[c]] for c in graph.y.tolist())


def _feature_cells(graph: Graph, node: int) -> list[str]:
    """Return the feature cells of one node."""
    if not graph.is_sparse:
        return _texts(graph.x[node])
    entries = slice(*graph.x.indptr[node : node + 2])
    pairs = zip(graph.x.indices[entries], _texts(graph.x.data[entries]), strict=True)
    cell = " ".join(f"{index}:{value}" for index, value in pairs)
    if len(cell) > csv.field_size_limit():
        raise GraphError(f"graph {graph.name!r}, x: node {node} has too many features for one CSV cell; use .npz")
    return [cell]


def _texts(values: Array) -> list[str]:
    """Return the shortest text of each float32 from which the same float32 is read.

    Readers parse the text as a float64 and round it to a float32. For a few numbers, such as 7.038531e-26, this double
    rounding gives a neighbouring float32. These numbers are written with the digits of the float64 that they equal.
    """
    texts = values.astype(str)
    changed = texts.astype(np.float64).astype(np.float32) != values
    texts[changed] = values[changed].astype(np.float64).astype(str)
    return [text.removesuffix(".0") for text in texts.tolist()]


def read_csv(folder: str | Path, name: str | None = None, **options: Any) -> Graph:
    """Read a graph from a folder of CSV files, written by `write_csv` or by hand.

    `nodes.csv` has one row per node and determines the order of the nodes. Its columns are:

    - `id`: Any text. Each id must be unique.
    - `x0`, `x1`, …: Dense features. Or `features`: sparse features as `index:value` pairs ("3:1 17:2.5").
    - `label` (optional): The name of the class; empty if the label is missing. If nodes have several labels, there is
      one column `label:<class>` of 0 and 1 per class instead; all of them are empty if the labels are missing.
    - `mask:<name>` (optional): A mask of 0 and 1.

    `edges.csv` has the columns `source` and `destination`, which contain ids of `nodes.csv`.

    `graph.json` is optional, and so is each of its keys:

    - `name`: Name of the graph. The name of the folder by default.
    - `classes`: Names of the classes. The sorted label names by default.
    - `features`: Number of feature columns. The highest index of a sparse feature plus 1 by default.
    - `undirected`: Whether each edge stands for both directions.

    Feature columns are numbered, not named, so that two folders cannot have the same columns in different orders.

    Args:
        folder: Path of the folder.
        name: Name of the graph. It overrides `graph.json`.
        **options: Further arguments of `Graph`. The option `classes` overrides `graph.json`.

    Raises:
        GraphError: A file is not valid. The message names the file, the row and the value.
    """
    folder = Path(folder)
    path = folder / "graph.json"
    info: dict[str, Any] = {}
    if path.exists():
        types = {"name": str, "classes": list, "features": int, "undirected": bool}
        info = read_info(path.read_bytes(), str(path), types)
    if "classes" in options:
        info["classes"] = list(options.pop("classes"))
    ids, fields = _read_nodes(folder / "nodes.csv", info)
    path, edges = folder / "edges.csv", []
    header, rows = _table(path)
    if sorted(header) != ["destination", "source"]:
        raise GraphError(f"{path}: expected the columns source, destination; got {', '.join(header)}")
    for where, cell in rows:
        for end in ("source", "destination"):
            if cell[end] not in ids:
                raise GraphError(f"{where}: {end} {cell[end]!r} is not an id of nodes.csv")
        edges.append((ids[cell["source"]], ids[cell["destination"]]))
    options["undirected"] = options.get("undirected", False) or info.get("undirected", False)
    name = name or info.get("name") or folder.absolute().name
    with error_prefix(folder):
        return Graph(name, edges=np.array(edges, dtype=np.int64).reshape(-1, 2).T, **fields, **options)


def _read_nodes(path: Path, info: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the node index of each id in `nodes.csv`, and the arguments `x`, `y`, `classes` and `masks` of `Graph`."""
    header, rows = _table(path)
    dense = [f"x{i}" for i in range(sum(bool(re.fullmatch("x[0-9]+", column)) for column in header))]
    several = [column for column in header if column.startswith("label:")]
    single = "label" in header and not several
    masks: dict[str, list[bool]] = {column: [] for column in header if column.startswith("mask:")}
    expected = {"id", *(dense or ["features"]), *several, *(["label"] if single else []), *masks}
    if set(header) != expected:
        raise GraphError(
            f"{path}: missing columns {sorted(expected - set(header))}, unknown columns "
            f"{sorted(set(header) - expected)}; expected id, x0, x1, … or features, and optionally label or "
            "label:<class> for each class, and mask:<name>"
        )
    width, classes = info.get("features", len(dense) or None), info.get("classes")
    if dense and width != len(dense):
        raise GraphError(f"{path}: expected {width} feature columns as in graph.json, got {len(dense)}")
    if several:
        classes = [c.removeprefix("label:") for c in several] if classes is None else classes
        if sorted(several) != sorted(f"label:{name}" for name in classes):
            raise GraphError(f"{path}: columns {', '.join(several)} do not match the classes of graph.json, {classes}")
        several = [f"label:{name}" for name in classes]

    ids: dict[str, int] = {}
    labels: list[Any] = []
    values: list[Any] = []
    indices: list[list[int]] = []
    for where, cell in rows:
        if cell["id"] in ids:
            raise GraphError(f"{where}: id {cell['id']!r} occurs twice")
        ids[cell["id"]] = len(ids)
        if dense:
            values.append(np.array([_number(cell[column], where, column) for column in dense]))
        else:
            pairs = [pair.partition(":") for pair in cell["features"].split()]
            indices.append([_index(index, width, where) for index, _, _ in pairs])
            values.append([_number(value, where, "features") for _, _, value in pairs])
            if len(set(indices[-1])) < len(pairs):
                raise GraphError(f"{where}, features: an index occurs twice in {cell['features']!r}")
        if several:
            known = any(cell[column] for column in several)
            labels.append([_boolean(cell[c], where, c) if known else MISSING for c in several])
        elif single:
            if cell["label"] and classes is not None and cell["label"] not in classes:
                raise GraphError(f"{where}: label {cell['label']!r} is not one of the classes {classes}")
            if classes is None and cell["label"].lower() in ("-1", "nan"):
                raise GraphError(
                    f"{where}: label {cell['label']!r}: leave the cell empty if the label is missing, "
                    "or list it in the classes of graph.json"
                )
            labels.append(cell["label"])
        for column, mask in masks.items():
            mask.append(_boolean(cell[column], where, column))
    if not ids:
        raise GraphError(f"{path}: the file must have at least one node, got none")

    x: Any = np.array(values) if dense else _csr(indices, values, width)
    if single:
        classes = _sorted_names(set(labels) - {""}) if classes is None else classes
        code = {**{name: i for i, name in enumerate(classes)}, "": MISSING}
        labels = [code[label] for label in labels]
    y = np.array(labels) if labels else None
    masks_by_name = {column.removeprefix("mask:"): np.array(mask) for column, mask in masks.items()}
    return ids, {"x": x, "y": y, "classes": tuple(classes or ()), "masks": masks_by_name}


def _sorted_names(names: set[str]) -> list[str]:
    """Sort names: by value if all of them are integers, else alphabetically."""
    return sorted(names, key=int) if all(re.fullmatch("[0-9]{1,9}", name) for name in names) else sorted(names)


def node_ids(folder: str | Path) -> list[str]:
    """Return the node ids of a folder of CSV files, in the order of the graph's nodes."""
    _, rows = _table(Path(folder) / "nodes.csv")
    return [cell["id"] for _, cell in rows]


def _csr(indices: list[list[int]], values: list[list[float]], width: int | None) -> Any:
    """Return rows of indices and values as a CSR matrix. The default width is the highest index plus 1."""
    flat = np.array([index for row in indices for index in row], dtype=np.int64)
    data = np.array([value for row in values for value in row])
    if width is None:
        width = int(flat.max(initial=-1)) + 1
    return sp.csr_array((data, flat, np.cumsum([0, *map(len, indices)])), shape=(len(indices), width))


def _table(path: Path) -> tuple[list[str], Iterator[tuple[str, dict[str, str]]]]:
    """Return the header of a CSV file, and its rows as ("<file>, row <n>", cells by column). The header is row 1."""

    def lines() -> Iterator[tuple[str, list[str]]]:
        row = 0
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:  # spreadsheets write a byte order mark
                for row, cells in enumerate(csv.reader(file, strict=True), 1):
                    if cells:  # not a blank line
                        yield f"{path}, row {row}", cells
        except (csv.Error, UnicodeDecodeError) as error:
            raise GraphError(f"{path}, row {row + 1}: not valid CSV in UTF-8 ({error})") from error

    def by_column() -> Iterator[tuple[str, dict[str, str]]]:
        for where, cells in rows:
            if len(cells) != len(header):
                raise GraphError(f"{where}: expected {len(header)} cells, got {len(cells)}")
            yield where, dict(zip(header, cells, strict=True))

    rows = lines()
    _, header = next(rows, ("", []))
    if not header or len(set(header)) < len(header):
        raise GraphError(f"{path}: the header must name each column once, got {header}")
    return header, by_column()


def _number(text: str, where: str, column: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise GraphError(f"{where}, {column}: {text!r} is not a finite number")
    return number


def _index(text: str, width: int | None, where: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or (width is not None and int(text) >= width):
        legal = "0, 1, …" if width is None else f"0 … {width - 1}"
        raise GraphError(f"{where}, features: {text!r} is not a feature index ({legal})")
    return int(text)


def _boolean(text: str, where: str, column: str) -> bool:
    if text.lower() not in BOOLEANS:
        raise GraphError(f"{where}, {column}: {text!r} is not one of {', '.join(BOOLEANS)}")
    return BOOLEANS[text.lower()]
