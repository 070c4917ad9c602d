"""GRM: generative risk minimisation, which generates a subgraph for every node and classifies that.

S. Wang, Z. Tan, Y. Zhu, C. Zhang and J. Li, "Generative Risk Minimization for Out-of-Distribution Generalization on
Graphs", TMLR 2025.

    min_θ E_{q(Z|G)}[-log p(Y | G_c(Z))] + β KL(q(Z|G) ‖ p(Z|Y)) + γ Σ_{d,c} p(d,c) ‖m_dc - m_c‖² / 2

G is a node's neighbourhood, Z its latent causal variable, G_c(Z) the generated subgraph. The first two terms are a
variational bound: KL(q(Z|G) ‖ p(Z|Y)) ≥ I(Z; G | Y), what Z knows of G beyond the label, be it spurious or of the
domain. The third is what tells the domains d apart in Z: the distance of a class's mean latent m_dc from that over all
domains, an information I(Z; D | Y) where latents of a class are Gaussian; it is 0 with one source.

From the paper's abstract and from summaries, its equations not being at hand: a subgraph with continuous edge weights
and node representations is generated, by a variational graph autoencoder, instead of cut out; a latent causal variable
makes the objective tractable; its terms raise the prediction from G_c and lower its dependence on domain and spurious
information. From the authors' released code, which has no licence and of whose objective only the first term is
switched on: a network over the whole graph comes first; a node's neighbourhood is itself and at most 20 neighbours; a
member's latent is read from its own representation and the mean of its neighbours'; edges are from σ(⟨z_u, z_v⟩) for
every pair of members, joined in G or not; two graph convolutions on G_c and a mean over its members classify it; nodes
are drawn in every step.

Ours: p(Z|Y) = N(m_Y, s_Y²), learnt; the form of the third term; the weights β and γ; edge weights enter as they are,
where the code draws edges without a gradient; q is a small network per node, where the code has a convolution on G;
prediction takes the mean of q, and of more than 20 neighbours evenly spread ones, so it is not random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.config import HyperParameter
from edgemask.errors import InputError
from edgemask.methods.base import Method
from edgemask.methods.execution import Record
from edgemask.methods.sources import Pairs
from edgemask.methods.views import backbone, representation_width
from edgemask.nn.aggregate import aggregate
from edgemask.nn.backbone import Backbone
from edgemask.nn.tasknet import tasknet
from edgemask.nn.tensors import Edges, SparseMatrix

BLOCK = 8192  # neighbourhoods classified at a time when a graph is read


class Generator(nn.Module):
    """From a graph to a latent of each node, from a node's neighbours' latents to its subgraph, from that to logits."""

    def __init__(self, encoder: Backbone, inputs: int, latent: int, classes: int, members: int):
        super().__init__()
        self.encoder, self.members = encoder, members
        width = representation_width(encoder, inputs)
        self.posterior = nn.Sequential(nn.Linear(2 * width, latent), nn.ReLU(), nn.Linear(latent, 2 * latent))
        self.first, self.second = nn.Linear(latent, latent), nn.Linear(latent, classes)
        self.prior_mean = nn.Parameter(torch.randn(classes, latent) / latent**0.5)
        self.prior_log_std = nn.Parameter(torch.zeros(classes, latent))

    def forward(
        self, x: Tensor | SparseMatrix, edges: Edges, s: Tensor | None = None, nodes: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        """Logits of all nodes; of given nodes alone, also the mean and log deviation of their latents, and the latents
        that the logits come from are drawn."""
        mean, log_std = self.latents(x, edges, s)
        if nodes is None:
            every = torch.arange(edges.num_nodes, device=mean.device)
            blocks = (self.egos(every[i : i + BLOCK], edges, s) for i in range(0, len(every), BLOCK))
            return torch.cat([self.classify(mean[who], there) for who, there in blocks])
        who, there = self.egos(nodes, edges, s, torch.rand(len(nodes), device=mean.device))
        m = mean[who]
        z = m + log_std[who].exp() * torch.randn_like(m)
        return self.classify(z, there), mean[nodes], log_std[nodes]

    def latents(self, x: Tensor | SparseMatrix, edges: Edges, s: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean and log deviation of every node's q(z|G)."""
        h = self.encoder.embed(x, edges, s)
        weight = edges.spread(s).to(h.dtype)
        total = aggregate(edges, weight, h.new_ones(edges.num_nodes, 1))  # at least the node itself
        around = aggregate(edges, weight, h) / total
        mean, log_std = self.posterior(torch.cat([h, around], 1)).chunk(2, 1)
        return mean, log_std.clamp(-10, 10)

    def egos(self, nodes: Tensor, edges: Edges, s: Tensor | None, at: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The members of the nodes' neighbourhoods, themselves first, and how far each is there: 0 where there are
        fewer. Of more neighbours than places, evenly spread ones from a start `at` in [0, 1)."""
        places = torch.arange(self.members, device=nodes.device)
        begin = edges.indptr[nodes][:, None]
        count = edges.indptr[nodes + 1][:, None] - begin  # with the self-loop
        start = 0 if at is None else (at[:, None] * count).long()
        spread = (start + places * count // self.members) % count
        position = begin + torch.where(count > self.members, spread, torch.minimum(places, count - 1))
        who = edges.src[position]
        there = ((places < count) & (who != nodes[:, None])).to(self.prior_mean.dtype)
        if s is not None:
            there = there * edges.spread(s)[position]
        return torch.cat([nodes[:, None], who], 1), F.pad(there, (1, 0), value=1.0)

    def subgraph(self, z: Tensor, there: Tensor) -> Tensor:
        """n × m × m edge weights of the generated subgraphs: σ(⟨z_u, z_v⟩) for every pair of members."""
        return torch.sigmoid(z @ z.mT) * there[:, :, None] * there[:, None, :]

    def classify(self, z: Tensor, there: Tensor) -> Tensor:
        """Two graph convolutions on each generated subgraph, then the mean over its members."""
        a = self.subgraph(z, there)
        root = (a.sum(2) + (there == 0)).rsqrt()
        a = root[:, :, None] * a * root[:, None, :]
        h = self.second(a @ F.relu(self.first(a @ z)))
        out: Tensor = (h * there[:, :, None]).sum(1) / there.sum(1, keepdim=True)
        return out


class GRM(Method):
    hyper: ClassVar[Mapping[str, HyperParameter]] = {
        "beta": HyperParameter(
            0.01, 0, law="log", search=(1e-4, 1), about="β, of the KL divergence from the class's prior"
        ),
        "gamma": HyperParameter(
            0.1, 0, law="log", search=(1e-3, 10), about="γ, of the domains' distance in the latent"
        ),
        "latent": HyperParameter(64, 1, law="int", search=(32, 128), about="dimensions of the latent variable"),
        "members": HyperParameter(20, 1, law="int", search=(5, 30), about="most neighbours in a node's neighbourhood"),
        "nodes": HyperParameter(1000, 1, law="int", search=(500, 2000), about="nodes drawn from each source in a step"),
    }

    def build(self) -> dict[str, nn.Module]:
        for name in ("batch_size", "inference_batch"):
            if getattr(self.recipe, name) is not None:
                raise InputError(f"{name} must be None: GRM reads whole graphs, got {getattr(self.recipe, name)}")
        latent, members = int(self.hparams["latent"]), int(self.hparams["members"])
        encoder = backbone(tasknet(self.recipe, self.num_features, self.num_classes))
        return {"task": Generator(encoder, self.num_features, latent, self.num_classes, members)}

    def joint_step(self, pairs: Pairs) -> Record:
        task = cast(Generator, self.networks["task"].train())
        losses, divergences, latents, labels = {}, {}, [], []
        for source, edges in pairs:
            drawn = source.train[
                torch.rand(len(source.train), device=self.device).argsort()[: int(self.hparams["nodes"])]
            ]
            y, name = source.domain.labels()[drawn], source.domain.name
            logits, mean, log_std = self.wrapped["task"](source.domain.x, edges, None, drawn)
            losses[f"loss {name}"] = F.cross_entropy(logits, y)
            divergences[f"divergence {name}"] = divergence(
                mean, log_std, task.prior_mean[y], task.prior_log_std[y]
            ).mean()
            latents.append(mean)
            labels.append(y)
        terms = {"domains": domain_information(latents, labels, self.num_classes)}
        bound = (
            torch.stack(list(losses.values())).mean()
            + float(self.hparams["beta"]) * torch.stack(list(divergences.values())).mean()
        )
        self.step("task", bound + float(self.hparams["gamma"]) * terms["domains"])
        return {name: value.detach() for name, value in (losses | divergences | terms).items()}


def divergence(mean: Tensor, log_std: Tensor, prior_mean: Tensor, prior_log_std: Tensor) -> Tensor:
    """KL(N(mean, e^{2 log_std}) ‖ N(prior_mean, e^{2 prior_log_std})) of each row."""
    ratio = 2 * (log_std - prior_log_std)
    apart = (mean - prior_mean).square() * torch.exp(-2 * prior_log_std)
    return (ratio.exp() + apart - 1 - ratio).sum(1) / 2


def domain_information(latents: Sequence[Tensor], labels: Sequence[Tensor], classes: int) -> Tensor:
    """Σ_{d,c} p(d,c) ‖m_dc - m_c‖² / 2, with m_dc the mean latent of class c in domain d and m_c that over domains."""
    every = torch.arange(classes, device=latents[0].device)
    which = [(y[:, None] == every).to(z.dtype) for z, y in zip(latents, labels, strict=True)]
    counts = torch.stack([w.sum(0) for w in which])[:, :, None]  # D × C × 1
    sums = torch.stack([w.T @ z for w, z in zip(which, latents, strict=True)])
    apart = sums / counts.clamp_min(1) - sums.sum(0) / counts.sum(0).clamp_min(1)
    return (counts * apart.square()).sum() / counts.sum() / 2


STATUS = "partial: the generator as the abstract and released code show it; prior, domain term and weights are ours"
CITATION = "Wang et al., Generative Risk Minimization for Out-of-Distribution Generalization on Graphs, TMLR 2025"
SUMMARY = "generates a weighted subgraph for each node from latent variables, and classifies that"
