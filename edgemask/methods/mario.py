"""MARIO: Zhu, Shi, Zhang and Tang, "MARIO: Model Agnostic Recipe for Improving OOD Generalization of Graph Contrastive
Learning", WWW 2024.

    min_θ  max_δ  I(u, v) - `cmi` · C(u, v | clusters)   [+ ℓ(f_θ(G), Y), ours]
    I = mean_i -log  e^{u_i·v_i/τ} / (Σ_j e^{u_i·v_j/τ} + Σ_{j≠i} e^{u_i·u_j/τ}), and the same with u, v exchanged
    C = mean_i [c_i = c'_i] · -log  e^{u_i·v_i} / Σ_{j: c'_j = c_i or j = i} e^{u_i·v_j}

u and v are the unit-length projected representations of two augmented views of the nodes. The invariance principle:
one view is perturbed adversarially by δ. The information bottleneck principle: C, the contrast among nodes of the same
cluster, bounds the conditional mutual information of the views, which is to be small. Clusters c, c' are the views'
nearest prototypes after balancing (Sinkhorn); prototypes and projector learn, before each step of the encoder, to
predict one view's balanced assignment from the other view, and only so.

From the paper and its code: both principles, the terms, how prototypes learn, and the defaults: those for GOOD-Cora
(words, concept shift), the milder of its two views' rates for both, and 100 prototypes at its general learning rate.
Ours:
- Supervised use. The paper learns representations without labels, then a linear classifier on them. Here the sources'
  cross-entropy is added and reaches the encoder scaled by `labels` (1: fully; 0: the paper's linear classifier, learnt
  along with the representation instead of after it).
- Pairs are those of a seeded sample of `sample` training nodes per source and step, not all N².
- δ is added to the first linear map's output, as features may be sparse, and found by `ascent` signed steps with the
  networks as they are; the code adds up the encoder's gradients of these steps as well.
- One step of the prototypes per step of the encoder, with an Adam that lasts (the code: 10, with a new one each time).
- C compares the cluster of u_i with that of v_j, the pair whose similarity it sums; the code, that of v_i with u_j's.
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

BALANCING = 0.1  # entropy of the balanced assignment, and the rounds that find it
ROUNDS = 3
View = tuple[Tensor | SparseMatrix, Tensor]  # features, and a mask of the edges


class MARIO(Method):
    hyper: ClassVar = {
        "contrast": HyperParameter(
            1.0, 0, law="log", search=(0.01, 10.0), about="of the contrastive terms beside the labels'"
        ),
        "labels": HyperParameter(
            1.0, 0, 1, search=(0.0, 1.0), about="how much of the labels' gradient reaches the encoder"
        ),
        "cmi": HyperParameter(0.2, 0, search=(0.0, 1.0), about="of the conditional mutual information"),
        "tau": HyperParameter(0.2, 0.01, 10, law="log", search=(0.1, 1.0), about="temperature τ"),
        "prototypes": HyperParameter(100, 2, 10**4, law="int", search=(20, 150), about="clusters"),
        "prototype_lr": HyperParameter(
            1e-3, 0, law="log", search=(1e-5, 1e-2), about="learning rate of prototypes and projector"
        ),
        "drop_edges": HyperParameter(0.4, 0, 0.999, search=(0.0, 0.7), about="share of edges dropped in both views"),
        "mask_features": HyperParameter(
            0.3, 0, 0.999, search=(0.0, 0.6), about="share of feature columns masked in both views"
        ),
        "ascent": HyperParameter(2, 0, 100, law="int", search=(0, 3), about="steps of the adversarial perturbation"),
        "perturbation": HyperParameter(1e-3, 0, law="log", search=(1e-4, 1e-1), about="size of such a step"),
        "sample": HyperParameter(
            1000, 2, 10**5, law="int", search=(500, 2000), about="nodes contrasted per source and step"
        ),
    }

    def build(self) -> dict[str, nn.Module]:
        networks = super().build()
        width = representation_width(networks["task"], self.num_features)
        return networks | {"prototypes": Prototypes(width, int(self.hparams["prototypes"]))}

    def make_optimisers(self) -> dict[str, torch.optim.Optimizer]:
        prototypes = self.adam(self.networks["prototypes"], float(self.hparams["prototype_lr"]))
        return super().make_optimisers() | {"prototypes": prototypes}

    def joint_step(self, pairs: Pairs) -> Record:
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
        """A source with edges dropped and feature columns masked."""
        x = mask_columns(source.domain.x, float(self.hparams["mask_features"]))
        return x, drop_edges(edges, float(self.hparams["drop_edges"]))

    def nodes(self, source: Source) -> Tensor:
        """The nodes to contrast: a sample of the training nodes."""
        many = len(source.train)
        chosen = torch.rand(many, device=source.train.device).topk(min(many, int(self.hparams["sample"]))).indices
        return source.train[chosen]

    def supervised(self, source: Source, edges: Edges) -> Tensor:
        """Cross-entropy, whose gradient reaches the encoder scaled by `labels`."""
        share = float(self.hparams["labels"])
        if share == 1:
            return self.risk(source, edges)
        task = backbone(self.networks["task"])
        h = task.embed(source.domain.x, edges)
        logits = task.read(torch.lerp(h.detach(), h, share), edges)
        return F.cross_entropy(logits.index_select(0, source.train), source.domain.labels()[source.train])

    def contrast(self, scene: Scene) -> Tensor:
        """I - `cmi` · C between a view under the worst perturbation found and the other one."""
        other = self.project(*scene.second, scene)
        fixed = other[0].detach(), other[1].detach()
        x, s = Perturbed(scene.first[0], float(self.hparams["perturbation"])), scene.first[1]
        for _ in range(int(self.hparams["ascent"])):
            x.ascend(self.bottleneck(self.project(x, s, scene), fixed))
        return self.bottleneck(self.project(x, s, scene), other)

    def project(self, x: Tensor | SparseMatrix, s: Tensor, scene: Scene) -> tuple[Tensor, Tensor]:
        """The sampled nodes' projections in a view, and their scores against the prototypes."""
        h = backbone(self.networks["task"]).embed(x, scene.edges, s).index_select(0, scene.nodes)
        return cast(tuple[Tensor, Tensor], self.networks["prototypes"](h))

    def bottleneck(self, one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> Tensor:
        (u, a), (v, b) = one, other
        c, d = (balanced(scores.detach()).argmax(1) for scores in (a, b))
        return info_nce(u, v, float(self.hparams["tau"])) - float(self.hparams["cmi"]) * conditional(u, v, c, d)


@dataclass(frozen=True)
class Scene:
    """A source in one step: two augmented views, and the nodes that are contrasted."""

    source: Source
    edges: Edges
    first: View
    second: View
    nodes: Tensor


class Prototypes(nn.Module):
    """A projector to the unit sphere, and the prototypes on it."""

    def __init__(self, width: int, count: int):
        super().__init__()
        norm = nn.BatchNorm1d(width, track_running_stats=False)
        self.projector = nn.Sequential(nn.Linear(width, width), norm, nn.ReLU(), nn.Linear(width, width))
        self.centres = nn.Parameter(nn.init.xavier_uniform_(torch.empty(count, width)))

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        u = F.normalize(self.projector(h), dim=1)
        return u, u @ F.normalize(self.centres, dim=1).T


def info_nce(u: Tensor, v: Tensor, tau: float) -> Tensor:
    """I of the module's head: every node against all others of both views, in both directions."""
    across, inside, inside_v = u @ v.T / tau, u @ u.T / tau, v @ v.T / tau
    itself = torch.eye(len(u), dtype=torch.bool, device=u.device)
    losses = [
        torch.cat([between, within.masked_fill(itself, -torch.inf)], 1).logsumexp(1) - across.diagonal()
        for between, within in ((across, inside), (across.T, inside_v))
    ]
    return torch.stack(losses).mean()


def conditional(u: Tensor, v: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """C of the module's head: the contrast among nodes of one cluster, where both views agree on a node's."""
    among = (c.unsqueeze(1) == d) | torch.eye(len(u), dtype=torch.bool, device=u.device)
    similarity = u @ v.T
    losses = similarity.masked_fill(~among, -torch.inf).logsumexp(1) - similarity.diagonal()
    return torch.where(c == d, losses, 0).mean()


def clustering(a: Tensor, b: Tensor, tau: float) -> Tensor:
    """Each view's balanced assignment predicted from the scores of the other."""
    guesses = ((balanced(a.detach()), b), (balanced(b.detach()), a))
    return torch.stack([-(q * F.log_softmax(scores / tau, 1)).sum(1).mean() for q, scores in guesses]).mean()


def balanced(scores: Tensor) -> Tensor:
    """Sinkhorn: assignments whose rows sum to 1 and whose columns, all but, to the same."""
    q = (scores / BALANCING).exp()
    for _ in range(ROUNDS):
        q = q / q.sum(0, keepdim=True)
        q = q / q.sum(1, keepdim=True)
    return q


STATUS = (
    "partial: the paper learns without labels, here the sources' cross-entropy is added; sampled nodes, not all pairs"
)
CITATION = (
    "Zhu et al., MARIO: Model Agnostic Recipe for Improving OOD Generalization of Graph Contrastive Learning, WWW 2024"
)
SUMMARY = "contrast of adversarially augmented views, less what they share within clusters, beside the labels' loss"
