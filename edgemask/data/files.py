"""Graphs in and out of users' files: PyTorch Geometric, `.npz`, a folder of CSV, and `.mat`.

Every form gives back exactly the graph it was given: name, content and types. What a form cannot hold it
refuses to write. The project's own forms (`.npz`, CSV) refuse to read what they do not know; the others
(PyTorch Geometric, `.mat`) may carry what a `Graph` cannot hold, such as edge weights, which is left behind
with a `GraphWarning` naming it. Files are replaced whole or not at all.

Readers pass the options they do not take (`undirected=True`, `duplicates="merge"`, …) on to `Graph`.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.io
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from edgemask.graph import MISSING, Array, Graph, GraphError, GraphWarning

BOOLEANS = {"1": True, "0": False, "true": True, "false": False}


def read_graph(path: str | Path, **options: Any) -> Graph:
    """The graph of an `.npz` file, a `.mat` file or a CSV folder."""
    readers: dict[str, Callable[..., Graph]] = {".npz": read_npz, ".mat": read_mat, "": read_csv}
    return readers[_form(path)](path, **options)


def write_graph(graph: Graph, path: str | Path) -> None:
    """Write a graph to an `.npz` file, a `.mat` file or, where the path has no suffix, a CSV folder."""
    {".npz": write_npz, ".mat": write_mat, "": write_csv}[_form(path)](graph, path)


def _form(path: str | Path) -> str:
    suffix = "" if Path(path).is_dir() else Path(path).suffix.lower()
    if suffix not in (".npz", ".mat", ""):
        known = ".npz, .mat, or a folder (no suffix) of nodes.csv and edges.csv"
        raise GraphError(f"{path}: no form of graph file ends in {suffix!r}; known forms: {known}")
    return suffix


# ---- PyTorch Geometric -------------------------------------------------------------------------------


def from_pyg(data: Data, name: str, **options: Any) -> Graph:
    """The graph of a PyTorch Geometric `Data`.

    Taken are `x` (dense or sparse), `edge_index`, `y` (N or N × 1; N × C with several labels per node;
    -1 = missing), `classes` (their names) and every `*_mask`. All else, `edge_attr` and `edge_weight`
    included, a `Graph` cannot hold: it is left behind with a `GraphWarning`.
    """
    stored = data.to_dict()
    for field in ("x", "edge_index"):
        if stored.get(field) is None:
            raise GraphError(f"graph {name!r}, {field}: the data has none")
    masks = sorted(key for key in stored if key.endswith("_mask"))
    left = sorted(stored.keys() - {"x", "edge_index", "y", "classes", "num_nodes", *masks})
    if left:
        warnings.warn(f"graph {name!r}: cannot hold {', '.join(left)}, left behind", GraphWarning, stacklevel=2)
    y, classes = _numpy(stored.get("y")), tuple(stored.get("classes", ()))
    if np.ndim(y) == 2 and y.shape[1] == 1 and len(classes) != 1:  # a column of labels, not one class yes or no
        y = y[:, 0]
    x, edges = _numpy(stored["x"]), _numpy(stored["edge_index"])
    return Graph(name, x, edges, y, classes, {m.removesuffix("_mask"): _numpy(stored[m]) for m in masks}, **options)


def to_pyg(graph: Graph) -> Data:
    """A PyTorch Geometric `Data` of copies: `x` (a sparse CSR tensor where the features are sparse),
    `edge_index`, `y` with -1 for missing where there are labels, `<name>_mask` for each mask, `classes`."""
    if graph.is_sparse:
        indptr, indices, values = map(torch.tensor, (graph.x.indptr, graph.x.indices, graph.x.data))
        x = torch.sparse_csr_tensor(indptr, indices, values, graph.x.shape, check_invariants=True)
    else:
        x = torch.tensor(graph.x)
    data = Data(x=x, edge_index=torch.tensor(graph.edges), classes=graph.classes)
    if graph.y is not None:
        data.y = torch.tensor(graph.y)
    for name, mask in graph.masks.items():
        data[f"{name}_mask"] = torch.tensor(mask)
    return data


def _numpy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu()
    if value.layout == torch.strided:
        return value.numpy()
    value = value.to_sparse_coo().coalesce()
    return sp.coo_array((value.values().numpy(), tuple(value.indices().numpy())), shape=tuple(value.shape))


# ---- .npz --------------------------------------------------------------------------------------------


def write_npz(graph: Graph, path: str | Path) -> None:
    """Write a graph to a compressed `.npz`. Its fields, none of which needs unpickling:

    `info`   JSON text: `name`, `classes`, and `masks`, the names of the rows of the field `masks`
    `x`      N × d float32; sparse features in CSR as `x_data`, `x_indices`, `x_indptr`, `x_shape` instead
    `edges`  2 × M int64
    `masks`  masks × N booleans
    `y`      N int64 or N × C int8; not there in a graph without labels
    """
    info = {"name": graph.name, "classes": graph.classes, "masks": list(graph.masks)}
    masks = np.array(list(graph.masks.values()), dtype=bool).reshape(-1, graph.num_nodes)
    fields: dict[str, Any] = {"info": json.dumps(info), "edges": graph.edges, "masks": masks}
    if graph.is_sparse:
        fields |= {f"x_{part}": getattr(graph.x, part) for part in ("data", "indices", "indptr", "shape")}
    else:
        fields["x"] = graph.x
    if graph.y is not None:
        fields["y"] = graph.y
    with _replacing(Path(path)) as file:
        np.savez_compressed(file, **fields)


def read_npz(path: str | Path, name: str | None = None, **options: Any) -> Graph:
    """The graph of a file that `write_npz` wrote; `name` overrides the name in it."""

    def unzip(file: Any) -> dict[str, Any]:
        with np.load(file, allow_pickle=False) as archive:
            return {field: archive[field] for field in archive.files}

    with _blaming(path):
        fields = _decoded(path, ".npz archive", unzip)
        types = {"name": str, "classes": list, "masks": list}
        info = _info(str(_take(fields, "info")), "info", types)
        for key in types.keys() - info.keys():
            raise GraphError(f"info: {key!r} is missing")
        edges, masks, y = _take(fields, "edges"), _take(fields, "masks"), fields.pop("y", None)
        if masks.ndim != 2 or len(masks) != len(info["masks"]):
            raise GraphError(f"masks: shape {masks.shape} for the {len(info['masks'])} names in info")
        if "x" in fields:
            x = fields.pop("x")
        else:
            data, *index = (_take(fields, f"x_{part}") for part in ("data", "indices", "indptr", "shape"))
            if any(part.dtype.kind not in "iu" for part in index):
                raise GraphError("x_indices, x_indptr and x_shape must be integers")
            indices, indptr, shape = index
            try:
                x = sp.csr_array((data, indices, indptr), shape=tuple(shape))
            except (ValueError, TypeError) as error:
                raise GraphError(f"x_data, x_indices, x_indptr and x_shape make no matrix: {error}") from error
        if fields:
            raise GraphError(f"field {min(fields)!r} is not known")
        named = dict(zip(info["masks"], masks, strict=True))
        return Graph(name or info["name"], x, edges, y, tuple(info["classes"]), named, **options)


# ---- CSV folder --------------------------------------------------------------------------------------


def write_csv(graph: Graph, folder: str | Path) -> None:
    """Write a graph to a folder of CSV, in the layout of `read_csv`. Node ids are 0 … N - 1, numbers the
    shortest text that reads back as the same float32, and an undirected edge is written once."""
    folder, labels, undirected = Path(folder), _label_cells(graph), graph.is_undirected
    folder.mkdir(parents=True, exist_ok=True)
    columns = ["features"] if graph.is_sparse else [f"x{i}" for i in range(graph.num_features)]
    with _replacing(folder / "nodes.csv", text=True) as file:
        table = csv.writer(file)
        table.writerow(["id", *next(labels), *(f"mask:{name}" for name in graph.masks), *columns])
        for node, label in enumerate(labels):
            masks = [int(mask[node]) for mask in graph.masks.values()]
            table.writerow([node, *label, *masks, *_feature_cells(graph, node)])
    with _replacing(folder / "edges.csv", text=True) as file:
        table = csv.writer(file)
        table.writerow(["source", "destination"])
        table.writerows(edge for edge in graph.edges.T.tolist() if not undirected or edge[0] < edge[1])
    info = {"name": graph.name, "classes": graph.classes, "features": graph.num_features}
    with _replacing(folder / "graph.json", text=True) as file:
        json.dump({**info, "undirected": undirected}, file, ensure_ascii=False, indent=2)


def _label_cells(graph: Graph) -> Iterator[list[Any]]:
    """The names of the label columns, then the label cells of every node."""
    if graph.y is None:
        yield from ([] for _ in range(graph.num_nodes + 1))
    elif graph.is_multilabel:
        yield [f"label:{name}" for name in graph.classes]
        yield from (["" if c == MISSING else c for c in row] for row in graph.y.tolist())
    else:
        if "" in graph.classes:
            raise GraphError(f"graph {graph.name!r}, classes: CSV cannot tell the name '' from a missing label")
        yield ["label"]
        yield from (["" if c == MISSING else graph.classes[c]] for c in graph.y.tolist())


def _feature_cells(graph: Graph, node: int) -> list[str]:
    if not graph.is_sparse:
        return _texts(graph.x[node])
    part = slice(*graph.x.indptr[node : node + 2])
    pairs = zip(graph.x.indices[part], _texts(graph.x.data[part]), strict=True)
    cell = " ".join(f"{index}:{value}" for index, value in pairs)
    if len(cell) > csv.field_size_limit():
        raise GraphError(f"graph {graph.name!r}, x: node {node} has too many features for a CSV cell; use .npz")
    return [cell]


def _texts(values: Array) -> list[str]:
    """The shortest text of each float32 that comes back when it is read as a float64 and rounded. Rounding
    twice makes a neighbour of a few, 7.038531e-26 for one; those are written as the float64 they equal."""
    texts = values.astype(str)
    off = texts.astype(np.float64).astype(np.float32) != values
    texts[off] = values[off].astype(np.float64).astype(str)
    return [text.removesuffix(".0") for text in texts.tolist()]


def read_csv(folder: str | Path, name: str | None = None, **options: Any) -> Graph:
    """The graph of a folder of CSV files, written by `write_csv` or by hand.

    `nodes.csv`   a row per node, in the order the graph keeps. Columns: `id`, any text, each once; features,
                  either `x0`, `x1`, … or one column `features` of `index:value` pairs ("3:1 17:2.5");
                  optional `label`, a class name, empty = missing (several labels per node: a column
                  `label:<class>` of 0/1 for each class, all empty = missing); optional `mask:<name>` of 0/1.
    `edges.csv`   columns `source`, `destination`: ids of `nodes.csv`.
    `graph.json`  optional, as is each key in it: `name` (else the folder's), `classes` (else the label names,
                  sorted), `features`, the width (else up to the highest index), and `undirected`, true where
                  an edge stands for both directions.

    Feature columns are numbered, not named, so that two folders cannot disagree on their order unseen.
    """
    folder = Path(folder)
    path, info = folder / "graph.json", {}
    if path.exists():
        types = {"name": str, "classes": list, "features": int, "undirected": bool}
        info = _info(path.read_bytes(), str(path), types)
    ids, fields = _read_nodes(folder / "nodes.csv", info)
    path, edges = folder / "edges.csv", []
    header, rows = _table(path)
    if sorted(header) != ["destination", "source"]:
        raise GraphError(f"{path}: expected the columns source, destination; got {', '.join(header)}")
    for where, cell in rows:
        for end in ("source", "destination"):
            if cell[end] not in ids:
                raise GraphError(f"{where}: {end} {cell[end]!r} is no id in nodes.csv")
        edges.append((ids[cell["source"]], ids[cell["destination"]]))
    options["undirected"] = options.get("undirected", False) or info.get("undirected", False)
    name = name or info.get("name") or folder.absolute().name
    with _blaming(folder):
        return Graph(name, edges=np.array(edges, dtype=np.int64).reshape(-1, 2).T, **fields, **options)


def _read_nodes(path: Path, info: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    """The node of each id in a `nodes.csv`, and the fields `x`, `y`, `classes` and `masks` of its graph."""
    header, rows = _table(path)
    dense = [f"x{i}" for i in range(sum(bool(re.fullmatch("x[0-9]+", column)) for column in header))]
    several = [column for column in header if column.startswith("label:")]
    single = "label" in header and not several
    masks: dict[str, list[bool]] = {column: [] for column in header if column.startswith("mask:")}
    expected = {"id", *(dense or ["features"]), *several, *(["label"] if single else []), *masks}
    if set(header) != expected:
        raise GraphError(
            f"{path}: missing columns {sorted(expected - set(header))}, unknown columns "
            f"{sorted(set(header) - expected)}; expected id, then x0, x1, … or features, and where there are "
            "any, label or a label:<class> for each class, and mask:<name>"
        )
    width, classes = info.get("features", len(dense) or None), info.get("classes")
    if dense and width != len(dense):
        raise GraphError(f"{path}: {len(dense)} feature columns, but graph.json says {width}")
    if several:
        classes = [c.removeprefix("label:") for c in several] if classes is None else classes
        if sorted(several) != sorted(f"label:{name}" for name in classes):
            raise GraphError(f"{path}: columns {', '.join(several)}, but graph.json has the classes {classes}")
        several = [f"label:{name}" for name in classes]

    ids: dict[str, int] = {}
    labels: list[Any] = []
    values: list[Any] = []
    indices: list[list[int]] = []
    for where, cell in rows:
        if cell["id"] in ids:
            raise GraphError(f"{where}: id {cell['id']!r} is there twice")
        ids[cell["id"]] = len(ids)
        if dense:
            values.append(np.array([_number(cell[column], where, column) for column in dense]))
        else:
            pairs = [pair.partition(":") for pair in cell["features"].split()]
            indices.append([_index(index, width, where) for index, _, _ in pairs])
            values.append([_number(value, where, "features") for _, _, value in pairs])
            if len(set(indices[-1])) < len(pairs):
                raise GraphError(f"{where}, features: an index is there twice in {cell['features']!r}")
        if several:
            known = any(cell[column] for column in several)
            labels.append([_boolean(cell[c], where, c) if known else MISSING for c in several])
        elif single:
            if cell["label"] and classes is not None and cell["label"] not in classes:
                raise GraphError(f"{where}: label {cell['label']!r} is not among the classes {classes}")
            labels.append(cell["label"])
        for column, mask in masks.items():
            mask.append(_boolean(cell[column], where, column))
    if not ids:
        raise GraphError(f"{path}: no nodes")

    x: Any = np.array(values) if dense else _csr(indices, values, width)
    if single:
        classes = sorted(set(labels) - {""}) if classes is None else classes
        code = {**{name: i for i, name in enumerate(classes)}, "": MISSING}
        labels = [code[label] for label in labels]
    y = np.array(labels) if labels else None
    named = {column.removeprefix("mask:"): np.array(mask) for column, mask in masks.items()}
    return ids, {"x": x, "y": y, "classes": tuple(classes or ()), "masks": named}


def _csr(indices: list[list[int]], values: list[list[float]], width: int | None) -> Any:
    flat = np.array([index for row in indices for index in row], dtype=np.int64)
    data = np.array([value for row in values for value in row])
    if width is None:
        width = int(flat.max(initial=-1)) + 1
    return sp.csr_array((data, flat, np.cumsum([0, *map(len, indices)])), shape=(len(indices), width))


def _table(path: Path) -> tuple[list[str], Iterator[tuple[str, dict[str, str]]]]:
    """The header of a CSV file, and its rows as ("<file>, row <n>", cells by column); the header is row 1."""

    def lines() -> Iterator[tuple[str, list[str]]]:
        row = 0
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:  # spreadsheets put a byte order mark
                for row, cells in enumerate(csv.reader(file, strict=True), 1):
                    if cells:  # not a blank line
                        yield f"{path}, row {row}", cells
        except (csv.Error, UnicodeDecodeError) as error:
            raise GraphError(f"{path}, row {row + 1}: is no CSV in UTF-8 ({error})") from error

    def by_column() -> Iterator[tuple[str, dict[str, str]]]:
        for where, cells in rows:
            if len(cells) != len(header):
                raise GraphError(f"{where}: {len(cells)} cells for {len(header)} columns")
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
        raise GraphError(f"{where}, {column}: {text!r} is none of {', '.join(BOOLEANS)}")
    return BOOLEANS[text.lower()]


# ---- .mat --------------------------------------------------------------------------------------------


def write_mat(graph: Graph, path: str | Path) -> None:
    """Write a graph to a `.mat` in the citation layout:

    `network`  N × N, 1 at (source, destination) of each edge
    `attrb`    N × d features
    `group`    N × C, 1 for each label of a node; a row of zeros = missing, an empty matrix = no labels

    and, beside the layout, `name`, `multilabel` (may a node have several labels) and, unless they are
    "0" … "C-1", the names of the `classes`. The layout has no place for masks: a graph with masks is refused.
    """
    if graph.masks:
        raise GraphError(f"graph {graph.name!r}, masks: a .mat file cannot hold them ({', '.join(graph.masks)})")
    if "\0" in graph.name + "".join(graph.classes):
        raise GraphError(f"graph {graph.name!r}, name or classes: a .mat file cannot hold the character NUL")
    if graph.y is None:
        group = np.zeros((0, 0), dtype=bool)
    else:
        group = graph.y == 1 if graph.is_multilabel else graph.y[:, None] == np.arange(graph.num_classes)
        bare = np.flatnonzero(graph.labelled & ~group.any(1))
        if len(bare):
            raise GraphError(
                f"graph {graph.name!r}, y: node {bare[0]} has none of the classes, "
                "which a .mat file cannot tell from a missing label"
            )
    shape, (source, destination) = (graph.num_nodes, graph.num_nodes), graph.edges
    fields: dict[str, Any] = {
        "network": sp.csc_array((np.ones(graph.num_edges), (source, destination)), shape=shape),
        "attrb": graph.x,
        "name": graph.name,
        "multilabel": graph.is_multilabel,
    }
    if graph.classes != tuple(map(str, range(group.shape[1]))):
        fields["classes"] = np.array(graph.classes, dtype=object)
    fields["group"] = group.astype(np.uint8)  # last, so that no file cut short passes for one without labels
    with _replacing(Path(path)) as file:
        scipy.io.savemat(file, fields, do_compression=True)


def read_mat(
    path: str | Path,
    name: str | None = None,
    *,
    labels: Literal["first", "all"] | None = None,
    **options: Any,
) -> Graph:
    """The graph of a `.mat` in the layout of `write_mat`, where only `network`, `attrb` and `group` must be.

    `name`    overrides the file's `name`; without either it is the stem of the path.
    `labels`  `"first"`: one label per node, its first; `"all"`: N × C. By default as the file's `multilabel`
              says, and `"first"` without it.

    Weights in `network` are left behind with a `GraphWarning`. Read files of known origin only: they are
    parsed by compiled code of SciPy's that a crafted file can crash.
    """
    if labels not in ("first", "all", None):
        raise ValueError(f"labels must be 'first' or 'all', got {labels!r}")
    known = ["network", "attrb", "group", "name", "classes", "multilabel"]
    with _blaming(path):
        fields = _decoded(path, ".mat file", lambda file: scipy.io.loadmat(file, variable_names=known))
        network, x, group = (_matrix(fields, field) for field in known[:3])
        network, group, n = sp.coo_array(network), sp.coo_array(group).toarray(), x.shape[0]
        if network.shape != (n, n):
            raise GraphError(f"network: expected {n} × {n} for the {n} rows of attrb, got shape {network.shape}")
        if len(group) != n and group.shape != (0, 0):
            raise GraphError(f"group: expected {n} rows for the {n} rows of attrb, got {len(group)}")
        if not np.isin(group, (0, 1)).all():
            raise GraphError(f"group: expected 0 and 1, got {group[(group != 0) & (group != 1)][0]}")
        network.eliminate_zeros()
        if (network.data != 1).any():
            weight = network.data[network.data != 1][0]
            message = f"{path}, network: cannot hold weights (the first is {weight}), left behind"
            warnings.warn(message, GraphWarning, stacklevel=2)
        y = None
        if group.shape != (0, 0):
            y = np.where(group.any(1, keepdims=True), group.astype(np.int8), MISSING)
            if labels == "first" or (labels is None and not np.any(fields.get("multilabel", False))):
                y = np.full(n, MISSING)
                nodes, columns = np.nonzero(group)
                y[nodes[::-1]] = columns[::-1]  # backwards, so that a node's first label is set last
        names = fields.get("classes", np.arange(group.shape[1]).astype(str))
        classes = tuple(_text(value, "classes") for value in np.ravel(names))
        if y is not None and len(classes) != group.shape[1]:
            raise GraphError(f"classes: {len(classes)} names for the {group.shape[1]} columns of group")
        name = name or _text(fields.get("name", ""), "name") or Path(path).stem
        return Graph(name, x, np.stack([network.row, network.col]), y, classes, **options)


def _matrix(fields: dict[str, Any], field: str) -> Any:
    value = _take(fields, field)
    if value.ndim != 2 or value.dtype.kind not in "fiub":
        raise GraphError(f"{field}: expected a numeric matrix, got {value.dtype} of shape {value.shape}")
    if hasattr(value, "check_format"):  # sparse
        try:
            value.check_format(full_check=True)
        except ValueError as error:
            raise GraphError(f"{field}: is no valid sparse matrix: {error}") from error
    return value


def _text(value: Any, field: str) -> str:
    flat = np.ravel(value)
    if flat.dtype.kind != "U" or flat.size > 1:
        raise GraphError(f"{field}: expected text, got {value!r}")
    return str(flat[0]) if flat.size else ""


# ---- what the forms share ----------------------------------------------------------------------------


@contextmanager
def _replacing(path: Path, *, text: bool = False) -> Iterator[Any]:
    """A file that takes the place of `path` once all is written, and not before."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    mode, encoding, newline = ("x", "utf-8", "") if text else ("xb", None, None)
    try:
        with draft.open(mode, encoding=encoding, newline=newline) as file:
            yield file
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _blaming(path: str | Path) -> Iterator[None]:
    """Puts the path before what a `GraphError` says."""
    try:
        yield
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error


def _decoded(path: str | Path, kind: str, decode: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    with Path(path).open("rb") as file:
        try:
            return decode(file)
        except Exception as error:  # a damaged file fails in more ways than can be listed
            raise GraphError(f"is no readable {kind} ({type(error).__name__}: {error})") from error


def _take(fields: dict[str, Any], field: str) -> Any:
    if field not in fields:
        raise GraphError(f"field {field!r} is missing")
    return fields.pop(field)


def _info(text: str | bytes, where: str, types: Mapping[str, type]) -> dict[str, Any]:
    """A JSON object whose keys and value types are among `types`; a list holds text."""
    try:
        info: Any = json.loads(text)
    except ValueError as error:
        raise GraphError(f"{where}: is no JSON ({error})") from error
    if not isinstance(info, dict):
        raise GraphError(f"{where}: expected a JSON object, got {type(info).__name__}")
    for key, value in info.items():
        if key not in types:
            raise GraphError(f"{where}: {key!r} is not known (known: {', '.join(types)})")
        texts = not isinstance(value, list) or all(isinstance(item, str) for item in value)
        if type(value) is not types[key] or not texts:
            raise GraphError(f"{where}, {key}: expected {types[key].__name__}, got {value!r}")
    return info
