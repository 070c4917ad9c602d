"""MARIO: contrastive learning with adversarial augmentation and an information bottleneck.

Zhu, Shi, Zhang and Tang, "MARIO: Model Agnostic Recipe for Improving OOD Generalization of Graph Contrastive Learning",
WWW 2024.

    min_θ  max_δ  I(u, v) - `cmi` · C(u, v | clusters)   [+ ℓ(f_θ(G), Y), added here]
    I = mean_i -log  e^{u_i·v_i/τ} / (Σ_j e^{u_i·v_j/τ} + Σ_{j≠i} e^{u_i·u_j/τ}), and the same with u, v exchanged
    C = mean_i [c_i = c'_i] · -log  e^{u_i·v_i} / Σ_{j: c'_j = c_i or j = i} e^{u_i·v_j}

u and v are the unit-length projected representations of two augmented views of the nodes. Invariance principle: one
view is perturbed adversarially by δ. Information bottleneck principle: C, the contrast among nodes of the same cluster,
bounds the conditional mutual information of the views, which should be small. The clusters c, c' are the views' nearest
prototypes after balancing (Sinkhorn). Before each step of the encoder, the prototypes and the projector learn to
predict the balanced assignment of one view from the other view; they are not trained in any other way.

From the paper and its code: both principles, the terms, how the prototypes learn, and the defaults. These are the
values for GOOD-Cora (words, concept shift), with the milder rates of its two views used for both, and 100 prototypes at
its general learning rate.

Choices made here:

- Supervision. The paper learns representations without labels, and then a linear classifier on them. Here the
  cross-entropy of the sources is added; its gradient reaches the encoder scaled by `labels` (1: fully; 0: the linear
  classifier of the paper, learnt together with the representation instead of after it).
- Pairs are formed among a seeded sample of `sample` training nodes per source and step, not among all N² pairs.
- δ is added to the output of the first linear map, because features may be sparse. It is found by `ascent` signed steps
  with the networks unchanged; the code also accumulates the encoder's gradients of these steps.
- There is one step of the prototypes per step of the encoder, with one Adam for the whole training (the code: 10 steps,
  with a new Adam each time).
- C compares the cluster of u_i with that of v_j, the pair whose similarity it sums; the code compares that of v_i with
  that of u_j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.config import HyperParameter
from edgemask.methods.base import Method
from edgemask.methods.execution import Record
from edgemask.methods.sources import Pairs, Source
from edgemask.methods.views import Perturbed, backbone, drop_edges, mask_columns, representation_width
from edgemask.nn.tensors import Edges, SparseMatrix

BALANCING = 0.1  # entropy regularisation of the balanced assignment
ROUNDS = 3  # Sinkhorn iterations
View = tuple[Tensor | SparseMatrix, Tensor]  # features and an edge mask


class MARIO(Method):
    """Cross-entropy plus the contrast of two augmented views, one of them perturbed adversarially."""

    hyper: ClassVar = {
        "contrast": HyperParameter(
            1.0,
            0,
            law="log",
            search=(0.01, 10.0),
            about="weight of the contrastive terms, relative to the labels' loss",
        ),
        "labels": HyperParameter(
            1.0, 0, 1, search=(0.0, 1.0), about="share of the labels' gradient that reaches the encoder"
        ),
        "cmi": HyperParameter(0.2, 0, search=(0.0, 1.0), about="weight of the conditional mutual information"),
        "tau": HyperParameter(0.2, 0.01, 10, law="log", search=(0.1, 1.0), about="τ, temperature"),
        "prototypes": HyperParameter(100, 2, 10**4, law="int", search=(20, 150), about="number of clusters"),
        "prototype_lr": HyperParameter(
            1e-3, 0, law="log", search=(1e-5, 1e-2), about="learning rate of prototypes and projector"
        ),
        "drop_edges": HyperParameter(0.4, 0, 0.999, search=(0.0, 0.7), about="share of edges dropped in both views"),
        "mask_features": HyperParameter(
            0.3, 0, 0.999, search=(0.0, 0.6), about="share of feature columns masked in both views"
        ),
        "ascent": HyperParameter(
            2, 0, 100, law="int", search=(0, 3), about="ascent steps of the adversarial perturbation"
        ),
        "perturbation": HyperParameter(1e-3, 0, law="log", search=(1e-4, 1e-1), about="size of an ascent step"),
        "sample": HyperParameter(
            1000, 2, 10**5, law="int", search=(500, 2000), about="nodes contrasted per source and step"
        ),
    }

    def build(self) -> dict[str, nn.Module]:
        """Return the classifier, and the projector with the prototypes."""
        networks = super().build()
        width = representation_width(networks["task"], self.num_features)
        return networks | {"prototypes": Prototypes(width, int(self.hparams["prototypes"]))}

    def make_optimisers(self) -> dict[str, torch.optim.Optimizer]:
        """Return one optimiser for the classifier and one for projector and prototypes."""
        prototypes = self.adam(self.networks["prototypes"], float(self.hparams["prototype_lr"]))
        return super().make_optimisers() | {"prototypes": prototypes}

    def joint_step(self, pairs: Pairs) -> Record:
        """Take one step of projector and prototypes, then one step of the classifier."""
        record: Record = {}
        task = backbone(self.networks["task"].train())
        scenes = [Scene(*pair, self.view(*pair), self.view(*pair), self.nodes(pair[0])) for pair in pairs]

        # --- prototypes and projector, on fixed representations ---
        losses = []
        for scene in scenes:
            with torch.no_grad():
                h = [task.embed(x, scene.edges, s).index_select(0, scene.nodes) for x, s in (scene.first, scene.second)]
            (_, a), (_, b) = (self.wrapped["prototypes"](one) for one in h)
            losses.append(clustering(a, b, float(self.hparams["tau"])))
        self.step("prototypes", torch.stack(losses).mean())

        # --- encoder and classifier ---
        prototypes = self.networks["prototypes"].requires_grad_(False)
        objectives = []
        for scene in scenes:
            name = scene.source.domain.name
            risk, loss = self.supervised(scene.source, scene.edges), self.contrast(scene)
            objectives.append(risk + float(self.hparams["contrast"]) * loss)
            record |= {f"loss {name}": risk.detach(), f"contrast {name}": loss.detach()}
        self.step("task", torch.stack(objectives).mean())
        prototypes.requires_grad_(True)
        return record

    def view(self, source: Source, edges: Edges) -> View:
        """Return a source with dropped edges and masked feature columns."""
        x = mask_columns(source.domain.x, float(self.hparams["mask_features"]))
        return x, drop_edges(edges, float(self.hparams["drop_edges"]))

    def nodes(self, source: Source) -> Tensor:
        """Return the nodes to contrast: a sample of the training nodes."""
        total = len(source.train)
        chosen = torch.rand(total, device=source.train.device).topk(min(total, int(self.hparams["sample"]))).indices
        return source.train[chosen]

    def supervised(self, source: Source, edges: Edges) -> Tensor:
        """Return the cross-entropy. Its gradient reaches the encoder scaled by `labels`."""
        share = float(self.hparams["labels"])
        if share == 1:
            return self.risk(source, edges)
        task = backbone(self.networks["task"])
        h = task.embed(source.domain.x, edges)
        logits = task.read(torch.lerp(h.detach(), h, share), edges)
        return F.cross_entropy(logits.index_select(0, source.train), source.domain.labels()[source.train])

    def contrast(self, scene: Scene) -> Tensor:
        """Return I - `cmi` · C between one view under the worst perturbation found and the other view."""
        other = self.project(*scene.second, scene)
        fixed = other[0].detach(), other[1].detach()
        x, s = Perturbed(scene.first[0], float(self.hparams["perturbation"])), scene.first[1]
        for _ in range(int(self.hparams["ascent"])):
            x.ascend(self.bottleneck(self.project(x, s, scene), fixed))
        return self.bottleneck(self.project(x, s, scene), other)

    def project(self, x: Tensor | SparseMatrix, s: Tensor, scene: Scene) -> tuple[Tensor, Tensor]:
        """Return the sampled nodes' projections in a view, and their scores against the prototypes.

        Args:
            x: Features of the view.
            s: Mask of the view.
            scene: The source in this step, with its sampled nodes.
        """
        h = backbone(self.networks["task"]).embed(x, scene.edges, s).index_select(0, scene.nodes)
        return cast(tuple[Tensor, Tensor], self.networks["prototypes"](h))

    def bottleneck(self, one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> Tensor:
        """Return I - `cmi` · C of two views, each given by its projections and scores."""
        (u, a), (v, b) = one, other
        c, d = (balanced(scores.detach()).argmax(1) for scores in (a, b))
        return info_nce(u, v, float(self.hparams["tau"])) - float(self.hparams["cmi"]) * conditional(u, v, c, d)


@dataclass(frozen=True)
class Scene:
    """A source in one step.

    Args:
        source: The source.
        edges: Its edges in this step.
        first: The augmented view that is perturbed adversarially.
        second: The other augmented view.
        nodes: Indices of the nodes to contrast.
    """

    source: Source
    edges: Edges
    first: View
    second: View
    nodes: Tensor


class Prototypes(nn.Module):
    """A projector to the unit sphere, and prototypes on the sphere."""

    def __init__(self, width: int, count: int):
        super().__init__()
        norm = nn.BatchNorm1d(width, track_running_stats=False)
        self.projector = nn.Sequential(nn.Linear(width, width), norm, nn.ReLU(), nn.Linear(width, width))
        self.centres = nn.Parameter(nn.init.xavier_uniform_(torch.empty(count, width)))

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return the unit-length projections and their cosines with the prototypes."""
        u = F.normalize(self.projector(h), dim=1)
        return u, u @ F.normalize(self.centres, dim=1).T


def info_nce(u: Tensor, v: Tensor, tau: float) -> Tensor:
    """Return I of the module's docstring: every node against all others of both views, in both directions.

    Args:
        u: Unit-length projections of the nodes in one view (n × d).
        v: Projections of the same nodes in the other view.
        tau: Temperature.
    """
    across, inside, inside_v = u @ v.T / tau, u @ u.T / tau, v @ v.T / tau
    same_node = torch.eye(len(u), dtype=torch.bool, device=u.device)
    losses = [
        torch.cat([between, within.masked_fill(same_node, -torch.inf)], 1).logsumexp(1) - across.diagonal()
        for between, within in ((across, inside), (across.T, inside_v))
    ]
    return torch.stack(losses).mean()


def conditional(u: Tensor, v: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """Return C of the module's docstring: the contrast among nodes of one cluster, if both views agree on it.

    Args:
        u: Unit-length projections of the nodes in one view (n × d).
        v: Projections of the same nodes in the other view.
        c: Cluster of each node in the view of `u`.
        d: Cluster of each node in the view of `v`.
    """
    among = (c.unsqueeze(1) == d) | torch.eye(len(u), dtype=torch.bool, device=u.device)
    similarity = u @ v.T
    losses = similarity.masked_fill(~among, -torch.inf).logsumexp(1) - similarity.diagonal()
    return torch.where(c == d, losses, 0).mean()


def clustering(a: Tensor, b: Tensor, tau: float) -> Tensor:
    """Return the loss of predicting each view's balanced assignment from the scores of the other view.

    Args:
        a: Scores of the nodes against the prototypes in one view (n × prototypes).
        b: Scores in the other view.
        tau: Temperature.
    """
    guesses = ((balanced(a.detach()), b), (balanced(b.detach()), a))
    return torch.stack([-(q * F.log_softmax(scores / tau, 1)).sum(1).mean() for q, scores in guesses]).mean()


def balanced(scores: Tensor) -> Tensor:
    """Return the Sinkhorn assignment: rows sum to 1, and columns have approximately equal sums."""
    q = (scores / BALANCING).exp()
    for _ in range(ROUNDS):
        q = q / q.sum(0, keepdim=True)
        q = q / q.sum(1, keepdim=True)
    return q


STATUS = "partial: the paper learns without labels; here the sources' cross-entropy is added and nodes are sampled"
CITATION = (
    "Zhu et al., MARIO: Model Agnostic Recipe for Improving OOD Generalization of Graph Contrastive Learning, WWW 2024"
)
SUMMARY = "cross-entropy plus contrast of adversarially augmented views, with a bottleneck inside clusters"
