"""TRACI: topological adversarial learning with prototypical mixup.

Y. Zhao, C. Wang, X. Luo, J. Luo, W. Ju, Z. Xiao and M. Zhang, "TRACI: A Data-centric Approach for Multi-Domain
Generalization on Graphs", AAAI 2025.

    min_θ (1/M) Σ_i [ ℓ(G_i) + ℓ(G_i perturbed by δ*) + ℓ(G_i mixed) ] / 3 + c · NCE(G_i, G_i mixed)
    δ* = argmax_{‖δ‖∞ ≤ ε}  H(f_θ(G_i + δ)) + τ tr(δᵀ L δ) / N

The adversary perturbs what nodes send into the first round of message passing and what they have after it, on a graph
with some edges dropped. It uses signed gradient ascent on the entropy H of the predictions and on the roughness of the
perturbations on the graph (L is its normalised Laplacian).

Mixup moves each node toward others of its class. The representations of a class in a source are modelled as a Gaussian,
its prototype. The partner of a node is a mean, with Dirichlet(1/M, …, 1/M) weights, of one draw from the prototype of
its class in every source; the node's own share is drawn from Beta(5, 1). NCE, the contrast, asks that the output of a
node is closer to its own mixed output than to those of others.

Only the abstract of the paper was available. The description above, the share of edges dropped, the 5 of the Beta
distribution, c = 0.1, and the schedule (no ascent and no mixup in the first half of training, then an ascent that grows
to its full number of steps) follow the behaviour of the authors' released code. That code gives no values for ε, τ, the
rate and the steps of the ascent; these were chosen here, with ε in units of the representation's root mean square.

Further choices made here:

- What the code adds to the input features is added to the output of the first linear map, because features may be
  sparse.
- The contrast is between outputs, and over a sample of the training nodes instead of all pairs.
- Two parts are omitted: a buffer that replays perturbations of earlier epochs (the code keeps those of the first four),
  and a penalty on the sum of the weights.
- Each node has one class and the loss is the cross-entropy; the code allows several classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.config import HyperParameter
from edgemask.errors import InputError
from edgemask.methods.base import Method
from edgemask.methods.execution import Record
from edgemask.methods.sources import Pairs, Source
from edgemask.nn.aggregate import aggregate, gcn_weights
from edgemask.nn.backbone import Backbone
from edgemask.nn.tensors import Edges

# C × d means and deviations of one source's classes, and 1 for each class that the source has.
Prototypes = tuple[Tensor, Tensor, Tensor]


class TRACI(Method):
    """Risk minimisation on clean, perturbed and mixed representations, with a contrast between them."""

    hyper: ClassVar[Mapping[str, HyperParameter]] = {
        "radius": HyperParameter(
            0.1, 0, law="log", search=(0.01, 1), about="ε, relative to the root mean square of what is perturbed"
        ),
        "rate": HyperParameter(0.5, 0, 2, search=(0.1, 1), about="step size of the ascent, in units of ε"),
        "ascents": HyperParameter(3, 0, 50, law="int", search=(1, 5), about="ascent steps at the end of training"),
        "topology": HyperParameter(
            0.1, 0, law="log", search=(1e-3, 10), about="τ, weight of the perturbation's roughness"
        ),
        "drop": HyperParameter(
            0.3, 0, 0.99, search=(0.0, 0.5), about="share of edges dropped from the adversary's graph"
        ),
        "beta": HyperParameter(
            5.0, 0.01, law="log", search=(1, 10), about="a node's own share in mixup is drawn from Beta(beta, 1)"
        ),
        "contrast": HyperParameter(0.1, 0, law="log", search=(1e-2, 1), about="c, weight of the contrast"),
        "nodes": HyperParameter(
            1000, 2, law="int", search=(500, 2000), about="nodes drawn from each source for the contrast"
        ),
        "warm_up": HyperParameter(0.5, 0, 1, search=(0.0, 0.8), about="share of the epochs without ascent and mixup"),
    }

    def build(self) -> dict[str, nn.Module]:
        """Return the classifier.

        Raises:
            InputError: The recipe's backbone has no round of message passing.
        """
        networks = super().build()
        task = networks["task"]
        if not isinstance(task, Backbone) or not task.rounds:
            raise InputError(f"backbone = {self.recipe.backbone!r} has no first round of message passing to perturb")
        self.task, self.mixing, self.ascents = task, False, 0
        return networks

    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        """Apply the schedule, and train for one epoch."""
        plan = self.plan(epoch)
        if plan != (self.mixing, self.ascents):
            self.replays.clear()  # the captured steps follow the old schedule
            self.mixing, self.ascents = plan
        return super().update(sources, epoch)

    def plan(self, epoch: int) -> tuple[bool, int]:
        """Return whether an epoch uses mixup, and its ascent steps: 0 in the warm-up, then 1 … `ascents`."""
        begin, steps = round(float(self.hparams["warm_up"]) * self.recipe.epochs), int(self.hparams["ascents"])
        if epoch < begin:
            return False, 0
        return True, min(steps, steps * (epoch - begin) // (self.recipe.epochs - begin) + 1)

    def joint_step(self, pairs: Pairs) -> Record:
        """Take one step on the mean over the sources of their risks and contrast."""
        self.task.train()
        sent = [self.task.at_nodes(0, source.domain.x) for source, _ in pairs]
        clean = [self.halfway(z, edges) for z, (_, edges) in zip(sent, pairs, strict=True)]
        prototypes = [
            gaussians(h.detach(), source, self.num_classes) for (h, _), (source, _) in zip(clean, pairs, strict=True)
        ]
        record, losses = Record(), []
        for (source, edges), z, (h, weight) in zip(pairs, sent, clean, strict=True):
            name, c = source.domain.name, float(self.hparams["contrast"])
            logits, perturbed_logits = self.finish(h, edges, weight), self.perturbed(z, edges)
            risks = {f"loss {name}": risk(source, logits), f"adversarial {name}": risk(source, perturbed_logits)}
            contrast_loss = z.new_zeros(())
            if self.mixing:
                mixed = self.finish(self.mix(h, source, prototypes), edges, weight)
                risks[f"mixed {name}"] = risk(source, mixed)
                drawn = source.train[
                    torch.rand(len(source.train), device=z.device).argsort()[: int(self.hparams["nodes"])]
                ]
                contrast_loss = contrast(logits[drawn], mixed[drawn])
            losses.append(torch.stack(list(risks.values())).mean() + c * contrast_loss)
            record |= {key: value.detach() for key, value in risks.items()} | {
                f"contrast {name}": contrast_loss.detach()
            }
        self.step("task", torch.stack(losses).mean())
        return record

    def halfway(self, z: Tensor, edges: Edges, s: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Run the first round of message passing.

        Args:
            z: Messages of the first round.
            edges: Edges of the source.
            s: Mask of the real edges. None means ones.

        Returns:
            What the nodes have after the round, and the weights of the edges in all rounds.
        """
        weight = self.task.weigh(edges, s)
        return self.task.receive(1, self.task.collect(0, edges, weight, z)), weight

    def finish(self, h: Tensor, edges: Edges, weight: Tensor | None) -> Tensor:
        """Return the logits, given what the nodes have after the first round.

        Args:
            h: What the nodes have after the first round.
            edges: Edges of the source.
            weight: Weights of the edges, as `halfway` returned them.
        """
        z = self.task.send(1, h)
        for i in range(1, self.task.rounds):
            z = self.task.at_nodes(i + 1, self.task.collect(i, edges, weight, z))
        return z

    def perturbed(self, z: Tensor, edges: Edges) -> Tensor:
        """Return the logits on the adversary's graph, under its perturbations."""
        s = dropped(edges, float(self.hparams["drop"])).to(z.dtype)
        self.task.eval()
        first, second = self.adversary(z.detach(), edges, s)
        self.task.train()
        h, weight = self.halfway(z + first, edges, s)
        return self.finish(h + second, edges, weight)

    def adversary(self, z: Tensor, edges: Edges, s: Tensor) -> tuple[Tensor, Tensor]:
        """Return perturbations of what nodes send first, and of what they have after the first round.

        They start random and then follow the ascent steps of the schedule.

        Args:
            z: Messages of the first round, detached.
            edges: Edges of the source.
            s: Mask of the adversary's graph.
        """
        with torch.no_grad():
            start = z, self.halfway(z, edges, s)[0]
            bounds = [float(self.hparams["radius"]) * t.square().mean().sqrt() for t in start]
            noise = [(2 * torch.rand_like(t) - 1) * bound for t, bound in zip(start, bounds, strict=True)]
        for _ in range(self.ascents):
            first, second = (d.requires_grad_() for d in noise)
            h, weight = self.halfway(z + first, edges, s)
            total_roughness = roughness(first, edges, s) + roughness(second, edges, s)
            gain = entropy(self.finish(h + second, edges, weight)) + float(self.hparams["topology"]) * total_roughness
            gradients = torch.autograd.grad(gain, (first, second))
            noise = [
                torch.clamp(d.detach() + float(self.hparams["rate"]) * bound * gradient.sign(), -bound, bound)
                for d, bound, gradient in zip((first, second), bounds, gradients, strict=True)
            ]
        return noise[0].detach(), noise[1].detach()

    def mix(self, h: Tensor, source: Source, prototypes: Sequence[Prototypes]) -> Tensor:
        """Return the representations, with those of training nodes moved toward a mean of class prototypes.

        Args:
            h: Representations of the source's nodes.
            source: The source.
            prototypes: The class prototypes of every source.
        """
        nodes, y = source.train, source.domain.labels()[source.train]
        mean, deviation, present = (torch.stack(column)[:, y] for column in zip(*prototypes, strict=True))  # M × n × …
        draws = mean + deviation * torch.randn_like(mean)
        flat = torch.full((len(prototypes),), 1 / len(prototypes), device=h.device)
        weight = torch.distributions.Dirichlet(flat, validate_args=False).sample((len(nodes),)).T * present
        total = weight.sum(0)
        weight = torch.where(
            total > 0, weight / total, present / present.sum(0)
        )  # at least the node's own source has the class
        partner = (weight[:, :, None] * draws).sum(0)
        own = torch.rand(len(nodes), 1, device=h.device) ** (1 / float(self.hparams["beta"]))  # from Beta(beta, 1)
        return h.index_copy(0, nodes, (own * h[nodes] + (1 - own) * partner).to(h.dtype))


def risk(source: Source, logits: Tensor) -> Tensor:
    """Return the cross-entropy on the training nodes of a source."""
    return F.cross_entropy(logits.index_select(0, source.train), source.domain.labels()[source.train])


def dropped(edges: Edges, share: float) -> Tensor:
    """Return a mask that drops a random share of the edges, both directions of an edge together.

    Each node draws a uniform number. The sum of the numbers of an edge's two ends is uniform modulo 1, and any two such
    sums are independent.
    """
    position = torch.rand(edges.num_nodes, device=edges.src.device, dtype=torch.float64)
    return (position[edges.src[edges.real]] + position[edges.dst[edges.real]]) % 1 >= share


def roughness(d: Tensor, edges: Edges, s: Tensor | None = None) -> Tensor:
    """Return tr(dᵀ L d) / N with L = I - D^{-1/2} (A(s) + I) D^{-1/2}.

    Args:
        d: Values of the nodes (N × …).
        edges: Edges of the graph.
        s: Mask of the real edges. None means ones.
    """
    d = d.flatten(1)  # concatenates attention heads
    return (d * (d - aggregate(edges, gcn_weights(edges, s), d))).sum() / len(d)


def entropy(logits: Tensor) -> Tensor:
    """Return the mean entropy of the predictions."""
    log_p = logits.log_softmax(1)
    return -(log_p.exp() * log_p).sum(1).mean()


def gaussians(h: Tensor, source: Source, classes: int) -> Prototypes:
    """Return the mean and deviation of the training nodes' representations by class, and 1 for present classes.

    Args:
        h: Representations of the source's nodes.
        source: The source.
        classes: Number of classes.
    """
    h, y = h[source.train], source.domain.labels()[source.train]
    one_hot = (y[:, None] == torch.arange(classes, device=h.device)).to(h.dtype)
    count = one_hot.sum(0).clamp_min(1)[:, None]
    mean = one_hot.T @ h / count
    variance = one_hot.T @ (h - mean[y]).square() / count
    return mean, variance.sqrt(), (one_hot.sum(0) > 0).to(h.dtype)


def contrast(one: Tensor, other: Tensor) -> Tensor:
    """Return the mean over rows i of -log [exp(cos(one_i, other_i)) / Σ_j exp(cos(one_i, other_j))]."""
    cosines = F.normalize(one, dim=1) @ F.normalize(other, dim=1).T
    return F.cross_entropy(cosines, torch.arange(len(one), device=one.device))


STATUS = "partial: from the abstract and the released code's behaviour; own ε, τ, rate and steps; no replay buffer"
CITATION = "Zhao et al., TRACI: A Data-centric Approach for Multi-Domain Generalization on Graphs, AAAI 2025"
SUMMARY = "perturbations with high entropy and roughness on the graph, and mixup with class prototypes of all sources"
