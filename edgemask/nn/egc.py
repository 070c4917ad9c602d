"""EGC: graph convolutions whose filter is a mixture, other for every node, of a few shared ones.

S. Tailor, F. Opolka, P. Liò and N. Lane, "Do We Need Anisotropic Graph Neural Networks?" (first "Adaptive Filters and
Aggregator Fusion for Efficient Graph Convolutions"), ICLR 2022: EGC-S, the form with the GCN's aggregator alone.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.nn.aggregate import aggregate, gcn_weights
from edgemask.nn.backbone import Backbone, InputLinear
from edgemask.nn.tensors import Edges


class EGC(Backbone):
    """h_v ← ‖_{j ≤ H} Σ_{b ≤ B} w_{v,j,b} (Â(s) h W_b)_v + c per layer, Â(s) as in the GCN, with coefficients
    w_v = V h_v + a of each node's own. Normalisation, ReLU and dropout after each, and a linear read-out.

    A head is ⌈hidden / H⌉ wide. The authors' networks have H = 8 and B = 4, batch normalisation and residual sums; here
    rows are normalised (LayerNorm), so that a node's logits do not depend on which others are read with it, and there
    is no residual sum, as in the other backbones.
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
        super().__init__()
        self.heads, self.num_bases, self.width = heads, bases, -(-hidden // heads)
        widths = [inputs, *[heads * self.width] * layers]
        self.bases = nn.ModuleList(InputLinear(a, bases * self.width, bias=False) for a in widths[:-1])
        self.coefficients = nn.ModuleList(InputLinear(a, heads * bases) for a in widths[:-1])
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(b)) for _, b in pairwise(widths))
        self.norms = nn.ModuleList(nn.LayerNorm(b) for b in widths[1:])
        self.out = nn.Linear(widths[-1], classes)
        self.rounds, self.depth, self.dropout = layers, layers, dropout

    def weigh(self, edges: Edges, s: Tensor | None) -> Tensor:
        return gcn_weights(edges, s)

    def receive(self, i: int, h: Any) -> Tensor:
        if i > 0:
            h = F.dropout(F.relu(self.norms[i - 1](h + self.biases[i - 1])), self.dropout, self.training)
        return h  # type: ignore[no-any-return]

    def send(self, i: int, h: Any) -> Tensor:
        """The bases, which the neighbours sum, and beside them the node's own coefficients."""
        z: Tensor = self.out(h) if i == self.rounds else torch.cat([self.bases[i](h), self.coefficients[i](h)], dim=1)
        return z

    def collect(self, i: int, edges: Edges, weight: Any, z: Tensor) -> Tensor:
        sent = self.num_bases * self.width
        summed = aggregate(edges, weight, z[:, :sent].contiguous()).view(-1, self.num_bases, self.width)
        mixed = torch.bmm(z[:, sent:].reshape(-1, self.heads, self.num_bases), summed)
        return mixed.flatten(1)
