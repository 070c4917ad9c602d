"""What all graphs of a model have in common: feature columns, scales and classes, matched by name.

The sources decide the contract (`unify`). Every other graph is brought into the same form or refused (`aligned`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

from edgemask.errors import GraphError, GraphWarning, SchemaError, warn
from edgemask.graph.checks import MISSING, Array, advice, sorted_names
from edgemask.graph.columns import is_number, plain
from edgemask.graph.core import Graph, collect
from edgemask.legal import Legal
from edgemask.schema import TEXT, Fields, Items, check

SHOWN = 5  # names that a message lists
DENSE = 0.5  # share of non-zero values from which a sparse column is centred

TEXTS = Items(TEXT)
CONTRACT = Fields(
    {
        "num_features": Legal(1, 2**62, whole=True),
        "classes": TEXTS,
        "feature_names": TEXTS,
        "text_columns": TEXTS,
        "scaled": TEXTS,
        "means": Items(Legal()),
        "scales": Items(Legal(0, open_low=True)),
    }
)


@dataclass(frozen=True)
class Contract:
    """The columns and classes of all graphs of a model.

    Args:
        num_features: Number of feature columns.
        classes: Names of the classes.
        feature_names: Names of the columns; empty if they are matched by position.
        text_columns: Names of the text columns that are one-hot encoded.
        scaled: Names of the columns that are standardised.
        means: What is subtracted from each standardised column.
        scales: What it is divided by then.
    """

    num_features: int
    classes: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    text_columns: tuple[str, ...] = ()
    scaled: tuple[str, ...] = ()
    means: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()

    def aligned(self, graph: Graph, *, labels: bool = True) -> Graph:
        """Return a graph with the columns and classes of this contract.

        Columns and classes are matched by name, whatever their order. A `GraphWarning` reports columns that are
        ignored, values of text columns that no source has, and columns without names, which are matched by position.

        Args:
            graph: The graph.
            labels: Whether the labels are needed. If not, they are removed.

        Raises:
            GraphError: A column is missing, the number of columns differs, or a label is of an unknown class.
        """
        graph = graph if labels else graph.without_labels()
        changes: dict[str, Any] = {}
        if graph.feature_names and self.feature_names:
            if graph.feature_names != self.feature_names:
                changes = {"x": self._columns(graph), "feature_names": self.feature_names}
        elif graph.num_features != self.num_features:
            raise GraphError(
                f"graph {graph.name!r}, x: {graph.num_features} features, but the model was trained on "
                f"{self.num_features}" + (f": {listed(self.feature_names)}" if self.feature_names else "")
            )
        elif self.feature_names:
            message = f"graph {graph.name!r}: its columns have no names, so they are matched by position"
            warn(message, GraphWarning)
        if self.scaled:
            changes["x"] = self._standardised(changes.get("x", graph.x))
            changes["feature_names"] = self.feature_names
        if changes:
            changes["text_columns"] = self.text_columns
        if graph.classes != self.classes:
            changes |= {"y": self._labels(graph), "classes": self.classes}
        return graph.replace(**changes) if changes else graph  # a copy is validated, which takes time

    def _columns(self, graph: Graph) -> Any:
        """Return the features of a graph in the order of this contract."""
        missing, extra = _difference(self, graph)
        for column in (c for c in missing if c in extra):
            text = column in self.text_columns
            end = f"{advice('text', column)} reads it as text" if text else "correct the table"
            _refuse_kind(graph, column, text, "in the training graphs", end)
        if missing:
            more = f"; new columns: {listed(extra)}" if extra else ""
            raise GraphError(
                f"graph {graph.name!r}, features: missing columns: {listed(missing)}{more}; "
                f"the model was trained on {listed(_table_columns(self))}"
            )
        if extra:
            message = f"graph {graph.name!r}: ignored columns that the model was not trained on: {listed(extra)}"
            warn(message, GraphWarning)
        self._report_unseen(graph)
        return _reordered(graph, self.feature_names)

    def _report_unseen(self, graph: Graph) -> None:
        """Warn of values of text columns that this contract does not have."""
        known = set(self.feature_names)
        for column in self.text_columns:
            unseen = [i for i, n in enumerate(graph.feature_names) if n.startswith(f"{column}=") and n not in known]
            affected = int((abs(graph.x[:, unseen]).sum(axis=1) > 0).sum()) if unseen else 0
            if affected:
                values = [graph.feature_names[i].removeprefix(f"{column}=") for i in unseen]
                warn(
                    f"graph {graph.name!r}, column {column!r}: {affected:,} of {graph.num_nodes:,} nodes have values "
                    f"that no source has ({listed(values)}); they are encoded as zeros",
                    GraphWarning,
                )

    def _standardised(self, x: Any) -> Any:
        """Return features with standardised columns."""
        index = {name: i for i, name in enumerate(self.feature_names)}
        columns = [index[name] for name in self.scaled]
        means, scales = np.zeros(self.num_features), np.ones(self.num_features)
        means[columns], scales[columns] = self.means, self.scales
        if not sp.issparse(x):
            return (x - means) / scales
        x = sp.csc_array(x)
        for j in columns:  # few columns are centred, and these are nearly full
            if means[j]:
                full = x[:, [j]].toarray() - means[j]
                x = sp.hstack([x[:, :j], sp.csc_array(full), x[:, j + 1 :]], format="csc")
        return sp.csr_array(x @ sp.diags_array(1 / scales))

    def _labels(self, graph: Graph) -> Array | None:
        """Return the labels of a graph as indices into the classes of this contract."""
        index = {name: i for i, name in enumerate(self.classes)}
        unknown = [name for name in graph.classes if name not in index]
        if graph.y is None:
            return None
        used = np.unique(graph.y[graph.y >= 0]) if graph.y.ndim == 1 else np.flatnonzero((graph.y == 1).any(0))
        if wrong := [graph.classes[i] for i in used if graph.classes[i] in unknown]:
            raise GraphError(
                f"graph {graph.name!r}, classes: the model does not know {listed(wrong)}; "
                f"it was trained on {listed(self.classes)}"
            )
        if graph.y.ndim == 1:
            new = np.array([index.get(name, MISSING) for name in graph.classes] + [MISSING])
            return np.asarray(new[graph.y])  # -1 takes the last entry
        y = np.where(graph.labelled[:, None], 0, MISSING).repeat(len(self.classes), axis=1)
        for i in used:
            y[:, index[graph.classes[i]]] = graph.y[:, i]
        return np.asarray(y)

    def to_json(self) -> dict[str, Any]:
        """Return the contract as JSON values."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Contract:
        """Return the contract that `to_json` wrote.

        Raises:
            SchemaError: A value is missing or unknown, or values contradict each other.
        """
        check(values, CONTRACT, "contract")
        contract = cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})
        if len(contract.feature_names) not in (0, contract.num_features):
            raise SchemaError(
                f"contract, feature_names: expected {contract.num_features} items, got {len(contract.feature_names)}"
            )
        if not {*contract.scaled} <= {*contract.feature_names} or not (
            len(contract.scaled) == len(contract.means) == len(contract.scales)
        ):
            raise SchemaError("contract, scaled: expected names of columns, each with a mean and a scale")
        return contract


def unify(graphs: Sequence[Graph], *, scale: bool = True, fitted: int | None = None) -> tuple[Contract, list[Graph]]:
    """Bring graphs into a common form.

    Columns and classes are matched by name. The values of a text column, and the classes, are those of all graphs.

    Args:
        graphs: The graphs.
        scale: Standardise the numeric columns that have names, except those with values 0 and 1 only. A column of a
            sparse matrix is only centred if it is mostly not zero.
        fitted: Number of graphs, from the first, whose nodes decide the means and deviations. All by default.

    Returns:
        What the graphs have in common, and the graphs in this form.

    Raises:
        GraphError: The graphs do not have the same columns, or two have no class in common.
    """
    names, text = _common_columns(graphs)
    for graph in graphs if not names else ():
        if graph.num_features != graphs[0].num_features:
            raise GraphError(
                f"graph {graph.name!r}, x: {graph.num_features} features, "
                f"but graph {graphs[0].name!r} has {graphs[0].num_features}"
            )
    contract = Contract(graphs[0].num_features if not names else len(names), _common_classes(graphs), names, text)
    aligned = [contract.aligned(graph) for graph in graphs]
    if scale and names:
        contract = _with_scales(contract, aligned[:fitted])
        aligned = [contract.aligned(graph) for graph in aligned] if contract.scaled else aligned
    collect(aligned)
    return contract, aligned


def _common_columns(graphs: Sequence[Graph]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the columns of all graphs, and of their text columns."""
    named = [g for g in graphs if g.feature_names]
    if not named:
        return (), ()
    first = named[0]
    for graph in named[1:]:
        missing, extra = _difference(first, graph)
        for column in (c for c in missing if c in extra):
            end = f"{advice('text', column)} reads it as text in all graphs"
            _refuse_kind(graph, column, column in first.text_columns, f"in graph {first.name!r}", end)
        if missing or extra:
            parts = [f"{what} columns: {listed(c)}" for what, c in (("missing", missing), ("new", extra)) if c]
            raise GraphError(f"graph {graph.name!r}, features: compared with graph {first.name!r}, {'; '.join(parts)}")
    if all(g.feature_names == first.feature_names for g in named):
        return first.feature_names, first.text_columns
    columns = _table_columns(first)
    if any(_table_columns(g) != columns for g in named):  # the order must not depend on which graph is the first
        columns = sorted(columns)
    text = tuple(c for c in columns if c in first.text_columns)
    values = {c: {n for g in named for n in g.feature_names if n.startswith(f"{c}=")} for c in text}
    return tuple(n for c in columns for n in (sorted_names(values[c]) if c in values else (c,))), text


def _refuse_kind(graph: Graph, column: str, text: bool, where: str, end: str) -> NoReturn:
    """Raise a `GraphError`: a column is text in the one graph, and numeric in the other.

    Args:
        graph: The graph that the message is about.
        column: Name of the column.
        text: Whether the column is text elsewhere, and so numeric in this graph.
        where: Where it is.
        end: What the user can do.
    """
    kinds = ("numeric", "text") if text else ("text", "numeric")
    example = "" if text else f" ({_word(graph, column)})"
    raise GraphError(
        f"graph {graph.name!r}, features: column {column!r} is {kinds[0]}{example}, but it is {kinds[1]} {where}; {end}"
    )


def _word(graph: Graph, column: str) -> str:
    """Return the first node whose text in a column is not a number, or else the first one with a text."""
    starts = [i for i, name in enumerate(graph.feature_names) if name.startswith(f"{column}=")]
    texts = {i: graph.feature_names[i].removeprefix(f"{column}=") for i in starts}
    chosen = [i for i in starts if not is_number(texts[i])] or starts
    rows, cols = graph.x[:, chosen].nonzero()
    if not len(rows):
        return "no node has a value"
    first = rows.argmin()
    node = rows[first] if graph.node_ids is None else graph.node_ids[rows[first]]
    return f"node {plain(node)!r} has {texts[chosen[cols[first]]]!r}"


def _common_classes(graphs: Sequence[Graph]) -> tuple[str, ...]:
    """Return the classes of all graphs."""
    every = [g for g in graphs if g.classes]
    if not every or all(g.classes == every[0].classes for g in every):
        return every[0].classes if every else ()
    for one, other in pairwise(every):
        if not set(one.classes) & set(other.classes):
            raise GraphError(
                f"graph {other.name!r}, classes: {listed(other.classes)}, but graph {one.name!r} has "
                f"{listed(one.classes)}: no class in common"
            )
    longest = max((g.classes for g in every), key=len)
    union = {name for g in every for name in g.classes}
    return longest if union == set(longest) and longest == sorted_names(union) else sorted_names(union)


def _with_scales(contract: Contract, graphs: Sequence[Graph]) -> Contract:
    """Return the contract with means and deviations of the numeric columns of graphs."""
    prefixes = tuple(f"{column}=" for column in contract.text_columns)
    scaled, means, scales = [], [], []
    for j, name in enumerate(contract.feature_names):
        if name.startswith(prefixes) or name.startswith(("degree=", "degree>=")):
            continue
        parts = [np.asarray(g.x[:, [j]].toarray() if g.is_sparse else g.x[:, [j]], dtype=np.float64) for g in graphs]
        values = np.concatenate(parts)[:, 0]
        if np.isin(values, (0, 1)).all():
            continue
        centred = not any(g.is_sparse for g in graphs) or (values != 0).mean() >= DENSE
        deviation = float(values.std() if centred else np.sqrt((values**2).mean()))
        scaled.append(name)
        means.append(float(values.mean()) if centred else 0.0)
        scales.append(deviation if deviation > 0 else 1.0)
    return Contract(**vars(contract) | {"scaled": tuple(scaled), "means": tuple(means), "scales": tuple(scales)})


def _table_columns(source: Graph | Contract) -> list[str]:
    """Return the columns of the table behind the features: a text column counts once."""
    owner = {f"{column}=": column for column in source.text_columns}
    columns = dict.fromkeys(
        next((c for prefix, c in owner.items() if name.startswith(prefix)), name) for name in source.feature_names
    )
    return [*columns, *(c for c in source.text_columns if c not in columns)]


def _difference(one: Graph | Contract, other: Graph | Contract) -> tuple[list[str], list[str]]:
    """Return the columns that only `one` has and those that only `other` has. A text column is never a numeric one."""
    columns = [{(c, c in g.text_columns): None for c in _table_columns(g)} for g in (one, other)]
    missing, extra = ([c for c in a if c not in b] for a, b in (columns, columns[::-1]))
    return [name for name, _ in missing], [name for name, _ in extra]


def _reordered(graph: Graph, names: Sequence[str]) -> Any:
    """Return the columns of the given names. A name that the graph does not have gets a column of zeros."""
    index = {name: i for i, name in enumerate(graph.feature_names)}
    there = [(index[name], j) for j, name in enumerate(names) if name in index]
    rows, columns = (np.array(part, dtype=np.int64) for part in zip(*there, strict=True)) if there else ([], [])
    selection = sp.csr_array((np.ones(len(there), np.float32), (rows, columns)), shape=(len(index), len(names)))
    return graph.x @ selection


def listed(names: Iterable[str]) -> str:
    """Return names for a message: quoted, at most five."""
    names = list(names)
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(repr(name) for name in names[:SHOWN]) + more
