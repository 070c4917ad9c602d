"""Read and write graphs as CSV files of nodes and edges. `read_csv` documents the files."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from edgemask.data.forms import error_prefix
from edgemask.data.tables import Tables, locate
from edgemask.errors import GraphError
from edgemask.graph import MISSING, Array, Graph
from edgemask.graph.checks import sorted_names
from edgemask.graph.columns import Table
from edgemask.graph.frames import OPTIONS as TABLE_OPTIONS
from edgemask.graph.frames import ROLES, check_options, edge_fields, graph, mask_name, names_of
from edgemask.runtime.atomic import replacing

BOOLEANS = {"1": True, "0": False, "true": True, "false": False}
NUMBERED = re.compile("x[0-9]+|features")  # the feature columns that `write_csv` writes
LAYOUT = re.compile(f"id|label|label:.*|mask:.*|.*_mask|{NUMBERED.pattern}", re.DOTALL)
SEPARATORS = ";\t|"  # of files that are often called CSV, too
OVERFLOW = 2.0**128 - 2.0**103  # the smallest number that is rounded to an infinite float32
ABSENT = ("", "na", "n/a", "nan", "null", "none")  # cells of a numeric column that are not numbers


def write_csv(graph: Graph, folder: str | Path) -> None:
    """Write a graph to a folder of CSV files in the layout of `read_csv`.

    Nodes without ids are numbered 0 … N - 1. Each number is written as the shortest text that is read as the same
    float32. If the graph is undirected, each edge is written once. `graph.json` holds the names of features.

    Args:
        graph: The graph to write.
        folder: Path of the folder. It is created if it does not exist.

    Raises:
        GraphError: CSV cannot store the graph: a class has an empty name, or a node has too many sparse features.
    """
    folder, labels, undirected = Path(folder), _label_cells(graph), _is_symmetric(graph)
    folder.mkdir(parents=True, exist_ok=True)
    ids = np.arange(graph.num_nodes) if graph.node_ids is None else graph.node_ids
    columns = ["features"] if graph.is_sparse else [f"x{i}" for i in range(graph.num_features)]
    with replacing(folder / "nodes.csv", text=True) as file:
        table = csv.writer(file)
        table.writerow(["id", *next(labels), *(f"mask:{name}" for name in graph.masks), *columns])
        for node, label in enumerate(labels):
            masks = [int(mask[node]) for mask in graph.masks.values()]
            table.writerow([ids[node], *label, *masks, *_feature_cells(graph, node)])
    with replacing(folder / "edges.csv", text=True) as file:
        table = csv.writer(file)
        table.writerow(["source", "destination", *([] if graph.weights is None else ["weight"])])
        kept = graph.edges[0] < graph.edges[1] if undirected else np.ones(graph.num_edges, dtype=bool)
        weights = [] if graph.weights is None else [_texts(graph.weights[kept])]
        table.writerows(zip(*ids[graph.edges[:, kept]].tolist(), *weights, strict=True))
    info: dict[str, Any] = {"name": graph.name, "classes": graph.classes, "features": graph.num_features}
    info["undirected"] = undirected
    info |= {key: getattr(graph, key) for key in ("feature_names", "text_columns") if getattr(graph, key)}
    if graph.node_ids is not None:
        info["node_ids"] = "str" if graph.node_ids.dtype.kind == "U" else "int"
    with replacing(folder / "graph.json", text=True) as file:
        json.dump(info, file, ensure_ascii=False, indent=2)


def _is_symmetric(graph: Graph) -> bool:
    """Return whether every edge is present in both directions with the same weight."""
    if not graph.is_undirected or graph.weights is None:
        return graph.is_undirected
    reverse = np.lexsort((graph.edges[1], graph.edges[0]))
    return bool(np.array_equal(graph.weights, graph.weights[reverse]))


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
    """Read a graph from CSV files of nodes and edges, written by `write_csv` or by hand.

    `nodes.csv` has one row per node and determines the order of the nodes. It is read as `Graph.from_pandas` reads a
    table. A column is numeric if every cell that is not empty is a number, and boolean if it is true or false; all
    other columns are text. Ids are text. The column of the ids is `id` unless an option names another one.

    `write_csv` writes a layout without names, which may also be written by hand. Its columns are:

    - `id`: Any text. Each id must be unique.
    - `x0`, `x1`, …: Dense features. Or `features`: sparse features as `index:value` pairs ("3:1 17:2.5").
    - `label` (optional): The name of the class; empty if the label is missing. If nodes have several labels, there is
      one column `label:<class>` of 0 and 1 per class instead; all of them are empty if the labels are missing.
    - `mask:<name>` or `<name>_mask` (optional): A mask of 0 and 1.

    The features of this layout have no names, unless `graph.json` gives them.

    `edges.csv` has the columns `source` and `destination`, which contain ids of `nodes.csv`, and optionally `weight`.
    Other names are possible as in `Graph.from_pandas`.

    `graph.json` is optional, and so is each of its keys:

    - `name`: Name of the graph. The name of the folder by default.
    - `classes`: Names of the classes. The sorted label names by default.
    - `features`: The feature columns. In the layout without names, the number of columns; the highest index of a sparse
      feature plus 1 by default.
    - `undirected`: Whether each edge stands for both directions.
    - `id`, `label`, `text`, `source`, `destination`, `weight`: As for `Graph.from_pandas`.
    - `feature_names`, `text_columns`, `node_ids` ("int" or "str"): Written by `write_csv`.

    Args:
        folder: Path of the folder, or the paths of the two files, separated by a comma: "a_nodes.csv,a_edges.csv".
        name: Name of the graph. It overrides `graph.json`.
        **options: The options of `Graph.from_pandas`. They override `graph.json`.

    Raises:
        GraphError: A file is not valid. The message names the file, the row and the value. The header is row 1.
        InputError: There is no such option.
    """
    check_options(options, TABLE_OPTIONS)
    tables = locate(folder, ".csv", name, options)
    header, _ = _rows(tables.nodes)
    if not _has_layout(header, tables):
        return _read_table(tables)
    given, info = tables.options, tables.info
    ids, fields = _read_nodes(
        tables.nodes, info.get("width"), names_of(given["classes"]) if "classes" in given else None
    )
    edges = edge_fields(
        Table(_frame(tables.edges), str(tables.edges)), pd.Index(list(ids), dtype=object), str(tables.nodes), given
    )
    fields |= {key: tuple(info[key]) for key in ("feature_names", "text_columns") if key in info}
    with error_prefix(tables.nodes.parent):
        fields["node_ids"] = _node_ids(list(ids), info.get("node_ids"))
        policies = {key: given[key] for key in ("undirected", "duplicates", "self_loops", "isolated") if key in given}
        return Graph(tables.name, **fields, **edges, **policies)


def is_csv_copy(folder: str | Path) -> bool:
    """Return whether `write_csv` wrote the files, or `graph.json` says that they have the same layout."""
    return "width" in locate(folder, ".csv", None, {}).info


def _has_layout(header: list[str], tables: Tables) -> bool:
    """Return whether the nodes have the layout of `write_csv`, and no option asks for anything else."""
    known = all(LAYOUT.fullmatch(column) for column in header) and any(map(NUMBERED.fullmatch, header))
    return "id" in header and known and tables.options.keys().isdisjoint(ROLES)


def _read_table(tables: Tables) -> Graph:
    """Read files with columns of any names."""
    given = {"id": "id"} | tables.options  # rows have no other name
    nodes = _frame(tables.nodes)
    kept = {str(given["id"]), str(given.get("label", "label")), *names_of(given.get("text", ()))}
    for column in nodes.columns:
        if column not in kept and not column.startswith("label:"):
            nodes[column] = _typed(nodes[column].tolist(), nodes.index)
    result: Graph = graph(Graph, nodes, _frame(tables.edges), tables.name, given, tables.places)
    return result if _node_ids(list(result.node_ids), None) is not None else result.replace(node_ids=None)


def _typed(cells: list[str], index: Any) -> Any:
    """Return the cells of a column as numbers or booleans if all of them are, else as they are."""
    known = [cell for cell in cells if cell.strip().lower() not in ABSENT]
    if known and all(cell.lower() in ("true", "false") for cell in known):
        return pd.Series([{"true": True, "false": False}.get(cell.lower()) for cell in cells], index, dtype=object)
    try:
        numbers = iter([float(cell.replace("_", "?")) for cell in known])  # Python would read 1_000 as a number
    except ValueError:
        numbers = iter(())
        known = []
    if not known:
        return pd.Series(cells, index, dtype=object)
    return pd.Series([math.nan if cell.strip().lower() in ABSENT else next(numbers) for cell in cells], index)


def _node_ids(ids: list[str], kind: str | None) -> Any:
    """Return the ids of the nodes. Ids 0 … N - 1 are the row numbers, so that they need not be stored."""
    if kind == "int":
        try:
            return np.array(ids, dtype=np.int64)
        except ValueError as error:
            raise GraphError(f"nodes.csv: graph.json says that the ids are integers, but {error}") from error
    return None if kind is None and ids == [str(i) for i in range(len(ids))] else ids


def _read_nodes(path: Path, width: int | None, classes: list[str] | None) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the node index of each id in `nodes.csv`, and the arguments `x`, `y`, `classes` and `masks` of `Graph`."""
    header, rows = _rows(path)
    dense = [f"x{i}" for i in range(sum(bool(re.fullmatch("x[0-9]+", column)) for column in header))]
    several = [column for column in header if column.startswith("label:")]
    single = "label" in header and not several
    masks: dict[str, list[bool]] = {column: [] for column in header if mask_name(column) is not None}
    expected = {"id", *(dense or ["features"]), *several, *(["label"] if single else []), *masks}
    if set(header) != expected:
        raise GraphError(
            f"{path}: missing columns {sorted(expected - set(header))}, unknown columns "
            f"{sorted(set(header) - expected)}; expected id, x0, x1, … or features, and optionally label or "
            "label:<class> for each class, and mask:<name> or <name>_mask"
        )
    if dense and width not in (None, len(dense)):
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
    for row, cells in rows:
        where, cell = f"{path}, row {row}", dict(zip(header, cells, strict=True))
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
        classes = list(sorted_names(set(labels) - {""})) if classes is None else classes
        code = {**{name: i for i, name in enumerate(classes)}, "": MISSING}
        labels = [code[label] for label in labels]
    y = np.array(labels) if labels else None
    masks_by_name = {str(mask_name(column)): np.array(mask) for column, mask in masks.items()}
    if len(masks_by_name) < len(masks):
        raise GraphError(f"{path}: two of the columns {', '.join(masks)} are the same mask")
    return ids, {"x": x, "y": y, "classes": tuple(classes or ()), "masks": masks_by_name}


def _csr(indices: list[list[int]], values: list[list[float]], width: int | None) -> Any:
    """Return rows of indices and values as a CSR matrix. The default width is the highest index plus 1."""
    flat = np.array([index for row in indices for index in row], dtype=np.int64)
    data = np.array([value for row in values for value in row])
    if width is None:
        width = int(flat.max(initial=-1)) + 1
    return sp.csr_array((data, flat, np.cumsum([0, *map(len, indices)])), shape=(len(indices), width))


def _rows(path: Path) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the header of a CSV file, and its rows as (number, cells). The header is row 1."""

    def lines() -> Iterator[tuple[int, list[str]]]:
        row = 0
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:  # spreadsheets write a byte order mark
                for row, cells in enumerate(csv.reader(file, strict=True), 1):
                    if cells:  # not a blank line
                        yield row, cells
        except csv.Error as error:
            raise GraphError(f"{path}, row {row + 1}: not valid CSV ({error})") from error
        except UnicodeDecodeError as error:
            raise GraphError(
                f"{path}, line {_undecodable(path)}: not UTF-8 ({error.reason}); save it as UTF-8"
            ) from error

    def checked() -> Iterator[tuple[int, list[str]]]:
        for row, cells in rows:
            if len(cells) != len(header):
                raise GraphError(f"{path}, row {row}: expected {len(header)} cells, got {len(cells)}")
            yield row, cells

    rows = lines()
    _, header = next(rows, (0, []))
    if not header or len(set(header)) < len(header):
        raise GraphError(f"{path}: the header must name each column once, got {header}")
    if len(header) == 1 and (others := [other for other in SEPARATORS if other in header[0]]):
        raise GraphError(
            f"{path}: columns must be separated by commas, but the header has {others[0]!r}; convert the file: "
            f"pandas.read_csv(path, sep={others[0]!r}).to_csv(path, index=False), with decimal=',' if numbers have "
            "decimal commas"
        )
    return header, checked()


def _undecodable(path: Path) -> int:
    """Return the number of the first line of a file that is not UTF-8."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    raise AssertionError(f"{path} is UTF-8")


def _frame(path: Path) -> pd.DataFrame:
    """Return a CSV file as a table of text, whose index holds the numbers of the rows."""
    header, rows = _rows(path)
    numbered = list(rows)
    columns = zip(*(cells for _, cells in numbered), strict=True) if numbered else ((),) * len(header)
    data = {column: pd.Series(cells, dtype=object) for column, cells in zip(header, columns, strict=True)}
    frame = pd.DataFrame(data, columns=pd.Index(header, dtype=object))
    return frame.set_axis(pd.Index([row for row, _ in numbered], dtype=np.int64), axis=0)


def _number(text: str, where: str, column: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not abs(number) < OVERFLOW:
        kind = " as float32" if math.isfinite(number) else ""
        raise GraphError(f"{where}, {column}: {text!r} is not a finite number{kind}")
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
