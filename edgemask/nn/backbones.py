"""Backbones: each maps features, edges and, where given, an edge mask to N × C logits.

`s = None` is a mask of ones; self-loops always count fully.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.nn.aggregate import aggregate, gcn_weights
from edgemask.nn.tensors import Edges, SparseMatrix


class InputLinear(nn.Module):
    """A linear layer whose input may be a sparse matrix: x W + b, the features never made dense."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True):
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def forward(self, x: Tensor | SparseMatrix) -> Tensor:
        out = x @ self.weight
        return out if self.bias is None else out + self.bias


class MLP(nn.Module):
    """Features alone; the graph is ignored. The mark that any use of structure must beat."""

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__()
        widths = [inputs, *[hidden] * (layers - 1), classes]
        self.linears = nn.ModuleList(InputLinear(a, b) for a, b in pairwise(widths))
        self.dropout = dropout

    def forward(self, x: Tensor | SparseMatrix, edges: Edges, s: Tensor | None = None) -> Tensor:
        h: Tensor = self.linears[0](x)
        for linear in self.linears[1:]:
            h = linear(F.dropout(F.relu(h), self.dropout, self.training))
        return h


class GCN(nn.Module):
    """h ← D^{-1/2}(A(s) + I)D^{-1/2} h W + b per layer, ReLU and dropout between (Kipf & Welling, 2017)."""

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__()
        widths = [inputs, *[hidden] * (layers - 1), classes]
        self.linears = nn.ModuleList(InputLinear(a, b, bias=False) for a, b in pairwise(widths))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(b)) for b in widths[1:])
        self.dropout = dropout

    def forward(self, x: Tensor | SparseMatrix, edges: Edges, s: Tensor | None = None) -> Tensor:
        weight = gcn_weights(edges, s)
        h: Tensor = aggregate(edges, weight, self.linears[0](x)) + self.biases[0]
        for linear, bias in zip(self.linears[1:], self.biases[1:], strict=True):
            h = F.dropout(F.relu(h), self.dropout, self.training)
            h = aggregate(edges, weight, linear(h)) + bias
        return h


class GIN(nn.Module):
    """h ← MLP(h_v + Σ_{u→v} s_uv h_u) per layer (Xu et al., 2019, ε = 0), linear read-out.

    The first layer's first linear is applied before the sum, which is the same by linearity and keeps sparse
    features sparse.
    """

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__()
        widths = [inputs, *[hidden] * (layers - 1)]
        self.first = nn.ModuleList(InputLinear(w, hidden, bias=False) for w in widths)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(hidden)) for _ in widths)
        self.second = nn.ModuleList(nn.Linear(hidden, hidden) for _ in widths)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in widths)
        self.out = nn.Linear(hidden, classes)
        self.dropout = dropout

    def forward(self, x: Tensor | SparseMatrix, edges: Edges, s: Tensor | None = None) -> Tensor:
        weight, h = edges.spread(s), x
        for first, bias, second, norm in zip(self.first, self.biases, self.second, self.norms, strict=True):
            h = F.relu(norm(aggregate(edges, weight, first(h)) + bias))
            h = F.dropout(F.relu(second(h)), self.dropout, self.training)
        logits: Tensor = self.out(h)
        return logits


class SGC(nn.Module):
    """softmax(Â(s)^L X W): L hops of the masked, normalised graph and one linear map (Wu et al., 2019)."""

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__()
        self.linear, self.layers = InputLinear(inputs, classes, bias=False), layers
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, x: Tensor | SparseMatrix, edges: Edges, s: Tensor | None = None) -> Tensor:
        weight, h = gcn_weights(edges, s), x @ self.linear.weight  # Â^L (X W) = (Â^L X) W, and much smaller
        for _ in range(self.layers):
            h = aggregate(edges, weight, h)
        return h + self.bias
