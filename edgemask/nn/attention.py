"""The masked attention operator: one small function over the backends in `edgemask.nn.kernels`.

For an edge e = u → v with mask s_e, and head k (Section 4.3 of the paper):

    e_k(e)  = LeakyReLU(a_src·z_u + a_dst·z_v + c_k s_e)           logit
    α_k(e)  = softmax of e_k over the edges into v, its self-loop among them

    gate "message"    out_v = Σ_e  s_e α_k(e) z_u                   the paper's equation
    gate "attention"  out_v = Σ_e  α_k(e) z_u                       the mask acts through the logit alone
    gate "softmax"    out_v = Σ_e  s_e exp(e_k(e)) z_u / Σ s exp    no logit term: s = 0 removes the edge exactly
"""

from __future__ import annotations

from torch import Tensor

from edgemask.config import Gate
from edgemask.errors import InputError
from edgemask.nn.backend import backend
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
    """N × H × d_h outputs from z (N × H × d_h), a_src·z and a_dst·z (N × H), the mask s (one value per real
    edge; None is all ones) and its logit coefficients c (H). `dropout` is on the attention coefficients."""
    if not 0 <= dropout < 1:
        raise InputError(f"dropout must be in [0, 1), got {dropout}")
    out: Tensor = backend(z).attend(edges, z, logit_src, logit_dst, s, c, gate=gate, dropout=dropout)
    return out
