"""The graph convolutional network (Kipf & Welling, 2017)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.nn.aggregate import aggregate, gcn_weights
from edgemask.nn.backbone import Backbone, InputLinear
from edgemask.nn.dropout import dropout
from edgemask.nn.tensors import Edges


class GCN(Backbone):
    """A GCN with layers h ← D^{-1/2}(A(s) + I)D^{-1/2} h W + b, and ReLU and dropout between layers.

    Args:
        inputs: Number of input features d.
        hidden: Hidden width.
        classes: Number of classes C.
        layers: Number of layers.
        dropout: Dropout rate between layers.

    Shapes:
        `x` is N × d, `edge_index` 2 × M, `edge_weight` and `mask` have M values; the logits are N × C.
        See `Backbone.forward`.

    Raises:
        InputError: An argument is out of range.

    Example:
        >>> x, edge_index = torch.rand(4, 3), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> GCN(inputs=3, hidden=16, classes=2)(x, edge_index).shape
        torch.Size([4, 2])
    """

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__(inputs, hidden, classes, layers, dropout)
        widths = [inputs, *[hidden] * (layers - 1), classes]
        self.linears = nn.ModuleList(InputLinear(a, b, bias=False) for a, b in pairwise(widths))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(b)) for b in widths[1:])
        self.rounds, self.depth, self.dropout = layers, layers - 1, dropout

    def weigh(self, edges: Edges, s: Tensor | None) -> Tensor:
        """Return the symmetric normalisation of the masked graph."""
        return gcn_weights(edges, s)

    def receive(self, i: int, h: Any) -> Tensor:
        """Add the bias, and apply ReLU and dropout between layers."""
        if i > 0:
            h = h + self.biases[i - 1]
        if 0 < i < self.rounds:
            h = dropout(F.relu(h), self.dropout, self.training)
        return h  # type: ignore[no-any-return]

    def send(self, i: int, h: Any) -> Tensor:
        """Apply the layer's linear map. After the last round, the state is the logits."""
        z: Tensor = self.linears[i](h) if i < self.rounds else h
        return z

    def collect(self, i: int, edges: Edges, weight: Any, z: Tensor) -> Tensor:
        """Sum the weighted messages."""
        return aggregate(edges, weight, z)
