"""Conversions between `Graph` and the graphs of other libraries, as methods of `Graph`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from edgemask.graph import adjacency, dgl, frames, networkx, pyg

if TYPE_CHECKING:
    import pandas as pd
    from torch_geometric.data import Data


class Conversions:
    """The conversions. `Graph` derives from this class.

    Every method `from_…` takes the arguments of `Graph` that are not part of the other library's object as options,
    for example `undirected=True` or `duplicates="merge"`.
    """

    @classmethod
    def from_pyg(cls, data: Data, name: str | None = None, **options: Any) -> Self:
        """Return a PyTorch Geometric `Data` object as a graph.

        Its fields `x`, `edge_index`, `y` (N or N × 1 labels, or N × C if nodes have several labels; -1 for missing),
        `edge_weight` and all `*_mask` are used. `classes`, `feature_names`, `text_columns`, `node_ids` and `name` are
        used if they are there. Other fields, such as `edge_attr` and masks of several splits, are ignored with a
        `GraphWarning`.

        Args:
            data: The object.
            name: Name of the graph. By default `data.name`, else `graph`.
            **options: Arguments of `Graph`, which override the fields.

        Raises:
            GraphError: A field is missing or not valid.
        """
        return cls(**pyg.fields(data, name) | options)

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
            GraphError: The matrix is not square, does not fit the features, or a field is not valid.
        """
        return cls(**{"name": name, "x": x, "y": y} | adjacency.fields(x, adjacency_matrix, y, name) | options)

    def to_adjacency(self) -> tuple[Any, Any]:
        """Return the features, and the adjacency matrix as a SciPy CSR array with the weights of the edges.

        An edge of weight 0 is kept as an explicit zero.
        """
        return adjacency.matrices(self)

    @classmethod
    def from_pandas(cls, nodes: pd.DataFrame, edges: pd.DataFrame, name: str = "graph", **options: Any) -> Self:
        """Return a graph from a DataFrame of nodes and a DataFrame of edges.

        Args:
            nodes: One row per node. See `edgemask.graph.frames.fields` for the columns.
            edges: One row per edge.
            name: Name of the graph.
            **options: Names of columns (`id`, `label`, `features`, `text`, `source`, `destination`, `weight`), and
                arguments of `Graph`.

        Raises:
            GraphError: A column is missing, or a value is not valid. The message names the node or row.
        """
        return frames.graph(cls, nodes, edges, name, options)

    def to_pandas(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return a DataFrame of nodes and one of edges, from which `from_pandas` makes the same graph."""
        return frames.frames(self)

    @classmethod
    def from_networkx(cls, graph: Any, name: str | None = None, **options: Any) -> Self:
        """Return a networkx graph as a graph.

        Args:
            graph: A `networkx.Graph` or `DiGraph`. The attributes of its nodes are the features and the label, as the
                columns of `from_pandas`. The attribute `weight` of its edges is used.
            name: Name of the graph. By default `graph.name`, else `graph`.
            **options: As for `from_pandas`.

        Raises:
            GraphError: An attribute is missing at some node, or a value is not valid.
        """
        return networkx.graph(cls, graph, name, options)

    def to_networkx(self) -> Any:
        """Return a `networkx.DiGraph`, from which `from_networkx` makes the same graph."""
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
            GraphError: A field is missing or not valid.
        """
        return cls(**dgl.fields(graph, name) | options)

    def to_dgl(self) -> Any:
        """Return a DGL graph with the node data `feat`, `label` and `*_mask`, and the edge data `weight`.

        Raises:
            MissingDependencyError: DGL is not installed.
        """
        return dgl.graph(self)
