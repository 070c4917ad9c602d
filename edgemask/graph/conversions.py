"""Conversions between `Graph` and the graphs of other libraries, as methods of `Graph`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from edgemask.graph import adjacency, dgl, frames, networkx, pyg
from edgemask.graph.libraries import require

if TYPE_CHECKING:
    import pandas as pd
    from torch_geometric.data import Data


REMOVED = {"self_loops": "warn", "duplicates": "warn"}  # defaults for objects of libraries of graphs


class Conversions:
    """The conversions. `Graph` derives from this class.

    Every method `from_…` takes the arguments of `Graph` that are not part of the other library's object as options,
    for example `undirected=True` or `duplicates="merge"`.

    Self-loops and parallel edges are common in objects of PyTorch Geometric, networkx, DGL and SciPy. They are removed
    and merged with a `GraphWarning`, unless the options `self_loops` and `duplicates` say otherwise. In tables, where
    they may be mistakes, they are errors.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @classmethod
    def from_pyg(cls, data: Data, name: str | None = None, **options: Any) -> Self:
        """Return a PyTorch Geometric `Data` object as a graph.

        Its fields `x`, `edge_index`, `y` (N or N × 1 labels, or N × C if nodes have several labels; -1 for missing),
        `edge_weight` and all `*_mask` are used. `classes`, `feature_names`, `text_columns`, `node_ids` and `name` are
        used if they are there. Other fields, such as `edge_attr`, are ignored with a `GraphWarning`. A
        mask of several splits (N × S) is an error.

        Args:
            data: The object.
            name: Name of the graph. By default `data.name`, else `graph`.
            **options: Arguments of `Graph`, which override the fields.

        Raises:
            InputTypeError: `data` is not a `Data` object.
            InputError: There is no such option.
            GraphError: A field is missing or not valid.
        """
        require(data, "torch_geometric", "data", "a PyTorch Geometric Data object")
        cls._check(options)
        return cls(**REMOVED | pyg.fields(data, name) | options)

    def to_pyg(self) -> Data:
        """Return a PyTorch Geometric `Data` object, from which `from_pyg` makes the same graph.

        Its tensors are copies. `x` is a sparse CSR tensor if the features are sparse.
        """
        return pyg.data(self)

    @classmethod
    def from_adjacency(cls, x: Any, adjacency_matrix: Any, y: Any = None, name: str = "graph", **options: Any) -> Self:
        """Return a graph from features and an adjacency matrix.

        Args:
            x: N × d features as an array, a SciPy matrix or a DataFrame; None with the option `features`.
            adjacency_matrix: N × N NumPy or SciPy matrix. A value other than 0 at (i, j) is an edge from i to j. If the
                values are not all 1, they become the weights of the edges.
            y: Labels, as for `Graph`.
            name: Name of the graph.
            **options: Arguments of `Graph`.

        Raises:
            InputError: There is no such option.
            GraphError: The matrix is not square, does not fit the features, or a field is not valid.
        """
        cls._check(options)
        edges = adjacency.fields(x, adjacency_matrix, y, name)
        return cls(**REMOVED | {"name": name, "x": x, "y": y} | edges | options)

    def to_adjacency(self) -> tuple[Any, Any]:
        """Return the features, and the adjacency matrix as a SciPy CSR array with the weights of the edges.

        An edge of weight 0 is kept as an explicit zero.
        """
        return adjacency.matrices(self)

    @classmethod
    def from_pandas(cls, nodes: pd.DataFrame, edges: pd.DataFrame, name: str | None = None, **options: Any) -> Self:
        """Return a graph from a DataFrame of nodes and a DataFrame of edges.

        These columns of `nodes` have a meaning of their own; all others are features:

        - The ids of the nodes: the column `id`, or else the index. They are integers or text.
        - `label`: The class: text, an integer or a boolean; None, NaN or "" if it is missing. The categories of a
          categorical column are the classes. If nodes have several labels, there is one column `label:<class>` of 0
          and 1 per class.
        - `<name>_mask` or `mask:<name>`: A mask: 0/1, true/false or yes/no.

        Columns of numbers and booleans are numeric features. A column of text or categories is one-hot encoded: its
        value "Oslo" becomes the feature `city=Oslo`, and a missing text sets none of them. The features are sparse if
        there are more than 64 such columns, or if a column is sparse.

        The ends of the edges are in the columns `source` and `destination` (or source/target, src/dst, from/to, u/v,
        or the only two columns) and refer to the ids. The column `weight`, if it exists, holds the weights. Other
        columns are ignored with a `GraphWarning`.

        The tables of `to_pandas` describe the graph exactly: `nodes.attrs["edgemask"]` holds what columns cannot
        express. It is used as long as the columns are the same and no option names columns or classes.

        Args:
            nodes: One row per node.
            edges: One row per edge.
            name: Name of the graph. By default that of the graph from which `to_pandas` made the tables, else `graph`.
            **options: Names of columns: `id`, `label` (a `GraphWarning` says if it does not exist, and the graph has
                no labels then), `source`, `destination` and `weight`. `features`: the feature columns, as a list or a
                comma-separated text; a name that is no column may be `degree`, `log-degree` or `clustering`, which
                are derived from the edges. `text`: feature columns that are text although they look numeric.
                `classes`: names and order of the classes. `undirected`, `duplicates`, `self_loops` and `isolated`: as
                for `Graph`.

        Raises:
            GraphError: A column is missing, or a value is not valid. The message names the node or row.
            InputTypeError: `nodes` or `edges` is not a DataFrame.
            InputError: There is no such option.

        >>> import pandas as pd
        >>> from edgemask import Graph
        >>> nodes = pd.DataFrame({"id": ["ann", "bob"], "age": [31, 25], "city": ["Oslo", "Rome"], "label": ["a", ""]})
        >>> graph = Graph.from_pandas(nodes, pd.DataFrame({"from": ["ann"], "to": ["bob"]}), undirected=True)
        >>> graph.feature_names, graph.y.tolist()
        (('age', 'city=Oslo', 'city=Rome'), [0, -1])
        """
        for what, table in (("nodes", nodes), ("edges", edges)):
            require(table, "pandas", what, "a DataFrame")
        result: Self = frames.graph(cls, nodes, edges, name, options)
        return result

    def to_pandas(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return a DataFrame of nodes and one of edges, from which `from_pandas` makes the same graph.

        The index of the nodes holds their ids. Sparse features are sparse columns.
        """
        return frames.frames(self)

    @classmethod
    def from_networkx(cls, graph: Any, name: str | None = None, **options: Any) -> Self:
        """Return a networkx graph as a graph.

        Args:
            graph: A networkx graph. The attributes of its nodes are the columns of `from_pandas`, for example features
                and `label`; the attribute `weight` of its edges is used. Every node must have all attributes except
                the label. An attribute `x` with vectors of one length becomes the columns `x0`, `x1`, … The edges of
                an undirected graph become edges in both directions. Parallel edges of a `MultiGraph` are duplicates.
                Nodes that are neither all integers nor all text are converted to text.
            name: Name of the graph. By default `graph.name`, else `graph`.
            **options: As for `from_pandas`, except `source` and `destination`. `id` is an attribute of the nodes; by
                default `id` if they have it, else the nodes themselves are the ids.

        Raises:
            GraphError: An attribute is missing at some node, or a value is not valid.
            InputTypeError: `graph` is not a networkx graph.
            InputError: There is no such option.
        """
        require(graph, "networkx", "graph", "a networkx graph")
        result: Self = networkx.graph(cls, graph, name, REMOVED | options)
        return result

    def to_networkx(self) -> Any:
        """Return a `networkx.DiGraph`, from which `from_networkx` makes the same graph.

        If the features are sparse, a node has only the attributes that are not zero. `graph["edgemask"]` holds what
        attributes cannot express.

        Raises:
            MissingDependencyError: networkx is not installed.
        """
        return networkx.digraph(self)

    @classmethod
    def from_dgl(cls, graph: Any, name: str = "graph", **options: Any) -> Self:
        """Return a homogeneous DGL graph as a graph.

        The node data `feat` (or `x`), `label` (or `y`) and all `*_mask`, and the edge data `weight` (or `w`) are used.

        Args:
            graph: A `dgl.DGLGraph`.
            name: Name of the graph.
            **options: Arguments of `Graph`.

        Raises:
            InputTypeError: `graph` is not a DGL graph.
            InputError: There is no such option.
            GraphError: A field is missing or not valid.
        """
        require(graph, "dgl", "graph", "a DGL graph")
        cls._check(options)
        return cls(**REMOVED | dgl.fields(graph, name) | options)

    def to_dgl(self) -> Any:
        """Return a DGL graph with the node data `feat`, `label` and `*_mask`, and the edge data `weight`.

        Raises:
            MissingDependencyError: DGL is not installed.
        """
        return dgl.graph(self)

    @classmethod
    def _check(cls, options: Mapping[str, Any]) -> None:
        """Raise an `InputError` if an option is not an argument of `Graph`."""
        frames.check_options(options, cls.__dataclass_fields__)
