"""V-REx: risks that are the same on every source.

D. Krueger, E. Caballero, J.-H. Jacobsen, A. Zhang, J. Binas, D. Zhang, R. Le Priol, A. Courville, "Out-of-Distribution
Generalization via Risk Extrapolation (REx)", ICML 2021.

    min_θ (1/M) Σ_i R_i + w · (1/M) Σ_i (R_i - R̄)²,   R̄ = (1/M) Σ_i R_i

Rebuilt in full. From the paper: the objective, here with the mean of the risks where the paper writes their sum (w is
its β / M). Left open: the variance's divisor (ours M, as in DomainBed; GOOD has M - 1), and the weight's
course: as in the authors' code it rises once, at most 1 for `anneal` epochs, then `weight`; like DomainBed we start
Adam anew there.

Defaults: weight 10 is DomainBed's, and the median of the values GOOD (Gui et al., NeurIPS 2022) publishes for V-REx on
its eight splits of the citation networks Cora and Arxiv; a tenth of 200 epochs of annealing is DomainBed's share.
With one source the penalty is 0, and this is risk minimisation, with a new start of Adam.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from edgemask.config import HyperParameter
from edgemask.methods.penalised import Annealed, SourceOutput


class VREx(Annealed):
    hyper: ClassVar = {
        "weight": HyperParameter(10.0, 0, law="log", search=(1e-1, 1e3), about="of the variance, after the annealing"),
        "anneal": HyperParameter(
            20, 0, law="int", search=(0, 100), about="epochs in which the variance weighs at most 1"
        ),
    }

    def penalty(self, risks: Tensor, seen: Sequence[SourceOutput]) -> Tensor:
        return risks.var(correction=0)


STATUS = "full"
CITATION = "Krueger et al., Out-of-Distribution Generalization via Risk Extrapolation, ICML 2021"
SUMMARY = "risk, and the variance of the sources' risks"
