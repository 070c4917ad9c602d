"""Backbones: each maps features, edges and, where given, an edge mask to N × C logits.

`s = None` is a mask of ones; self-loops always count fully. A backbone is rounds of message passing with maps of the
nodes alone between them: `forward` runs them on a whole graph, `edgemask.nn.blocks` on blocks of its nodes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

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


class Backbone(nn.Module):
    """`rounds` of message passing; `weigh`, `receive`, `send` and `collect` say what the rounds do.

    `weigh`     what all rounds know of the edges: a value per edge, or per real edge, or None
    `receive`   what nodes make of their features (i = 0), or of what they got in the round before
    `send`      what they send of it in round i; at the end, the logits
    `collect`   what nodes get in round i over their incoming edges

    The representation of nodes is what they have received for round `depth`: `embed` gives it, `read` goes on from it
    to the logits.
    """

    rounds: int
    depth: int

    def weigh(self, edges: Edges, s: Tensor | None) -> Tensor | None:
        return s

    def receive(self, i: int, h: Any) -> Tensor:
        raise NotImplementedError

    def send(self, i: int, h: Any) -> Tensor:
        raise NotImplementedError

    def at_nodes(self, i: int, h: Any) -> Tensor:
        return self.send(i, self.receive(i, h))

    def collect(self, i: int, edges: Edges, weight: Any, z: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor | SparseMatrix, edges: Edges, s: Tensor | None = None) -> Tensor:
        weight, z = self.weigh(edges, s), self.at_nodes(0, x)
        for i in range(self.rounds):
            z = self.at_nodes(i + 1, self.collect(i, edges, weight, z))
        return z

    def embed(self, x: Tensor | SparseMatrix, edges: Edges, s: Tensor | None = None) -> Tensor:
        """The nodes' representation: what the last linear map, or the last round that holds it, starts from."""
        weight, h = self.weigh(edges, s), self.receive(0, x)
        for i in range(self.depth):
            h = self.receive(i + 1, self.collect(i, edges, weight, self.send(i, h)))
        return h

    def read(self, h: Tensor, edges: Edges, s: Tensor | None = None) -> Tensor:
        """Logits from a representation: `read(embed(x))` is `forward(x)`."""
        weight, z = self.weigh(edges, s), self.send(self.depth, h)
        for i in range(self.depth, self.rounds):
            z = self.at_nodes(i + 1, self.collect(i, edges, weight, z))
        return z


class MLP(Backbone):
    """Features alone; the graph is ignored. The mark that any use of structure must beat."""

    rounds = depth = 0

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__()
        widths = [inputs, *[hidden] * (layers - 1), classes]
        self.linears = nn.ModuleList(InputLinear(a, b) for a, b in pairwise(widths))
        self.dropout = dropout

    def receive(self, i: int, h: Any) -> Tensor:
        for linear in self.linears[:-1]:
            h = F.dropout(F.relu(linear(h)), self.dropout, self.training)
        return h  # type: ignore[no-any-return]

    def send(self, i: int, h: Any) -> Tensor:
        z: Tensor = self.linears[-1](h)
        return z


class GCN(Backbone):
    """h ← D^{-1/2}(A(s) + I)D^{-1/2} h W + b per layer, ReLU and dropout between (Kipf & Welling, 2017)."""

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__()
        widths = [inputs, *[hidden] * (layers - 1), classes]
        self.linears = nn.ModuleList(InputLinear(a, b, bias=False) for a, b in pairwise(widths))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(b)) for b in widths[1:])
        self.rounds, self.depth, self.dropout = layers, layers - 1, dropout

    def weigh(self, edges: Edges, s: Tensor | None) -> Tensor:
        return gcn_weights(edges, s)

    def receive(self, i: int, h: Any) -> Tensor:
        if i > 0:
            h = h + self.biases[i - 1]
        if 0 < i < self.rounds:
            h = F.dropout(F.relu(h), self.dropout, self.training)
        return h  # type: ignore[no-any-return]

    def send(self, i: int, h: Any) -> Tensor:
        z: Tensor = self.linears[i](h) if i < self.rounds else h
        return z

    def collect(self, i: int, edges: Edges, weight: Any, z: Tensor) -> Tensor:
        return aggregate(edges, weight, z)


class GIN(Backbone):
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
        self.rounds, self.depth, self.dropout = layers, layers, dropout

    def weigh(self, edges: Edges, s: Tensor | None) -> Tensor:
        return edges.spread(s)

    def receive(self, i: int, h: Any) -> Tensor:
        if i > 0:
            h = F.relu(self.norms[i - 1](h + self.biases[i - 1]))
            h = F.dropout(F.relu(self.second[i - 1](h)), self.dropout, self.training)
        return h  # type: ignore[no-any-return]

    def send(self, i: int, h: Any) -> Tensor:
        z: Tensor = self.first[i](h) if i < self.rounds else self.out(h)
        return z

    def collect(self, i: int, edges: Edges, weight: Any, z: Tensor) -> Tensor:
        return aggregate(edges, weight, z)


class SGC(Backbone):
    """softmax(Â(s)^L X W): L hops of the masked, normalised graph and one linear map (Wu et al., 2019)."""

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__()
        self.linear, self.rounds, self.depth = InputLinear(inputs, classes, bias=False), layers, layers
        self.bias = nn.Parameter(torch.zeros(classes))

    def weigh(self, edges: Edges, s: Tensor | None) -> Tensor:
        return gcn_weights(edges, s)

    def receive(self, i: int, h: Any) -> Tensor:
        return h  # type: ignore[no-any-return]

    def send(self, i: int, h: Any) -> Tensor:
        z: Tensor = self.linear(h) if i == 0 else h  # Â^L (X W) = (Â^L X) W, and much smaller
        return z + self.bias if i == self.rounds else z

    def collect(self, i: int, edges: Edges, weight: Any, z: Tensor) -> Tensor:
        return aggregate(edges, weight, z)
