"""The graph isomorphism network (Xu et al., 2019)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.nn.aggregate import aggregate
from edgemask.nn.backbone import Backbone, InputLinear
from edgemask.nn.dropout import dropout
from edgemask.nn.tensors import Edges


class GIN(Backbone):
    """A GIN with layers h_v ← MLP(h_v + Σ_{u→v} s_uv h_u), that is ε = 0, and a linear output layer.

    The first linear map of the MLP is applied before the sum. By linearity the result is the same, and sparse features
    stay sparse.

    Args:
        inputs: Number of input features d.
        hidden: Hidden width.
        classes: Number of classes C.
        layers: Number of layers.
        dropout: Dropout rate after each layer.

    Shapes:
        `x` is N × d, `edge_index` 2 × M, `edge_weight` and `mask` have M values; the logits are N × C.
        See `Backbone.forward`.

    Raises:
        InputError: An argument is out of range.

    Example:
        >>> x, edge_index = torch.rand(4, 3), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> GIN(inputs=3, hidden=16, classes=2)(x, edge_index).shape
        torch.Size([4, 2])
    """

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__(inputs, hidden, classes, layers, dropout)
        widths = [inputs, *[hidden] * (layers - 1)]
        self.first = nn.ModuleList(InputLinear(w, hidden, bias=False) for w in widths)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(hidden)) for _ in widths)
        self.second = nn.ModuleList(nn.Linear(hidden, hidden) for _ in widths)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in widths)
        self.out = nn.Linear(hidden, classes)
        self.rounds, self.depth, self.dropout = layers, layers, dropout

    def weigh(self, edges: Edges, s: Tensor | None) -> Tensor:
        """Return the mask on the real edges and 1 on the self-loops."""
        return edges.spread(s)

    def receive(self, i: int, h: Any) -> Tensor:
        """Apply the rest of the layer's MLP, and dropout."""
        if i > 0:
            h = F.relu(self.norms[i - 1](h + self.biases[i - 1]))
            h = dropout(F.relu(self.second[i - 1](h)), self.dropout, self.training)
        return h  # type: ignore[no-any-return]

    def send(self, i: int, h: Any) -> Tensor:
        """Apply the first linear map of the layer's MLP or, after the last round, the output layer."""
        z: Tensor = self.first[i](h) if i < self.rounds else self.out(h)
        return z

    def collect(self, i: int, edges: Edges, weight: Any, z: Tensor) -> Tensor:
        """Sum the weighted messages."""
        return aggregate(edges, weight, z)
