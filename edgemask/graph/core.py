"""`Graph`: one domain. A graph is validated when it is created and cannot be changed afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from edgemask.errors import GraphError
from edgemask.graph.checks import MISSING, Array, Checker, frozen
from edgemask.graph.conversions import Conversions
from edgemask.graph.structure import beside, structural_features

__all__ = ["MISSING", "Array", "Graph", "collect"]

# Fields of which a new value leaves the edges valid.
EDGELESS = {"name", "x", "y", "classes", "masks", "feature_names", "text_columns"}


@dataclass(frozen=True, eq=False)
class Graph(Conversions):
    """One domain: a named graph with node features and optional labels.

    A graph is immutable. Its arrays are read-only copies of the arguments. `Graph.from_pyg`, `from_networkx`,
    `from_pandas`, `from_adjacency` and `from_dgl` convert from other libraries, and `to_pyg`, … convert back.

    Args:
        name: Name of the domain. Error messages and results use it.
        x: N × d numeric features: an array, a SciPy sparse matrix, or a DataFrame, whose columns become the feature
            names. They are stored as float32; a sparse matrix is stored in CSR format. None if `features` is given.
        edges: Directed (source, destination) pairs of node indices: a 2 × M or M × 2 array, or a list of tuples. A
            2 × 2 array has the sources in its first row. Edges are stored as 2 × M, sorted by destination, then by
            source. An undirected graph holds both directions of each edge.
        y: N labels, or None for a graph without labels. Labels are integers (-1 for a missing label) or class names
            (None, NaN or "" for a missing label). If nodes have several labels, an N × C matrix of 0 and 1 (a row of
            -1 for missing labels).
        classes: Names of the classes. By default they are `"0"` … `"C-1"` for integer labels, and the sorted names
            that occur otherwise.
        masks: Boolean node masks by name. Training uses only the labels within the mask `"train"` of a source, and
            selection those within the mask `"val"` of a validation graph. Metrics are computed on the nodes of the mask
            `"eval"`, or else `"test"`.
        weights: M edge weights of at least 0, in the order of `edges`. None if all edges have weight 1. The models add
            self-loops of weight 1, so an ordinary edge should have a weight near 1.
        feature_names: Names of the d columns. Graphs with names are matched by name, not by position.
        text_columns: Names of text columns that are one-hot encoded: the feature `"city=Oslo"` belongs to the text
            column `"city"`. Graphs may have different values of a text column.
        node_ids: N distinct ids, integers or strings. Error messages and predictions name nodes by them.
        undirected: Add the missing direction of every edge.
        duplicates: `"error"` rejects duplicate edges, `"merge"` keeps one of each and adds their weights (an edge
            without weights has weight 1 afterwards), `"warn"` does so with a `GraphWarning`.
        self_loops: `"error"` rejects self-loops, `"drop"` removes them, `"warn"` does so with a `GraphWarning`. The
            models add their own self-loops.
        isolated: `"allow"` accepts nodes without edges, `"error"` rejects them.
        features: If `x` is None, the features to derive from the edges: `"degree"`, `"log-degree"`, `"clustering"`, or
            several of them (see `with_structure`).

    Raises:
        GraphError: A field is not valid. The message names the graph, the field and the value.

    >>> Graph("triangle", [[1.0], [2.0], [3.0]], [(0, 1), (1, 2), (2, 0)], y=["a", "b", None], undirected=True)
    Graph('triangle', 3 nodes, 6 edges, 1 dense features, 2 classes, 2 labelled)
    >>> Graph("path", None, [(0, 1), (1, 2)], undirected=True, features="log-degree").feature_names
    ('log-degree',)
    """

    name: str
    x: Any
    edges: Any
    y: Any = None
    classes: tuple[str, ...] = ()
    masks: Mapping[str, Array] = field(default_factory=dict)
    weights: Any = None
    feature_names: tuple[str, ...] = ()
    text_columns: tuple[str, ...] = ()
    node_ids: Any = None
    undirected: InitVar[bool] = False
    duplicates: InitVar[Literal["error", "merge", "warn"]] = "error"
    self_loops: InitVar[Literal["error", "drop", "warn"]] = "error"
    isolated: InitVar[Literal["allow", "error"]] = "allow"
    features: InitVar[str | Sequence[str] | None] = None

    def __post_init__(
        self,
        undirected: bool,
        duplicates: str,
        self_loops: str,
        isolated: str,
        features: str | Sequence[str] | None,
    ) -> None:
        check = Checker(self.name)
        policies = {"undirected": undirected, "duplicates": duplicates, "self_loops": self_loops, "isolated": isolated}
        check.policies(policies)
        kinds = check.kinds(features)
        if kinds and self.x is not None:
            check.fail("features", "derives features from the edges, but the graph has features x; use with_structure")
        stored: dict[str, Any] = {"node_ids": check.node_ids(self.node_ids)}
        names: Any = check.names("feature_names", self.feature_names)
        if not names and hasattr(self.x, "columns"):
            names = tuple(self.x.columns)
        if not kinds:
            stored["x"] = check.features(self.x)
        n = check.num_nodes(vars(self)) if kinds else int(stored["x"].shape[0])
        if stored["node_ids"] is not None and len(stored["node_ids"]) != n:
            check.fail("node_ids", f"expected {n} ids, one per row of x, got {len(stored['node_ids'])}")
        stored["edges"], stored["weights"] = check.edges(self.edges, self.weights, n, **policies)  # type: ignore[arg-type]
        if kinds:
            x, names = structural_features(stored["edges"], n, kinds)
            stored["x"] = check.features(x)
        stored["y"], stored["classes"] = check.labels(self.y, self.classes, n)
        stored["masks"] = check.masks(self.masks, n)
        named = check.feature_names(names, self.text_columns, stored["x"].shape[1])
        stored["feature_names"], stored["text_columns"] = named
        for name, value in stored.items():
            object.__setattr__(self, name, value)  # the dataclass is frozen

    # ---- properties ----------------------------------------------------------------------------

    @property
    def num_nodes(self) -> int:
        """Number of nodes N."""
        return int(self.x.shape[0])

    @property
    def num_features(self) -> int:
        """Number of feature columns d."""
        return int(self.x.shape[1])

    @property
    def num_edges(self) -> int:
        """Number of directed edges M. An undirected edge counts twice."""
        return int(self.edges.shape[1])

    @property
    def num_classes(self) -> int:
        """Number of classes C."""
        return len(self.classes)

    @property
    def is_sparse(self) -> bool:
        """Whether the features are stored as a sparse matrix."""
        return bool(sp.issparse(self.x))

    @property
    def is_multilabel(self) -> bool:
        """Whether a node can have several labels, that is, whether `y` is a matrix."""
        return self.y is not None and self.y.ndim == 2

    @property
    def is_undirected(self) -> bool:
        """Whether every edge is present in both directions."""
        n, (src, dst) = self.num_nodes, self.edges
        return bool(np.array_equal(np.sort(src * n + dst), dst * n + src))

    def node_name(self, row: int) -> int | str:
        """Return the id of the node in a row, or the row if the graph has no ids."""
        name: int | str = row if self.node_ids is None else self.node_ids[row].item()
        return name

    @cached_property
    def labelled(self) -> Array:
        """Boolean mask of the nodes whose label is known. It is all False in a graph without labels."""
        if self.y is None:
            known = np.zeros(self.num_nodes, dtype=bool)
        else:
            known = (self.y if self.y.ndim == 1 else self.y[:, 0]) != MISSING
        return frozen(known)

    @cached_property
    def first_labels(self) -> Array:
        """One class per node: its label, or the first of several; -1 if it is missing or the node has no class."""
        if self.y is None:
            first = np.full(self.num_nodes, MISSING)
        elif self.y.ndim == 1:
            first = self.y.copy()
        else:
            first = np.where((self.y > 0).any(1), self.y.argmax(1), MISSING)
        return frozen(first)

    @cached_property
    def degrees(self) -> Array:
        """In-degree of every node."""
        return frozen(np.bincount(self.edges[1], minlength=self.num_nodes))

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the content. Names of the graph, its features and its nodes are not part of it."""
        digest = hashlib.sha256(b"edgemask-graph-1")
        parts: dict[str, Array] = {"edges": self.edges, **{f"mask {k}": v for k, v in self.masks.items()}}
        if self.is_sparse:
            parts |= {"x.data": self.x.data, "x.indices": self.x.indices, "x.indptr": self.x.indptr}
        else:
            parts["x"] = self.x
        if self.y is not None:
            parts["y"] = self.y
        if self.weights is not None:
            parts["weights"] = self.weights
        digest.update(repr(((self.num_nodes, self.num_features), self.classes)).encode())
        for key in sorted(parts):
            value = np.ascontiguousarray(parts[key])
            digest.update(f"{key} {value.dtype.str} {value.shape}".encode())
            digest.update(value.data)
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph) or self.hash != other.hash:
            return False
        named = all(getattr(self, f) == getattr(other, f) for f in ("name", "feature_names", "text_columns"))
        same_ids = self.node_ids is other.node_ids or np.array_equal(self.node_ids, other.node_ids)
        return bool(named and same_ids)

    def __hash__(self) -> int:
        return hash((self.name, self.hash))

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and unpickled graphs are validated again, because unpickled arrays are writable.
        names = self.feature_names, self.text_columns, self.node_ids
        return Graph, (self.name, self.x, self.edges, self.y, self.classes, dict(self.masks), self.weights, *names)

    def __repr__(self) -> str:
        kind = "sparse" if self.is_sparse else "dense"
        labels = "no labels" if self.y is None else f"{int(self.labelled.sum()):,} labelled"
        return (
            f"Graph({self.name!r}, {self.num_nodes:,} nodes, {self.num_edges:,} edges, "
            f"{self.num_features:,} {kind} features, {self.num_classes} classes, {labels}"
            f"{'' if self.weights is None else ', weighted'})"
        )

    # ---- derived graphs --------------------------------------------------------------------------

    def replace(self, **changes: Any) -> Graph:
        """Return a copy with some fields replaced. The new values are validated.

        Args:
            **changes: Arguments of `Graph` by name.

        Raises:
            GraphError: A new value is not valid.
        """
        x = changes.get("x")
        if not changes.keys() <= EDGELESS or hasattr(x, "columns"):
            return replace(self, **changes)
        new = {f.name: getattr(self, f.name) for f in fields(self)} | changes
        check = Checker(new["name"])
        check.ids = None if self.node_ids is None else self.node_ids.tolist()
        if "x" in changes:
            new["x"] = check.features(x)
            if new["x"].shape[0] != self.num_nodes:
                return replace(self, **changes)
        if changes.keys() & {"y", "classes"}:
            new["y"], new["classes"] = check.labels(new["y"], new["classes"], self.num_nodes)
        if "masks" in changes:
            new["masks"] = check.masks(new["masks"], self.num_nodes)
        if changes.keys() & {"x", "feature_names", "text_columns"}:
            names = new["feature_names"], new["text_columns"]
            new["feature_names"], new["text_columns"] = check.feature_names(*names, new["x"].shape[1])
        copy = object.__new__(Graph)  # the edges need not be checked and sorted again
        copy.__dict__.update(new)
        return copy

    def without_labels(self) -> Graph:
        """Return the graph with `y` removed. Training and selection receive targets in this form."""
        return self.replace(y=None)

    def reordered(self, order: Array) -> Graph:
        """Return the graph with its nodes in another order.

        Args:
            order: A permutation of the nodes. Node `order[i]` becomes node i.

        Raises:
            GraphError: `order` is not a permutation of the nodes.
        """
        order = np.asarray(order)
        new_index = np.argsort(order)
        if not np.array_equal(order[new_index], np.arange(self.num_nodes)):
            Checker(self.name).fail("order", f"must contain each of the nodes 0 … {self.num_nodes - 1} exactly once")
        y, ids, masks = self.y, self.node_ids, {name: mask[order] for name, mask in self.masks.items()}
        return replace(
            self,
            x=self.x[order],
            edges=new_index[self.edges],
            y=None if y is None else y[order],
            masks=masks,
            node_ids=None if ids is None else ids[order],
        )

    def with_structure(self, *kinds: str) -> Graph:
        """Return the graph with further feature columns that are derived from its edges.

        Args:
            *kinds: `degree` (the in-degree, one-hot in 256 sparse columns: 0 … 254, and 255 or more), `log-degree`
                (log(1 + in-degree)) or `clustering` (the local clustering coefficient, ignoring directions). Weights
                are not used.

        Raises:
            GraphError: A kind is unknown, or a feature of that name exists.
        """
        x, names = structural_features(self.edges, self.num_nodes, Checker(self.name).kinds(kinds))
        own = self.feature_names or tuple(f"x{i}" for i in range(self.num_features))
        return replace(self, x=beside([self.x, x]), feature_names=(*own, *names))

    def masked_labels(self, mask: str) -> Graph:
        """Return the graph with the labels outside a mask removed. A graph without this mask stays as it is."""
        if mask not in self.masks or self.y is None:
            return self
        keep = self.masks[mask] if self.y.ndim == 1 else self.masks[mask][:, None]
        return self.replace(y=np.where(keep, self.y, MISSING))


def collect(domains: Sequence[Graph]) -> tuple[Graph, ...]:
    """Check that domains can be used together, and return them as a tuple.

    Args:
        domains: Graphs with distinct names, the same number of features and the same classes. A graph without classes
            is compatible with any classes.

    Raises:
        GraphError: No domain is given, or two domains are not compatible.
    """
    domains = tuple(domains)
    if not domains:
        raise GraphError("at least one domain is needed, got none")
    for graph in domains:
        if not isinstance(graph, Graph):
            raise GraphError(f"expected Graph objects, got {type(graph).__name__}")
    first, seen = domains[0], set[str]()
    labelled = next((g for g in domains if g.classes), first)  # a graph without classes fits any others
    for graph in domains:
        if graph.name in seen:
            raise GraphError(f"two domains are named {graph.name!r}; names must be distinct")
        seen.add(graph.name)
        if graph.num_features != first.num_features:
            raise GraphError(
                f"graph {graph.name!r}, x: {graph.num_features} features, "
                f"but graph {first.name!r} has {first.num_features}"
            )
        if graph.classes and graph.classes != labelled.classes:
            raise GraphError(
                f"graph {graph.name!r}, classes: {graph.classes}, but graph {labelled.name!r} has {labelled.classes}; "
                "if a class does not occur in every graph, name all classes: classes=(…), or in a folder's graph.json"
            )
    return domains
