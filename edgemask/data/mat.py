"""Read and write graphs as `.mat` files in the layout of the citation benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.io
import scipy.sparse as sp

from edgemask.data import mat5
from edgemask.data.forms import decoded, error_prefix, take
from edgemask.errors import GraphError, InputError
from edgemask.graph import MISSING, Array, Graph
from edgemask.limits import check_size
from edgemask.runtime.atomic import replacing

NAMES = ("feature_names", "text_columns", "node_ids")  # optional fields


def write_mat(graph: Graph, path: str | Path) -> None:
    """Write a graph to a `.mat` file in the layout of the citation benchmark.

    The file has the fields of that layout:

    - `network`: An N × N matrix with 1, or the weight, at (source, destination) of each edge.
    - `attrb`: N × d features.
    - `group`: An N × C matrix with 1 for each label of a node. A row of zeros means a missing label, an empty matrix
      means that the graph has no labels.

    It also has `name`, `multilabel` (whether nodes can have several labels) and, unless they are "0" … "C-1", the names
    of the `classes`. `weighted`, `feature_names`, `text_columns` and `node_ids` (integers or text) are there if the
    graph has them.

    Raises:
        GraphError: The layout cannot store the graph: it has masks, a name with the character NUL, or a labelled node
            without a class.
    """
    if graph.masks:
        raise GraphError(f"graph {graph.name!r}, masks: a .mat file cannot store masks, got {', '.join(graph.masks)}")
    names = {field: list(value) for field in NAMES if (value := getattr(graph, field)) is not None and len(value)}
    for field, texts in {"name": [graph.name], "classes": graph.classes, **names}.items():
        if any("\0" in str(text) for text in texts):
            raise GraphError(f"graph {graph.name!r}, {field}: a .mat file cannot store the character NUL")
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
    weights = np.ones(graph.num_edges) if graph.weights is None else graph.weights.astype(np.float64)
    fields: dict[str, Any] = {
        "network": sp.csc_array((weights, (source, destination)), shape=shape),
        "attrb": graph.x,
        "name": graph.name,
        "multilabel": graph.is_multilabel,
    }
    if graph.weights is not None:
        fields["weighted"] = True
    for field, texts in names.items():
        fields[field] = np.array(texts, dtype=np.int64 if isinstance(texts[0], np.integer) else object)
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

    The fields `network`, `attrb` and `group` are required, the others are optional. If the values of `network` are not
    all 0 or 1, they are the weights of the edges.

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
    known = ["network", "attrb", "group", "name", "classes", "multilabel", "weighted", *NAMES]
    with error_prefix(path):
        fields = decoded(path, ".mat file", lambda file: mat5.read_variables(file, known, path))
        network, x, group = (_matrix(fields, field) for field in known[:3])
        n = x.shape[0]
        if network.shape != (n, n):
            raise GraphError(f"network: expected {n} × {n} for the {n} rows of attrb, got shape {network.shape}")
        if group.shape[0] != n and group.shape != (0, 0):
            raise GraphError(f"group: expected {n} rows for the {n} rows of attrb, got {group.shape[0]}")
        check_size(4 * (x.nnz if sp.issparse(x) else x.size), "attrb", path)
        network, group = _entries(network, "network", path), _entries(group, "group", path)
        weighted = _flag(fields, "weighted")
        if not weighted:  # otherwise 0 is a weight
            network.eliminate_zeros()
        weighted = weighted or bool((network.data != 1).any())
        several = _flag(fields, "multilabel") if labels is None else labels == "all"
        y = None if group.shape == (0, 0) else _labels(group, several, path)
        check_size(100 * group.shape[1], "the names of the classes", path)
        names = fields.get("classes", np.arange(group.shape[1]).astype(str))
        classes = tuple(_string(value, "classes") for value in np.ravel(names))
        if y is not None and len(classes) != group.shape[1]:
            raise GraphError(f"classes: expected {group.shape[1]} names for the columns of group, got {len(classes)}")
        name = name or _string(fields.get("name", ""), "name") or Path(path).stem
        further: dict[str, Any] = {field: _names(fields[field], field) for field in NAMES if field in fields}
        further["weights"] = network.data if weighted else None
        return Graph(name, x, np.stack([network.row, network.col]), y, classes, **further, **options)


def _names(values: Any, field: str) -> Any:
    """Return the names of features or nodes. Ids of nodes may be integers."""
    if field == "node_ids" and values.dtype.kind in "iu":
        return np.ravel(values)
    return tuple(_string(value, field) for value in np.ravel(values))


def _labels(group: Any, several: bool, path: str | Path) -> Array:
    """Return labels from the entries of `group`: the first of each node, or all of them as a matrix of 0 and 1."""
    group.eliminate_zeros()
    if (group.data != 1).any():
        raise GraphError(f"group: expected 0 and 1, got {group.data[group.data != 1][0]}")
    (nodes, columns), n = group.coords, group.shape[0]
    if not several:
        y = np.full(n, MISSING)
        y[nodes[::-1]] = columns[::-1]  # in reverse order, so that a node's first label is set last
        return y
    check_size(group.shape[0] * group.shape[1], "group", path)
    y = np.zeros(group.shape, dtype=np.int8)
    y[nodes, columns] = 1
    y[np.bincount(nodes, minlength=n) == 0] = MISSING
    return y


def _entries(matrix: Any, field: str, path: str | Path) -> Any:
    """Return a matrix in COO format."""
    count = matrix.nnz if sp.issparse(matrix) else np.count_nonzero(matrix)
    check_size(24 * int(count), field, path)
    return sp.coo_array(matrix)


def _matrix(fields: dict[str, Any], field: str) -> Any:
    value = take(fields, field)
    if value.ndim != 2 or value.dtype.kind not in "fiub":
        raise GraphError(f"{field}: expected a numeric matrix, got {value.dtype} of shape {value.shape}")
    return value


def _flag(fields: dict[str, Any], field: str) -> bool:
    value = fields.get(field, np.zeros(1))
    if value.dtype.kind not in "fiub":
        raise GraphError(f"{field}: expected 0 or 1, got {value.dtype} of shape {value.shape}")
    return bool((value != 0).sum())


def _string(value: Any, field: str) -> str:
    flat = np.ravel(value)
    if flat.dtype.kind != "U" or flat.size > 1:
        raise GraphError(f"{field}: expected text, got {value!r}")
    return str(flat[0]) if flat.size else ""
