"""The masked attention operator in plain torch: the equations as they stand, on any device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from edgemask.nn.aggregate import aggregate, segment_max, segment_sum
from edgemask.nn.kernels import LARGEST, SLOPE, Gate
from edgemask.nn.tensors import Edges


def attend(
    edges: Edges,
    z: Tensor,
    logit_src: Tensor,
    logit_dst: Tensor,
    s: Tensor | None,
    c: Tensor,
    *,
    gate: Gate,
    dropout: float = 0.0,
) -> Tensor:
    """As `edgemask.nn.attention.attend`."""
    weight = edges.spread(s)
    logits = logit_src[edges.src] + logit_dst[edges.dst]
    if gate != "softmax":
        logits = logits + weight.unsqueeze(1) * c
    alpha = edge_softmax(edges, F.leaky_relu(logits, SLOPE), weight if gate == "softmax" else None)
    if gate == "message":
        alpha = alpha * weight.unsqueeze(1)
    alpha = F.dropout(alpha, dropout, training=dropout > 0)
    # One product per head: nothing of size edges × heads × d_h is formed.
    return torch.stack([aggregate(edges, alpha[:, k], z[:, k]) for k in range(z.shape[1])], dim=1)


def edge_softmax(edges: Edges, logits: Tensor, weight: Tensor | None = None) -> Tensor:
    """Softmax of M × H logits over the edges into each node; with `weight`, of w·exp(logit)."""
    if weight is None:
        exp = (logits - segment_max(edges, logits.detach())[edges.dst]).exp()
    else:  # an edge of weight 0 is not there: it must not set the scale for the others
        present = logits.detach().masked_fill(weight.unsqueeze(1) == 0, -torch.inf)
        exp = (logits - segment_max(edges, present)[edges.dst]).clamp_max(LARGEST).exp() * weight.unsqueeze(1)
    return exp / segment_sum(edges, exp)[edges.dst]
