"""MMD: representations with the same distribution on every source, by the kernel two-sample statistic.

A. Gretton, K. Borgwardt, M. Rasch, B. Schölkopf, A. Smola, "A Kernel Two-Sample Test", JMLR 13, 2012. As a penalty for
domain generalisation: H. Li, S. Pan, S. Wang, A. Kot, "Domain Generalization with Adversarial Feature Learning", CVPR
2018, without its adversarial prior, as in DomainBed.

    min_θ (1/M) Σ_i R_i + w · mean over pairs (i, j) of MMD²(h_i, h_j)

h_i is the representation of source i's training nodes, which is the input of the last linear map.

This is a full implementation. The statistic is from the paper, which leaves open how it is used. Choices made here:

- The estimate is the biased one, which is 0 up to rounding for equal samples and never negative.
- The kernel is a mean of five Gaussians whose widths are 1/4 to 4 times the median of the squared distances in the
  pooled sample. The median is from the paper; DomainBed uses seven fixed widths. Graph representations differ in scale
  between data sets, and with widths that follow the scale the penalty cannot be lowered by shrinking the
  representation.
- The statistic is quadratic in the number of nodes, so it is computed on `nodes` nodes of each source, drawn again in
  every step. The risk is computed on all training nodes.

Defaults: weight 1 is from DomainBed; no value for citation networks is published. With one source the penalty is 0, and
the method is plain risk minimisation.
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
    """Risk minimisation with a penalty on the maximum mean discrepancy."""

    hyper: ClassVar = {
        "weight": HyperParameter(1.0, 0, law="log", search=(1e-2, 1e2), about="weight of the discrepancy"),
        "nodes": HyperParameter(
            1000, 2, law="int", search=(500, 2000), about="nodes of each source that a step compares"
        ),
    }

    def penalty(self, risks: Tensor, outputs: Sequence[SourceOutput]) -> Tensor:
        """Return the mean discrepancy over all pairs of sources."""
        return over_pairs(mmd, [self.drawn(o.h) for o in outputs if o.h is not None])

    def drawn(self, h: Tensor) -> Tensor:
        """Draw `nodes` rows uniformly, or return all if there are no more."""
        size = int(self.hparams["nodes"])
        return h if len(h) <= size else h.index_select(0, torch.rand(len(h), device=h.device).argsort()[:size])


STATUS = "full"
CITATION = "Gretton et al., A Kernel Two-Sample Test, JMLR 2012"
SUMMARY = "risk plus a penalty on the maximum mean discrepancy between the sources' representations"
