"""An MLP that uses only the features."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.nn.backbone import Backbone, InputLinear
from edgemask.nn.dropout import dropout


class MLP(Backbone):
    """An MLP on the features. It ignores the graph, and is the baseline for every backbone that uses the graph."""

    rounds = depth = 0

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__()
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
