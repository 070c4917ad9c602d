"""TRACI: topological adversarial learning with prototypical mixup.

Y. Zhao, C. Wang, X. Luo, J. Luo, W. Ju, Z. Xiao and M. Zhang, "TRACI: A Data-centric Approach for Multi-GraphTensors
Generalization on Graphs", AAAI 2025.

    min_θ (1/M) Σ_i [ ℓ(G_i) + ℓ(G_i perturbed by δ*) + ℓ(G_i mixed) ] / 3 + c · NCE(G_i, G_i mixed)
    δ* = argmax_{‖δ‖∞ ≤ ε}  H(f_θ(G_i + δ)) + τ tr(δᵀ L δ) / N

The adversary moves what nodes send into the first round of message passing and what they have after it, on a graph
with some edges dropped, by signed gradient ascent of the predictions' entropy H and of the moves' roughness on the
graph (L its normalised Laplacian). Mixup draws each node toward others of its class: the representations of a class in
a source are a Gaussian, its prototype; a node's partner is a mean, with Dirichlet(1/M, …, 1/M) weights, of one draw
from its class's prototype in every source, and its own share is a draw from Beta(5, 1). NCE, the contrast, asks that
a node's output be nearer to its own mixed output than to those of others.

The paper's text was not at hand beyond its abstract: the above, the share of edges dropped, the Beta's 5, c = 0.1, and
that the first half of training goes without ascent and mixup and that the ascent then grows to its full number of
steps, are how the authors' released code behaves. That code leaves ε, τ, the ascent's rate and steps without values:
those are ours, ε in units of the representation's root mean square. Also ours:

- what the code adds to the input features is added to the first linear map's output, since features may be sparse;
- the contrast is of outputs, and over a sample of the training nodes, not over all pairs;
- left out: a buffer that replays perturbations of earlier epochs (the code's keeps those of the first four), and a
  pull on the sum of the weights;
- one class per node and cross-entropy, where the code has several.
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

Prototypes = tuple[Tensor, Tensor, Tensor]  # C × d means and deviations of one source's classes, and whether they are


class TRACI(Method):
    hyper: ClassVar[Mapping[str, HyperParameter]] = {
        "radius": HyperParameter(0.1, 0, law="log", search=(0.01, 1), about="ε, in units of what is perturbed"),
        "rate": HyperParameter(0.5, 0, 2, search=(0.1, 1), about="of the ascent, in units of ε"),
        "ascents": HyperParameter(3, 0, 50, law="int", search=(1, 5), about="of the ascent, at the end of training"),
        "topology": HyperParameter(0.1, 0, law="log", search=(1e-3, 10), about="τ, of the perturbation's roughness"),
        "drop": HyperParameter(0.3, 0, 0.99, search=(0.0, 0.5), about="share of edges the adversary's graph lacks"),
        "beta": HyperParameter(
            5.0, 0.01, law="log", search=(1, 10), about="a node's own share in mixup is from Beta(beta, 1)"
        ),
        "contrast": HyperParameter(0.1, 0, law="log", search=(1e-2, 1), about="c, of the contrast"),
        "nodes": HyperParameter(
            1000, 2, law="int", search=(500, 2000), about="nodes drawn from each source for the contrast"
        ),
        "warm_up": HyperParameter(0.5, 0, 1, search=(0.0, 0.8), about="share of the epochs without ascent and mixup"),
    }

    def build(self) -> dict[str, nn.Module]:
        networks = super().build()
        task = networks["task"]
        if not isinstance(task, Backbone) or not task.rounds:
            raise InputError(f"backbone = {self.recipe.backbone!r} has no first round of message passing to perturb")
        self.task, self.mixing, self.ascents = task, False, 0
        return networks

    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        plan = self.plan(epoch)
        if plan != (self.mixing, self.ascents):
            self.replays.clear()  # what was captured is another step
            self.mixing, self.ascents = plan
        return super().update(sources, epoch)

    def plan(self, epoch: int) -> tuple[bool, int]:
        """Whether an epoch mixes, and its steps of ascent: none in the warm-up, then 1 … `ascents`."""
        begin, steps = round(float(self.hparams["warm_up"]) * self.recipe.epochs), int(self.hparams["ascents"])
        if epoch < begin:
            return False, 0
        return True, min(steps, steps * (epoch - begin) // (self.recipe.epochs - begin) + 1)

    def joint_step(self, pairs: Pairs) -> Record:
        self.task.train()
        sent = [self.task.at_nodes(0, source.domain.x) for source, _ in pairs]
        clean = [self.halfway(z, edges) for z, (_, edges) in zip(sent, pairs, strict=True)]
        prototypes = [
            gaussians(h.detach(), source, self.num_classes) for (h, _), (source, _) in zip(clean, pairs, strict=True)
        ]
        record, losses = Record(), []
        for (source, edges), z, (h, weight) in zip(pairs, sent, clean, strict=True):
            name, c = source.domain.name, float(self.hparams["contrast"])
            logits, moved = self.finish(h, edges, weight), self.perturbed(z, edges)
            risks = {f"loss {name}": risk(source, logits), f"adversarial {name}": risk(source, moved)}
            apart = z.new_zeros(())
            if self.mixing:
                mixed = self.finish(self.mix(h, source, prototypes), edges, weight)
                risks[f"mixed {name}"] = risk(source, mixed)
                drawn = source.train[
                    torch.rand(len(source.train), device=z.device).argsort()[: int(self.hparams["nodes"])]
                ]
                apart = contrast(logits[drawn], mixed[drawn])
            losses.append(torch.stack(list(risks.values())).mean() + c * apart)
            record |= {key: value.detach() for key, value in risks.items()} | {f"contrast {name}": apart.detach()}
        self.step("task", torch.stack(losses).mean())
        return record

    def halfway(self, z: Tensor, edges: Edges, s: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """From what nodes send first to what they have after one round, and the weights of the edges in all rounds."""
        weight = self.task.weigh(edges, s)
        return self.task.receive(1, self.task.collect(0, edges, weight, z)), weight

    def finish(self, h: Tensor, edges: Edges, weight: Tensor | None) -> Tensor:
        """From there to the logits."""
        z = self.task.send(1, h)
        for i in range(1, self.task.rounds):
            z = self.task.at_nodes(i + 1, self.task.collect(i, edges, weight, z))
        return z

    def perturbed(self, z: Tensor, edges: Edges) -> Tensor:
        """The logits on the adversary's graph, under its perturbations."""
        s = dropped(edges, float(self.hparams["drop"])).to(z.dtype)
        self.task.eval()
        first, second = self.adversary(z.detach(), edges, s)
        self.task.train()
        h, weight = self.halfway(z + first, edges, s)
        return self.finish(h + second, edges, weight)

    def adversary(self, z: Tensor, edges: Edges, s: Tensor) -> tuple[Tensor, Tensor]:
        """What is added to what nodes send first, and to what they have then: random, then raised as planned."""
        with torch.no_grad():
            start = z, self.halfway(z, edges, s)[0]
            bounds = [float(self.hparams["radius"]) * t.square().mean().sqrt() for t in start]
            noise = [(2 * torch.rand_like(t) - 1) * bound for t, bound in zip(start, bounds, strict=True)]
        for _ in range(self.ascents):
            first, second = (d.requires_grad_() for d in noise)
            h, weight = self.halfway(z + first, edges, s)
            rough = roughness(first, edges, s) + roughness(second, edges, s)
            gain = entropy(self.finish(h + second, edges, weight)) + float(self.hparams["topology"]) * rough
            slopes = torch.autograd.grad(gain, (first, second))
            noise = [
                torch.clamp(d.detach() + float(self.hparams["rate"]) * bound * slope.sign(), -bound, bound)
                for d, bound, slope in zip((first, second), bounds, slopes, strict=True)
            ]
        return noise[0].detach(), noise[1].detach()

    def mix(self, h: Tensor, source: Source, prototypes: Sequence[Prototypes]) -> Tensor:
        """The representations with those of the training nodes drawn toward a mean of their class's prototypes."""
        nodes, y = source.train, source.domain.labels()[source.train]
        mean, deviation, there = (torch.stack(column)[:, y] for column in zip(*prototypes, strict=True))  # M × n × …
        draws = mean + deviation * torch.randn_like(mean)
        flat = torch.full((len(prototypes),), 1 / len(prototypes), device=h.device)
        weight = torch.distributions.Dirichlet(flat, validate_args=False).sample((len(nodes),)).T * there
        total = weight.sum(0)
        weight = torch.where(total > 0, weight / total, there / there.sum(0))  # its own source has the class
        partner = (weight[:, :, None] * draws).sum(0)
        own = torch.rand(len(nodes), 1, device=h.device) ** (1 / float(self.hparams["beta"]))  # from Beta(beta, 1)
        return h.index_copy(0, nodes, (own * h[nodes] + (1 - own) * partner).to(h.dtype))


def risk(source: Source, logits: Tensor) -> Tensor:
    return F.cross_entropy(logits.index_select(0, source.train), source.domain.labels()[source.train])


def dropped(edges: Edges, share: float) -> Tensor:
    """A mask that drops a random share of the edges, both directions of an edge together: the sum of two uniform
    numbers, one of each end, is uniform modulo 1, and any two such sums are independent."""
    at = torch.rand(edges.num_nodes, device=edges.src.device, dtype=torch.float64)
    return (at[edges.src[edges.real]] + at[edges.dst[edges.real]]) % 1 >= share


def roughness(d: Tensor, edges: Edges, s: Tensor | None = None) -> Tensor:
    """tr(dᵀ L d) / N with L = I - D^{-1/2} (A(s) + I) D^{-1/2}."""
    d = d.flatten(1)  # heads side by side
    return (d * (d - aggregate(edges, gcn_weights(edges, s), d))).sum() / len(d)


def entropy(logits: Tensor) -> Tensor:
    """The mean entropy of the predictions."""
    log_p = logits.log_softmax(1)
    return -(log_p.exp() * log_p).sum(1).mean()


def gaussians(h: Tensor, source: Source, classes: int) -> Prototypes:
    """Mean and standard deviation of the training nodes' representations by class, and 1 for classes that are there."""
    h, y = h[source.train], source.domain.labels()[source.train]
    which = (y[:, None] == torch.arange(classes, device=h.device)).to(h.dtype)
    count = which.sum(0).clamp_min(1)[:, None]
    mean = which.T @ h / count
    variance = which.T @ (h - mean[y]).square() / count
    return mean, variance.sqrt(), (which.sum(0) > 0).to(h.dtype)


def contrast(one: Tensor, other: Tensor) -> Tensor:
    """-log of the share of a row's own counterpart in Σ_j exp(cos(one_i, other_j)), mean over rows."""
    cosines = F.normalize(one, dim=1) @ F.normalize(other, dim=1).T
    return F.cross_entropy(cosines, torch.arange(len(one), device=one.device))


STATUS = "partial: rebuilt from the abstract and the released code's behaviour; ε, τ, rate and steps ours, no buffer"
CITATION = "Zhao et al., TRACI: A Data-centric Approach for Multi-Domain Generalization on Graphs, AAAI 2025"
SUMMARY = "entropy-raising perturbations rough on the graph, and mixup with class prototypes of all sources"
