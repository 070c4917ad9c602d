"""MMD: representations with the same distribution on every source, by the kernel two-sample statistic.

A. Gretton, K. Borgwardt, M. Rasch, B. Schölkopf, A. Smola, "A Kernel Two-Sample Test", JMLR 13, 2012. As a penalty for
domain generalisation: H. Li, S. Pan, S. Wang, A. Kot, "Domain Generalization with Adversarial Feature Learning", CVPR
2018, without its adversarial prior, as in DomainBed.

    min_θ (1/M) Σ_i R_i + w · mean over pairs (i, j) of MMD²(h_i, h_j)

h_i is the representation of source i's training nodes, what the last linear map starts from.

Rebuilt in full; the statistic is the paper's, how it is used is left open by it. Ours: the biased estimate (0 to the
rounding for equal samples, never below); a mean of five Gaussians whose widths are 1/4 to 4 medians of the squared
distances in the pooled sample. The median, from the paper, rather than DomainBed's seven fixed widths: graph
representations differ in scale from data set to data set, and with widths that follow it the penalty cannot be lowered
by shrinking the representation. The statistic is quadratic in the nodes, so it is taken on `nodes` of each source,
drawn anew in every step; the risk is of all.

Defaults: weight 1 is DomainBed's; no value for citation networks is published. With one source the penalty is 0, and
this is risk minimisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from edgemask.config import HyperParameter
from edgemask.methods.penalised import Aligned, SourceOutput
from edgemask.methods.penalties import mmd, over_pairs


class MMD(Aligned):
    hyper: ClassVar = {
        "weight": HyperParameter(1.0, 0, law="log", search=(1e-2, 1e2), about="of the discrepancy"),
        "nodes": HyperParameter(1000, 2, law="int", search=(500, 2000), about="of each source that a step compares"),
    }

    def penalty(self, risks: Tensor, seen: Sequence[SourceOutput]) -> Tensor:
        return over_pairs(mmd, [self.drawn(s.h) for s in seen if s.h is not None])

    def drawn(self, h: Tensor) -> Tensor:
        """`nodes` rows, each as likely as the other; all where there are no more."""
        size = int(self.hparams["nodes"])
        return h if len(h) <= size else h.index_select(0, torch.rand(len(h), device=h.device).argsort()[:size])


STATUS = "full"
CITATION = "Gretton et al., A Kernel Two-Sample Test, JMLR 2012"
SUMMARY = "risk, and the maximum mean discrepancy between the sources' representations"
