"""Read and write graphs: PyTorch Geometric, `.npz` files, folders of CSV files, and `.mat` files.

Every format returns exactly the graph that was written: name, content and types. A writer raises an error if the format
cannot store a part of the graph. The project's own formats (`.npz`, CSV) reject fields that they do not know. The other
formats (PyTorch Geometric, `.mat`) may contain data that a `Graph` cannot store, such as edge weights. Such data is
ignored with a `GraphWarning` that names it. A file is replaced completely or not at all.

Readers pass options that are not their own (`undirected=True`, `duplicates="merge"`, …) to `Graph`.
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
from edgemask.data.forms import error_prefix, read_info
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

OPTIONS = ("name", "undirected", "duplicates", "self_loops", "isolated")  # options of all readers


def read_graph(path: str | Path, **options: Any) -> Graph:
    """Read a graph from an `.npz` file, a `.mat` file or a folder of CSV files.

    Args:
        path: Path of the file or folder. Its suffix determines the format.
        **options: `name` overrides the name in the file. `undirected`, `duplicates`, `self_loops` and `isolated` are
            arguments of `Graph`. `labels` is an option of `.mat` files (see `read_mat`), `classes` of folders (see
            `read_csv`).

    Raises:
        GraphError: The format is unknown, or the content is not valid.
        InputError: The format does not have an option.
    """
    readers: dict[str, Callable[..., Graph]] = {".npz": read_npz, ".mat": read_mat, "": read_csv}
    suffix = _format_suffix(path)
    known = (*OPTIONS, *{".mat": ["labels"], "": ["classes"]}.get(suffix, []))
    if unknown := options.keys() - set(known):
        raise InputError(f"{path}: no option {min(unknown)!r} for reading a graph (options: {', '.join(known)})")
    return readers[suffix](path, **options)


def write_graph(graph: Graph, path: str | Path) -> None:
    """Write a graph to an `.npz` file, a `.mat` file or, if the path has no suffix, a folder of CSV files.

    Args:
        graph: The graph.
        path: Path of the file or folder. Its suffix determines the format. An existing file is replaced.

    Raises:
        GraphError: The format is unknown, or it cannot store a part of the graph.
    """
    {".npz": write_npz, ".mat": write_mat, "": write_csv}[_format_suffix(path)](graph, path)


def _format_suffix(path: str | Path) -> str:
    """Return the suffix that identifies a format; it is empty for a folder."""
    suffix = "" if Path(path).is_dir() else Path(path).suffix.lower()
    if suffix not in (".npz", ".mat", ""):
        known = ".npz, .mat, or a folder (no suffix) with nodes.csv and edges.csv"
        raise GraphError(f"{path}: no graph file format has the suffix {suffix!r}; known formats: {known}")
    return suffix


# ---- PyTorch Geometric -------------------------------------------------------------------------------


def from_pyg(data: Data, name: str, **options: Any) -> Graph:
    """Return a PyTorch Geometric `Data` object as a graph.

    Fields that a `Graph` cannot store, such as `edge_attr`, `edge_weight` and masks of several splits, are ignored with
    a `GraphWarning`.

    Args:
        data: An object with `x` (dense or sparse), `edge_index` and, optionally, `y` (N or N × 1 labels, or N × C if
            nodes have several labels; -1 for missing), `classes` (names of the classes) and any `*_mask`.
        name: Name of the graph.
        **options: Arguments of `Graph`. The option `classes` overrides the names in `data`.

    Raises:
        GraphError: `x` or `edge_index` is missing, or a field is not valid.
    """
    fields = data.to_dict()
    for field in ("x", "edge_index"):
        if fields.get(field) is None:
            raise GraphError(f"graph {name!r}, {field}: the field is missing in the PyTorch Geometric data")
    masks = sorted(key for key in fields if key.endswith("_mask") and np.ndim(fields[key]) != 2)
    ignored = sorted(fields.keys() - {"x", "edge_index", "y", "classes", "num_nodes", *masks})
    if ignored:
        message = f"graph {name!r}: a Graph cannot store {', '.join(ignored)}; the data is ignored"
        warnings.warn(message, GraphWarning, stacklevel=2)
    y, classes = _numpy(fields.get("y")), tuple(options.pop("classes", fields.get("classes", ())))
    if np.ndim(y) == 2 and y.shape[1] == 1 and len(classes) != 1:  # a column of labels, not a 0/1 matrix of one class
        y = y[:, 0]
    x, edges = _numpy(fields["x"]), _numpy(fields["edge_index"])
    return Graph(name, x, edges, y, classes, {m.removesuffix("_mask"): _numpy(fields[m]) for m in masks}, **options)


def to_pyg(graph: Graph) -> Data:
    """Return a graph as a PyTorch Geometric `Data` object.

    Its tensors are copies. It has `x` (a sparse CSR tensor if the features are sparse), `edge_index`, `classes`, `y` if
    the graph has labels (-1 for missing), and `<name>_mask` for each mask.
    """
    from torch_geometric.data import Data  # this import takes as long as torch's, and only this function needs it

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
    """Convert a dense or sparse tensor to a NumPy array or SciPy matrix, and return any other value as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu()
    if value.layout == torch.strided:
        return value.numpy()
    value = value.to_sparse_coo().coalesce()
    return sp.coo_array((value.values().numpy(), tuple(value.indices().numpy())), shape=tuple(value.shape))


# ---- .npz --------------------------------------------------------------------------------------------


def write_npz(graph: Graph, path: str | Path) -> None:
    """Write a graph to a compressed `.npz` file.

    The file has these fields, none of which needs unpickling:

    - `info`: JSON text with `name`, `classes`, and `masks`, the names of the rows of the field `masks`.
    - `x`: N × d float32 features. Sparse features are stored in CSR format as `x_data`, `x_indices`, `x_indptr` and
      `x_shape` instead.
    - `edges`: 2 × M int64.
    - `masks`: One row of N booleans per mask.
    - `y`: N int64 or N × C int8 labels. The field is absent in a graph without labels.
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
    """Read a graph from a file written by `write_npz`.

    Args:
        path: Path of the file.
        name: Name of the graph. The name in the file by default.
        **options: Further arguments of `Graph`.

    Raises:
        GraphError: The file is damaged, a field is missing or unknown, or the graph is not valid.
    """

    def read_fields(file: Any) -> dict[str, Any]:
        with np.load(file, allow_pickle=False) as archive:
            return {field: archive[field] for field in archive.files}

    with error_prefix(path):
        fields = _decoded(path, ".npz archive", read_fields)
        types = {"name": str, "classes": list, "masks": list}
        info = read_info(str(_take(fields, "info")), "info", types)
        for key in types.keys() - info.keys():
            raise GraphError(f"info: {key!r} is missing")
        edges, masks, y = _take(fields, "edges"), _take(fields, "masks"), fields.pop("y", None)
        if masks.ndim != 2 or len(masks) != len(info["masks"]):
            raise GraphError(
                f"masks: expected {len(info['masks'])} rows, one per name in info, got shape {masks.shape}"
            )
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
                raise GraphError(
                    f"x_data, x_indices, x_indptr and x_shape are not a valid CSR matrix: {error}"
                ) from error
        if fields:
            raise GraphError(f"unknown field {min(fields)!r}")
        masks_by_name = dict(zip(info["masks"], masks, strict=True))
        return Graph(name or info["name"], x, edges, y, tuple(info["classes"]), masks_by_name, **options)


# ---- .mat --------------------------------------------------------------------------------------------


def write_mat(graph: Graph, path: str | Path) -> None:
    """Write a graph to a `.mat` file in the layout of the citation benchmark.

    The file has the fields of that layout:

    - `network`: An N × N matrix with 1 at (source, destination) of each edge.
    - `attrb`: N × d features.
    - `group`: An N × C matrix with 1 for each label of a node. A row of zeros means a missing label, an empty matrix
      means that the graph has no labels.

    It also has `name`, `multilabel` (whether nodes can have several labels) and, unless they are "0" … "C-1", the names
    of the `classes`.

    Raises:
        GraphError: The layout cannot store the graph: it has masks, a name with the character NUL, or a labelled node
            without a class.
    """
    if graph.masks:
        raise GraphError(f"graph {graph.name!r}, masks: a .mat file cannot store masks, got {', '.join(graph.masks)}")
    if "\0" in graph.name + "".join(graph.classes):
        raise GraphError(f"graph {graph.name!r}, name or classes: a .mat file cannot store the character NUL")
    if graph.y is None:
        group = np.zeros((0, 0), dtype=bool)
    else:
        group = graph.y == 1 if graph.is_multilabel else graph.y[:, None] == np.arange(graph.num_classes)
        classless = np.flatnonzero(graph.labelled & ~group.any(1))
        if len(classless):
            raise GraphError(
                f"graph {graph.name!r}, y: node {classless[0]} has none of the classes, "
                "which a .mat file cannot distinguish from a missing label"
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
    fields["group"] = group.astype(np.uint8)  # last, so that a truncated file is not read as a graph without labels
    with replacing(Path(path)) as file:
        scipy.io.savemat(file, fields, do_compression=True)


def read_mat(
    path: str | Path,
    name: str | None = None,
    *,
    labels: Literal["first", "all"] | None = None,
    **options: Any,
) -> Graph:
    """Read a graph from a `.mat` file in the layout of `write_mat`.

    The fields `network`, `attrb` and `group` are required. Edge weights in `network` are ignored with a `GraphWarning`.
    Read only files whose origin you trust: SciPy parses them with compiled code that a crafted file can crash.

    Args:
        path: Path of the file.
        name: Name of the graph. By default the field `name` of the file or, without it, the stem of the path.
        labels: `"first"` keeps the first label of each node, `"all"` returns an N × C matrix. The default depends on
            the field `multilabel` of the file; without it, the default is `"first"`.
        **options: Further arguments of `Graph`.

    Raises:
        GraphError: The file is damaged, a required field is missing, or a field is not valid.
        InputError: `labels` has another value.
    """
    if labels not in ("first", "all", None):
        raise InputError(f"labels must be 'first' or 'all', got {labels!r}")
    known = ["network", "attrb", "group", "name", "classes", "multilabel"]
    with error_prefix(path):
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
            message = f"{path}, network: a Graph cannot store edge weights (the first is {weight}); they are ignored"
            warnings.warn(message, GraphWarning, stacklevel=2)
        y = None
        if group.shape != (0, 0):
            y = np.where(group.any(1, keepdims=True), group.astype(np.int8), MISSING)
            if labels == "first" or (labels is None and not np.any(fields.get("multilabel", False))):
                y = np.full(n, MISSING)
                nodes, columns = np.nonzero(group)
                y[nodes[::-1]] = columns[::-1]  # in reverse order, so that a node's first label is set last
        names = fields.get("classes", np.arange(group.shape[1]).astype(str))
        classes = tuple(_text(value, "classes") for value in np.ravel(names))
        if y is not None and len(classes) != group.shape[1]:
            raise GraphError(f"classes: expected {group.shape[1]} names for the columns of group, got {len(classes)}")
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
            raise GraphError(f"{field}: not a valid sparse matrix: {error}") from error
    return value


def _text(value: Any, field: str) -> str:
    flat = np.ravel(value)
    if flat.dtype.kind != "U" or flat.size > 1:
        raise GraphError(f"{field}: expected text, got {value!r}")
    return str(flat[0]) if flat.size else ""


# ---- shared by .npz and .mat -------------------------------------------------------------------------


def _decoded(path: str | Path, kind: str, decode: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """Return the fields of a file, and raise a `GraphError` if it cannot be decoded."""
    with Path(path).open("rb") as file:
        try:
            return decode(file)
        except Exception as error:  # the exceptions of a damaged file cannot be enumerated
            raise GraphError(f"not a readable {kind} ({type(error).__name__}: {error})") from error


def _take(fields: dict[str, Any], field: str) -> Any:
    """Remove a required field and return its value."""
    if field not in fields:
        raise GraphError(f"field {field!r} is missing")
    return fields.pop(field)
