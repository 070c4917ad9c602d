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

    Args:
        inputs: Number of input features d.
        hidden: Not used; all backbones take the same arguments.
        classes: Number of classes C.
        layers: Number of hops L.
        dropout: Not used.

    Shapes:
        `x` is N × d, `edge_index` 2 × M, `edge_weight` and `mask` have M values; the logits are N × C.
        See `Backbone.forward`.

    Raises:
        InputError: An argument is out of range.

    Example:
        >>> x, edge_index = torch.rand(4, 3), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> SGC(inputs=3, hidden=16, classes=2)(x, edge_index).shape
        torch.Size([4, 2])
    """

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__(inputs, hidden, classes, layers, dropout)
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
