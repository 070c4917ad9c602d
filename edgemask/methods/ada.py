"""Adversarial data augmentation (ADA): fictitious domains, hard for the classifier yet near to it in meaning, are added
to the training data in rounds.

R. Volpi, H. Namkoong, O. Sener, J. Duchi, V. Murino and S. Savarese, "Generalizing to Unseen Domains via Adversarial
Data Augmentation", NeurIPS 2018.

    min_θ mean_{j ≤ k} ℓ(θ; X_j, Y),    X_k = argmax_X Σ_v ℓ(θ; X, y_v) - (γ/2) ‖z_θ(X)_v - z_θ(X_{k-1})_v‖²

with X_0 the data. From the paper: the objective, z the last hidden layer, K rounds, each of T_max plain gradient steps
from the round before, the result added to the data and never changed again. K and T_max are those of their public code.
Ours: a sample is a node, and a round perturbs the features of all nodes of a graph at once, with its edges as they are,
so that every round adds a graph to each source; the rounds at equal distances over the epochs (theirs: after every 100
steps of a batch); no dropout while ascending; a rate of 1 / γ at first (theirs is 1 on means over a batch), quartered
by every step that would lower the objective, which is not taken: so the loss of what is added is higher by at least γ/2
times its squared distance. γ = 10, the least power of ten under which the citation sources are still learnt: under
their 1, whose distance is a mean over 1,024 coordinates, the classifier comes to read the labels off the added graphs,
and the loss of the originals rises again (from 0.65 to 1.25 on ACM and Citation).

The features, sparse and constant, cannot be perturbed where they stand. But the gradient of X is (∂/∂XW) Wᵀ, where W is
the first linear map: the sum of all steps of a round is D Wᵀ with D of the size of the map's output, and X + D Wᵀ, kept
in these two parts (`Shifted`), is the perturbed input itself, not a stand-in for it.
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
from edgemask.methods.execution import Record, floats
from edgemask.methods.sources import Pairs, Source
from edgemask.nn.inputs import Shifted
from edgemask.nn.tensors import Edges
from edgemask.runtime import checkpoint


class ADA(ERM):
    hyper: ClassVar[Mapping[str, HyperParameter]] = {
        "augmentations": HyperParameter(3, 1, law="int", search=(1, 5), about="rounds, K"),
        "ascents": HyperParameter(15, 1, law="int", search=(5, 30), about="ascent steps of a round, T_max"),
        "ascent_lr": HyperParameter(
            1.0, 1e-6, law="log", search=(0.01, 10), about="first rate of the ascents, times γ"
        ),
        "gamma": HyperParameter(10.0, 1e-3, law="log", search=(1, 1000), about="weight of the distance, γ"),
    }

    def build(self) -> dict[str, nn.Module]:
        if self.recipe.batch_size is not None:
            raise InputError(f"ada keeps copies of whole graphs: batch_size must be None, got {self.recipe.batch_size}")
        if self.recipe.layers < 2:
            raise InputError("ada measures distances in the last hidden layer: layers must be at least 2, got 1")
        self.added: dict[str, list[tuple[Tensor, Tensor]]] = {}  # D and Wᵀ of each round, by source
        return super().build()

    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        (part,) = self.iter_batches(sources, epoch)
        pairs, last = list(part), int(self.hparams["augmentations"])
        for _ in range(sum(k * self.recipe.epochs // (last + 1) == epoch for k in range(1, last + 1))):
            for source, edges in pairs:
                self.added.setdefault(source.domain.name, []).append(self.augment(source, edges))
            self.replays.clear()  # a step on more graphs is another step
        return floats(self.replayed(self.joint_step, pairs))

    def joint_step(self, pairs: Pairs) -> Record:
        means, record = [], Record()
        for source, edges in pairs:
            risks = torch.stack([self.risk(graph, edges) for graph in self.graphs(source)])
            means.append(risks.mean())
            record[f"loss {source.domain.name}"] = risks[0].detach()
            if len(risks) > 1:
                record[f"augmented {source.domain.name}"] = risks[1:].mean().detach()
        self.step("task", torch.stack(means).mean())
        return record

    def graphs(self, source: Source) -> list[Source]:
        """A source and what the rounds so far have added to it."""
        found = [source]
        for a, b in self.added.get(source.domain.name, []):
            shifted: Any = Shifted(found[-1].domain.x, a, b)
            found.append(dataclasses.replace(source, domain=dataclasses.replace(source.domain, x=shifted)))
        return found

    def augment(self, source: Source, edges: Edges) -> tuple[Tensor, Tensor]:
        """A round of ascents from the source's newest graph: D and Wᵀ of what it changes."""
        task: Any = self.networks["task"].eval().requires_grad_(False)
        start, labels = self.graphs(source)[-1].domain.x, source.domain.labels()[source.train]
        traced = Traced(start)
        z0 = task.embed(traced, edges).detach()
        b = torch.cat([weight.T for weight in traced.weights])

        def climb(a: Tensor) -> tuple[Tensor, Tensor]:
            traced = Traced(Shifted(start, a, b))
            z = task.embed(traced, edges)
            loss = F.cross_entropy(task.read(z, edges).index_select(0, source.train), labels, reduction="sum")
            goal = loss - float(self.hparams["gamma"]) / 2 * (z - z0).square().sum()
            return goal.detach(), torch.cat(torch.autograd.grad(goal, traced.products), dim=1)

        a, rate = z0.new_zeros(len(z0), len(b)), float(self.hparams["ascent_lr"]) / float(self.hparams["gamma"])
        goal, up = climb(a)
        for _ in range(int(self.hparams["ascents"])):
            higher, up_there = climb(a + rate * up)
            if higher > goal:
                a, goal, up = a + rate * up, higher, up_there
            else:
                rate /= 4
        task.requires_grad_(True)
        return a, b

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, numbers = super().state()
        for name, rounds in self.added.items():
            for k, (a, b) in enumerate(rounds):
                tensors |= {f"added/{k}/a/{name}": a, f"added/{k}/b/{name}": b}
        return tensors, numbers

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        super().load_state(tensors, numbers)
        held = {key: t.clone().to(self.device) for key, t in checkpoint.unpack("added", tensors).items()}
        self.added = {key.removeprefix("0/a/"): [] for key in held if key.startswith("0/a/")}
        for name, rounds in self.added.items():
            while f"{len(rounds)}/a/{name}" in held:
                rounds.append((held[f"{len(rounds)}/a/{name}"], held[f"{len(rounds)}/b/{name}"]))
        self.replays.clear()


class Traced:
    """An input that remembers the weights it is multiplied by, and the products, as leaves of the gradient."""

    def __init__(self, x: Any):
        self.x, self.weights, self.products = x, list[Tensor](), list[Tensor]()

    def __matmul__(self, weight: Tensor) -> Tensor:
        self.weights.append(weight.detach().clone())
        self.products.append((self.x @ weight).detach().requires_grad_())
        return self.products[-1]


STATUS = "full"
CITATION = "Volpi et al., Generalizing to Unseen Domains via Adversarial Data Augmentation, NeurIPS 2018"
SUMMARY = "graphs with adversarial features, near in the last hidden layer, are added to the sources in rounds"
