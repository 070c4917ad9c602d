"""EGC: graph convolutions in which every node mixes a few shared filters with coefficients of its own.

S. Tailor, F. Opolka, P. Liò and N. Lane, "Do We Need Anisotropic Graph Neural Networks?" (first published as "Adaptive
Filters and Aggregator Fusion for Efficient Graph Convolutions"), ICLR 2022. This is EGC-S, the variant that uses only
the GCN's aggregator.
"""

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


class EGC(Backbone):
    """A stack of EGC-S layers and a linear output layer.

    Each layer computes h_v ← ‖_{j ≤ H} Σ_{b ≤ B} w_{v,j,b} (Â(s) h W_b)_v + c, where Â(s) is that of the GCN and the
    coefficients w_v = V h_v + a depend on the node. Normalisation, ReLU and dropout follow each layer. The output layer
    is linear.

    Each head is ⌈hidden / H⌉ wide. The authors' networks have H = 8 and B = 4, batch normalisation and residual
    connections. This one normalises each row (LayerNorm), so that the logits of a node do not depend on the other nodes
    of a batch, and has no residual connections, like the other backbones.

    Args:
        inputs: Number of input features.
        hidden: Width of all heads together, rounded up to a multiple of H.
        classes: Number of classes.
        layers: Number of layers.
        dropout: Dropout rate of the states after each layer.
        heads: Number of heads H.
        bases: Number of bases B, which all heads share.

    Shapes:
        `x` is N × d, `edge_index` 2 × M, `edge_weight` and `mask` have M values; the logits are N × C.
        See `Backbone.forward`.

    Raises:
        InputError: An argument is out of range.

    Example:
        >>> x, edge_index = torch.rand(4, 3), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> EGC(inputs=3, hidden=16, classes=2)(x, edge_index).shape
        torch.Size([4, 2])
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        classes: int,
        layers: int = 2,
        dropout: float = 0.5,
        *,
        heads: int = 8,
        bases: int = 4,
    ):
        super().__init__(inputs, hidden, classes, layers, dropout)
        self.heads, self.num_bases, self.width = heads, bases, -(-hidden // heads)
        widths = [inputs, *[heads * self.width] * layers]
        self.bases = nn.ModuleList(InputLinear(a, bases * self.width, bias=False) for a in widths[:-1])
        self.coefficients = nn.ModuleList(InputLinear(a, heads * bases) for a in widths[:-1])
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(b)) for _, b in pairwise(widths))
        self.norms = nn.ModuleList(nn.LayerNorm(b) for b in widths[1:])
        self.out = nn.Linear(widths[-1], classes)
        self.rounds, self.depth, self.dropout = layers, layers, dropout

    def weigh(self, edges: Edges, s: Tensor | None) -> Tensor:
        """Return the symmetric normalisation of the masked graph, as in the GCN."""
        return gcn_weights(edges, s)

    def receive(self, i: int, h: Any) -> Tensor:
        """Apply bias, LayerNorm, ReLU and dropout to what a round collected."""
        if i > 0:
            h = dropout(F.relu(self.norms[i - 1](h + self.biases[i - 1])), self.dropout, self.training)
        return h  # type: ignore[no-any-return]

    def send(self, i: int, h: Any) -> Tensor:
        """Return the bases, which the neighbours sum, concatenated with the node's own coefficients."""
        z: Tensor = self.out(h) if i == self.rounds else torch.cat([self.bases[i](h), self.coefficients[i](h)], dim=1)
        return z

    def collect(self, i: int, edges: Edges, weight: Any, z: Tensor) -> Tensor:
        """Sum the bases over incoming edges and mix them with the node's coefficients."""
        columns = self.num_bases * self.width
        summed = aggregate(edges, weight, z[:, :columns].contiguous()).view(-1, self.num_bases, self.width)
        mixed = torch.bmm(z[:, columns:].reshape(-1, self.heads, self.num_bases), summed)
        return mixed.flatten(1)
