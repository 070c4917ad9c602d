"""The masked attention operator. Its implementations are in `edgemask.nn.kernels`.

For an edge e = u → v and head k, where s_e is the mask times the weight of the edge (Section 4.3 of the paper):

    e_k(e)  = LeakyReLU(a_src·z_u + a_dst·z_v + c_k s_e)           logit
    α_k(e)  = softmax of e_k over the edges into v, including its self-loop

    gate "message"    out_v = Σ_e  s_e α_k(e) z_u                   the paper's equation
    gate "attention"  out_v = Σ_e  α_k(e) z_u                       the mask acts only through the logit
    gate "softmax"    out_v = Σ_e  s_e exp(e_k(e)) z_u / Σ s exp    no logit term: s = 0 removes the edge exactly
"""

from __future__ import annotations

from torch import Tensor

from edgemask.config import Gate
from edgemask.legal import Legal
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
    """Compute one round of masked attention.

    Args:
        edges: Edges of the graph, with their weights.
        z: Values of the nodes (N × H × d_h).
        logit_src: a_src·z (N × H).
        logit_dst: a_dst·z (N × H).
        s: Mask, one value per real edge. None means ones.
        c: Logit coefficients of the mask (H).
        gate: How the mask acts; see the top of this module.
        dropout: Dropout rate of the attention coefficients, in [0, 1).

    Returns:
        The outputs (N × H × d_h).

    Raises:
        InputError: `dropout` is not in [0, 1).
    """
    Legal(0, 1, open_high=True).check("dropout", dropout)
    out: Tensor = backend(z).attend(edges, z, logit_src, logit_dst, s, c, gate=gate, dropout=dropout)
    return out
