"""V-REx: risks that are equal on every source.

D. Krueger, E. Caballero, J.-H. Jacobsen, A. Zhang, J. Binas, D. Zhang, R. Le Priol, A. Courville, "Out-of-Distribution
Generalization via Risk Extrapolation (REx)", ICML 2021.

    min_θ (1/M) Σ_i R_i + w · (1/M) Σ_i (R_i - R̄)²,   R̄ = (1/M) Σ_i R_i

This is a full implementation. From the paper: the objective, here with the mean of the risks where the paper writes
their sum (w is its β / M). The paper leaves open the divisor of the variance (here M, as in DomainBed; GOOD uses M - 1)
and how the weight changes during training. As in the authors' code it rises once: it is at most 1 for `anneal` epochs,
then `weight`. Adam is reset at that point, as in DomainBed.

Defaults: weight 10 is from DomainBed, and is the median of the values that GOOD (Gui et al., NeurIPS 2022) publishes
for V-REx on its eight splits of the citation networks Cora and Arxiv; annealing for a tenth of 200 epochs is the share
that DomainBed uses. With one source the penalty is 0, and the method is plain risk minimisation with a reset of Adam.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from edgemask.config import HyperParameter
from edgemask.methods.penalised import Annealed, SourceOutput


class VREx(Annealed):
    """Risk minimisation with a penalty on the variance of the sources' risks."""

    hyper: ClassVar = {
        "weight": HyperParameter(
            10.0, 0, law="log", search=(1e-1, 1e3), about="weight of the variance after annealing"
        ),
        "anneal": HyperParameter(20, 0, law="int", search=(0, 100), about="epochs in which the weight is at most 1"),
    }

    def penalty(self, risks: Tensor, outputs: Sequence[SourceOutput]) -> Tensor:
        """Return the variance of the risks."""
        return risks.var(correction=0)


STATUS = "full"
CITATION = "Krueger et al., Out-of-Distribution Generalization via Risk Extrapolation, ICML 2021"
SUMMARY = "risk plus a penalty on the variance of the sources' risks"
