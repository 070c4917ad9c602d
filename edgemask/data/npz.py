"""Read and write graphs as `.npz` files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from edgemask.data.forms import decoded, error_prefix, read_info, take
from edgemask.errors import GraphError
from edgemask.graph import Graph
from edgemask.runtime.atomic import replacing

NAMES = ("feature_names", "text_columns")  # optional keys of `info`
OPTIONAL = ("y", "weights", "node_ids")  # optional fields


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

    def read_fields(file: Any) -> dict[str, Any]:
        with np.load(file, allow_pickle=False) as archive:
            return {field: archive[field] for field in archive.files}

    with error_prefix(path):
        fields = decoded(path, ".npz archive", read_fields)
        types: dict[str, type] = {"name": str, "classes": list, "masks": list, **dict.fromkeys(NAMES, list)}
        info = read_info(str(take(fields, "info")), "info", types)
        for key in types.keys() - info.keys() - {*NAMES}:
            raise GraphError(f"info: {key!r} is missing")
        edges, masks = take(fields, "edges"), take(fields, "masks")
        optional = {field: fields.pop(field, None) for field in OPTIONAL}
        if masks.ndim != 2 or len(masks) != len(info["masks"]):
            raise GraphError(
                f"masks: expected {len(info['masks'])} rows, one per name in info, got shape {masks.shape}"
            )
        if "x" in fields:
            x = fields.pop("x")
        else:
            data, *index = (take(fields, f"x_{part}") for part in ("data", "indices", "indptr", "shape"))
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
        names: dict[str, Any] = {key: tuple(info[key]) for key in ("classes", *NAMES) if key in info}
        return Graph(name or info["name"], x, edges, masks=masks_by_name, **optional, **names, **options)
