"""Graphs in and out of users' files: PyTorch Geometric, `.npz`, a folder of CSV, and `.mat`.

Every form gives back exactly the graph it was given: name, content and types. What a form cannot hold it
refuses to write. The project's own forms (`.npz`, CSV) refuse to read what they do not know; the others
(PyTorch Geometric, `.mat`) may carry what a `Graph` cannot hold, such as edge weights, which is left behind
with a `GraphWarning` naming it. Files are replaced whole or not at all.

Readers pass the options they do not take (`undirected=True`, `duplicates="merge"`, …) on to `Graph`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.io
import scipy.sparse as sp
import torch

from edgemask.data.csv_folder import read_csv, write_csv
from edgemask.data.forms import blaming, read_info
from edgemask.errors import GraphError, GraphWarning, InputError
from edgemask.graph import MISSING, Graph
from edgemask.runtime.atomic import replacing

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = [
    "from_pyg",
    "read_csv",
    "read_graph",
    "read_mat",
    "read_npz",
    "to_pyg",
    "write_csv",
    "write_graph",
    "write_mat",
    "write_npz",
]


OPTIONS = ("name", "undirected", "duplicates", "self_loops", "isolated")  # of reading any form of file


def read_graph(path: str | Path, **options: Any) -> Graph:
    """The graph of an `.npz` file, a `.mat` file or a CSV folder; `options` are settings of `Graph`."""
    readers: dict[str, Callable[..., Graph]] = {".npz": read_npz, ".mat": read_mat, "": read_csv}
    form = _form(path)
    known = (*OPTIONS, *{".mat": ["labels"], "": ["classes"]}.get(form, []))
    if unknown := options.keys() - set(known):
        raise InputError(f"{path}: no option {min(unknown)!r} of reading a graph (options: {', '.join(known)})")
    return readers[form](path, **options)


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
    -1 = missing), `classes` (their names; the option of that name goes before) and every `*_mask`. All
    else, masks of several splits, `edge_attr` and `edge_weight`
    included, a `Graph` cannot hold: it is left behind with a `GraphWarning`.
    """
    stored = data.to_dict()
    for field in ("x", "edge_index"):
        if stored.get(field) is None:
            raise GraphError(f"graph {name!r}, {field}: the data has none")
    masks = sorted(key for key in stored if key.endswith("_mask") and np.ndim(stored[key]) != 2)
    left = sorted(stored.keys() - {"x", "edge_index", "y", "classes", "num_nodes", *masks})
    if left:
        warnings.warn(f"graph {name!r}: cannot hold {', '.join(left)}, left behind", GraphWarning, stacklevel=2)
    y, classes = _numpy(stored.get("y")), tuple(options.pop("classes", stored.get("classes", ())))
    if np.ndim(y) == 2 and y.shape[1] == 1 and len(classes) != 1:  # a column of labels, not one class yes or no
        y = y[:, 0]
    x, edges = _numpy(stored["x"]), _numpy(stored["edge_index"])
    return Graph(name, x, edges, y, classes, {m.removesuffix("_mask"): _numpy(stored[m]) for m in masks}, **options)


def to_pyg(graph: Graph) -> Data:
    """A PyTorch Geometric `Data` of copies: `x` (a sparse CSR tensor where the features are sparse),
    `edge_index`, `y` with -1 for missing where there are labels, `<name>_mask` for each mask, `classes`."""
    from torch_geometric.data import Data  # takes as long to import as torch itself, and only this needs it

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
    with replacing(Path(path)) as file:
        np.savez_compressed(file, **fields)


def read_npz(path: str | Path, name: str | None = None, **options: Any) -> Graph:
    """The graph of a file that `write_npz` wrote; `name` overrides the name in it."""

    def unzip(file: Any) -> dict[str, Any]:
        with np.load(file, allow_pickle=False) as archive:
            return {field: archive[field] for field in archive.files}

    with blaming(path):
        fields = _decoded(path, ".npz archive", unzip)
        types = {"name": str, "classes": list, "masks": list}
        info = read_info(str(_take(fields, "info")), "info", types)
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
    with replacing(Path(path)) as file:
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
        raise InputError(f"labels must be 'first' or 'all', got {labels!r}")
    known = ["network", "attrb", "group", "name", "classes", "multilabel"]
    with blaming(path):
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


# ---- what .npz and .mat share ------------------------------------------------------------------------


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
