"""GraphSAGE with the GCN's normalisation and jumping knowledge.

W. Hamilton, R. Ying and J. Leskovec, "Inductive Representation Learning on Large Graphs", NeurIPS 2017; K. Xu, C. Li,
Y. Tian, T. Sonobe, K. Kawarabayashi and S. Jegelka, "Representation Learning on Graphs with Jumping Knowledge
Networks", ICML 2018.
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


class SAGE(Backbone):
    """A network with separate weights for a node and its neighbours.

    Each layer computes h ← ReLU(LayerNorm(h W_S + Â(s) h W_N)) with the masked, normalised graph Â(s) of the GCN, and
    dropout follows. The output layer is linear and reads the outputs of all layers, concatenated.

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
        >>> SAGE(inputs=3, hidden=16, classes=2)(x, edge_index).shape
        torch.Size([4, 2])
    """

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__(inputs, hidden, classes, layers, dropout)
        widths = [inputs, *[hidden] * (layers - 1)]
        self.neighbours = nn.ModuleList(InputLinear(w, hidden, bias=False) for w in widths)
        self.own = nn.ModuleList(InputLinear(w, hidden, bias=False) for w in widths)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in widths)
        self.out = nn.Linear(layers * hidden, classes)
        self.rounds, self.depth, self.hidden, self.dropout = layers, layers, hidden, dropout

    def weigh(self, edges: Edges, s: Tensor | None) -> Tensor:
        """Return the symmetric normalisation of the masked graph, as in the GCN."""
        return gcn_weights(edges, s)

    def receive(self, i: int, h: Any) -> Tensor:
        """Return the outputs of all layers so far: finish the newest one, which is in the last columns."""
        if i > 0:
            earlier, new = torch.split_with_sizes(h, [h.shape[1] - self.hidden, self.hidden], dim=1)
            new = dropout(F.relu(self.norms[i - 1](new)), self.dropout, self.training)
            h = torch.cat([earlier, new], dim=1)
        return h  # type: ignore[no-any-return]

    def send(self, i: int, h: Any) -> Tensor:
        """Return the message, the node's own part, and the outputs so far, which later rounds carry along."""
        if i == self.rounds:
            logits: Tensor = self.out(h)
            return logits
        last = h if i == 0 else h[:, -self.hidden :]
        parts = [self.neighbours[i](last), self.own[i](last)]
        return torch.cat(parts if i == 0 else [*parts, h], dim=1)

    def collect(self, i: int, edges: Edges, weight: Any, z: Tensor) -> Tensor:
        """Sum the messages and add the node's own part. The earlier outputs come first."""
        # The gradient of `split` is a single concatenation; that of slices adds matrices that are mostly 0.
        sizes = [self.hidden, self.hidden, z.shape[1] - 2 * self.hidden]
        message, own, earlier = torch.split_with_sizes(z, sizes, dim=1)
        return torch.cat([earlier, aggregate(edges, weight, message.contiguous()) + own], dim=1)
