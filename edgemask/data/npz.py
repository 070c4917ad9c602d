"""Read and write graphs as `.npz` files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from edgemask.data.archive import Field, csr_of, read_arrays
from edgemask.data.forms import decoded, error_prefix, take
from edgemask.errors import GraphError
from edgemask.graph import Graph
from edgemask.runtime.atomic import replacing
from edgemask.schema import TEXT, Fields, Items, parse

NAMES = ("feature_names", "text_columns")  # optional keys of `info`
OPTIONAL = ("y", "weights", "node_ids")  # optional fields
FIELDS = {
    "info": Field("U", (0,)),
    "x": Field("fiub", (2,), 4),
    "x_data": Field("fiub", (1,), 4),
    "x_indices": Field("iu", (1,), 4),
    "x_indptr": Field("iu", (1,), 4),
    "x_shape": Field("iu", (1,)),
    "edges": Field("iu", (2,), 8),
    "masks": Field("b", (2,)),
    "y": Field("iufbU", (1, 2), 8),
    "weights": Field("fiub", (1, 2), 4),
    "node_ids": Field("iuU", (1,), 8),
}
TEXTS = Items(TEXT)
INFO = Fields({"name": TEXT, "classes": TEXTS, "masks": TEXTS}, dict.fromkeys(NAMES, TEXTS))


def write_npz(graph: Graph, path: str | Path) -> None:
    """Write a graph to a compressed `.npz` file.

    The file has these fields, none of which needs unpickling:

    - `info`: JSON text with `name`, `classes`, and `masks`, the names of the rows of the field `masks`. If features
      have names, also `feature_names`, and `text_columns` if there are any.
    - `x`: N × d float32 features. Sparse features are stored in CSR format as `x_data`, `x_indices`, `x_indptr` and
      `x_shape` instead.
    - `edges`: 2 × M int64.
    - `masks`: One row of N booleans per mask.
    - `y`: N int64 or N × C int8 labels. The field is absent in a graph without labels.
    - `weights`: M float32 weights of the edges. The field is absent in a graph without weights.
    - `node_ids`: N ids, int64 or text. The field is absent in a graph without ids.
    """
    info: dict[str, Any] = {"name": graph.name, "classes": graph.classes, "masks": list(graph.masks)}
    info |= {key: getattr(graph, key) for key in NAMES if getattr(graph, key)}
    masks = np.array(list(graph.masks.values()), dtype=bool).reshape(-1, graph.num_nodes)
    fields: dict[str, Any] = {"info": json.dumps(info), "edges": graph.edges, "masks": masks}
    if graph.is_sparse:
        fields |= {f"x_{part}": getattr(graph.x, part) for part in ("data", "indices", "indptr", "shape")}
    else:
        fields["x"] = graph.x
    fields |= {field: getattr(graph, field) for field in OPTIONAL if getattr(graph, field) is not None}
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
    with error_prefix(path):
        fields = decoded(path, ".npz archive", lambda file: read_arrays(file, FIELDS, path))
        info = parse(str(take(fields, "info")), INFO, "info")
        edges, masks = take(fields, "edges"), take(fields, "masks")
        optional = {field: fields.get(field) for field in OPTIONAL}
        if len(masks) != len(info["masks"]):
            raise GraphError(
                f"masks: expected {len(info['masks'])} rows, one per name in info, got shape {masks.shape}"
            )
        x = fields["x"] if "x" in fields else csr_of(fields, "x")
        masks_by_name = dict(zip(info["masks"], masks, strict=True))
        names: dict[str, Any] = {key: tuple(info[key]) for key in ("classes", *NAMES) if key in info}
        return Graph(name or info["name"], x, edges, masks=masks_by_name, **optional, **names, **options)
