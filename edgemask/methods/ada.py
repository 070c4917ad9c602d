"""Adversarial data augmentation (ADA).

R. Volpi, H. Namkoong, O. Sener, J. Duchi, V. Murino and S. Savarese, "Generalizing to Unseen Domains via Adversarial
Data Augmentation", NeurIPS 2018.

Fictitious domains, which are hard for the classifier but close to the data in its last hidden layer, are added to the
training data in rounds:

    min_θ mean_{j ≤ k} ℓ(θ; X_j, Y),    X_k = argmax_X Σ_v ℓ(θ; X, y_v) - (γ/2) ‖z_θ(X)_v - z_θ(X_{k-1})_v‖²

with X_0 the data.

From the paper: the objective; z is the last hidden layer; there are K rounds, each of T_max plain gradient steps that
start from the result of the previous round; the result is added to the data and never changes again. K and T_max have
the values of the authors' public code.

Choices made here:

- A sample is a node. A round perturbs the features of all nodes of a graph at once and keeps its edges, so every round
  adds one graph to each source.
- The rounds are spaced evenly over the epochs (authors: after every 100 steps of a batch).
- There is no dropout during the ascent.
- The step size is 1 / γ at first (authors: 1, on means over a batch). A step that would lower the objective is not
  taken, and the step size is divided by 4. The loss of an added graph is therefore higher by at least γ/2 times its
  squared distance.
- γ = 10 is the smallest power of ten with which the citation sources are still learnt. With the authors' value of 1,
  whose distance is a mean over 1,024 coordinates, the classifier learns to read the labels off the added graphs, and
  the loss of the original graphs rises again (from 0.65 to 1.25 on ACM and Citation).

The features are sparse and constant, so they cannot be perturbed in place. However, the gradient of X is (∂/∂XW) Wᵀ,
where W is the first linear map. The sum of all steps of a round is therefore D Wᵀ, where D has the size of the map's
output. X + D Wᵀ is stored in these two parts (`Shifted`); it is exactly the perturbed input, not an approximation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.config import HyperParameter
from edgemask.errors import CheckpointError, InputError
from edgemask.methods.erm import ERM
from edgemask.methods.execution import Record, floats
from edgemask.methods.sources import Pairs, Source
from edgemask.nn.inputs import Shifted
from edgemask.nn.tensors import Edges
from edgemask.runtime import checkpoint


class ADA(ERM):
    """Risk minimisation on the sources and on the adversarial graphs added to them."""

    any_loss = False
    hyper: ClassVar[Mapping[str, HyperParameter]] = {
        "augmentations": HyperParameter(3, 1, law="int", search=(1, 5), about="K, number of rounds"),
        "ascents": HyperParameter(15, 1, law="int", search=(5, 30), about="T_max, ascent steps per round"),
        "ascent_lr": HyperParameter(
            1.0, 1e-6, law="log", search=(0.01, 10), about="initial step size of the ascent, multiplied by γ"
        ),
        "gamma": HyperParameter(10.0, 1e-3, law="log", search=(1, 1000), about="γ, weight of the distance"),
    }

    def build(self) -> dict[str, nn.Module]:
        """Return the classifier.

        Raises:
            InputError: The recipe has a `batch_size`, or fewer than 2 layers.
        """
        if self.recipe.batch_size is not None:
            raise InputError(
                f"ada stores copies of whole graphs: batch_size must be None, got {self.recipe.batch_size}"
            )
        if self.recipe.layers < 2:
            raise InputError("ada measures distances in the last hidden layer: layers must be at least 2, got 1")
        self.added: dict[str, list[tuple[Tensor, Tensor]]] = {}  # D and Wᵀ of each round, by source
        return super().build()

    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        """Add graphs if a round is due, and train for one epoch."""
        (part,) = self.iter_batches(sources, epoch)
        pairs, last = list(part), int(self.hparams["augmentations"])
        for _ in range(sum(k * self.recipe.epochs // (last + 1) == epoch for k in range(1, last + 1))):
            for source, edges in pairs:
                self.added.setdefault(source.domain.name, []).append(self.augment(source, edges))
            self.replays.clear()  # captured steps do not include the new graphs
        return floats(self.replayed(self.joint_step, pairs))

    def joint_step(self, pairs: Pairs) -> Record:
        """Take one step on the mean risk of each source's graphs."""
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
        """Return a source and the graphs that earlier rounds added to it."""
        copies = [source]
        for a, b in self.added.get(source.domain.name, []):
            shifted: Any = Shifted(copies[-1].domain.x, a, b)
            copies.append(dataclasses.replace(source, domain=dataclasses.replace(source.domain, x=shifted)))
        return copies

    def augment(self, source: Source, edges: Edges) -> tuple[Tensor, Tensor]:
        """Run one round of ascent steps from the newest graph of a source.

        Returns:
            The two factors D and Wᵀ of the change of the features.
        """
        task: Any = self.networks["task"].eval().requires_grad_(False)
        start, labels = self.graphs(source)[-1].domain.x, source.domain.labels()[source.train]
        traced = TracedInput(start)
        z0 = task.embed(traced, edges).detach()
        b = torch.cat([weight.T for weight in traced.weights])

        def objective(a: Tensor) -> tuple[Tensor, Tensor]:
            traced = TracedInput(Shifted(start, a, b))
            z = task.embed(traced, edges)
            loss = F.cross_entropy(task.read(z, edges).index_select(0, source.train), labels, reduction="sum")
            value = loss - float(self.hparams["gamma"]) / 2 * (z - z0).square().sum()
            return value.detach(), torch.cat(torch.autograd.grad(value, traced.products), dim=1)

        a, rate = z0.new_zeros(len(z0), len(b)), float(self.hparams["ascent_lr"]) / float(self.hparams["gamma"])
        value, gradient = objective(a)
        for _ in range(int(self.hparams["ascents"])):
            next_value, next_gradient = objective(a + rate * gradient)
            if next_value > value:
                a, value, gradient = a + rate * gradient, next_value, next_gradient
            else:
                rate /= 4
        task.requires_grad_(True)
        return a, b

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return everything the next epoch depends on, including the added graphs."""
        tensors, numbers = super().state()
        for name, rounds in self.added.items():
            for k, (a, b) in enumerate(rounds):
                tensors |= {f"added/{k}/a/{name}": a, f"added/{k}/b/{name}": b}
        return tensors, numbers

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        super().load_state(tensors, numbers)
        stored = {key: t.clone().to(self.device) for key, t in checkpoint.unpack("added", tensors).items()}
        self.added = {key.removeprefix("0/a/"): [] for key in stored if key.startswith("0/a/")}
        for name, rounds in self.added.items():
            while (a := stored.get(f"{len(rounds)}/a/{name}")) is not None:
                part = f"{len(rounds)}/b/{name}"
                b = checkpoint.check_tensor(part, stored.get(part), (None, self.num_features), torch.float32)
                rounds.append((a, b))
        self.replays.clear()

    def check_state(self, sources: Sequence[Source]) -> None:
        """Check that graphs were added to all sources or to none, and that they have the sources' nodes."""
        names = {source.domain.name for source in sources}
        if self.added and (self.added.keys() != names or len({len(own) for own in self.added.values()}) > 1):
            raise CheckpointError("the added graphs are not those of the sources")
        for source in sources:
            for a, b in self.added.get(source.domain.name, []):
                checkpoint.check_tensor("added", a, (source.domain.num_nodes, len(b)), torch.float32)


class TracedInput:
    """An input that stores the weights it is multiplied by, and the products, as leaves with gradients."""

    def __init__(self, x: Any):
        self.x, self.weights, self.products = x, list[Tensor](), list[Tensor]()

    def __matmul__(self, weight: Tensor) -> Tensor:
        self.weights.append(weight.detach().clone())
        self.products.append((self.x @ weight).detach().requires_grad_())
        return self.products[-1]


STATUS = "full"
CITATION = "Volpi et al., Generalizing to Unseen Domains via Adversarial Data Augmentation, NeurIPS 2018"
SUMMARY = "adds graphs with adversarial features, close in the last hidden layer, to the sources in rounds"
