"""CORAL: representations with the same covariance on every source.

B. Sun, K. Saenko, "Deep CORAL: Correlation Alignment for Deep Domain Adaptation", ECCV Workshops 2016.

    min_θ (1/M) Σ_i R_i + w · mean over pairs (i, j) of |C_i - C_j|²_F / 4d²

C_i is the d × d covariance of the representation of source i's training nodes, which is the input of the last linear
map.

This is a full implementation. The paper aligns a source with a target; in domain generalisation all pairs of sources
are aligned instead, as in DomainBed and GOOD. From the paper: the statistic, which uses only covariances (DomainBed
adds the distance between the means and omits the 1/4).

Defaults: the paper only asks for a weight that makes both terms equal at the end. 0.1 is the median of the values that
GOOD (Gui et al., NeurIPS 2022) publishes for the same statistic on its eight splits of the citation networks Cora and
Arxiv. With one source the penalty is 0, and the method is plain risk minimisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from edgemask.config import HyperParameter
from edgemask.methods.penalised import Aligned, SourceOutput
from edgemask.methods.penalties import coral, over_pairs


class CORAL(Aligned):
    """Risk minimisation with a penalty on the distance between covariances."""

    hyper: ClassVar = {
        "weight": HyperParameter(
            0.1, 0, law="log", search=(1e-3, 1e2), about="weight of the distance between covariances"
        )
    }

    def penalty(self, risks: Tensor, outputs: Sequence[SourceOutput]) -> Tensor:
        """Return the mean CORAL distance over all pairs of sources."""
        return over_pairs(coral, [o.h for o in outputs if o.h is not None])


STATUS = "full"
CITATION = "Sun and Saenko, Deep CORAL, ECCV Workshops 2016"
SUMMARY = "risk plus a penalty on the distance between the covariances of the sources' representations"
