"""The TaskNet f_θ: a graph attention network whose message passing is modulated by an edge mask (Section 4.3)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from edgemask.config import Gate
from edgemask.nn.attention import attend
from edgemask.nn.backbone import Backbone, InputLinear
from edgemask.nn.nodes import activate, head_logits, head_mean
from edgemask.nn.tensors import Edges, SparseMatrix


class MaskedGATLayer(nn.Module):
    """One layer, H heads of d_h: returns N × H × d_h before the nonlinearity.

    a^(k) = [a_dst ‖ a_src ‖ a_s]: the mask's logit term is a_s w s with two learnable scalars per head, of which
    only the product c acts, so `c` is the parameter.
    """

    def __init__(self, inputs: int, heads: int, width: int, gate: Gate, attention_dropout: float):
        super().__init__()
        self.heads, self.width, self.gate, self.attention_dropout = heads, width, gate, attention_dropout
        self.linear = InputLinear(inputs, heads * width, bias=False)
        self.a_src = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, width)))
        self.a_dst = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, width)))
        self.c = nn.Parameter(nn.init.xavier_uniform_(torch.empty(1, heads)).squeeze(0))

    def forward(self, x: Tensor | SparseMatrix, edges: Edges, s: Tensor | None) -> Tensor:
        return self.collect(edges, s, self.send(x))

    def send(self, x: Tensor | SparseMatrix) -> Tensor:
        z: Tensor = self.linear(x)
        return z.view(-1, self.heads, self.width)

    def collect(self, edges: Edges, s: Tensor | None, z: Tensor) -> Tensor:
        logits = head_logits(z, self.a_src, self.a_dst)
        dropout = self.attention_dropout if self.training else 0.0
        return attend(edges, z, *logits, s, self.c, gate=self.gate, dropout=dropout)


class MaskedGAT(Backbone):
    """`layers` masked GAT layers: heads concatenated inside and averaged at the end, then an output layer.

    h^{(l+1)} = ‖_k σ(h̃^{(k)}),  h^{(L)} = (1/H) Σ_k σ(h̃^{(k)}),  o = W_out h^{(L)} + b.
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
        attention_dropout: float = 0.6,
        gate: Gate = "message",
        activation: Literal["elu", "relu"] = "elu",
    ):
        super().__init__()
        widths = [inputs, *[heads * hidden] * (layers - 1)]
        self.layers = nn.ModuleList(MaskedGATLayer(w, heads, hidden, gate, attention_dropout) for w in widths)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(heads, hidden)) for _ in widths)
        self.out = nn.Linear(hidden, classes)
        self.rounds = self.depth = layers
        self.dropout, self.activation = dropout, activation

    def receive(self, i: int, h: Any) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        if 0 < i < self.rounds:
            h = activate(h, self.biases[i - 1], self.activation, dropout).flatten(1)
        elif i == self.rounds:
            h = activate(head_mean(activate(h, self.biases[-1], self.activation)), None, "none", dropout)
        return h  # type: ignore[no-any-return]

    def send(self, i: int, h: Any) -> Tensor:
        z: Tensor = self.layers[i].send(h) if i < self.rounds else self.out(h)  # type: ignore[operator]
        return z

    def collect(self, i: int, edges: Edges, weight: Any, z: Tensor) -> Tensor:
        out: Tensor = self.layers[i].collect(edges, weight, z)  # type: ignore[operator]
        return out
