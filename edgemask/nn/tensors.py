"""Graphs as tensors on a device: features (sparse features stay sparse), edges sorted by destination, and labels."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from edgemask.errors import InputError
from edgemask.graph import Graph
from edgemask.nn.arguments import check_edge_index, check_edge_weight
from edgemask.nn.backend import backend
from edgemask.nn.order import SourceOrder, with_loops
from edgemask.nn.sparse import csr_product


class SparseMatrix:
    """A constant CSR matrix that also stores its transpose.

    `A @ W` and its gradient with respect to W are then one sparse product each. Build it once and pass it to the
    networks as `x` in every step.

    Args:
        matrix: A torch sparse tensor, or anything that `scipy.sparse.csr_array` accepts. It is converted to float32.
        device: Where to store the matrix.

    Raises:
        InputError: The matrix is a torch tensor that requires a gradient, which a constant does not have.

    Example:
        >>> x = SparseMatrix(torch.eye(3).to_sparse())
        >>> (x @ torch.ones(3, 2)).shape
        torch.Size([3, 2])
    """

    def __init__(self, matrix: Any, device: str | torch.device = "cpu"):
        device = torch.device(device)
        if isinstance(matrix, Tensor):
            matrix = _scipy(matrix)
        csr = sp.csr_array(matrix, dtype=np.float32)
        self.shape = (int(csr.shape[0]), int(csr.shape[1]))
        self.forward = csr_tensor(csr.indptr, csr.indices, csr.data, self.shape, device)
        transpose = sp.csr_array(csr.T)
        self.transpose = csr_tensor(
            transpose.indptr, transpose.indices, transpose.data, (self.shape[1], self.shape[0]), device
        )

    def __matmul__(self, weight: Tensor) -> Tensor:
        product: Tensor = _ConstantProduct.apply(weight, self.forward, self.transpose)  # type: ignore[no-untyped-call]
        return product


def _scipy(matrix: Tensor) -> Any:
    """Return a torch tensor as a SciPy CSR array."""
    if matrix.requires_grad:
        raise InputError("sparse features are constant and have no gradient: pass x.detach()")
    with warnings.catch_warnings():  # torch warns that CSR tensors are in beta
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        csr = matrix.to_sparse_csr().cpu()
    arrays = csr.values().numpy(), csr.col_indices().numpy(), csr.crow_indices().numpy()
    return sp.csr_array(arrays, shape=tuple(csr.shape))


class _ConstantProduct(torch.autograd.Function):
    """The product of a constant sparse matrix and a dense one, with a gradient for the dense one only."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, matrix: Tensor, transpose: Tensor) -> Tensor:
        ctx.transpose = transpose
        autocast = weight.is_cuda and torch.is_autocast_enabled("cuda")  # dense products return bfloat16 then, too
        return sparse_product(matrix, weight, torch.bfloat16 if autocast else weight.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return sparse_product(ctx.transpose, grad, ctx.transpose.dtype), None, None


def sparse_product(matrix: Tensor, dense: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the product of a CSR tensor and a dense tensor, as a tensor of type `dtype`.

    Args:
        matrix: The CSR tensor.
        dense: The dense tensor.
        dtype: Type of the result.
    """
    if dense.is_cuda and (kernels := backend(dense)).__name__.endswith(".gpu"):
        csr = matrix.crow_indices(), matrix.col_indices(), matrix.values()
        out: Tensor = kernels.product(*csr, dense.contiguous(), dtype=dtype)
        return out
    if dense.device.type == "cpu" and matrix.dtype == dense.dtype == dtype == torch.float32:
        return csr_product(matrix, dense)
    return (matrix @ dense.to(matrix.dtype)).to(dtype)


def csr_tensor(indptr: Any, indices: Any, data: Any, shape: tuple[int, int], device: torch.device) -> Tensor:
    """Return a torch CSR tensor. Arrays are copied to the device; tensors are used as they are.

    Args:
        indptr: Where the entries of each row begin.
        indices: Column of each entry.
        data: Value of each entry.
        shape: Number of rows and columns.
        device: Where arrays are copied to.
    """
    crow, col, values = (
        p if isinstance(p, Tensor) else torch.tensor(p, device=device) for p in (indptr, indices, data)
    )
    values = values.contiguous()  # CUDA's sparse products ignore the stride of the values and would be wrong
    with warnings.catch_warnings():  # torch warns that CSR tensors are in beta, and about `check_invariants`
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta|invariant checks are)")
        return torch.sparse_csr_tensor(crow, col, values, size=shape, check_invariants=False)


@dataclass(frozen=True)
class Edges:
    """The edges of one graph on a device, sorted by destination, with a self-loop at every node.

    An edge that is not a self-loop is called real. A real edge has a weight w, and a mask s has one value for each real
    edge. Networks and propagation use s·w; self-loops always have weight 1 (see `spread`).

    `Edges.of` builds them from edges in any order. Build them once and reuse them in every step, because this sorts.

    Edges made by `padded` have a fixed length. Only the first `count` real edges exist; the others are padding, which
    `indptr` and `by_source` leave out. Steps captured as CUDA graphs run on padded edges.

    Attributes:
        num_nodes: Number of nodes N.
        src: Source of each edge, self-loops included.
        dst: Destination of each edge, in ascending order.
        real: Positions of the real edges in `src` and `dst`, in ascending order.
        origin: Origin of each real edge.
        count: Number of real edges without padding, as 1 value on the device. None if the edges are not padded.
        weight: Weight of each real edge. None means ones.
        order: Column of each real edge in the `edge_index` that was given to `of`. None if it was not.

    Example:
        >>> edges = Edges.build(torch.tensor([1]), torch.tensor([0]), num_nodes=2)
        >>> edges.src.tolist(), edges.dst.tolist(), edges.real.tolist()
        ([1, 0, 1], [0, 0, 1], [0])
    """

    num_nodes: int
    src: Tensor
    dst: Tensor
    real: Tensor
    origin: Tensor
    count: Tensor | None = None
    weight: Tensor | None = None
    order: Tensor | None = None

    @classmethod
    def of(cls, edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None) -> Edges:
        """Build edges from a graph's edges in any order, as PyTorch Geometric has them.

        Masks, and the logits of a MaskNet, have the order of the result: by destination, then source. `edge_index` of
        the result are the edges in this order, and `mask[edges.order]` sorts a mask of the given edges.

        Args:
            edge_index: 2 × M LongTensor of sources (row 0) and destinations (row 1), without self-loops. An edge that
                occurs several times counts several times.
            num_nodes: Number of nodes N.
            edge_weight: M weights of at least 0. They may require a gradient. None means ones.

        Returns:
            The edges, on the device of `edge_index`.

        Raises:
            InputError: A shape, a dtype or a value is not as described.

        Example:
            >>> edges = Edges.of(torch.tensor([[2, 0, 1], [1, 1, 0]]), num_nodes=3)
            >>> edges.edge_index.tolist(), edges.order.tolist()
            ([[1, 0, 2], [0, 1, 1]], [2, 1, 0])
        """
        check_edge_index(edge_index, num_nodes)
        src, dst = edge_index
        order = torch.argsort(dst * num_nodes + src, stable=True)
        if edge_weight is not None:
            check_edge_weight(edge_weight, edge_index)
            edge_weight = edge_weight[order]
        return cls.build(src[order], dst[order], num_nodes, weight=edge_weight)._replaced(order=order)

    @classmethod
    def build(
        cls,
        src: Tensor,
        dst: Tensor,
        num_nodes: int,
        origin: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> Edges:
        """Build edges from a graph's edges by adding a self-loop at every node.

        Args:
            src: Sources of the edges, without self-loops.
            dst: Destinations. The edges must be sorted by destination, then source, as `Graph.edges` and samples are.
            num_nodes: Number of nodes.
            origin: Origin of each edge. None means 0 for all edges.
            weight: Weight of each edge. None means ones.
        """
        origin = torch.zeros_like(src, dtype=torch.uint8) if origin is None else origin
        if src.device.type == "cpu":
            all_src, all_dst, real, indptr, real_indptr = with_loops(src, dst, num_nodes)
            edges = cls(num_nodes, all_src, all_dst, real, origin, weight=weight)
            edges.preset(indptr=indptr, real_indptr=real_indptr)
            return edges
        loops = torch.arange(num_nodes, device=src.device)
        order = torch.sort(torch.cat([dst, loops]), stable=True).indices
        real = torch.nonzero(order < len(src)).squeeze(1)
        ends = torch.cat([src, loops])[order], torch.cat([dst, loops])[order]
        return cls(num_nodes, *ends, real, origin, weight=weight)

    def with_weight(self, weight: Tensor | None) -> Edges:
        """Return the same edges with other weights. What is cached and does not depend on weights stays cached."""
        return self._replaced(weight=weight)

    def _replaced(self, **changes: Any) -> Edges:
        """Return edges with another weight or order. The cached properties do not depend on these, except `derived`."""
        changed = replace(self, **changes)
        names = [name for name in self.__dict__ if isinstance(getattr(Edges, name, None), cached_property)]
        changed.preset(**{name: self.__dict__[name] for name in names if name != "derived"})
        return changed

    def preset(self, **values: Tensor | tuple[Tensor, Tensor]) -> None:
        """Preset cached properties whose values are already known, so that they are not computed again.

        Args:
            values: The values by name of the cached property.

        Raises:
            ValueError: A name is not a cached property.
        """
        for name, value in values.items():
            if not isinstance(getattr(Edges, name, None), cached_property):
                raise ValueError(f"{name!r} is not a cached property of Edges")
            self.__dict__[name] = value  # where `cached_property` stores its value; the dataclass is frozen

    @property
    def num_real(self) -> int:
        """Number of real edges, including padding."""
        return len(self.real)

    @property
    def edge_index(self) -> Tensor:
        """The real edges as a 2 × M tensor of sources and destinations, in the order of masks."""
        return torch.stack([self.src[self.real], self.dst[self.real]])

    @cached_property
    def indptr(self) -> Tensor:
        """The position where the edges into each node begin (N + 1 values)."""
        counts = torch.bincount(self.dst, minlength=self.num_nodes)
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)])

    @cached_property
    def real_indptr(self) -> Tensor:
        """The position among the real edges where those into each node begin (N + 1 values)."""
        return torch.searchsorted(self.real, self.indptr)

    @cached_property
    def by_source(self) -> tuple[Tensor, Tensor]:
        """The permutation that sorts the edges by source, and where the edges of each source begin (N + 1 values)."""
        if self.src.device.type == "cpu":
            return self.source_order.order, self.source_order.starts
        counts = torch.bincount(self.src, minlength=self.num_nodes)
        order = torch.sort(self.src, stable=True).indices
        return order, torch.cat([counts.new_zeros(1), counts.cumsum(0)])

    @cached_property
    def dst_by_source(self) -> Tensor:
        """The destinations in the order of `by_source`, which are the columns of the transposed matrix."""
        return self.source_order(self.dst) if self.src.device.type == "cpu" else self.dst[self.by_source[0]]

    @cached_property
    def source_order(self) -> SourceOrder:
        """The sort of the edges by source, without padding. It is used on the CPU only."""
        return SourceOrder.of(self.src[: int(self.indptr[-1])], self.num_nodes)

    @cached_property
    def derived(self) -> dict[Any, Any]:
        """Results that operators computed from these edges alone, by name. Padded edges must not use it."""
        return {}

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean of `values`, which has one value per real edge, without padding."""
        if self.count is None:
            return values.mean()
        exists = torch.arange(len(values), device=values.device) < self.count
        return (torch.where(exists, values, 0).sum() / self.count).squeeze(0)

    def padded(self, length: int) -> Edges:
        """Return the same edges in tensors of `length` entries.

        Raises:
            ValueError: The edges are already padded, or there are more than `length` of them.
        """
        if self.count is not None:
            raise ValueError("only edges without padding can be padded; these edges are already padded")
        padding = length - len(self.src)
        if padding < 0:
            raise ValueError(f"the padded length is too small: at least {len(self.src)} entries needed, got {length}")

        def fill(values: Tensor, value: int) -> Tensor:
            return torch.cat([values, values.new_full((padding,), value)])

        positions = torch.arange(len(self.src), length, device=self.src.device)
        last = self.num_nodes - 1
        padded = Edges(
            num_nodes=self.num_nodes,
            src=fill(self.src, last),
            dst=fill(self.dst, last),
            real=torch.cat([self.real, positions]),
            origin=fill(self.origin, 255),  # not a valid origin
            count=self.real.new_full((1,), self.num_real),
            weight=None if self.weight is None else fill(self.weight, 1),
        )
        order, starts = self.by_source
        padded.preset(
            indptr=self.indptr.clone(),
            by_source=(fill(order, 0), starts.clone()),
            dst_by_source=fill(self.dst_by_source, last),
        )
        return padded

    def copy_(self, other: Edges) -> None:
        """Copy other padded edges of the same length into these, in place.

        Raises:
            ValueError: One of the two is not padded, or only one of the two has weights.
        """
        if (self.weight is None) != (other.weight is None):
            raise ValueError("edges with weights and edges without weights cannot be copied into each other")
        for target, source in zip(self._arrays(), other._arrays(), strict=True):
            target.copy_(source)

    def _arrays(self) -> tuple[Tensor, ...]:
        """Return all tensors of padded edges, including the cached ones."""
        if self.count is None:
            raise ValueError("only padded edges can be copied in place; these edges are not padded")
        weight = () if self.weight is None else (self.weight,)
        cached = self.indptr, *self.by_source, self.dst_by_source
        return self.src, self.dst, self.real, self.origin, self.count, *weight, *cached

    def weighted(self, s: Tensor | None) -> Tensor | None:
        """Return s·w, one value per real edge. A mask or weights of None are ones, and None if both are None."""
        if self.weight is None:
            return s
        return self.weight.to(torch.get_default_dtype()) if s is None else s * self.weight.to(s.dtype)

    def spread(self, s: Tensor | None) -> Tensor:
        """Return one value per edge: s·w on the real edges (see `weighted`) and 1 on the self-loops."""
        return self.beside_loops(self.weighted(s))

    def beside_loops(self, values: Tensor | None) -> Tensor:
        """Return one value per edge: `values` on the real edges (ones if they are None) and 1 on the self-loops."""
        ones = torch.ones(len(self.src), device=self.src.device, dtype=None if values is None else values.dtype)
        return ones if values is None else ones.index_copy(0, self.real, values)


@dataclass(frozen=True)
class GraphTensors:
    """The tensors of one graph on one device, as models and methods use them.

    Attributes:
        name: Name of the graph.
        x: Features of the nodes.
        edges: Edges, self-loops included.
        y: Class index of each node, -1 if it has none. None if the graph has no labels.
        labelled: Indices of the nodes that have a class.
        graph: The graph itself.
        every_y: N × C matrix of 0 and 1 if nodes may have several labels, else None.
    """

    name: str
    x: SparseMatrix | Tensor
    edges: Edges
    y: Tensor | None
    labelled: Tensor
    graph: Graph
    every_y: Tensor | None = None

    @classmethod
    def of(cls, graph: Graph, device: str | torch.device = "cpu") -> GraphTensors:
        """Copy a graph to a device."""
        device = torch.device(device)
        x = SparseMatrix(graph.x, device) if graph.is_sparse else torch.tensor(graph.x, device=device)
        return cls(
            name=graph.name,
            x=x,
            edges=edges_of(graph, device),
            y=None if graph.y is None else torch.tensor(graph.first_labels, device=device),
            labelled=torch.tensor(np.flatnonzero(graph.first_labels >= 0), device=device),
            graph=graph,
            every_y=every_label(graph, device),
        )

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.edges.num_nodes

    def labels(self) -> Tensor:
        """Return the class index of each node, -1 if it has none.

        Raises:
            InputError: The graph has no labels.
        """
        if self.y is None:
            raise InputError(f"graph {self.name!r} has no labels")
        return self.y

    @cached_property
    def indicators(self) -> Tensor:
        """N × C matrix of 0 and 1: all labels of each node. The row of a node without a class is arbitrary."""
        if self.every_y is not None:
            return self.every_y
        return torch.eye(self.graph.num_classes, device=self.labels().device)[self.labels()]


def edges_of(graph: Graph, device: torch.device) -> Edges:
    """Return the edges of a graph and their weights on a device."""
    src, dst = torch.tensor(graph.edges, device=device)
    weight = None if graph.weights is None else torch.tensor(graph.weights, device=device)
    return Edges.build(src, dst, graph.num_nodes, weight=weight)


def every_label(graph: Graph, device: torch.device) -> Tensor | None:
    """Return all labels of a graph's nodes as an N × C matrix, or None if a node has at most one label."""
    return torch.tensor(graph.y, dtype=torch.float32, device=device) if graph.is_multilabel else None


def features(graph: Graph, nodes: Tensor) -> Tensor | SparseMatrix:
    """Return the features of the given nodes, on the device of `nodes`."""
    rows = graph.x[nodes.cpu().numpy()]
    return SparseMatrix(rows, nodes.device) if graph.is_sparse else torch.from_numpy(rows).to(nodes.device)


def skeleton(graph: Graph, device: torch.device) -> GraphTensors:
    """Return the tensors of a graph without its features.

    `x` has no rows. The features stay in the graph and are read from it one batch or block at a time.
    """
    return GraphTensors(
        name=graph.name,
        x=torch.empty(0, graph.num_features, device=device),
        edges=edges_of(graph, device),
        y=None if graph.y is None else torch.tensor(graph.first_labels, device=device),
        labelled=torch.tensor(np.flatnonzero(graph.first_labels >= 0), device=device),
        graph=graph,
        every_y=every_label(graph, device),
    )


def rows(values: Tensor, index: Tensor) -> Tensor:
    """Return `values[index]` for an index of any shape with repeated rows, with a deterministic gradient.

    On a CPU, torch adds the gradients of repeated rows in the order in which its threads arrive. The gradient of
    `index_select` adds them in the order of the index. On a GPU it is the other way round.

    >>> rows(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1, 0], [1, 1]])).shape
    torch.Size([2, 2, 2])
    """
    if values.device.type != "cpu":
        return values[index]
    return values.index_select(0, index.reshape(-1)).reshape(*index.shape, *values.shape[1:])
