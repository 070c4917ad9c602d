"""Read and write graphs as Parquet files of nodes and edges. They need pyarrow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from edgemask.data.forms import decoded, error_prefix
from edgemask.data.parquet_footer import column_sizes
from edgemask.data.tables import locate
from edgemask.errors import GraphError, MissingDependencyError
from edgemask.graph import Graph
from edgemask.graph.checks import check_compressed
from edgemask.graph.frames import KEY, OPTIONS, check_options, description, graph, joined, split
from edgemask.limits import check_size
from edgemask.runtime.atomic import replacing

CELL = 16  # bytes that a value takes at least
PACKED = ("feature indices", "feature values")  # columns of sparse features: one list per node


def write_parquet(source: Graph, folder: str | Path) -> None:
    """Write a graph to a folder as `nodes.parquet` and `edges.parquet`.

    The tables are those of `Graph.to_pandas`, except that sparse features are two columns of lists, `feature indices`
    and `feature values`. Other programs can read them.

    Args:
        source: The graph.
        folder: Path of the folder. It is created if it does not exist.

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """
    _require_pyarrow()
    nodes, edges = source.to_pandas()
    if source.is_sparse:
        stored = nodes.attrs[KEY]
        nodes, cuts = nodes[split(stored)[0]], source.x.indptr[1:-1]
        packed = _packed_names(stored)
        for column, values in zip(packed, (source.x.indices, source.x.data), strict=True):
            nodes[column] = np.split(values, cuts)
        nodes.attrs = {KEY: {**stored, "packed": packed}}
    for name, table in (("nodes", nodes), ("edges", edges)):
        with replacing(Path(folder) / f"{name}.parquet") as file:
            table.to_parquet(file, engine="pyarrow", write_page_checksum=True)


def _packed_names(stored: dict[str, Any]) -> list[str]:
    """Return names of the two columns of sparse features that no other column has."""
    special, end = split(stored)[0], ""
    while any(column + end in special for column in PACKED):
        end += "_"
    return [column + end for column in PACKED]


def read_parquet(folder: str | Path, name: str | None = None, **options: Any) -> Graph:
    """Read a graph from Parquet files of nodes and edges, written by `write_parquet` or by any other program.

    Args:
        folder: Path of a folder with `nodes.parquet`, `edges.parquet` and optionally `graph.json` (see `read_csv`), or
            the paths of the two files, separated by a comma: "a_nodes.parquet,a_edges.parquet".
        name: Name of the graph. By default that in the files, else that of the folder.
        **options: The options of `Graph.from_pandas`. They override `graph.json`.

    Raises:
        GraphError: A file is damaged, a column is missing, or a value is not valid. The message names the file.
        InputError: There is no such option.
        MissingDependencyError: pyarrow is not installed.
    """
    _require_pyarrow()
    check_options(options, OPTIONS)
    tables = locate(folder, ".parquet", name, options)
    nodes, edges = _read(tables.nodes), _read(tables.edges)
    name = name or description(nodes).get("name") or tables.name
    return graph(Graph, nodes, edges, name, tables.options, tables.places)  # type: ignore[no-any-return]


def is_parquet_copy(folder: str | Path) -> bool:
    """Return whether `write_parquet` wrote the files."""
    _require_pyarrow()
    from pyarrow import parquet

    path = locate(folder, ".parquet", None, {}).nodes

    def is_copy(file: Any) -> bool:
        metadata = parquet.read_schema(file).metadata or {}
        return KEY in json.loads(metadata.get(b"pandas", b"{}")).get("attributes", {})

    with error_prefix(path):
        return bool(decoded(path, "Parquet file", is_copy))


def _read(path: Path) -> pd.DataFrame:
    """Return a Parquet file as a table, with sparse columns if `write_parquet` packed them."""
    with error_prefix(path):
        table: pd.DataFrame = decoded(path, "Parquet file", lambda file: _unpacked(_table(file, path)))
        return table


def _table(file: Any, path: Path) -> pd.DataFrame:
    """Return an opened Parquet file as a table, after checking how much memory it takes."""
    check_size(sum(max(CELL * values, size) for values, size in column_sizes(file)), "the table", path)
    file.seek(0)
    return pd.read_parquet(file, engine="pyarrow", page_checksum_verification=True)


def _unpacked(nodes: pd.DataFrame) -> pd.DataFrame:
    """Return the table of nodes with sparse columns, if it has columns of lists."""
    stored = description(nodes)
    if "packed" not in stored:
        return nodes
    special, columns = split(stored)
    if list(nodes.columns) != [*special, *stored["packed"]]:
        raise GraphError("it has other columns than edgemask wrote")
    indices, values = (nodes[column].tolist() for column in stored["packed"])
    if [*map(len, indices)] != [*map(len, values)]:
        raise GraphError(f"the lists of {' and '.join(stored['packed'])} have different lengths")
    starts = np.cumsum([0, *map(len, indices)])
    x = sp.csr_array((np.concatenate(values), np.concatenate(indices), starts), shape=(len(nodes), len(columns)))
    check_compressed(x)
    return joined(nodes[special], x, stored)


def _require_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError("Parquet files need pyarrow: install edgemask[parquet]") from error
