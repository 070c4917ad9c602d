"""`Graph`: one domain. A graph is validated when it is created and cannot be changed afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from edgemask.errors import GraphError
from edgemask.legal import Legal

Array = npt.NDArray[Any]
MISSING = -1  # the label of a node whose class is unknown
UNNAMED = 100_000  # largest legal label when classes are not named; a larger one is taken for a mistake


@dataclass(frozen=True, eq=False)
class Graph:
    """One domain: a named graph with node features and optional labels.

    A graph is immutable. Its arrays are read-only copies of the arguments.

    Args:
        name: Name of the domain. Error messages and results use it.
        x: N × d numeric features, as an array or a SciPy sparse matrix. They are stored as float32; a sparse matrix
            is stored in CSR format.
        edges: 2 × M directed (source, destination) pairs of node indices. They are stored sorted by destination, then
            by source. An undirected graph holds both directions of each edge.
        y: N integer labels (-1 for a missing label), or an N × C matrix of 0 and 1 if nodes have several labels (a row
            of -1 for missing labels), or None for a graph without labels.
        classes: Names of the classes. By default they are `"0"` … `"C-1"`, or empty if every label is missing.
        masks: Boolean node masks by name. The mask `"eval"` restricts the nodes on which metrics are computed.
        undirected: Add the missing direction of every edge.
        duplicates: `"error"` rejects duplicate edges, `"merge"` keeps one of each.
        self_loops: `"error"` rejects self-loops, `"drop"` removes them. The models add their own self-loops.
        isolated: `"allow"` accepts nodes without edges, `"error"` rejects them.

    Raises:
        GraphError: A field is not valid. The message names the graph, the field and the value.

    >>> Graph("triangle", [[1.0], [2.0], [3.0]], [[0, 1, 2], [1, 2, 0]], y=[0, 1, -1], undirected=True)
    Graph('triangle', 3 nodes, 6 edges, 1 dense features, 2 classes, 2 labelled)
    """

    name: str
    x: Any
    edges: Array
    y: Array | None = None
    classes: tuple[str, ...] = ()
    masks: Mapping[str, Array] = field(default_factory=dict)
    undirected: InitVar[bool] = False
    duplicates: InitVar[Literal["error", "merge"]] = "error"
    self_loops: InitVar[Literal["error", "drop"]] = "error"
    isolated: InitVar[Literal["allow", "error"]] = "allow"

    def __post_init__(self, undirected: bool, duplicates: str, self_loops: str, isolated: str) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise GraphError(f"graph name must be a non-empty string, got {self.name!r}")
        for option, value, legal in (
            ("duplicates", duplicates, Legal(choices=("error", "merge"))),
            ("self_loops", self_loops, Legal(choices=("error", "drop"))),
            ("isolated", isolated, Legal(choices=("allow", "error"))),
        ):
            if not legal.allows(value):
                self._fail(option, f"must be {legal}, got {value!r}")
        set_field = object.__setattr__  # the dataclass is frozen
        set_field(self, "x", self._checked_x())
        set_field(self, "edges", self._checked_edges(undirected, duplicates, self_loops, isolated))
        set_field(self, "y", self._checked_y())
        set_field(self, "classes", self._checked_classes())
        set_field(self, "masks", self._checked_masks())

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

    @cached_property
    def labelled(self) -> Array:
        """Boolean mask of the nodes whose label is known. It is all False in a graph without labels."""
        if self.y is None:
            known = np.zeros(self.num_nodes, dtype=bool)
        else:
            known = (self.y if self.y.ndim == 1 else self.y[:, 0]) != MISSING
        return _frozen(known)

    @cached_property
    def first_labels(self) -> Array:
        """One class per node: its label, or the first of several; -1 if it is missing or the node has no class."""
        if self.y is None:
            first = np.full(self.num_nodes, MISSING)
        elif self.y.ndim == 1:
            first = self.y.copy()
        else:
            first = np.where((self.y > 0).any(1), self.y.argmax(1), MISSING)
        return _frozen(first)

    @cached_property
    def degrees(self) -> Array:
        """In-degree of every node."""
        return _frozen(np.bincount(self.edges[1], minlength=self.num_nodes))

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the content. The name is not part of it, so graphs with equal content have equal hashes."""
        digest = hashlib.sha256(b"edgemask-graph-1")
        parts: dict[str, Array] = {"edges": self.edges, **{f"mask {k}": v for k, v in self.masks.items()}}
        if self.is_sparse:
            parts |= {"x.data": self.x.data, "x.indices": self.x.indices, "x.indptr": self.x.indptr}
        else:
            parts["x"] = self.x
        if self.y is not None:
            parts["y"] = self.y
        digest.update(repr(((self.num_nodes, self.num_features), self.classes)).encode())
        for key in sorted(parts):
            value = np.ascontiguousarray(parts[key])
            digest.update(f"{key} {value.dtype.str} {value.shape}".encode())
            digest.update(value.data)
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.name == other.name and self.hash == other.hash

    def __hash__(self) -> int:
        return hash((self.name, self.hash))

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and unpickled graphs are validated again, because unpickled arrays are writable.
        return Graph, (self.name, self.x, self.edges, self.y, self.classes, dict(self.masks))

    def __repr__(self) -> str:
        kind = "sparse" if self.is_sparse else "dense"
        labels = "no labels" if self.y is None else f"{int(self.labelled.sum()):,} labelled"
        return (
            f"Graph({self.name!r}, {self.num_nodes:,} nodes, {self.num_edges:,} edges, "
            f"{self.num_features:,} {kind} features, {self.num_classes} classes, {labels})"
        )

    # ---- derived graphs --------------------------------------------------------------------------

    def replace(self, **changes: Any) -> Graph:
        """Return a copy with some fields replaced. The copy is validated.

        Args:
            **changes: Arguments of `Graph` by name.

        Raises:
            GraphError: A new value is not valid.
        """
        return replace(self, **changes)

    def without_labels(self) -> Graph:
        """Return the graph with `y` removed. Training and selection receive targets in this form."""
        return replace(self, y=None)

    def reordered(self, order: Array) -> Graph:
        """Return the graph with its nodes in another order.

        Args:
            order: A permutation of the nodes. Node `order[i]` becomes node i.

        Raises:
            GraphError: `order` is not a permutation of the nodes.
        """
        new_index = np.argsort(order)
        if not np.array_equal(np.asarray(order)[new_index], np.arange(self.num_nodes)):
            self._fail("order", f"must contain each of the nodes 0 … {self.num_nodes - 1} exactly once")
        y, masks = self.y, {name: mask[order] for name, mask in self.masks.items()}
        edges = new_index[self.edges]
        return replace(self, x=self.x[order], edges=edges, y=None if y is None else y[order], masks=masks)

    # ---- validation ------------------------------------------------------------------------------

    def _fail(self, field: str, message: str) -> NoReturn:
        raise GraphError(f"graph {self.name!r}, {field}: {message}")

    def _array(self, field: str, value: Any) -> Array:
        try:
            return np.asarray(value)
        except ValueError as error:  # a ragged list
            self._fail(field, f"cannot be converted to an array: {error}")

    def _checked_x(self) -> Any:
        sparse = bool(sp.issparse(self.x))
        x: Any = self.x if sparse else self._array("x", self.x)
        if x.ndim != 2:
            self._fail("x", f"must have 2 dimensions (nodes × features), got shape {tuple(x.shape)}")
        if x.dtype.kind not in "fiub":
            self._fail("x", f"must be numeric, got dtype {x.dtype}")
        if x.shape[0] == 0:
            self._fail("x", "has no rows: the graph needs at least one node")
        if x.shape[1] == 0:
            self._fail("x", "has no columns: the graph needs at least one feature")
        with np.errstate(over="ignore"):  # a value too large for float32 becomes inf, which is rejected below
            features: Any = self._csr(x) if sparse else np.array(x, dtype=np.float32, order="C")
        arrays = (features.data, features.indices, features.indptr) if sparse else (features,)
        if not np.isfinite(arrays[0]).all():
            coo = sp.coo_array(features)
            first = np.flatnonzero(~np.isfinite(coo.data))[0]
            node, column, value = coo.row[first], coo.col[first], coo.data[first]
            self._fail("x", f"feature {column} of node {node} must be finite, got {value} as float32")
        for array in arrays:
            _frozen(array)
        return features

    def _csr(self, x: Any) -> Any:
        """Return a matrix as canonical float32 CSR, so that equal matrices have equal arrays in every input format."""
        x = x.copy()
        if hasattr(x, "check_format"):  # an index out of bounds would corrupt memory later
            try:
                x.check_format(full_check=True)
            except ValueError as error:
                self._fail("x", f"is not a valid {x.format} matrix: {error}")
        csr = sp.csr_array(x, dtype=np.float32)
        csr.sum_duplicates()
        csr.eliminate_zeros()
        if max(csr.nnz, *csr.shape) < 2**31:
            csr.indices, csr.indptr = csr.indices.astype(np.int32), csr.indptr.astype(np.int32)
        return csr

    def _checked_edges(self, undirected: bool, duplicates: str, self_loops: str, isolated: str) -> Array:
        n, edges = self.num_nodes, self._array("edges", self.edges)
        if not isinstance(undirected, bool | np.bool_):
            self._fail("undirected", f"must be True or False, got {undirected!r}")
        if edges.size == 0:
            edges = np.empty((2, 0), dtype=np.int64)
        if edges.ndim != 2 or edges.shape[0] != 2:
            self._fail("edges", f"must have shape (2, M), got {edges.shape}")
        if edges.dtype.kind not in "iu":
            self._fail("edges", f"must be integers, got dtype {edges.dtype}")
        outside = (edges < 0) | (edges >= n)
        if outside.any():
            first = np.flatnonzero(outside.any(0))[0]
            src, dst = edges[:, first]
            self._fail("edges", f"edge {first} is ({src}, {dst}), but nodes are numbered 0 … {n - 1}")
        edges = edges.astype(np.int64)
        loops = edges[0] == edges[1]
        if loops.any():
            if self_loops == "error":
                first = np.flatnonzero(loops)[0]
                self._fail(
                    "edges",
                    f"edge {first} is a self-loop on node {edges[0, first]} (self-loops in total: {loops.sum()}); "
                    "pass self_loops='drop' to remove them (the models add their own)",
                )
            edges = edges[:, ~loops]
        key, counts = np.unique(edges[1] * n + edges[0], return_counts=True)  # sorted by destination, then source
        if duplicates == "error" and (counts > 1).any():
            dst, src = divmod(int(key[counts > 1][0]), n)
            repeats = int((counts - 1).sum())
            self._fail(
                "edges",
                f"edge ({src}, {dst}) is a duplicate (duplicates in total: {repeats}); "
                "pass duplicates='merge' to remove them",
            )
        if undirected:
            key = np.sort(np.concatenate([key, key % n * n + key // n]))
            key = key[np.diff(key, prepend=-1) > 0]  # np.unique hashes, which is many times slower
        edges = np.stack([key % n, key // n])
        if isolated == "error":
            edgeless = np.ones(n, dtype=bool)
            edgeless[edges] = False
            if edgeless.any():
                self._fail(
                    "edges",
                    f"node {np.flatnonzero(edgeless)[0]} is isolated (isolated nodes in total: {edgeless.sum()})",
                )
        return _frozen(edges)

    def _checked_y(self) -> Array | None:
        if self.y is None:
            return None
        y, n = self._array("y", self.y), self.num_nodes
        if y.ndim not in (1, 2) or y.shape[0] != n or 0 in y.shape:
            self._fail("y", f"must have shape ({n},) or ({n}, classes), got {y.shape}")
        if y.dtype.kind == "f":
            if not np.isfinite(y).all():
                node = np.argwhere(~np.isfinite(y))[0][0]
                self._fail("y", f"label of node {node} is {y[~np.isfinite(y)][0]}; use -1 for a missing label")
            if (y != np.trunc(y)).any():
                self._fail("y", f"labels must be integers, got {y[y != np.trunc(y)][0]}")
        elif y.dtype.kind not in "iub":
            self._fail("y", f"labels must be integers, got dtype {y.dtype}")
        top = 1 if y.ndim == 2 else len(self.classes) - 1 if len(self.classes) else min(max(int(y.max()), 0), UNNAMED)
        illegal = (y < MISSING) | (y > top)
        if illegal.any():
            node = np.argwhere(illegal)[0][0]
            self._fail("y", f"label of node {node} must be -1 (missing) or 0 … {top}, got {y[illegal][0]}")
        if y.ndim == 2:
            y = y.astype(np.int8)
            partly_missing = (y == MISSING).any(1) & ~(y == MISSING).all(1)
            if partly_missing.any():
                row = np.flatnonzero(partly_missing)[0]
                self._fail("y", f"row {row} is partly missing; either all values of a row are -1, or none")
        return _frozen(np.array(y, dtype=np.int8 if y.ndim == 2 else np.int64))

    def _checked_classes(self) -> tuple[str, ...]:
        given: Any = self.classes
        if isinstance(given, str):
            self._fail("classes", f"must be a sequence of names, got the string {given!r}")
        classes = tuple(str(c) for c in given)
        if not classes and self.y is not None:
            count = self.y.shape[1] if self.y.ndim == 2 else int(self.y.max()) + 1
            classes = tuple(str(i) for i in range(count))
        if len(set(classes)) != len(classes):
            self._fail("classes", f"names must be distinct, got {classes}")
        if self.y is not None and self.y.ndim == 2 and self.y.shape[1] != len(classes):
            self._fail("y", f"must have one column per class: expected {len(classes)}, got {self.y.shape[1]}")
        return classes

    def _checked_masks(self) -> Mapping[str, Array]:
        for name in self.masks:
            if not isinstance(name, str):
                self._fail("masks", f"names must be strings, got {name!r}")
        masks = {}
        for name, mask in sorted(self.masks.items()):
            mask = self._array(f"masks[{name!r}]", mask)
            if mask.dtype != bool or mask.shape != (self.num_nodes,):
                self._fail(
                    f"masks[{name!r}]",
                    f"must be {self.num_nodes} booleans, got {mask.dtype} of shape {mask.shape}",
                )
            masks[name] = _frozen(mask.copy())
        return MappingProxyType(masks)


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


def _frozen(array: Array) -> Array:
    """Make an array read-only and return it."""
    array.setflags(write=False)
    return array
