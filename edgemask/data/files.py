"""Read and write graphs in files: `.npz`, tables in CSV or Parquet, and `.mat`.

Every format returns exactly the graph that was written: name, content and types. A writer raises an error if the format
cannot store a part of the graph. A file is replaced completely or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from edgemask.data import mat5
from edgemask.data.csv_folder import is_csv_copy, read_csv, write_csv
from edgemask.data.facebook import SCHOOL_OPTIONS, read_school
from edgemask.data.forms import OPTIONS, decoded, error_prefix
from edgemask.data.mat import read_mat, write_mat
from edgemask.data.npz import read_npz, write_npz
from edgemask.data.parquet import is_parquet_copy, read_parquet, write_parquet
from edgemask.data.tables import pair_of
from edgemask.errors import GraphError, InputError, MissingFileError
from edgemask.graph import Graph, as_graph
from edgemask.graph.frames import OPTIONS as TABLE_OPTIONS
from edgemask.graph.frames import check_options
from edgemask.limits import check_size

__all__ = [
    "read_csv",
    "read_graph",
    "read_mat",
    "read_npz",
    "read_parquet",
    "read_school",
    "write_csv",
    "write_graph",
    "write_mat",
    "write_npz",
    "write_parquet",
]

READERS: dict[str, tuple[Callable[..., Graph], str, tuple[str, ...]]] = {  # reader, name, options besides OPTIONS
    ".npz": (read_npz, ".npz files", ()),
    ".mat": (read_mat, ".mat files of the citation layout", ("labels",)),
    "school": (read_school, "Facebook-100 .mat files", ("label", *SCHOOL_OPTIONS)),
    ".csv": (read_csv, "CSV files", TABLE_OPTIONS),
    ".parquet": (read_parquet, "Parquet files", TABLE_OPTIONS),
}
COLUMN = 64  # bytes that a feature column takes at least in a model
ALL_OPTIONS = tuple(dict.fromkeys(option for _, _, own in READERS.values() for option in (*OPTIONS, *own)))
WRITERS = {".npz": write_npz, ".mat": write_mat, ".csv": write_csv, ".parquet": write_parquet}
FORMATS = (
    ".npz, .mat, a folder with nodes.csv and edges.csv or nodes.parquet and edges.parquet, or both files separated by "
    "a comma (nodes.csv,edges.csv)"
)


def read_graph(path: Any, **options: Any) -> Graph:
    """Read a graph from files, or convert an object of another library.

    | path | format | options |
    | --- | --- | --- |
    | `a.npz` | written by `write_graph` | |
    | `folder`, `nodes.csv,edges.csv` | tables with columns of any names; see `read_csv` | those of tables |
    | `folder`, `nodes.parquet,edges.parquet` | tables with columns of any names; see `read_parquet` | those of tables |
    | `a.mat` with `network`, `attrb`, `group` | the layout of the citation benchmark; see `read_mat` | `labels` |
    | `a.mat` with `A`, `local_info` | a school of Facebook-100; see `read_school` | `label`, `features`, `classes` |

    Options of tables name the columns: `id`, `label`, `features` (those to use; `degree`, `log-degree` and `clustering`
    are derived from the edges), `text` (those that are text although they look numeric), `source`, `destination` and
    `weight`. `classes` gives the names of the classes. `Graph.from_pandas` describes them.

    Args:
        path: Path of the file or folder, or the paths of two tables, separated by a comma; or an object that `as_graph`
            accepts.
        **options: The options of the format, `name`, which overrides the name in the file, and the arguments
            `undirected`, `duplicates`, `self_loops` and `isolated` of `Graph`.

    Raises:
        GraphError: The format is unknown, or the content is not valid.
        InputError: There is no such option, or the format does not have it.
        LimitError: The graph, or a model of its features, would take too much memory.
        InputTypeError: `path` is neither a path nor a graph.
        MissingFileError: A file does not exist.
        MissingDependencyError: The format needs a package that is not installed.
    """
    if isinstance(path, Graph) and options:
        raise InputError(f"a Graph is not read, so it has no options; got {', '.join(options)}: use graph.replace(…)")
    if not isinstance(path, str | Path):
        return as_graph(path, options=options)
    check_options(options, ALL_OPTIONS)
    try:
        reader, kind, own = READERS[_format(path)]
        legal = dict.fromkeys((*OPTIONS, *own))
        for option in options:
            if option not in legal:
                raise InputError(f"{path}: {kind} have no option {option!r} (their options: {', '.join(legal)})")
        graph = reader(path, **options)
        check_size(COLUMN * graph.num_features, f"{path}: a model of its {graph.num_features:,} features", path)
        return graph
    except FileNotFoundError as error:
        raise MissingFileError(f"{error.filename or path}: no such file; a graph is {FORMATS}") from error


def applicable_options(path: str | Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those options that the format of a graph has: the names of columns, for example, only for tables.

    Tables that `write_graph` wrote describe themselves.

    Args:
        path: Path of the graph, as for `read_graph`.
        options: Options that fitted the format of other graphs.

    Raises:
        GraphError: The format is unknown.
    """
    try:
        kind = _format(path)
        copied = {".csv": is_csv_copy, ".parquet": is_parquet_copy}.get(kind, lambda _: False)(path)
        own = () if copied else READERS[kind][2]
    except FileNotFoundError:  # `read_graph` says so
        own = ()
    return {option: value for option, value in options.items() if option in (*OPTIONS, *own)}


def write_graph(graph: Graph, path: str | Path, format: Literal["csv", "parquet"] = "csv") -> None:
    """Write a graph to an `.npz` file, a `.mat` file or, if the path has no suffix, a folder of tables.

    Args:
        graph: The graph.
        path: Path of the file or folder. Its suffix determines the format. An existing file is replaced.
        format: Format of the tables in a folder.

    Raises:
        GraphError: The format is unknown, or it cannot store a part of the graph.
        MissingDependencyError: `format` is `"parquet"`, and pyarrow is not installed.
    """
    if format not in ("csv", "parquet"):
        raise InputError(f"format must be 'csv' or 'parquet', got {format!r}")
    suffix = "" if Path(path).is_dir() else Path(path).suffix.lower()
    if suffix not in (".npz", ".mat", ""):
        raise GraphError(_unknown(path, suffix))
    WRITERS[suffix or f".{format}"](graph, path)


def _format(path: str | Path) -> str:
    """Return the key of `READERS` for a path."""
    if pair := pair_of(path):
        return pair[0].suffix.lower()
    if not Path(path).is_dir():
        suffix = Path(path).suffix.lower()
        if suffix not in (".npz", ".mat", ""):
            raise GraphError(_unknown(path, suffix))
        return ("school" if _is_school(path) else suffix) if suffix else ".csv"
    there = [suffix for suffix in (".csv", ".parquet") if (Path(path) / f"nodes{suffix}").exists()]
    if len(there) == 2:
        raise GraphError(
            f"{path}: the folder has nodes.csv and nodes.parquet; give both files of one of them, such as "
            f"{path}/nodes.csv,{path}/edges.csv"
        )
    return there[0] if there else ".csv"


def _unknown(path: str | Path, suffix: str) -> str:
    if "," in str(path):
        return f"{path}: expected two files of the same format, .csv or .parquet: nodes.csv,edges.csv"
    return f"{path}: no graph file format has the suffix {suffix!r}; known formats: {FORMATS}"


def _is_school(path: str | Path) -> bool:
    """Return whether a `.mat` file holds the variables of Facebook-100."""
    if Path(path).suffix.lower() != ".mat":
        return False
    with error_prefix(path):
        names = decoded(path, ".mat file", mat5.variable_names)
    return {"A", "local_info"} <= {*names}
