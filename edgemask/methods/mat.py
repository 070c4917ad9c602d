"""MAT: adversarial training with a few perturbations per domain, mixed for each sample.

Q. Wang, Y. Wang, H. Zhu and Y. Wang, "Improving Out-of-Distribution Generalization by Adversarial Training with
Structured Priors", NeurIPS 2022. This is multi-perturbation adversarial training, the first of its two methods.

    min_θ (1/M) Σ_i max_{Δ_i, A_i} ℓ(f_θ(X_i + softmax(A_i) Δ_i), Y_i),    Δ_i of k rows with ‖δ‖₂ ≤ ε

It is inferred that this is the "MAT (Wang 2022)" of the EdgeMask-DG* paper. The key of its citation, `wang2022maximum`,
matches no title we know, and MAT is in none of its tables. This is the only method of that name, author and year for
domain generalisation, and it is an adversarial augmentation like ADA, which the paper names next to it.

From its public code, which agrees with the paper's figures and abstract: k perturbations per domain that persist from
step to step; mixing weights drawn again in every step; one ascent step on both (a normalised step and a projection for
Δ, a plain step for A) before each step of the classifier, which learns only from the perturbed samples.

Choices made here:

- A sample is a node. Its features are perturbed directly; because the perturbation matrix has rank k, they need not be
  made dense.
- A follows the sum of the losses, not their mean, which would make its steps smaller on larger graphs.
- Perturbations start on the sphere of radius ε.
- The losses that the ascent sees are not capped (the code caps them at 2).

The defaults are those of the code, except ε: 0.1 is the value in the run that the authors' page shows (the default of
the code is 1). The right size depends on the features.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.config import HyperParameter
from edgemask.errors import InputError
from edgemask.methods.erm import ERM
from edgemask.methods.execution import Record
from edgemask.methods.sources import Pairs, Source
from edgemask.nn.inputs import Shifted
from edgemask.nn.tensors import Edges
from edgemask.runtime import checkpoint
from edgemask.seeds import torch_stream


class MAT(ERM):
    """Risk minimisation on sources whose features are perturbed adversarially."""

    any_loss = False
    hyper: ClassVar[Mapping[str, HyperParameter]] = {
        "perturbations": HyperParameter(8, 1, law="int", search=(2, 16), about="k, number of perturbations per source"),
        "radius": HyperParameter(0.1, 0, law="log", search=(0.003, 3), about="ε, largest norm of a perturbation"),
        "ascent_step": HyperParameter(
            0.1, 0, law="log", search=(0.01, 1), about="γ, length of an ascent step of the perturbations"
        ),
        "mix_lr": HyperParameter(1.0, 0, law="log", search=(0.01, 10), about="η, learning rate of the mixing weights"),
    }

    def build(self) -> dict[str, nn.Module]:
        """Return the classifier.

        Raises:
            InputError: The recipe has several shards.
        """
        if self.recipe.shards > 1:
            raise InputError(f"mat updates its perturbations in every step: shards must be 1, got {self.recipe.shards}")
        self.deltas: dict[str, Tensor] = {}  # Δ of each source, updated in place
        return super().build()

    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        """Create the perturbations of new sources, and train for one epoch."""
        for name in (source.domain.name for source in sources):
            if name not in self.deltas:
                self.deltas[name] = self.start(name)
        return super().update(sources, epoch)

    def joint_step(self, pairs: Pairs) -> Record:
        """Take one ascent step of the perturbations, then one step of the classifier."""
        return super().joint_step([(self.attack(source, edges), edges) for source, edges in pairs])

    def start(self, name: str) -> Tensor:
        """Return perturbations of length ε in random directions."""
        stream = torch_stream(self.seed, "perturbations", name, device=self.device)
        shape = int(self.hparams["perturbations"]), self.num_features
        return F.normalize(torch.randn(shape, generator=stream, device=self.device)) * float(self.hparams["radius"])

    def attack(self, source: Source, edges: Edges) -> Source:
        """Take one ascent step on the mixing weights and on Δ.

        Δ is updated in place.

        Returns:
            The source with perturbed features.
        """
        domain, delta = source.domain, self.deltas[source.domain.name]
        mix = torch.randn(domain.num_nodes, len(delta), device=self.device).requires_grad_()
        leaf = delta.clone().requires_grad_()
        self.networks["task"].train()
        logits = self.networks["task"](Shifted(domain.x, mix.softmax(1), leaf), edges)
        loss = F.cross_entropy(logits.index_select(0, source.train), domain.labels()[source.train], reduction="sum")
        delta_gradient, mix_gradient = torch.autograd.grad(loss, [leaf, mix])
        length = float(self.hparams["ascent_step"]) / delta_gradient.norm().clamp_min(
            torch.finfo(delta_gradient.dtype).tiny
        )
        delta.copy_(project(delta + length * delta_gradient, float(self.hparams["radius"])))
        weights = (mix.detach() + float(self.hparams["mix_lr"]) * mix_gradient).softmax(1)
        perturbed: Any = Shifted(domain.x, weights, delta)
        return dataclasses.replace(source, domain=dataclasses.replace(domain, x=perturbed))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return everything the next epoch depends on, including the perturbations."""
        tensors, numbers = super().state()
        return tensors | {f"delta/{name}": delta for name, delta in self.deltas.items()}, numbers

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        super().load_state(tensors, numbers)
        self.deltas = {n: t.clone().to(self.device) for n, t in checkpoint.unpack("delta", tensors).items()}
        self.replays.clear()  # captured steps update the old perturbations

    def check_state(self, sources: Sequence[Source]) -> None:
        """Check that every source has its perturbations."""
        shape = int(self.hparams["perturbations"]), self.num_features
        expected = {s.domain.name: torch.empty(shape) for s in sources}
        checkpoint.check_tensors(self.deltas, expected)


def project(delta: Tensor, radius: float) -> Tensor:
    """Return the rows of `delta`, with rows longer than `radius` scaled to that length."""
    norms: Tensor = delta.norm(dim=1, keepdim=True)
    return delta * (radius / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_max(1)


STATUS = "partial: the identity of the paper's MAT is inferred; this one is implemented in full, on node features"
CITATION = "Wang et al., Adversarial Training with Structured Priors, NeurIPS 2022"
SUMMARY = "adversarial training with k feature perturbations per source, mixed for each node"
