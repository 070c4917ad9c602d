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

from edgemask.graph import Graph


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
        return matrix @ weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.transpose @ grad.contiguous(), None, None


def csr_tensor(indptr: Any, indices: Any, data: Any, shape: tuple[int, int], device: torch.device) -> Tensor:
    """A torch CSR tensor from arrays (copied to the device) or tensors (used as they are)."""
    crow, col, values = (
        p if isinstance(p, Tensor) else torch.tensor(p, device=device) for p in (indptr, indices, data)
    )
    with warnings.catch_warnings():  # torch says once per process that CSR is in beta, and of every choice of checks
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta|invariant checks are)")
        return torch.sparse_csr_tensor(crow, col, values, size=shape, check_invariants=False)


@dataclass(frozen=True)
class Edges:
    """Edges of one graph on a device, sorted by destination, every node's self-loop among them.

    `real` holds the positions of the edges that are no self-loops, in order: a mask s has one value
    for each of them, and 1 on the loops (`spread`).
    """

    num_nodes: int
    src: Tensor
    dst: Tensor
    real: Tensor
    origin: Tensor  # of the real edges

    @classmethod
    def build(cls, src: Tensor, dst: Tensor, num_nodes: int, origin: Tensor | None = None) -> Edges:
        """From edges without self-loops, sorted by destination, then source (as `Graph.edges` and samples are)."""
        loops = torch.arange(num_nodes, device=src.device)
        order = torch.sort(torch.cat([dst, loops]), stable=True).indices
        return cls(
            num_nodes=num_nodes,
            src=torch.cat([src, loops])[order],
            dst=torch.cat([dst, loops])[order],
            real=torch.nonzero(order < len(src)).squeeze(1),
            origin=torch.zeros_like(src, dtype=torch.uint8) if origin is None else origin,
        )

    @property
    def num_real(self) -> int:
        return len(self.real)

    @cached_property
    def indptr(self) -> Tensor:
        """Where each destination's edges begin (N + 1 values)."""
        counts = torch.bincount(self.dst, minlength=self.num_nodes)
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)])

    @cached_property
    def by_source(self) -> tuple[Tensor, Tensor]:
        """The permutation that sorts edges by source, and where each source's edges begin."""
        counts = torch.bincount(self.src, minlength=self.num_nodes)
        order = torch.sort(self.src, stable=True).indices
        return order, torch.cat([counts.new_zeros(1), counts.cumsum(0)])

    @cached_property
    def dst_by_source(self) -> Tensor:
        """The destinations in the order of `by_source`: the columns of the transposed matrix."""
        return self.dst[self.by_source[0]]

    def spread(self, s: Tensor | None) -> Tensor:
        """Per-edge weights: s on the real edges (1 when None), 1 on the self-loops."""
        ones = torch.ones(len(self.src), device=self.src.device, dtype=s.dtype if s is not None else None)
        return ones if s is None else ones.index_copy(0, self.real, s)


@dataclass(frozen=True)
class Domain:
    """A graph's tensors on one device: what every model and method consumes."""

    name: str
    x: SparseMatrix | Tensor
    edges: Edges
    y: Tensor | None  # class index per node, -1 = missing
    labelled: Tensor  # positions of the nodes with a class
    graph: Graph

    @classmethod
    def of(cls, graph: Graph, device: str | torch.device = "cpu") -> Domain:
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
            raise ValueError(f"graph {self.name!r} has no labels")
        return self.y
