"""The graph isomorphism network (Xu et al., 2019)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.nn.aggregate import aggregate
from edgemask.nn.backbone import Backbone, InputLinear
from edgemask.nn.tensors import Edges


class GIN(Backbone):
    """h ← MLP(h_v + Σ_{u→v} s_uv h_u) per layer with ε = 0, and a linear read-out.

    The first linear map is applied before the sum. By linearity this is the same, and sparse features stay sparse.
    """

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__()
        widths = [inputs, *[hidden] * (layers - 1)]
        self.first = nn.ModuleList(InputLinear(w, hidden, bias=False) for w in widths)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(hidden)) for _ in widths)
        self.second = nn.ModuleList(nn.Linear(hidden, hidden) for _ in widths)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in widths)
        self.out = nn.Linear(hidden, classes)
        self.rounds, self.depth, self.dropout = layers, layers, dropout

    def weigh(self, edges: Edges, s: Tensor | None) -> Tensor:
        return edges.spread(s)

    def receive(self, i: int, h: Any) -> Tensor:
        if i > 0:
            h = F.relu(self.norms[i - 1](h + self.biases[i - 1]))
            h = F.dropout(F.relu(self.second[i - 1](h)), self.dropout, self.training)
        return h  # type: ignore[no-any-return]

    def send(self, i: int, h: Any) -> Tensor:
        z: Tensor = self.first[i](h) if i < self.rounds else self.out(h)
        return z

    def collect(self, i: int, edges: Edges, weight: Any, z: Tensor) -> Tensor:
        return aggregate(edges, weight, z)
