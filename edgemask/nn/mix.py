"""Mix: graph convolutions with a channel each for the neighbours, the difference from them, and the node itself.

S. Luan, C. Hua, Q. Lu, J. Zhu, M. Zhao, S. Zhang, X.-W. Chang and D. Precup, "Revisiting Heterophily for Graph Neural
Networks", NeurIPS 2022 (adaptive channel mixing).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.nn.aggregate import aggregate, gcn_weights
from edgemask.nn.backbone import Backbone, InputLinear
from edgemask.nn.dropout import dropout
from edgemask.nn.tensors import Edges

CHANNELS = 3


class Mix(Backbone):
    """A network whose nodes choose between their neighbours and themselves.

    Each layer computes three channels with the masked, normalised graph Â(s) of the GCN:

        h_L = ReLU(Â h W_L),   h_H = ReLU((I - Â) h W_H),   h_I = ReLU(h W_I)

    and adds them with gates of the node: h ← LayerNorm(Σ_c a_c h_c), a = softmax_c(h_c · g_c + b_c). Dropout follows
    each layer. The output layer is linear.

    The authors' gates pass through a sigmoid and a 3 × 3 map before the softmax; these gates do not.

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
        >>> Mix(inputs=3, hidden=16, classes=2)(x, edge_index).shape
        torch.Size([4, 2])
    """

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__(inputs, hidden, classes, layers, dropout)
        widths = [inputs, *[hidden] * (layers - 1)]
        self.channels = nn.ModuleList(InputLinear(w, CHANNELS * hidden, bias=False) for w in widths)
        self.gates = nn.ParameterList(nn.Parameter(torch.zeros(CHANNELS, hidden)) for _ in widths)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(CHANNELS)) for _ in widths)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in widths)
        self.out = nn.Linear(hidden, classes)
        self.rounds, self.depth, self.hidden, self.dropout = layers, layers, hidden, dropout

    def weigh(self, edges: Edges, s: Tensor | None) -> Tensor:
        """Return the symmetric normalisation of the masked graph, as in the GCN."""
        return gcn_weights(edges, s)

    def receive(self, i: int, h: Any) -> Tensor:
        """Add the channels with the node's gates, and apply LayerNorm and dropout."""
        if i > 0:
            channels = F.relu(h).view(-1, CHANNELS, self.hidden)
            gates = ((channels * self.gates[i - 1]).sum(2) + self.biases[i - 1]).softmax(1)
            mixed = (channels * gates.unsqueeze(2)).sum(1)
            h = dropout(self.norms[i - 1](mixed), self.dropout, self.training)
        return h  # type: ignore[no-any-return]

    def send(self, i: int, h: Any) -> Tensor:
        """Apply the linear maps of the three channels or, after the last round, the output layer."""
        z: Tensor = self.out(h) if i == self.rounds else self.channels[i](h)
        return z

    def collect(self, i: int, edges: Edges, weight: Any, z: Tensor) -> Tensor:
        """Return the three channels before their nonlinearity."""
        # The gradient of `split` is a single concatenation; that of slices adds matrices that are mostly 0.
        sent, own = torch.split_with_sizes(z, [2 * self.hidden, self.hidden], dim=1)
        _, high = torch.split_with_sizes(sent, [self.hidden, self.hidden], dim=1)
        summed = aggregate(edges, weight, sent.contiguous())
        smooth, smooth_high = torch.split_with_sizes(summed, [self.hidden, self.hidden], dim=1)
        return torch.cat([smooth, high - smooth_high, own], dim=1)
