"""Checks of the fields of a `Graph`. Each returns the field in the form in which the graph stores it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from edgemask.errors import GraphError, GraphWarning, warn
from edgemask.graph.structure import STRUCTURE
from edgemask.legal import Legal, did_you_mean

Array = npt.NDArray[Any]

MISSING = -1  # the label of a node whose class is unknown
UNNAMED = 100_000  # largest legal label when classes are not named; a larger one is taken for a mistake
POLICIES = {
    "duplicates": Legal(choices=("error", "merge", "warn")),
    "self_loops": Legal(choices=("error", "drop", "warn")),
    "isolated": Legal(choices=("allow", "error")),
}


def check_compressed(matrix: Any) -> None:
    """Check the indices of a compressed sparse matrix: one out of bounds would corrupt memory later.

    Raises:
        ValueError: They are not legal.
    """
    if (matrix.indptr[1:] < matrix.indptr[:-1]).any():  # SciPy checks this only if the last entry is positive
        raise ValueError("the row pointers decrease")
    matrix.check_format(full_check=True)


class Checker:
    """The checks of one graph. Every error names the graph and the field.

    Args:
        graph: Name of the graph.
    """

    def __init__(self, graph: str):
        self.graph = graph
        self.ids: list[int | str] | None = None
        if not isinstance(graph, str) or not graph:
            raise GraphError(f"graph name must be a non-empty string, got {graph!r}")

    def fail(self, field: str, message: str) -> NoReturn:
        """Raise a `GraphError` about a field."""
        raise GraphError(f"graph {self.graph!r}, {field}: {message}")

    def warn(self, loops: int, duplicates: int) -> None:
        """Warn that self-loops were removed and duplicate edges merged, and name the options that do so silently."""
        parts = {
            "self_loops='drop'": loops and f"self-loops removed: {loops} (the models add their own)",
            "duplicates='merge'": duplicates and f"duplicate edges merged: {duplicates}",
        }
        if said := {option: text for option, text in parts.items() if text}:
            message = f"graph {self.graph!r}: {'; '.join(said.values())}; no warning with {' and '.join(said)}"
            warn(message, GraphWarning)

    def node(self, index: Any) -> str:
        """Return how messages name a node: its id if it has one, else its index."""
        return str(index) if self.ids is None or index >= len(self.ids) else repr(self.ids[index])

    def array(self, field: str, value: Any) -> Array:
        """Convert a value to an array."""
        if np.ma.is_masked(value):
            self.fail(
                field, "is a masked array with masked values, which a graph cannot store; filled(…) replaces them"
            )
        try:
            return np.asarray(value)
        except (ValueError, TypeError, RuntimeError) as error:  # a ragged list, or a tensor of another kind
            hint = "; tensor.detach().float().cpu().numpy() converts a tensor" if hasattr(value, "layout") else ""
            self.fail(field, f"cannot be converted to an array: {str(error).rstrip('.')}{hint}")

    def policies(self, given: Mapping[str, Any]) -> None:
        """Check those of the arguments `undirected`, `duplicates`, `self_loops` and `isolated` that are given."""
        for option, legal in POLICIES.items():
            if option in given and not legal.allows(given[option]):
                near = did_you_mean(given[option], legal.choices)
                self.fail(option, f"must be {legal}, got {given[option]!r}{near}")
        if not isinstance(given.get("undirected", False), bool | np.bool_):
            self.fail("undirected", f"must be True or False, got {given['undirected']!r}")

    def kinds(self, features: str | Sequence[str] | None) -> tuple[str, ...]:
        """Return the argument `features` as a tuple of kinds of structural features."""
        kinds = () if features is None else (features,) if isinstance(features, str) else tuple(features)
        for kind in kinds:
            if kind not in STRUCTURE:
                self.fail("features", f"no kind of features {kind!r} (kinds: {', '.join(STRUCTURE)})")
        return kinds

    # ---- nodes -----------------------------------------------------------------------------------

    def node_ids(self, ids: Any) -> Array | None:
        """Return distinct ids as an array of integers or of strings, and use them in later messages."""
        if ids is None:
            return None
        ids = self.array("node_ids", ids)
        if ids.ndim != 1:
            self.fail("node_ids", f"must have one dimension, got shape {ids.shape}")
        if ids.dtype.kind not in "iuU":
            ids = np.array([str(i) for i in ids.tolist()], dtype=str)
        values, counts = np.unique(ids, return_counts=True)
        if len(values) < len(ids):
            self.fail("node_ids", f"ids must be distinct, but {values[counts > 1][0].item()!r} occurs twice")
        self.ids = ids.tolist()
        return frozen(ids.copy() if ids.dtype.kind == "U" else ids.astype(np.int64))

    def num_nodes(self, fields: Mapping[str, Any]) -> int:
        """Return the number of nodes of a graph without features: that of its other fields, or what its edges need."""
        for field in ("node_ids", "y"):
            if fields[field] is not None:
                return len(fields[field])
        for mask in fields["masks"].values():
            return len(mask)
        edges = self.pairs(fields["edges"])
        if not edges.size:
            self.fail("x", "the number of nodes is not known: give features, node ids, labels or edges")
        return int(edges.max()) + 1

    # ---- features --------------------------------------------------------------------------------

    def features(self, x: Any) -> Any:
        """Return features as float32: an array in C order, or a canonical CSR matrix."""
        if x is None:
            self.fail(
                "x",
                f"the graph has no features; features='degree' derives them from the edges (or {_others('degree')}, "
                "or several of them)",
            )
        sparse = bool(sp.issparse(x))
        x = x if sparse else self.array("x", x)
        if x.ndim != 2:
            self.fail("x", f"must have 2 dimensions (nodes × features), got shape {tuple(x.shape)}")
        if x.dtype.kind not in "fiub":
            hint = "; Graph.from_pandas(nodes, edges) encodes columns of text" if x.dtype.kind in "OUS" else ""
            self.fail("x", f"must be numeric, got dtype {x.dtype}{hint}")
        if x.shape[0] == 0:
            self.fail("x", "has no rows: the graph needs at least one node")
        if x.shape[1] == 0:
            self.fail("x", "has no columns: the graph needs at least one feature")
        with np.errstate(over="ignore"):  # a value too large for float32 becomes inf, which is rejected below
            features: Any = self._csr(x) if sparse else np.array(x, dtype=np.float32, order="C")
        arrays = (features.data, features.indices, features.indptr) if sparse else (features,)
        if not np.isfinite(arrays[0]).all():
            coo = sp.coo_array(features)
            first = np.flatnonzero(~np.isfinite(coo.data))[0]
            node, column, value = coo.row[first], coo.col[first], coo.data[first]
            self.fail("x", f"feature {column} of node {self.node(node)} must be finite, got {value} as float32")
        for array in arrays:
            frozen(array)
        return features

    def _csr(self, x: Any) -> Any:
        """Return a matrix as canonical float32 CSR, so that equal matrices have equal arrays in every input format."""
        try:
            x = x.copy()
            if hasattr(x, "indptr"):
                check_compressed(x)
            csr = sp.csr_array(x, dtype=np.float32)
        except ValueError as error:  # also a type of numbers that SciPy does not have, such as float16
            self.fail("x", f"is not a valid {x.format} matrix: {str(error).partition('. ')[0].rstrip('.')}")
        csr.sum_duplicates()
        csr.eliminate_zeros()
        if max(csr.nnz, *csr.shape) < 2**31:
            csr.indices, csr.indptr = csr.indices.astype(np.int32), csr.indptr.astype(np.int32)
        return csr

    def feature_names(self, names: Any, text_columns: Any, width: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of the columns, and of the text columns that some of them encode."""
        names, text_columns = (self.names(f, v) for f, v in (("feature_names", names), ("text_columns", text_columns)))
        if names and len(names) != width:
            self.fail("feature_names", f"expected {width} names, one per column of x, got {len(names)}")
        if text_columns and not names:
            self.fail("text_columns", "needs feature_names, but the columns have no names")
        return names, text_columns

    def names(self, field: str, given: Any) -> tuple[str, ...]:
        """Return a sequence of distinct names as a tuple of strings."""
        if isinstance(given, str):
            self.fail(field, f"must be a sequence of names, got the string {given!r}")
        if not isinstance(given, Iterable):
            self.fail(field, f"must be a sequence of names, got {given!r}")
        names = tuple(str(name) for name in given)
        if len(set(names)) != len(names):
            shown = names if len(names) < 20 else next(n for i, n in enumerate(names) if n in names[:i])
            self.fail(field, f"names must be distinct, got {shown}")
        return names

    # ---- edges -----------------------------------------------------------------------------------

    def pairs(self, edges: Any) -> Array:
        """Return edges as a 2 × M array. They may be given as M × 2, or as a list of (source, destination) tuples."""
        listed = isinstance(edges, list | tuple) and bool(edges) and all(isinstance(e, tuple) for e in edges)
        edges = self.array("edges", edges)
        if edges.size == 0:
            return np.empty((2, 0), dtype=np.int64)
        if edges.ndim != 2 or 2 not in edges.shape:
            self.fail("edges", f"must have shape (2, M) or (M, 2), got {edges.shape}")
        if edges.dtype.kind not in "iu":
            hint = (
                "edges.astype(int) converts them" if edges.dtype.kind == "f" else "from_pandas takes edges between ids"
            )
            self.fail("edges", f"must be integers, got dtype {edges.dtype}; {hint}")
        return np.asarray(edges.T if edges.shape[0] != 2 or (listed and edges.shape[1] == 2) else edges)

    def edges(
        self, edges: Any, weights: Any, n: int, *, undirected: bool, duplicates: str, self_loops: str, isolated: str
    ) -> tuple[Array, Array | None]:
        """Return the edges sorted by destination, then by source, and their weights in the same order."""
        edges = self.pairs(edges)
        weights = self.weights(weights, edges.shape[1])
        outside = (edges < 0) | (edges >= n)
        if outside.any():
            first = np.flatnonzero(outside.any(0))[0]
            src, dst = edges[:, first]
            self.fail("edges", f"edge {first} is ({src}, {dst}), but nodes are numbered 0 … {n - 1}")
        edges = edges.astype(np.int64)
        loops = edges[0] == edges[1]
        if loops.any():
            if self_loops == "error":
                first = np.flatnonzero(loops)[0]
                self.fail(
                    "edges",
                    f"edge {first} is a self-loop on node {self.node(edges[0, first])} (self-loops in total: "
                    f"{loops.sum()}); {advice('self_loops', 'drop')} removes them (the models add their own)",
                )
            edges, weights = edges[:, ~loops], None if weights is None else weights[~loops]
        key, weights = self._merged(edges[1] * n + edges[0], weights, n, duplicates)
        self.warn(loops.sum() if self_loops == "warn" else 0, edges.shape[1] - len(key) if duplicates == "warn" else 0)
        if undirected:
            key, weights = _both_ways(key, weights, n)
        edges = np.stack([key % n, key // n])
        if isolated == "error":
            edgeless = np.ones(n, dtype=bool)
            edgeless[edges] = False
            if edgeless.any():
                first = self.node(np.flatnonzero(edgeless)[0])
                self.fail("edges", f"node {first} is isolated (isolated nodes in total: {edgeless.sum()})")
        return frozen(edges), None if weights is None else frozen(weights)

    def weights(self, weights: Any, count: int) -> Array | None:
        """Return edge weights as float32: one finite number of at least 0 per edge."""
        if weights is None:
            return None
        weights = self.array("weights", weights)
        if weights.ndim == 2 and weights.shape[1] == 1:
            weights = weights[:, 0]
        if weights.shape != (count,):
            self.fail("weights", f"expected one value for each of the {count} edges, got shape {weights.shape}")
        if weights.dtype.kind not in "fiub":
            self.fail("weights", f"must be numeric, got dtype {weights.dtype}")
        with np.errstate(over="ignore"):
            single = weights.astype(np.float32)
        wrong = ~(np.isfinite(single) & (single >= 0))
        if wrong.any():
            first = np.flatnonzero(wrong)[0]
            value = float(weights[first])
            end = ", which is too large for float32" if 0 < value < np.inf else ""
            message = f"weight of edge {first} must be a finite number of at least 0, got {value}{end}"
            self.fail("weights", message)
        return np.asarray(single)

    def _merged(self, key: Array, weights: Array | None, n: int, duplicates: str) -> tuple[Array, Array | None]:
        """Return sorted, distinct edge keys. The weights of merged edges are added."""
        if weights is None:
            key, counts = np.unique(key, return_counts=True)
        else:
            key, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
            weights = np.bincount(inverse, weights, len(key)).astype(np.float32)
        repeats = int((counts - 1).sum())
        if repeats and duplicates == "error":
            dst, src = divmod(int(key[counts > 1][0]), n)
            self.fail(
                "edges",
                f"edge ({self.node(src)}, {self.node(dst)}) is a duplicate (duplicates in total: {repeats}); "
                f"{advice('duplicates', 'merge')} merges them",
            )
        return key, weights

    # ---- labels and masks ------------------------------------------------------------------------

    def labels(self, y: Any, classes: Any, n: int) -> tuple[Array | None, tuple[str, ...]]:
        """Return labels as class indices (or an N × C matrix of 0 and 1), and the names of the classes."""
        classes = self.names("classes", classes)
        if y is None:
            return None, classes
        if isinstance(y, list | tuple) and any(isinstance(label, str) for label in y):
            y = np.array(y, dtype=object)  # as strings, None and NaN could not be told from names
        y = self.array("y", y)
        if y.ndim not in (1, 2) or y.shape[0] != n or 0 in y.shape:
            self.fail("y", f"must have shape ({n},) or ({n}, classes), got {y.shape}")
        if y.dtype.kind in "UO" and y.ndim == 1:
            y, classes = self._named(y, classes)
        y = self._integers(y, classes)
        if y.ndim == 2:
            partly_missing = (y == MISSING).any(1) & ~(y == MISSING).all(1)
            if partly_missing.any():
                row = self.node(np.flatnonzero(partly_missing)[0])
                self.fail("y", f"row {row} is partly missing; either all values of a row are -1, or none")
        if not classes:
            classes = tuple(map(str, range(y.shape[1] if y.ndim == 2 else int(y.max()) + 1)))
        if y.ndim == 2 and y.shape[1] != len(classes):
            self.fail("y", f"must have one column per class: expected {len(classes)}, got {y.shape[1]}")
        return frozen(np.array(y, dtype=np.int8 if y.ndim == 2 else np.int64)), classes

    def _named(self, y: Array, classes: tuple[str, ...]) -> tuple[Array, tuple[str, ...]]:
        """Return the class indices of labels that are names. None, NaN and empty names are missing labels."""
        names = ["" if label is None or label != label else str(label) for label in y.tolist()]
        classes = classes or sorted_names(set(names) - {""})
        index = {name: i for i, name in enumerate(classes)} | {"": MISSING}
        for node, name in enumerate(names):
            if name not in index:
                self.fail("y", f"label {name!r} of node {self.node(node)} is not one of the classes {classes}")
        return np.array([index[name] for name in names], dtype=np.int64), classes

    def _integers(self, y: Array, classes: tuple[str, ...]) -> Array:
        """Check that labels are legal integers."""
        if y.dtype.kind == "f":
            if not np.isfinite(y).all():
                node = np.argwhere(~np.isfinite(y))[0][0]
                value = y[~np.isfinite(y)][0]
                self.fail("y", f"label of node {self.node(node)} is {value}; use -1 for a missing label")
            if (y != np.trunc(y)).any():
                self.fail("y", f"labels must be integers, got {y[y != np.trunc(y)][0]}")
        elif y.dtype.kind not in "iub":
            hint = "; y.astype(str) converts them" if y.dtype.kind == "S" else ""
            self.fail("y", f"labels must be integers or names, got dtype {y.dtype}{hint}")
        top = 1 if y.ndim == 2 else len(classes) - 1 if classes else min(max(int(y.max()), 0), UNNAMED)
        illegal = (y < MISSING) | (y > top)
        if illegal.any():
            node = self.node(np.argwhere(illegal)[0][0])
            self.fail("y", f"label of node {node} must be -1 (missing) or 0 … {top}, got {y[illegal][0]}")
        return y

    def masks(self, masks: Mapping[str, Any], n: int) -> Mapping[str, Array]:
        """Return masks as read-only arrays of booleans, sorted by name."""
        if not isinstance(masks, Mapping):
            self.fail("masks", f"must be a dictionary of masks by name, got {masks!r}")
        for name in masks:
            if not isinstance(name, str):
                self.fail("masks", f"names must be strings, got {name!r}")
        checked = {}
        for name, mask in sorted(masks.items()):
            mask = self.array(f"masks[{name!r}]", mask)
            if mask.dtype != bool or mask.shape != (n,):
                hint = "; mask.astype(bool) converts it" if mask.dtype != bool and mask.shape == (n,) else ""
                self.fail(f"masks[{name!r}]", f"must be {n} booleans, got {mask.dtype} of shape {mask.shape}{hint}")
            checked[name] = frozen(mask.copy())
        return MappingProxyType(checked)


def advice(option: str, value: str) -> str:
    """Return how to give an option to a function, to an estimator and on the command line."""
    return f"{option}='{value}' (an estimator: read={{'{option}': '{value}'}}; a command: --read {option}={value})"


def _others(kind: str) -> str:
    return " or ".join(repr(other) for other in STRUCTURE if other != kind)


def _both_ways(key: Array, weights: Array | None, n: int) -> tuple[Array, Array | None]:
    """Add the missing direction of every edge, with the weight of the other one."""
    both = np.concatenate([key, key % n * n + key // n])
    if weights is None:
        key = np.sort(both)
        return key[np.diff(key, prepend=-1) > 0], None  # np.unique hashes, which is many times slower
    order = np.argsort(both, kind="stable")  # the given direction comes before the added one
    first = np.diff(both[order], prepend=-1) > 0
    return both[order][first], np.concatenate([weights, weights])[order][first]


def sorted_names(names: set[str]) -> tuple[str, ...]:
    """Sort names: by value if all of them are integers, else alphabetically."""
    integers = all(name.removeprefix("-").isascii() and name.removeprefix("-").isdigit() for name in names)
    return tuple(sorted(names, key=(lambda name: (int(name), name)) if integers else None))


def frozen(array: Array) -> Array:
    """Make an array read-only and return it."""
    array.setflags(write=False)
    return array
