"""The TaskNet f_θ: a graph attention network whose message passing is modulated by an edge mask (Section 4.3)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.nn.attention import Gate, attend
from edgemask.nn.backbones import InputLinear
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
        z = self.linear(x).view(-1, self.heads, self.width)
        return attend(
            edges,
            z,
            (z * self.a_src).sum(-1),
            (z * self.a_dst).sum(-1),
            s,
            self.c,
            gate=self.gate,
            dropout=self.attention_dropout if self.training else 0.0,
        )


class MaskedGAT(nn.Module):
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
        self.dropout, self.activation = dropout, F.elu if activation == "elu" else F.relu

    def forward(self, x: Tensor | SparseMatrix, edges: Edges, s: Tensor | None = None) -> Tensor:
        h: Tensor = self.activation(self.layers[0](x, edges, s) + self.biases[0])
        for layer, bias in zip(self.layers[1:], self.biases[1:], strict=True):
            h = F.dropout(h.flatten(1), self.dropout, self.training)
            h = self.activation(layer(h, edges, s) + bias)
        logits: Tensor = self.out(F.dropout(h.mean(1), self.dropout, self.training))
        return logits
