"""The simplified graph convolution (Wu et al., 2019)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from edgemask.nn.aggregate import aggregate, gcn_weights
from edgemask.nn.backbone import Backbone, InputLinear
from edgemask.nn.tensors import Edges


class SGC(Backbone):
    """The network softmax(Â(s)^L X W): L hops over the masked, normalised graph and one linear map.

    `hidden` and `dropout` are not used.
    """

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__()
        self.linear, self.rounds, self.depth = InputLinear(inputs, classes, bias=False), layers, layers
        self.bias = nn.Parameter(torch.zeros(classes))

    def weigh(self, edges: Edges, s: Tensor | None) -> Tensor:
        """Return the symmetric normalisation of the masked graph."""
        return gcn_weights(edges, s)

    def receive(self, i: int, h: Any) -> Tensor:
        """Return what the last round collected."""
        return h  # type: ignore[no-any-return]

    def send(self, i: int, h: Any) -> Tensor:
        """Apply the linear map before the first round, and add the bias after the last one."""
        z: Tensor = self.linear(h) if i == 0 else h  # Â^L (X W) = (Â^L X) W, and X W is much smaller than X
        return z + self.bias if i == self.rounds else z

    def collect(self, i: int, edges: Edges, weight: Any, z: Tensor) -> Tensor:
        """Sum the weighted messages."""
        return aggregate(edges, weight, z)
