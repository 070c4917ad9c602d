"""Graphs as two tables, nodes and edges. All table formats are read by `graph`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from edgemask.errors import GraphError, GraphWarning, InputError, warn
from edgemask.graph.checks import POLICIES, Array, Checker, advice
from edgemask.graph.columns import Table, encoded, ids_of, mask_of, one_label, plain, several_labels, unique_ids
from edgemask.graph.structure import STRUCTURE
from edgemask.legal import did_you_mean
from edgemask.schema import FLAG, TEXT, Fields, Items, Maybe, check
from edgemask.schema import Table as Of

ROLES = ("id", "label", "features", "text")  # options that name columns of the nodes
OPTIONS = (*ROLES, "source", "destination", "weight", "classes", "undirected", *POLICIES)
NAMES = ("source", "destination")
ENDS = (NAMES, ("source", "target"), ("src", "dst"), ("from", "to"), ("u", "v"))
UNNAMED = re.compile(r"\s*|Unnamed: [0-9]+")  # columns without a name, in a file and as pandas reads them
KEY = "edgemask"  # of `DataFrame.attrs`
STORED = Fields(
    {
        "name": TEXT,
        "columns": Items(TEXT),
        "classes": Items(TEXT),
        "feature_names": FLAG,
        "text_columns": Items(TEXT),
        "label": Maybe(TEXT),
        "labels": Of(TEXT),
        "masks": Of(TEXT),
    },
    {"packed": Items(TEXT, 2, 2)},
)


def graph(
    cls: Any,
    nodes: pd.DataFrame,
    edges: pd.DataFrame,
    name: str | None,
    options: Mapping[str, Any],
    places: tuple[str, str] | None = None,
) -> Any:
    """Return a graph from a table of nodes and a table of edges; see `Graph.from_pandas`.

    Args:
        cls: The class `Graph`.
        nodes: One row per node.
        edges: One row per edge.
        name: Name of the graph.
        options: The options of `Graph.from_pandas` by name. None is the default.
        places: How messages call the two tables, for example by their paths.
    """
    check_options(options, OPTIONS)
    given = {option: value for option, value in options.items() if value is not None}
    attrs = own_description(nodes, given)
    name = name or attrs.get("name") or "graph"
    policies = {option: given[option] for option in ("undirected", *POLICIES) if option in given}
    Checker(name).policies(policies)
    of_nodes, of_edges = places or (f"graph {name!r}, nodes", f"graph {name!r}, edges")
    table = Table(nodes, of_nodes)
    fields, ids, kinds = _restored(table, attrs) if attrs else _nodes(table, given)
    default = isinstance(ids, pd.RangeIndex) and ids.equals(pd.RangeIndex(len(table)))
    fields["node_ids"] = None if default else ids.to_numpy(dtype=None if ids.dtype.kind == "i" else str)
    fields |= edge_fields(Table(edges, of_edges), ids, of_nodes, given) | policies
    with _named(None if places is None else of_nodes):
        if fields["x"] is None:
            number = fields["node_ids"] if fields["node_ids"] is not None else np.arange(len(table))
            result = cls(name, **fields | {"features": kinds, "node_ids": number})
            return result if fields["node_ids"] is not None else result.replace(node_ids=None)
        result = cls(name, **fields)
        return result.with_structure(*kinds) if kinds else result


@contextmanager
def _named(place: str | None) -> Iterator[None]:
    """Prefix the message of a `GraphError` with the place of the table, if it has one."""
    try:
        yield
    except GraphError as error:
        if place is None:
            raise
        raise GraphError(f"{place}: {error}") from error


def check_options(options: Iterable[str], known: Iterable[str], place: str = "") -> None:
    """Raise an `InputError` about the first option that is not known."""
    known = list(known)
    for option in options:
        if option not in known:
            listed = f"no option {option!r} for reading a graph (options: {', '.join(known)})"
            raise InputError(f"{place and f'{place}: '}{listed}{did_you_mean(option, known)}")


def names_of(value: Any) -> list[str]:
    """Return the value of an option as a list of names: a sequence, or a text that separates them by commas.

    >>> names_of("age, city"), names_of(["age"]), names_of(2004)
    (['age', 'city'], ['age'], ['2004'])
    """
    if isinstance(value, str):
        return [name.strip() for name in value.split(",") if name.strip()]
    return [str(name) for name in value] if isinstance(value, Iterable) else [str(value)]


def _nodes(table: Table, given: Mapping[str, Any]) -> tuple[dict[str, Any], Any, list[str]]:
    """Return arguments of `Graph`, the ids of the nodes, and the kinds of structural features to add."""
    id_column = str(given["id"]) if "id" in given else "id" if "id" in table.columns else None
    ids = unique_ids(table, id_column if id_column is None else table.require(id_column, "id"))
    label = _label_column(table, given)
    wanted = None
    if "features" in given:
        wanted = [given["features"]] if given["features"] in table.columns else names_of(given["features"])
    if label is not None and label in (wanted or ()):
        table.fail(f"column {label!r} holds the labels, so it cannot be a feature")
    several = [c for c in table.columns if c.startswith("label:") and c not in (wanted or ())]
    if label is not None and several and wanted is None:
        table.fail(f"expected the column {label!r} or columns label:<class>, got both")
    several = [] if label is not None else several
    masks = {c: mask_name(c) for c in table.columns if mask_name(c) is not None and c not in (wanted or ())}
    columns, kinds = _features(table, wanted, {id_column, label, *several, *masks})
    as_text = names_of(given.get("text", ()))
    for column in as_text:
        if table.require(column, "text") not in columns:
            table.fail(f"column {column!r} (text={column!r}) is not one of the features {', '.join(columns)}")
    fields: dict[str, Any] = {"x": None, "masks": {m: mask_of(table, c) for c, m in masks.items()}}
    if columns:
        chosen = [*as_text, *(wanted or ())]
        fields["x"], fields["feature_names"], fields["text_columns"] = encoded(table, columns, as_text, chosen, ids)
    return fields | _labels(table, label, several, names_of(given.get("classes", ()))), ids, kinds


def _label_column(table: Table, given: Mapping[str, Any]) -> str | None:
    """Return the column of the labels: the option, else `label`. Warn if there is no column of that name."""
    if "label" not in given:
        return "label" if "label" in table.columns else None
    if (label := str(given["label"])) in table.columns:
        return label
    end = did_you_mean(label, table.columns)
    message = f"{table.place}: no column {label!r} (label={label!r}), so the graph has no labels; {table.listed()}{end}"
    warn(message, GraphWarning)
    return None


def mask_name(column: str) -> str | None:
    """Return the name of the mask that a column holds, or None."""
    if column.startswith("mask:"):
        return column.removeprefix("mask:")
    return column.removesuffix("_mask") if column.endswith("_mask") else None


def _features(table: Table, wanted: list[str] | None, other: set[str | None]) -> tuple[list[str], list[str]]:
    """Return the feature columns, and the kinds of structural features."""
    if wanted is None:
        columns = [column for column in table.columns if column not in other]
        if unnamed := [column for column in columns if UNNAMED.fullmatch(column)]:
            message = (
                f"{table.place}: columns without a name are ignored: {', '.join(map(repr, unnamed))}; an index that "
                "pandas wrote is such a column, and to_csv(path, index=False) leaves it out"
            )
            warn(message, GraphWarning)
            columns = [column for column in columns if column not in unnamed]
        if not columns:
            table.fail(
                f"no feature column; {advice('features', 'degree')} derives features from the edges (kinds: "
                f"{', '.join(STRUCTURE)}); {table.listed()}"
            )
        return columns, []
    columns = [name for name in wanted if name in table.columns]
    kinds = [name for name in wanted if name not in columns and name in STRUCTURE]
    for name in wanted:
        if name not in columns and name not in kinds:
            known = [*table.columns, *STRUCTURE]
            table.fail(
                f"no column {name!r} for features; {table.listed()}; derived from the edges: {', '.join(STRUCTURE)}"
                f"{did_you_mean(name, known)}"
            )
    if not wanted:
        table.fail("the option features names no column")
    return columns, kinds


def _labels(table: Table, label: str | None, several: list[str], classes: list[str]) -> dict[str, Any]:
    """Return the arguments `y` and `classes` of `Graph`."""
    if label is not None:
        y, order = one_label(table, label, classes)
        return {"y": y, "classes": order}
    if not several:
        return {"y": None, "classes": tuple(classes)}
    named = {column.removeprefix("label:"): column for column in several}
    if classes and set(classes) != set(named):
        table.fail(f"columns {', '.join(several)} do not match the classes {', '.join(map(repr, classes))}")
    order = tuple(classes or named)
    return {"y": several_labels(table, [named[name] for name in order]), "classes": order}


# ---- edges -------------------------------------------------------------------------------------------


def edge_fields(table: Table, ids: Any, of_nodes: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments `edges` and `weights` of `Graph`.

    Args:
        table: The table of edges.
        ids: Index of the ids of the nodes.
        of_nodes: How messages call the table of nodes.
        given: The options of `Graph.from_pandas`.

    Raises:
        GraphError: A column is missing, or a row is not a valid edge.
        InputError: Only one of the options `source` and `destination` is given.
    """
    weight = table.require(str(given["weight"]), "weight") if "weight" in given else None
    weight = weight or ("weight" if "weight" in table.columns else None)
    ends = _ends(table, given, weight)
    if ignored := [column for column in table.columns if column not in (*ends, weight)]:
        end = "an edge has two ends and a weight" if weight else f"{advice('weight', ignored[0])} reads one as weights"
        message = f"{table.place}: the columns {', '.join(ignored)} are ignored; {end}"
        warn(message, GraphWarning)
    edges = np.stack([_positions(table, column, end, ids, of_nodes) for column, end in zip(ends, NAMES, strict=True)])
    _check_repeats(table, edges, ids, given)
    return {"edges": edges, "weights": None if weight is None else _weights(table, weight, edges, ids)}


def _ends(table: Table, given: Mapping[str, Any], weight: str | None) -> tuple[str, str]:
    """Return the columns of the sources and the destinations."""
    if options := [option for option in NAMES if option in given]:
        if len(options) < 2:
            raise InputError(f"{table.place}: {options[0]} is given, but not {min({*NAMES} - {*options})}; give both")
        first, second = (table.require(str(given[option]), option) for option in NAMES)
        if first == second:
            table.fail(f"source and destination must be two columns, got {first!r} for both")
        return first, second
    for first, second in ENDS:
        if first in table.columns and second in table.columns:
            return first, second
    two = [column for column in table.columns if column != weight]
    if len(two) != 2:
        table.fail(
            f"expected the columns source and destination; source=… and destination=… name others; {table.listed()}"
        )
    return two[0], two[1]


def _positions(table: Table, column: str, end: str, ids: Any, of_nodes: str) -> Array:
    """Return the node of each edge's source or destination."""
    if not len(table):
        return np.empty(0, dtype=np.int64)
    values = ids_of(table, table[column], f"the {end}")
    positions: Array = ids.get_indexer(values)
    unknown = np.flatnonzero(positions < 0)
    if len(unknown):
        value, strings = values[unknown[0]], (values.dtype == object, ids.dtype == object)
        near = next((own for own in ids if _spelling(own) == _spelling(value)), None) if value != "" else None
        tail = " (it is empty)" if value == "" else "" if near is None else f"; did you mean {plain(near)!r}?"
        if strings[0] != strings[1]:
            kinds = ("text", "integers") if strings[1] else ("integers", "text")
            tail = f"; the ids of the nodes are {kinds[0]}, but column {column!r} holds {kinds[1]}: convert one of them"
        if isinstance(ids, pd.RangeIndex):
            tail = f"; no column of ids is named, so the nodes are 0 … {len(ids) - 1}: {advice('id', '…')} names it"
        table.fail(f"{end} {plain(value)!r} is not an id of {of_nodes.rpartition('/')[2]}{tail}", unknown[0])
    return positions


def _spelling(value: Any) -> str:
    """Return an id without spaces at its ends, leading zeros, a trailing ".0" and capital letters."""
    return str(value).strip().removesuffix(".0").lstrip("0").casefold()


def _check_repeats(table: Table, edges: Array, ids: Any, given: Mapping[str, Any]) -> None:
    """Raise a `GraphError` that names the rows of self-loops and duplicate edges, unless an option removes them."""
    loops = edges[0] == edges[1]
    key = np.where(loops, -1 - np.arange(loops.size), edges[0] * len(ids) + edges[1])
    order = np.argsort(key, kind="stable")
    again = np.flatnonzero((np.diff(key[order]) == 0) & (given.get("duplicates", "error") == "error"))
    if loops.any() and given.get("self_loops", "error") == "error":
        row = np.flatnonzero(loops)[0]
        also = f"; there are also {len(again)} duplicates: duplicates='merge'" if len(again) else ""
        table.fail(
            f"{_arrow(edges[:, row], ids)} is a self-loop (self-loops in total: {loops.sum()}); "
            f"{advice('self_loops', 'drop')} removes them{also}",
            row,
        )
    if len(again):
        place = again[np.argmin(order[again + 1])]
        first, row = order[place], order[place + 1]
        table.fail(
            f"{_arrow(edges[:, row], ids)} is a duplicate of row {table.row(first)} (duplicates in total: "
            f"{len(again)}); {advice('duplicates', 'merge')} merges them",
            row,
        )


def _arrow(edge: Array, ids: Any) -> str:
    source, destination = (plain(ids[node]) for node in edge)
    return f"{source!r} → {destination!r}"


def _weights(table: Table, column: str, edges: Array, ids: Any) -> Array:
    """Return the weights of the edges."""
    values = table[column]
    if pd.api.types.is_numeric_dtype(values.dtype):
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        numbers = np.array([_number(value) for value in values])
    with np.errstate(over="ignore"):
        legal = np.isfinite(numbers.astype(np.float32)) & (numbers >= 0)
    if not legal.all():
        row = np.flatnonzero(~legal)[0]
        value = values.iloc[row]
        missing = pd.isna(value) or value == ""
        what = "is missing" if missing else f"is {plain(value)!r}; expected a finite number of at least 0"
        table.fail(f"the weight of {_arrow(edges[:, row], ids)} (column {column!r}) {what}", row)
    return numbers  # type: ignore[no-any-return]


def _number(value: Any) -> float:
    """Return a number or the number in a text; NaN if it is none."""
    try:
        return math.nan if value is None or value is pd.NA else float(value)
    except (ValueError, TypeError):
        return math.nan


# ---- exact copies of graphs --------------------------------------------------------------------------


def frames(graph: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tables of a graph; see `Graph.to_pandas`."""
    columns = graph.feature_names or tuple(f"x{i}" for i in range(graph.num_features))
    ids = pd.RangeIndex(graph.num_nodes) if graph.node_ids is None else _index(graph.node_ids)
    used, other = set(columns), {}
    roles: dict[str, Any] = {"label": None, "labels": {}, "masks": {}}

    def add(column: str, values: Any) -> str:
        while column in used:
            column += "_"
        used.add(column)
        other[column] = values
        return column

    if graph.is_multilabel:
        for i, name in enumerate(graph.classes):
            values = pd.array([None if v < 0 else v for v in graph.y[:, i].tolist()], dtype="Int8")
            roles["labels"][add(f"label:{name}", values)] = name
    elif graph.y is not None:
        classes = pd.Index(list(graph.classes), dtype=object)
        roles["label"] = add("label", pd.Categorical.from_codes(graph.y, categories=classes))
    for name, mask in graph.masks.items():
        roles["masks"][add(f"{name}_mask", mask)] = name
    special = pd.DataFrame(other, index=ids, columns=pd.Index(list(other), dtype=object))
    stored = roles | {
        "name": graph.name,
        "columns": [*other, *columns],
        "classes": list(graph.classes),
        "feature_names": bool(graph.feature_names),
        "text_columns": list(graph.text_columns),
    }
    nodes = joined(special, graph.x.copy(), stored)
    edges = pd.DataFrame({end: ids.take(nodes_) for end, nodes_ in zip(NAMES, graph.edges, strict=True)})
    if graph.weights is not None:
        edges["weight"] = graph.weights.copy()
    return nodes, edges


def joined(special: pd.DataFrame, x: Any, stored: Mapping[str, Any]) -> pd.DataFrame:
    """Return the columns of labels and masks beside those of the features, with the attributes that describe them."""
    columns = pd.Index(split(stored)[1], dtype=object)
    if sp.issparse(x):
        features = pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(x), special.index, columns)
    else:
        features = pd.DataFrame(x, special.index, columns)
    nodes = pd.concat([special, features], axis=1)
    nodes.attrs[KEY] = dict(stored)
    return nodes


def _index(ids: Array) -> Any:
    """Return ids as an index that is never the default one."""
    return pd.Index(ids.tolist(), dtype=np.int64 if ids.dtype.kind == "i" else object, name="id")


def own_description(nodes: pd.DataFrame, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `frames` stored in the attributes of a table, if its columns are still the same.

    Options that name columns or classes have priority.
    """
    attrs = description(nodes)
    if not attrs or not {*ROLES, "classes"}.isdisjoint(given) or attrs["columns"] != list(nodes.columns):
        return {}
    return attrs


def description(nodes: pd.DataFrame) -> dict[str, Any]:
    """Return what `frames` stored in the attributes of a table; nothing if it did not make the table.

    Raises:
        SchemaError: The attributes were changed.
        GraphError: They contradict each other.
    """
    if not (attrs := nodes.attrs.get(KEY)):
        return {}
    where = f"the attribute {KEY!r} of the table"
    check(attrs, STORED, where)
    special = [*attrs["masks"], *attrs["labels"], *([attrs["label"]] if attrs["label"] is not None else [])]
    several = [*attrs["labels"].values()]
    if len({*special, *attrs["columns"]}) != len(attrs["columns"]) or (several and several != attrs["classes"]):
        raise GraphError(f"{where}: its columns, masks and labels contradict each other")
    return dict(attrs)


def split(stored: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the columns of labels and masks, and the columns of features, of a table that `frames` made."""
    special = {*stored["masks"], *stored["labels"], stored["label"]}
    columns: list[str] = stored["columns"]
    return [c for c in columns if c in special], [c for c in columns if c not in special]


def _restored(table: Table, stored: Mapping[str, Any]) -> tuple[dict[str, Any], Any, list[str]]:
    """Return arguments of `Graph` for a table that `frames` made, its ids, and no structural features."""
    masks, labels, label = stored["masks"], stored["labels"], stored["label"]
    columns, ids = split(stored)[1], unique_ids(table, None)
    x, names, _ = encoded(table, columns, (), columns, ids)
    fields = {
        "x": x,
        "masks": {name: mask_of(table, column) for column, name in masks.items()},
        "classes": tuple(stored["classes"]),
        "feature_names": names if stored["feature_names"] else (),
        "text_columns": stored["text_columns"],
    }
    if label is not None:
        fields["y"], _ = one_label(table, label, stored["classes"], exact=True)
    elif labels:
        fields["y"] = several_labels(table, list(labels))
    return fields, ids, []
