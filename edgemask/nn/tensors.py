"""A domain on a device: features (sparse stays sparse), destination-sorted edges, labels."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from edgemask.errors import InputError
from edgemask.graph import Graph
from edgemask.nn.backend import backend
from edgemask.nn.order import SourceOrder, with_loops


class SparseMatrix:
    """A constant CSR matrix with its transpose prepared, so that `A @ W` and its gradient are two products."""

    def __init__(self, matrix: Any, device: torch.device):
        csr = sp.csr_array(matrix, dtype=np.float32)
        self.shape = (int(csr.shape[0]), int(csr.shape[1]))
        self.forward = csr_tensor(csr.indptr, csr.indices, csr.data, self.shape, device)
        flipped = sp.csr_array(csr.T)
        self.transpose = csr_tensor(
            flipped.indptr, flipped.indices, flipped.data, (self.shape[1], self.shape[0]), device
        )

    def __matmul__(self, weight: Tensor) -> Tensor:
        product: Tensor = _ConstantProduct.apply(weight, self.forward, self.transpose)  # type: ignore[no-untyped-call]
        return product


class _ConstantProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, matrix: Tensor, transpose: Tensor) -> Tensor:
        ctx.transpose = transpose
        lower = weight.is_cuda and torch.is_autocast_enabled("cuda")  # then as the products of dense matrices
        return sparse_product(matrix, weight, torch.bfloat16 if lower else weight.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return sparse_product(ctx.transpose, grad, ctx.transpose.dtype), None, None


def sparse_product(matrix: Tensor, dense: Tensor, dtype: torch.dtype) -> Tensor:
    """A CSR tensor times a dense one."""
    if dense.is_cuda and (kernels := backend(dense)).__name__.endswith(".gpu"):
        parts = matrix.crow_indices(), matrix.col_indices(), matrix.values()
        out: Tensor = kernels.product(*parts, dense.contiguous(), dtype=dtype)
        return out
    return (matrix @ dense.to(matrix.dtype)).to(dtype)


def csr_tensor(indptr: Any, indices: Any, data: Any, shape: tuple[int, int], device: torch.device) -> Tensor:
    """A torch CSR tensor from arrays (copied to the device) or tensors (used as they are)."""
    crow, col, values = (
        p if isinstance(p, Tensor) else torch.tensor(p, device=device) for p in (indptr, indices, data)
    )
    values = values.contiguous()  # CUDA's products take the values of another stride for dense, and are wrong then
    with warnings.catch_warnings():  # torch says once per process that CSR is in beta, and of every choice of checks
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta|invariant checks are)")
        return torch.sparse_csr_tensor(crow, col, values, size=shape, check_invariants=False)


@dataclass(frozen=True)
class Edges:
    """Edges of one graph on a device, sorted by destination, every node's self-loop among them.

    `real` holds the positions of the edges that are no self-loops, in order: a mask s has one value
    for each of them, and 1 on the loops (`spread`).

    `padded` edges have a fixed length: only the first `count` of the real edges are there, the rest is filling that
    `indptr` and `by_source` leave out. Steps captured as CUDA graphs run on them.
    """

    num_nodes: int
    src: Tensor
    dst: Tensor
    real: Tensor
    origin: Tensor  # of the real edges
    count: Tensor | None = None  # 1 value on the device, of padded edges alone

    @classmethod
    def build(cls, src: Tensor, dst: Tensor, num_nodes: int, origin: Tensor | None = None) -> Edges:
        """From edges without self-loops, sorted by destination, then source (as `Graph.edges` and samples are)."""
        origin = torch.zeros_like(src, dtype=torch.uint8) if origin is None else origin
        if src.device.type == "cpu":
            all_src, all_dst, real, indptr, real_indptr = with_loops(src, dst, num_nodes)
            edges = cls(num_nodes, all_src, all_dst, real, origin)
            edges.__dict__.update(indptr=indptr, real_indptr=real_indptr)
            return edges
        loops = torch.arange(num_nodes, device=src.device)
        order = torch.sort(torch.cat([dst, loops]), stable=True).indices
        real = torch.nonzero(order < len(src)).squeeze(1)
        return cls(num_nodes, torch.cat([src, loops])[order], torch.cat([dst, loops])[order], real, origin)

    @property
    def num_real(self) -> int:
        return len(self.real)

    @cached_property
    def indptr(self) -> Tensor:
        """Where each destination's edges begin (N + 1 values)."""
        counts = torch.bincount(self.dst, minlength=self.num_nodes)
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)])

    @cached_property
    def real_indptr(self) -> Tensor:
        """Where each destination's edges begin among the real ones (N + 1 values)."""
        return torch.searchsorted(self.real, self.indptr)

    @cached_property
    def by_source(self) -> tuple[Tensor, Tensor]:
        """The permutation that sorts edges by source, and where each source's edges begin."""
        if self.src.device.type == "cpu":
            return self.source_order.order, self.source_order.starts
        counts = torch.bincount(self.src, minlength=self.num_nodes)
        order = torch.sort(self.src, stable=True).indices
        return order, torch.cat([counts.new_zeros(1), counts.cumsum(0)])

    @cached_property
    def dst_by_source(self) -> Tensor:
        """The destinations in the order of `by_source`: the columns of the transposed matrix."""
        return self.source_order(self.dst) if self.src.device.type == "cpu" else self.dst[self.by_source[0]]

    @cached_property
    def source_order(self) -> SourceOrder:
        """On the CPU: what sorts edges by source, filling left out, and brings values of them into that order."""
        return SourceOrder.of(self.src[: int(self.indptr[-1])], self.num_nodes)

    def mean(self, values: Tensor) -> Tensor:
        """The mean of one value per real edge, filling left out."""
        if self.count is None:
            return values.mean()
        there = torch.arange(len(values), device=values.device) < self.count
        return (torch.where(there, values, 0).sum() / self.count).squeeze(0)

    def padded(self, length: int) -> Edges:
        """The same edges in arrays of `length` entries."""
        filling = length - len(self.src)
        if filling < 0 or self.count is not None:
            raise InputError(f"edges without filling and at least {len(self.src)} entries needed, got {length}")

        def fill(values: Tensor, value: int) -> Tensor:
            return torch.cat([values, values.new_full((filling,), value)])

        positions = torch.arange(len(self.src), length, device=self.src.device)
        last = self.num_nodes - 1
        padded = Edges(
            num_nodes=self.num_nodes,
            src=fill(self.src, last),
            dst=fill(self.dst, last),
            real=torch.cat([self.real, positions]),
            origin=fill(self.origin, 255),  # none of the origins
            count=self.real.new_full((1,), self.num_real),
        )
        order, starts = self.by_source
        padded.__dict__["indptr"] = self.indptr.clone()
        padded.__dict__["by_source"] = fill(order, 0), starts.clone()
        padded.__dict__["dst_by_source"] = fill(self.dst_by_source, last)
        return padded

    def copy_(self, other: Edges) -> None:
        """Take over the content of other padded edges of the same length, in place."""
        for mine, theirs in zip(self._arrays(), other._arrays(), strict=True):
            mine.copy_(theirs)

    def _arrays(self) -> tuple[Tensor, ...]:
        if self.count is None:
            raise InputError("only padded edges can be copied in place")
        return self.src, self.dst, self.real, self.origin, self.count, self.indptr, *self.by_source, self.dst_by_source

    def spread(self, s: Tensor | None) -> Tensor:
        """Per-edge weights: s on the real edges (1 when None), 1 on the self-loops."""
        ones = torch.ones(len(self.src), device=self.src.device, dtype=s.dtype if s is not None else None)
        return ones if s is None else ones.index_copy(0, self.real, s)


@dataclass(frozen=True)
class GraphTensors:
    """A graph's tensors on one device: what every model and method consumes."""

    name: str
    x: SparseMatrix | Tensor
    edges: Edges
    y: Tensor | None  # class index per node, -1 = missing
    labelled: Tensor  # positions of the nodes with a class
    graph: Graph

    @classmethod
    def of(cls, graph: Graph, device: str | torch.device = "cpu") -> GraphTensors:
        device = torch.device(device)
        x = SparseMatrix(graph.x, device) if graph.is_sparse else torch.tensor(graph.x, device=device)
        src, dst = torch.tensor(graph.edges, device=device)
        return cls(
            name=graph.name,
            x=x,
            edges=Edges.build(src, dst, graph.num_nodes),
            y=None if graph.y is None else torch.tensor(graph.first_labels, device=device),
            labelled=torch.tensor(np.flatnonzero(graph.first_labels >= 0), device=device),
            graph=graph,
        )

    @property
    def num_nodes(self) -> int:
        return self.edges.num_nodes

    def labels(self) -> Tensor:
        if self.y is None:
            raise InputError(f"graph {self.name!r} has no labels")
        return self.y


def features(graph: Graph, nodes: Tensor) -> Tensor | SparseMatrix:
    """The features of some nodes, on the device of `nodes`."""
    rows = graph.x[nodes.cpu().numpy()]
    return SparseMatrix(rows, nodes.device) if graph.is_sparse else torch.from_numpy(rows).to(nodes.device)


def skeleton(graph: Graph, device: torch.device) -> GraphTensors:
    """A graph's domain without features: they stay in the graph, and are taken from it a batch or block at a time."""
    src, dst = torch.tensor(graph.edges, device=device)
    return GraphTensors(
        name=graph.name,
        x=torch.empty(0, graph.num_features, device=device),
        edges=Edges.build(src, dst, graph.num_nodes),
        y=None if graph.y is None else torch.tensor(graph.first_labels, device=device),
        labelled=torch.tensor(np.flatnonzero(graph.first_labels >= 0), device=device),
        graph=graph,
    )
