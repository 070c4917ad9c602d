"""An MLP that uses only the features."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.nn.backbone import Backbone, InputLinear
from edgemask.nn.dropout import dropout


class MLP(Backbone):
    """An MLP on the features. It ignores the graph, and is the baseline for every backbone that uses the graph.

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
        >>> import torch
        >>> x, edge_index = torch.rand(4, 3), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> MLP(inputs=3, hidden=16, classes=2)(x, edge_index).shape
        torch.Size([4, 2])
    """

    rounds = depth = 0

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__(inputs, hidden, classes, layers, dropout)
        widths = [inputs, *[hidden] * (layers - 1), classes]
        self.linears = nn.ModuleList(InputLinear(a, b) for a, b in pairwise(widths))
        self.dropout = dropout

    def receive(self, i: int, h: Any) -> Tensor:
        """Apply all layers but the last."""
        for linear in self.linears[:-1]:
            h = dropout(F.relu(linear(h)), self.dropout, self.training)
        return h  # type: ignore[no-any-return]

    def send(self, i: int, h: Any) -> Tensor:
        """Apply the last layer."""
        z: Tensor = self.linears[-1](h)
        return z
