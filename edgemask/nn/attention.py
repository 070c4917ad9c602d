"""The masked attention operator: one small function, so that faster kernels can take its place.

For an edge e = u → v with mask s_e, and head k (Section 4.3 of the paper):

    e_k(e)  = LeakyReLU(a_src·z_u + a_dst·z_v + c_k s_e)           logit
    α_k(e)  = softmax of e_k over the edges into v, its self-loop among them

    gate "message"    out_v = Σ_e  s_e α_k(e) z_u                   the paper's equation
    gate "attention"  out_v = Σ_e  α_k(e) z_u                       the mask acts through the logit alone
    gate "softmax"    out_v = Σ_e  s_e exp(e_k(e)) z_u / Σ s exp    no logit term: s = 0 removes the edge exactly
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from edgemask.nn.aggregate import aggregate, segment_max, segment_sum
from edgemask.nn.tensors import Edges

Gate = Literal["message", "attention", "softmax"]
GATES: tuple[Gate, ...] = get_args(Gate)
SLOPE = 0.2  # of the LeakyReLU, as in GAT
LARGEST = 80.0  # exp of it is finite in float32; only an edge of weight 0 can lie above


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
    """N × H × d_h outputs from z (N × H × d_h), a_src·z and a_dst·z (N × H), the mask s (one value per real
    edge; None is all ones) and its logit coefficients c (H). `dropout` is on the attention coefficients."""
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
