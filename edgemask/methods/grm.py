"""GRM: generative risk minimisation, which generates a subgraph for every node and classifies the subgraph.

S. Wang, Z. Tan, Y. Zhu, C. Zhang and J. Li, "Generative Risk Minimization for Out-of-Distribution Generalization on
Graphs", TMLR 2025.

    min_θ E_{q(Z|G)}[-log p(Y | G_c(Z))] + β KL(q(Z|G) ‖ p(Z|Y)) + γ Σ_{d,c} p(d,c) ‖m_dc - m_c‖² / 2

G is a node's neighbourhood, Z its latent causal variable, and G_c(Z) the generated subgraph. The first two terms are a
variational bound: KL(q(Z|G) ‖ p(Z|Y)) ≥ I(Z; G | Y), the information in Z about G beyond the label, whether it is
spurious or specific to the domain. The third term measures how far the domains d differ in Z: it is the distance of a
class's mean latent m_dc in a domain from the mean m_c over all domains. It equals an information I(Z; D | Y) if the
latents of a class are Gaussian, and is 0 with one source.

The equations of the paper were not available. From its abstract and from summaries: a variational graph autoencoder
generates a subgraph with continuous edge weights and node representations, instead of cutting one out; a latent causal
variable makes the objective tractable; the terms of the objective improve the prediction from G_c and reduce its
dependence on domain and spurious information.

From the authors' released code, which has no licence and in which only the first term of the objective is active: a
network over the whole graph comes first; a node's neighbourhood is the node and at most 20 neighbours; the latent of a
member is computed from its own representation and the mean of its neighbours' representations; edges come from
σ(⟨z_u, z_v⟩) for every pair of members, whether they are connected in G or not; two graph convolutions on G_c and a
mean over its members classify it; nodes are drawn in every step.

Choices made here:

- p(Z|Y) = N(m_Y, s_Y²), and it is learnt.
- The form of the third term, and the weights β and γ.
- Edge weights are used directly; the code draws edges without a gradient.
- q is a small network per node; the code uses a convolution on G.
- The prediction is not random: it uses the mean of q and, if a node has more than 20 neighbours, evenly spread ones.
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
from edgemask.nn.tensors import Edges, SparseMatrix, rows

BLOCK = 8192  # neighbourhoods classified at a time at inference


class Generator(nn.Module):
    """A network that computes a node's latent, a subgraph from its neighbours' latents, and logits from the subgraph.

    Args:
        encoder: Backbone whose representation the latents are computed from.
        inputs: Feature columns.
        latent: Dimensions of the latent variable.
        classes: Number of classes.
        members: Most neighbours in a node's neighbourhood.
    """

    def __init__(self, encoder: Backbone, inputs: int, latent: int, classes: int, members: int):
        super().__init__()
        self.encoder, self.members = encoder, members
        width = representation_width(encoder, inputs)
        self.posterior = nn.Sequential(nn.Linear(2 * width, latent), nn.ReLU(), nn.Linear(latent, 2 * latent))
        self.first, self.second = nn.Linear(latent, latent), nn.Linear(latent, classes)
        self.prior_mean = nn.Parameter(torch.randn(classes, latent) / latent**0.5)
        self.prior_log_std = nn.Parameter(torch.zeros(classes, latent))

    def forward(
        self, x: Tensor | SparseMatrix, edges: Edges, mask: Tensor | None = None, nodes: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        """Return the logits of all nodes, or train on some.

        Args:
            x: Features.
            edges: Edges.
            mask: Mask of the real edges; None is a mask of ones.
            nodes: Nodes to train on. None returns the logits of all nodes, from the means of the latents.

        Returns:
            The logits. If `nodes` is given, the logits of these nodes from sampled latents, and the mean and log
            deviation of their latents.
        """
        mean, log_std = self.latents(x, edges, mask)
        if nodes is None:
            all_nodes = torch.arange(edges.num_nodes, device=mean.device)
            blocks = (self.egos(all_nodes[i : i + BLOCK], edges, mask) for i in range(0, len(all_nodes), BLOCK))
            return torch.cat([self.classify(rows(mean, members), presence) for members, presence in blocks])
        members, presence = self.egos(nodes, edges, mask, torch.rand(len(nodes), device=mean.device))
        m = rows(mean, members)
        z = m + rows(log_std, members).exp() * torch.randn_like(m)
        return self.classify(z, presence), mean[nodes], log_std[nodes]

    def latents(self, x: Tensor | SparseMatrix, edges: Edges, s: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the mean and log deviation of q(z|G) for every node.

        Args:
            x: Features.
            edges: Edges.
            s: Mask of the real edges. None means ones.
        """
        h = self.encoder.embed(x, edges, s)
        weight = edges.spread(s).to(h.dtype)
        total = aggregate(edges, weight, h.new_ones(edges.num_nodes, 1))  # positive, because of the self-loop
        neighbour_mean = aggregate(edges, weight, h) / total
        mean, log_std = self.posterior(torch.cat([h, neighbour_mean], 1)).chunk(2, 1)
        return mean, log_std.clamp(-10, 10)

    def egos(self, nodes: Tensor, edges: Edges, s: Tensor | None, at: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the members of the nodes' neighbourhoods, and the presence of each member.

        The node itself comes first. Places that are not filled have a presence of 0; with a mask or weights, a member's
        presence is the mask of its edge times its weight. If a node has more neighbours than places, evenly spread ones
        are taken.

        Args:
            nodes: The nodes.
            edges: Edges of the graph.
            s: Mask of the real edges; None is a mask of ones.
            at: For each node, where in [0, 1) of its list of neighbours to start; None starts at the beginning.
        """
        places = torch.arange(self.members, device=nodes.device)
        begin = edges.indptr[nodes][:, None]
        count = edges.indptr[nodes + 1][:, None] - begin  # including the self-loop
        start = 0 if at is None else (at[:, None] * count).long()
        spread = (start + places * count // self.members) % count
        position = begin + torch.where(count > self.members, spread, torch.minimum(places, count - 1))
        neighbours = edges.src[position]
        presence = ((places < count) & (neighbours != nodes[:, None])).to(self.prior_mean.dtype)
        if s is not None or edges.weight is not None:
            presence = presence * edges.spread(s)[position]
        return torch.cat([nodes[:, None], neighbours], 1), F.pad(presence, (1, 0), value=1.0)

    def subgraph(self, z: Tensor, presence: Tensor) -> Tensor:
        """Return the n × m × m edge weights of the generated subgraphs: σ(⟨z_u, z_v⟩) for all pairs of members."""
        return torch.sigmoid(z @ z.mT) * presence[:, :, None] * presence[:, None, :]

    def classify(self, z: Tensor, presence: Tensor) -> Tensor:
        """Return logits: two graph convolutions on each subgraph, then the mean over its members."""
        a = self.subgraph(z, presence)
        root = (a.sum(2) + (presence == 0)).rsqrt()
        a = root[:, :, None] * a * root[:, None, :]
        h = self.second(a @ F.relu(self.first(a @ z)))
        out: Tensor = (h * presence[:, :, None]).sum(1) / presence.sum(1, keepdim=True)
        return out


class GRM(Method):
    """Minimisation of a variational bound of the risk on generated subgraphs."""

    hyper: ClassVar[Mapping[str, HyperParameter]] = {
        "beta": HyperParameter(
            0.01, 0, law="log", search=(1e-4, 1), about="β, weight of the KL divergence from the class's prior"
        ),
        "gamma": HyperParameter(
            0.1, 0, law="log", search=(1e-3, 10), about="γ, weight of the distance between domains in the latent space"
        ),
        "latent": HyperParameter(64, 1, law="int", search=(32, 128), about="dimensions of the latent variable"),
        "members": HyperParameter(
            20, 1, law="int", search=(5, 30), about="largest number of neighbours in a neighbourhood"
        ),
        "nodes": HyperParameter(1000, 1, law="int", search=(500, 2000), about="nodes drawn from each source per step"),
    }

    def build(self) -> dict[str, nn.Module]:
        """Return the generator with its classifier.

        Raises:
            InputError: The recipe has a `batch_size` or an `inference_batch`.
        """
        for name in ("batch_size", "inference_batch"):
            if getattr(self.recipe, name) is not None:
                raise InputError(f"{name} must be None: GRM needs whole graphs, got {getattr(self.recipe, name)}")
        latent, members = int(self.hparams["latent"]), int(self.hparams["members"])
        encoder = backbone(tasknet(self.recipe, self.num_features, self.num_classes))
        return {"task": Generator(encoder, self.num_features, latent, self.num_classes, members)}

    def joint_step(self, pairs: Pairs) -> Record:
        """Take one step on the bound plus the weighted domain term."""
        task = cast(Generator, self.networks["task"].train())
        losses, divergences, latents, labels = {}, {}, [], []
        for source, edges in pairs:
            drawn = source.train[
                torch.rand(len(source.train), device=self.device).argsort()[: int(self.hparams["nodes"])]
            ]
            y, name = source.domain.labels()[drawn], source.domain.name
            logits, mean, log_std = self.wrapped["task"](source.domain.x, edges, nodes=drawn)
            losses[f"loss {name}"] = F.cross_entropy(logits, y)
            divergences[f"divergence {name}"] = divergence(
                mean, log_std, rows(task.prior_mean, y), rows(task.prior_log_std, y)
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
    """Return KL(N(mean, e^{2 log_std}) ‖ N(prior_mean, e^{2 prior_log_std})) of each row.

    Args:
        mean: Means, one row per node.
        log_std: Logarithms of the deviations.
        prior_mean: Means of the prior.
        prior_log_std: Logarithms of the prior's deviations.

    Returns:
        One value per row.
    """
    ratio = 2 * (log_std - prior_log_std)
    distance = (mean - prior_mean).square() * torch.exp(-2 * prior_log_std)
    return (ratio.exp() + distance - 1 - ratio).sum(1) / 2


def domain_information(latents: Sequence[Tensor], labels: Sequence[Tensor], classes: int) -> Tensor:
    """Return Σ_{d,c} p(d,c) ‖m_dc - m_c‖² / 2.

    m_dc is the mean latent of class c in domain d, and m_c the mean over all domains.

    Args:
        latents: Latents of every domain, one row per node.
        labels: Classes of these nodes.
        classes: Number of classes.
    """
    all_classes = torch.arange(classes, device=latents[0].device)
    one_hot = [(y[:, None] == all_classes).to(z.dtype) for z, y in zip(latents, labels, strict=True)]
    counts = torch.stack([h.sum(0) for h in one_hot])[:, :, None]  # D × C × 1
    sums = torch.stack([h.T @ z for h, z in zip(one_hot, latents, strict=True)])
    difference = sums / counts.clamp_min(1) - sums.sum(0) / counts.sum(0).clamp_min(1)
    return (counts * difference.square()).sum() / counts.sum() / 2


STATUS = "partial: generator as in the abstract and the released code; prior, domain term and weights are our own"
CITATION = "Wang et al., Generative Risk Minimization for Out-of-Distribution Generalization on Graphs, TMLR 2025"
SUMMARY = "generates a weighted subgraph for each node from latent variables and classifies it"
