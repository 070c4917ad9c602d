"""GPR-GNN: an MLP whose outputs are propagated with learned weights of the hops.

E. Chien, J. Peng, P. Li and O. Milenkovic, "Adaptive Universal Generalized PageRank Graph Neural Network", ICLR 2021.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.config import GPR_HOPS
from edgemask.nn.aggregate import aggregate, gcn_weights
from edgemask.nn.backbone import Backbone, InputLinear
from edgemask.nn.dropout import dropout
from edgemask.nn.tensors import Edges

RESTART = 0.1  # restart probability of the PageRank that the weights of the hops start from


class GPR(Backbone):
    """The network Σ_{k ≤ K} γ_k Â(s)^k MLP(x), with the masked, normalised graph Â(s) of the GCN and K = 10.

    The weights γ are learned and may become negative. They start as those of a personalised PageRank with restart
    probability 0.1.

    Args:
        inputs: Number of input features d.
        hidden: Hidden width of the MLP.
        classes: Number of classes C.
        layers: Number of layers of the MLP.
        dropout: Dropout rate between layers.

    Shapes:
        `x` is N × d, `edge_index` 2 × M, `edge_weight` and `mask` have M values; the logits are N × C.
        See `Backbone.forward`.

    Raises:
        InputError: An argument is out of range.

    Example:
        >>> x, edge_index = torch.rand(4, 3), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> GPR(inputs=3, hidden=16, classes=2)(x, edge_index).shape
        torch.Size([4, 2])
    """

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__(inputs, hidden, classes, layers, dropout)
        widths = [inputs, *[hidden] * (layers - 1), classes]
        self.linears = nn.ModuleList(InputLinear(a, b) for a, b in pairwise(widths))
        decay = (1 - RESTART) ** torch.arange(GPR_HOPS + 1.0)
        self.gamma = nn.Parameter(torch.cat([RESTART * decay[:-1], decay[-1:]]))
        self.rounds, self.depth, self.dropout = GPR_HOPS, 0, dropout

    def weigh(self, edges: Edges, s: Tensor | None) -> Tensor:
        """Return the symmetric normalisation of the masked graph, as in the GCN."""
        return gcn_weights(edges, s)

    def receive(self, i: int, h: Any) -> Tensor:
        """Apply all layers of the MLP but the last before the first round."""
        for linear in self.linears[:-1] if i == 0 else ():
            h = dropout(F.relu(linear(h)), self.dropout, self.training)
        return h  # type: ignore[no-any-return]

    def send(self, i: int, h: Any) -> Tensor:
        """Return the current hop and the weighted sum of all hops so far; after the last round, the sum."""
        if i == 0:
            z = dropout(self.linears[-1](h), self.dropout, self.training)
            return torch.cat([z, self.gamma[0] * z], dim=1)
        z, total = _halves(h)
        total = total + self.gamma[i] * z
        return total if i == self.rounds else torch.cat([z, total], dim=1)

    def collect(self, i: int, edges: Edges, weight: Any, z: Tensor) -> Tensor:
        """Propagate the current hop. The sum stays at its node."""
        hop, total = _halves(z)
        return torch.cat([aggregate(edges, weight, hop.contiguous()), total], dim=1)


def _halves(h: Tensor) -> tuple[Tensor, Tensor]:
    """Return the two halves of the columns. The gradient is one concatenation, unlike that of two slices."""
    width = h.shape[1] // 2
    left, right = torch.split_with_sizes(h, [width, width], dim=1)
    return left, right
