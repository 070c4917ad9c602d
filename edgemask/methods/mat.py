"""Adversarial training with a few perturbations per domain, mixed for each sample (MAT).

Q. Wang, Y. Wang, H. Zhu and Y. Wang, "Improving Out-of-Distribution Generalization by Adversarial Training with
Structured Priors", NeurIPS 2022: multi-perturbation adversarial training, the first of its two methods.

    min_θ (1/M) Σ_i max_{Δ_i, A_i} ℓ(f_θ(X_i + softmax(A_i) Δ_i), Y_i),    Δ_i of k rows with ‖δ‖₂ ≤ ε

That this is the "MAT (Wang 2022)" of the EdgeMask-DG* paper is inferred: the key of its citation, `wang2022maximum`,
fits no title we know, MAT is in none of its tables, and this is the one method of that name, author and year for domain
generalisation, an adversarial augmentation like ADA, which the paper names beside it.

From its public code, which the paper's figures and abstract agree with: k perturbations per domain that live on from
step to step, mixing weights drawn anew for every step, one ascent step on both (a normalised one and a projection for
Δ, a plain one for A) before each step of the classifier, which learns from the perturbed samples alone. Ours: a sample
is a node, whose features are perturbed in their own space, which a matrix of rank k allows without making them dense; A
follows the sum of the losses (not their mean, which would make its steps smaller on larger graphs); a start on the
sphere of radius ε; no cap on the losses that the ascent sees (their code has one of 2). Defaults are those of their
code, but for ε: 0.1 as in the run their page shows (the default is 1). How large it should be depends on the features.
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
    hyper: ClassVar[Mapping[str, HyperParameter]] = {
        "perturbations": HyperParameter(8, 1, law="int", search=(2, 16), about="per source, k"),
        "radius": HyperParameter(0.1, 0, law="log", search=(0.003, 3), about="largest norm of a perturbation, ε"),
        "ascent_step": HyperParameter(
            0.1, 0, law="log", search=(0.01, 1), about="length of a step of the perturbations, γ"
        ),
        "mix_lr": HyperParameter(1.0, 0, law="log", search=(0.01, 10), about="learning rate of the mixing weights, η"),
    }

    def build(self) -> dict[str, nn.Module]:
        if self.recipe.shards > 1:
            raise InputError(f"mat moves its perturbations in every step: shards must be 1, got {self.recipe.shards}")
        self.deltas: dict[str, Tensor] = {}  # Δ of each source, changed in place
        return super().build()

    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        for name in (source.domain.name for source in sources):
            if name not in self.deltas:
                self.deltas[name] = self.start(name)
        return super().update(sources, epoch)

    def joint_step(self, pairs: Pairs) -> Record:
        return super().joint_step([(self.attack(source, edges), edges) for source, edges in pairs])

    def start(self, name: str) -> Tensor:
        """Perturbations of full length in random directions."""
        stream = torch_stream(self.seed, "perturbations", name, device=self.device)
        shape = int(self.hparams["perturbations"]), self.num_features
        return F.normalize(torch.randn(shape, generator=stream, device=self.device)) * float(self.hparams["radius"])

    def attack(self, source: Source, edges: Edges) -> Source:
        """One ascent step on the mixing weights and on Δ, which it moves; the source with its features perturbed."""
        domain, delta = source.domain, self.deltas[source.domain.name]
        mix = torch.randn(domain.num_nodes, len(delta), device=self.device).requires_grad_()
        free = delta.clone().requires_grad_()
        self.networks["task"].train()
        logits = self.networks["task"](Shifted(domain.x, mix.softmax(1), free), edges, None)
        loss = F.cross_entropy(logits.index_select(0, source.train), domain.labels()[source.train], reduction="sum")
        up, mix_up = torch.autograd.grad(loss, [free, mix])
        length = float(self.hparams["ascent_step"]) / up.norm().clamp_min(torch.finfo(up.dtype).tiny)
        delta.copy_(project(delta + length * up, float(self.hparams["radius"])))
        weights = (mix.detach() + float(self.hparams["mix_lr"]) * mix_up).softmax(1)
        perturbed: Any = Shifted(domain.x, weights, delta)
        return dataclasses.replace(source, domain=dataclasses.replace(domain, x=perturbed))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, numbers = super().state()
        return tensors | {f"delta/{name}": delta for name, delta in self.deltas.items()}, numbers

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        super().load_state(tensors, numbers)
        self.deltas = {n: t.clone().to(self.device) for n, t in checkpoint.unpack("delta", tensors).items()}
        self.replays.clear()  # they move the perturbations that were


def project(delta: Tensor, radius: float) -> Tensor:
    """Rows longer than `radius` cut to it."""
    norms: Tensor = delta.norm(dim=1, keepdim=True)
    return delta * (radius / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_max(1)


STATUS = "partial: which MAT the paper compares with is inferred; this one is rebuilt in full, on nodes' features"
CITATION = "Wang et al., Adversarial Training with Structured Priors, NeurIPS 2022"
SUMMARY = "adversarial training with k feature perturbations per source, mixed for each node"
