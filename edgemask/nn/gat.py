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
    """One masked GAT layer with H heads of width d_h. Its output is N × H × d_h, before the nonlinearity.

    The attention vector is a^(k) = [a_dst ‖ a_src ‖ a_s]. The mask's logit term a_s w s has two learnable scalars per
    head. Only their product c has an effect, so `c` is the parameter.

    Args:
        inputs: Number of input features.
        heads: Number of heads H.
        width: Width d_h of each head.
        gate: How the mask acts; see `edgemask.nn.attention`.
        attention_dropout: Dropout rate of the attention coefficients.
    """

    def __init__(self, inputs: int, heads: int, width: int, gate: Gate, attention_dropout: float):
        super().__init__()
        self.heads, self.width, self.gate, self.attention_dropout = heads, width, gate, attention_dropout
        self.linear = InputLinear(inputs, heads * width, bias=False)
        self.a_src = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, width)))
        self.a_dst = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, width)))
        self.c = nn.Parameter(nn.init.xavier_uniform_(torch.empty(1, heads)).squeeze(0))

    def forward(self, x: Tensor | SparseMatrix, edges: Edges, s: Tensor | None) -> Tensor:
        """Return the layer's output for a whole graph, with mask `s` on its real edges.

        Args:
            x: N × d features or states.
            edges: Edges of the graph.
            s: Mask of the real edges. None means ones.
        """
        return self.collect(edges, s, self.send(x))

    def send(self, x: Tensor | SparseMatrix) -> Tensor:
        """Return the messages z = x W (N × H × d_h)."""
        z: Tensor = self.linear(x)
        return z.view(-1, self.heads, self.width)

    def collect(self, edges: Edges, s: Tensor | None, z: Tensor) -> Tensor:
        """Return the attention-weighted sum of the messages into each node.

        Args:
            edges: Edges of the graph.
            s: Mask of the real edges. None means ones.
            z: Messages, as `send` returned them.
        """
        logits = head_logits(z, self.a_src, self.a_dst)
        dropout = self.attention_dropout if self.training else 0.0
        return attend(edges, z, *logits, s, self.c, gate=self.gate, dropout=dropout)


class MaskedGAT(Backbone):
    """A stack of masked GAT layers and a linear output layer.

    Heads are concatenated between layers and averaged after the last one:

    h^{(l+1)} = ‖_k σ(h̃^{(k)}),  h^{(L)} = (1/H) Σ_k σ(h̃^{(k)}),  o = W_out h^{(L)} + b.

    Args:
        inputs: Number of input features.
        hidden: Width of each head.
        classes: Number of classes.
        layers: Number of layers L.
        dropout: Dropout rate of the states between layers.
        heads: Number of heads H.
        attention_dropout: Dropout rate of the attention coefficients.
        gate: How the mask acts; see `edgemask.nn.attention`.
        activation: The nonlinearity σ.

    Shapes:
        `x` is N × d, `edge_index` 2 × M, `edge_weight` and `mask` have M values; the logits are N × C.
        See `Backbone.forward`.

    Raises:
        InputError: An argument is out of range.

    Example:
        >>> x, edge_index = torch.rand(4, 3), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> MaskedGAT(inputs=3, hidden=8, classes=2)(x, edge_index).shape
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
        attention_dropout: float = 0.6,
        gate: Gate = "message",
        activation: Literal["elu", "relu"] = "elu",
    ):
        super().__init__(inputs, hidden, classes, layers, dropout)
        widths = [inputs, *[heads * hidden] * (layers - 1)]
        self.layers = nn.ModuleList(MaskedGATLayer(w, heads, hidden, gate, attention_dropout) for w in widths)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(heads, hidden)) for _ in widths)
        self.out = nn.Linear(hidden, classes)
        self.rounds = self.depth = layers
        self.dropout, self.activation = dropout, activation

    def receive(self, i: int, h: Any) -> Tensor:
        """Apply bias, nonlinearity and dropout; concatenate the heads, or average them after the last layer."""
        dropout = self.dropout if self.training else 0.0
        if 0 < i < self.rounds:
            h = activate(h, self.biases[i - 1], self.activation, dropout).flatten(1)
        elif i == self.rounds:
            h = activate(head_mean(activate(h, self.biases[-1], self.activation)), None, "none", dropout)
        return h  # type: ignore[no-any-return]

    def send(self, i: int, h: Any) -> Tensor:
        """Apply the layer's linear map or, after the last round, the output layer."""
        z: Tensor = self.layers[i].send(h) if i < self.rounds else self.out(h)  # type: ignore[operator]
        return z

    def collect(self, i: int, edges: Edges, weight: Any, z: Tensor) -> Tensor:
        """Apply the layer's masked attention. `weight` is the mask."""
        out: Tensor = self.layers[i].collect(edges, weight, z)  # type: ignore[operator]
        return out
