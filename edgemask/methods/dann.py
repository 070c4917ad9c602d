"""DANN: representations from which no discriminator can tell the source.

Y. Ganin, E. Ustinova, H. Ajakan, P. Germain, H. Larochelle, F. Laviolette, M. Marchand, V. Lempitsky,
"Domain-Adversarial Training of Neural Networks", JMLR 17, 2016.

    min_{θ} max_{φ} (1/M) Σ_i [ R_i(θ) - λ ℓ(d_φ(h_i), i) ],   λ = w (2 / (1 + e^{-10 p}) - 1),  p = epoch / epochs

h_i is the representation of source i's training nodes, what the last linear map starts from, ℓ the cross-entropy and
d_φ the discriminator, with the sources as its classes. One step moves both: a layer between h and d_φ passes values on
and gradients back times -λ.

Rebuilt in full. The paper tells a source from a target; in domain generalisation the sources are told apart, as in
DomainBed and GOOD. From the paper: the reversed gradient and the course of λ (DomainBed instead alternates steps and
keeps λ fixed). Ours: the discriminator is an MLP with one hidden layer as wide as the classifier's, under the same
Adam and weight decay; every source counts the same in ℓ.

Defaults: w 0.01 is the middle of the values GOOD (Gui et al., NeurIPS 2022) publishes on its eight splits of the
citation networks Cora and Arxiv, under the same course of λ; the paper's, for images, is 1. With one source there is
nothing to tell, and this is risk minimisation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.config import HyperParameter
from edgemask.errors import InputError
from edgemask.methods.execution import Record
from edgemask.methods.penalised import Aligned, SourceOutput, losses
from edgemask.methods.sources import Pairs, Source

MOST_SOURCES = 256  # outputs of the discriminator, which is built before the sources are known; the first M are used


class DANN(Aligned):
    hyper: ClassVar = {
        "weight": HyperParameter(0.01, 0, law="log", search=(1e-3, 1e1), about="of the reversed gradient, at the end")
    }

    def build(self) -> dict[str, nn.Module]:
        networks, hidden = super().build(), self.recipe.hidden
        layers = nn.Linear(self.width, hidden), nn.ReLU(), nn.Linear(hidden, MOST_SOURCES)
        return networks | {"discriminator": nn.Sequential(*layers)}

    def make_optimisers(self) -> dict[str, torch.optim.Optimizer]:
        return {"task": self.adam(self.networks, self.recipe.lr, self.recipe.weight_decay)}

    def strength(self, epoch: int) -> float:
        """λ: from 0 to the weight."""
        return super().strength(epoch) * (2 / (1 + math.exp(-10 * epoch / self.recipe.epochs)) - 1)

    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        if len(sources) > MOST_SOURCES:
            raise InputError(f"DANN tells at most {MOST_SOURCES} sources apart, got {len(sources)}")
        return super().update(sources, epoch)

    def joint_step(self, pairs: Pairs) -> Record:
        seen = [self.look(source, edges) for source, edges in pairs]
        risks = torch.stack([s.risk for s in seen])
        telling = self.penalty(risks, seen)
        self.step("task", risks.mean() + telling)
        return {**losses(seen, risks), "discriminator": telling.detach()}

    def penalty(self, risks: Tensor, seen: Sequence[SourceOutput]) -> Tensor:
        """The discriminator's loss; its gradient reaches the representations reversed."""
        told = []
        for i, h in enumerate(s.h for s in seen if s.h is not None):
            logits = self.wrapped["discriminator"](reverse(h, self.weight))[:, : len(seen)]
            told.append(F.cross_entropy(logits, torch.full((len(h),), i, device=h.device)))
        return torch.stack(told).mean()


def reverse(h: Tensor, factor: Tensor) -> Tensor:
    """h itself; its gradient is -factor times what comes back."""
    out: Tensor = _Reverse.apply(h, factor)  # type: ignore[no-untyped-call]
    return out


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return h.view_as(h)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (factor,) = ctx.saved_tensors
        return -factor * grad, None


STATUS = "full"
CITATION = "Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016"
SUMMARY = "risk, against a discriminator that tells the sources apart by their representations"
