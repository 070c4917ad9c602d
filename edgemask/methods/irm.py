"""IRMv1: a classifier whose scale is optimal for every source at once.

M. Arjovsky, L. Bottou, I. Gulrajani, D. Lopez-Paz, "Invariant Risk Minimization", arXiv 1907.02893, 2019.

    min_θ (1/M) Σ_i [ R_i(f_θ) + w · |∂/∂v R_i(v · f_θ)|²  at v = 1 ]

This is a full implementation. From the paper: the objective, with the fixed scalar classifier v. The derivative is
computed in closed form, mean Σ_c (p_c - y_c) logit_c, because the graph operators have no second derivative.

The paper leaves open how the square is estimated and how its weight changes during training. Here the square is that of
the mean over a source's training nodes, as in the authors' code; the unbiased product over two halves of a batch
matters only for small batches. The weight rises once, as in the authors' code: it is at most 1 for `anneal` epochs,
then `weight`. Adam is reset at that point, as in DomainBed. The loss is not divided by the weight as in the authors'
code, which under Adam would only strengthen the weight decay.

Defaults: weight 1 is the median of the values that GOOD (Gui et al., NeurIPS 2022) publishes for IRM on its eight
splits of the citation networks Cora and Arxiv; annealing for a tenth of 200 epochs is the share that DomainBed uses
(500 of 5,000 steps). With one source there is still a penalty, on the scale of that source.
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
    """Risk minimisation with the IRMv1 penalty."""

    hyper: ClassVar = {
        "weight": HyperParameter(1.0, 0, law="log", search=(1e-2, 1e3), about="weight of the penalty after annealing"),
        "anneal": HyperParameter(20, 0, law="int", search=(0, 100), about="epochs in which the weight is at most 1"),
    }

    def penalty(self, risks: Tensor, outputs: Sequence[SourceOutput]) -> Tensor:
        """Return the mean over the sources of the squared gradient."""
        return torch.stack([irm(o.logits, o.labels) for o in outputs]).mean()


STATUS = "full"
CITATION = "Arjovsky et al., Invariant Risk Minimization, arXiv 1907.02893, 2019"
SUMMARY = "risk plus the squared gradient of each source's risk with respect to the scale of the logits (IRMv1)"
