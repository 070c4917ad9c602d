"""Where the two tables of a graph are, nodes and edges, and the options in `graph.json`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgemask.data.forms import read_info
from edgemask.errors import GraphError
from edgemask.graph.frames import OPTIONS

PAIR = re.compile(r"(.+\.(csv|parquet))\s*,\s*(.+\.\2)", re.IGNORECASE | re.DOTALL)
# The keys of `graph.json`. The last three are written by `write_csv` only.
KEYS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "classes": list,
    "features": (int, list, str),
    "undirected": bool,
    "id": str,
    "label": str,
    "text": (list, str),
    "source": str,
    "destination": str,
    "weight": str,
    "feature_names": list,
    "text_columns": list,
    "node_ids": str,
}
WRITTEN = ("feature_names", "text_columns", "node_ids")


@dataclass(frozen=True)
class Tables:
    """The files of a graph.

    Args:
        nodes: Path of the table of nodes.
        edges: Path of the table of edges.
        name: Name of the graph.
        options: Options of `Graph.from_pandas`, those of `graph.json` included.
        info: The other values of `graph.json`.
    """

    nodes: Path
    edges: Path
    name: str
    options: dict[str, Any]
    info: dict[str, Any]

    @property
    def places(self) -> tuple[str, str]:
        """How messages call the two tables."""
        return str(self.nodes), str(self.edges)


def locate(path: str | Path, suffix: str, name: str | None, options: Mapping[str, Any]) -> Tables:
    """Return the files of a graph and its options.

    Args:
        path: A folder, or the paths of nodes and edges, separated by a comma.
        suffix: Suffix of the files in a folder.
        name: Name of the graph. By default that in `graph.json`, else that of the folder, or the name of the file of
            nodes without `nodes`.
        options: Options, which override those in `graph.json`.

    Raises:
        GraphError: `graph.json` is not valid.
    """
    given = {option: value for option, value in options.items() if value is not None}
    if pair := pair_of(path):
        nodes, edges = pair
        stem = re.sub("[-_. ]*nodes$", "", nodes.stem, flags=re.IGNORECASE) or nodes.absolute().parent.name
        return Tables(nodes, edges, name or stem, given, {})
    folder = Path(path)
    described, info = folder / "graph.json", {}
    if described.exists():
        info = read_info(described.read_bytes(), str(described), KEYS)
        if info.get("node_ids", "int") not in ("int", "str"):
            raise GraphError(f"{described}, node_ids: expected 'int' or 'str', got {info['node_ids']!r}")
    width = info.pop("features") if isinstance(info.get("features"), int) else None
    if width is not None and not 0 < width < 2**31:
        raise GraphError(f"{described}, features: expected 1 … {2**31 - 1} columns, got {width}")
    merged = {key: value for key, value in info.items() if key in OPTIONS} | given
    merged["undirected"] = given.get("undirected", False) or info.get("undirected", False)
    rest = {key: value for key, value in info.items() if key in WRITTEN} | ({} if width is None else {"width": width})
    name = name or info.get("name") or folder.absolute().name
    return Tables(folder / f"nodes{suffix}", folder / f"edges{suffix}", name, merged, rest)


def pair_of(path: str | Path) -> tuple[Path, Path] | None:
    """Return the two paths of "a_nodes.csv,a_edges.csv", or None if the path is that of one file or folder."""
    match = None if Path(path).exists() else PAIR.fullmatch(str(path))
    return None if match is None else (Path(match[1]), Path(match[3]))
