"""DANN: representations from which a discriminator cannot recognise the source.

Y. Ganin, E. Ustinova, H. Ajakan, P. Germain, H. Larochelle, F. Laviolette, M. Marchand, V. Lempitsky,
"Domain-Adversarial Training of Neural Networks", JMLR 17, 2016.

    min_{θ} max_{φ} (1/M) Σ_i [ R_i(θ) - λ ℓ(d_φ(h_i), i) ],   λ = w (2 / (1 + e^{-10 p}) - 1),  p = epoch / epochs

h_i is the representation of source i's training nodes, which is the input of the last linear map. ℓ is the
cross-entropy, and d_φ is the discriminator, whose classes are the sources. One step updates both: a layer between h and
d_φ passes values through unchanged and multiplies gradients by -λ.

This is a full implementation. The paper distinguishes a source from a target; in domain generalisation the sources are
distinguished from each other, as in DomainBed and GOOD. From the paper: the reversed gradient and the schedule of λ
(DomainBed alternates steps instead and keeps λ fixed). Choices made here: the discriminator is an MLP with one hidden
layer as wide as the classifier's, with the same Adam and weight decay; every source has the same weight in ℓ.

Defaults: w = 0.01 is the middle of the values that GOOD (Gui et al., NeurIPS 2022) publishes for its eight splits of
the citation networks Cora and Arxiv, with the same schedule of λ; the paper uses 1, for images. With one source there
is nothing to distinguish, and the method is plain risk minimisation.
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

MOST_SOURCES = 256  # outputs of the discriminator; it is built before the sources are known, and the first M are used


class DANN(Aligned):
    """Risk minimisation against a discriminator that predicts the source from the representation."""

    hyper: ClassVar = {
        "weight": HyperParameter(
            0.01, 0, law="log", search=(1e-3, 1e1), about="w, final weight of the reversed gradient"
        )
    }

    def build(self) -> dict[str, nn.Module]:
        """Return the classifier and the discriminator."""
        networks, hidden = super().build(), self.recipe.hidden
        layers = nn.Linear(self.width, hidden), nn.ReLU(), nn.Linear(hidden, MOST_SOURCES)
        return networks | {"discriminator": nn.Sequential(*layers)}

    def make_optimisers(self) -> dict[str, torch.optim.Optimizer]:
        """Return one optimiser for both networks."""
        return {"task": self.adam(self.networks, self.recipe.lr, self.recipe.weight_decay)}

    def strength(self, epoch: int) -> float:
        """Return λ, which rises from 0 to the weight during training."""
        return super().strength(epoch) * (2 / (1 + math.exp(-10 * epoch / self.recipe.epochs)) - 1)

    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        """Train for one epoch.

        Raises:
            InputError: There are more sources than the discriminator has outputs.
        """
        if len(sources) > MOST_SOURCES:
            raise InputError(f"DANN can tell at most {MOST_SOURCES} sources apart, got {len(sources)}")
        return super().update(sources, epoch)

    def joint_step(self, pairs: Pairs) -> Record:
        """Take one step on the mean risk plus the discriminator's loss."""
        outputs = [self.source_output(source, edges) for source, edges in pairs]
        risks = torch.stack([output.risk for output in outputs])
        domain_loss = self.penalty(risks, outputs)
        self.step("task", risks.mean() + domain_loss)
        return {**losses(outputs, risks), "discriminator": domain_loss.detach()}

    def penalty(self, risks: Tensor, outputs: Sequence[SourceOutput]) -> Tensor:
        """Return the discriminator's loss. Its gradient is reversed before it reaches the representations."""
        domain_losses = []
        for i, h in enumerate(output.h for output in outputs if output.h is not None):
            logits = self.wrapped["discriminator"](reverse(h, self.weight))[:, : len(outputs)]
            domain_losses.append(F.cross_entropy(logits, torch.full((len(h),), i, device=h.device)))
        return torch.stack(domain_losses).mean()


def reverse(h: Tensor, factor: Tensor) -> Tensor:
    """Return h unchanged. In the backward pass its gradient is multiplied by -factor."""
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
SUMMARY = "risk, trained against a discriminator that predicts the source from the representation"
