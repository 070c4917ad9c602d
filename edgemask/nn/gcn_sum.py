"""The GCN of EERM's released code: plain sums over the neighbours, with batch normalisation.

Q. Wu, H. Zhang, J. Yan and D. Wipf, "Handling Distribution Shifts on Graphs: An Invariance Perspective", ICLR 2022. The
code of several later methods contains the same network.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.nn.aggregate import aggregate
from edgemask.nn.backbone import Backbone, InputLinear
from edgemask.nn.dropout import dropout
from edgemask.nn.tensors import Edges

MOMENTUM = 0.1  # update rate of the running statistics


class BatchNorm(nn.Module):
    """Batch normalisation of rows, as in `torch.nn.BatchNorm1d`, without its count of batches.

    The count is an integer, which cannot be averaged with the weights. In training mode, rows are normalised with the
    mean and variance of all rows, which also update the running statistics; in evaluation mode with the running ones,
    so that the result for a row does not depend on the others.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, width: int):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, h: Tensor) -> Tensor:
        """Return the normalised rows. A single row in training mode is normalised with the running statistics."""
        batch = self.training and len(h) > 1
        return F.batch_norm(h, self.mean, self.variance, self.scale, self.shift, batch, MOMENTUM)


class GCNSum(Backbone):
    """A GCN with layers h_v ← Σ_{u→v} s_uv h_u W + b, without self-loops and without normalisation by degrees.

    Between layers follow batch normalisation, ReLU and dropout. In EERM's code, layers = 2, hidden = 32 and
    dropout = 0. A node without in-edges receives only the biases.

    Training needs whole graphs, because the statistics of the normalisation depend on which nodes are in a batch:
    methods refuse `batch_size`. Prediction uses stored statistics, so it also works in blocks and batches.

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
        >>> GCNSum(inputs=3, hidden=16, classes=2)(x, edge_index).shape
        torch.Size([4, 2])
    """

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__(inputs, hidden, classes, layers, dropout)
        widths = [inputs, *[hidden] * (layers - 1), classes]
        self.linears = nn.ModuleList(InputLinear(a, b, bias=False) for a, b in pairwise(widths))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(b)) for b in widths[1:])
        self.norms = nn.ModuleList(BatchNorm(b) for b in widths[1:-1])
        self.rounds, self.depth, self.dropout = layers, layers - 1, dropout

    def weigh(self, edges: Edges, s: Tensor | None) -> Tensor:
        """Return the weighted mask on the real edges and 0 on the self-loops."""
        weights = edges.weighted(s)
        if weights is None:
            weights = torch.ones(edges.num_real, device=edges.src.device)
        return weights.new_zeros(len(edges.src)).index_copy(0, edges.real, weights)

    def receive(self, i: int, h: Any) -> Tensor:
        """Add the bias, and apply batch normalisation, ReLU and dropout between layers."""
        if i > 0:
            h = h + self.biases[i - 1]
        if 0 < i < self.rounds:
            h = dropout(F.relu(self.norms[i - 1](h)), self.dropout, self.training)
        return h  # type: ignore[no-any-return]

    def send(self, i: int, h: Any) -> Tensor:
        """Apply the layer's linear map. After the last round, the state is the logits."""
        z: Tensor = self.linears[i](h) if i < self.rounds else h
        return z

    def collect(self, i: int, edges: Edges, weight: Any, z: Tensor) -> Tensor:
        """Sum the weighted messages."""
        return aggregate(edges, weight, z)
