"""IRMv1: a classifier whose scale is best for every source at once.

M. Arjovsky, L. Bottou, I. Gulrajani, D. Lopez-Paz, "Invariant Risk Minimization", arXiv 1907.02893, 2019.

    min_θ (1/M) Σ_i [ R_i(f_θ) + w · |∂/∂v R_i(v · f_θ)|²  at v = 1 ]

Rebuilt in full. From the paper: the objective, with the fixed scalar classifier v. The derivative is taken in closed
form, mean Σ_c (p_c - y_c) logit_c, since the graph operators have no second derivative. Left open: how the square is
estimated (ours is of the mean over a source's training nodes, as in the authors' code; the product over two halves of
a batch, without bias, matters for small batches alone), and the weight's course. As in the authors' code it rises once:
at most 1 for `anneal` epochs, then `weight`; like DomainBed we start Adam anew there, and we do not divide the loss by
the weight as the authors do, which under Adam would only make our weight decay stronger.

Defaults: weight 1 is the median of the values GOOD (Gui et al., NeurIPS 2022) publishes for IRM on its eight splits of
the citation networks Cora and Arxiv; a tenth of 200 epochs of annealing is DomainBed's share (500 of 5,000 steps).
With one source there is still a penalty: on that source's scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from edgemask.config import HyperParameter
from edgemask.methods.penalised import Annealed, SourceOutput
from edgemask.methods.penalties import irm


class IRM(Annealed):
    hyper: ClassVar = {
        "weight": HyperParameter(1.0, 0, law="log", search=(1e-2, 1e3), about="of the penalty, after the annealing"),
        "anneal": HyperParameter(
            20, 0, law="int", search=(0, 100), about="epochs in which the penalty weighs at most 1"
        ),
    }

    def penalty(self, risks: Tensor, seen: Sequence[SourceOutput]) -> Tensor:
        return torch.stack([irm(s.logits, s.labels) for s in seen]).mean()


STATUS = "full"
CITATION = "Arjovsky et al., Invariant Risk Minimization, arXiv 1907.02893, 2019"
SUMMARY = "risk, and the squared gradient of each source's risk with respect to the logits' scale (IRMv1)"
