"""FLOOD: Liu, Ao, Feng, Ma, Li, Chua and He, "FLOOD: A Flexible Invariant Learning Framework for Out-of-Distribution
Generalization on Graphs", KDD 2023.

    min_θ  mean_e R_e + `variance` · Var_e(R_e) + `bootstrap` · L,   e over the augmented environments of all sources
    L = mean_v 2 - 2 cos(q(f_θ(view)_v), f_ξ(other view)_v),         ξ ← momentum · ξ + (1 - momentum) · θ

Invariant learning by risk extrapolation over environments made by graph augmentation, and bootstrapped representation
learning (BYOL/BGRL: an online encoder with a predictor q follows a slow target encoder) that shares the encoder. At
test time the paper refines the encoder on the target graph by L alone, without labels; the classifier stays.

The two parts, their sum, the shared encoder and the refinement are from the paper's abstract and public summaries of
it; there is no public code. All else is ours:
- Environments: `views` per source, the first the source itself, the others with edges dropped and feature columns
  masked at rates that rise evenly to `drop_edges` and `mask_features`: equal rates would give all but equal risks.
- L between each view and the next one of the same source, around the ring, over the training nodes; for two views
  this is BGRL's symmetric loss. The encoder is the backbone up to its representation, q a two-layer network.
- Momentum 0.99 as BGRL has it; both weights 1.
- Refinement is off by default (`refine` = 0 steps): a target here is unseen until it is predicted on, and no other
  system of the tables adapts to it. With `refine` > 0 a copy of the networks takes so many Adam steps on L for each
  graph that is predicted on; the trained networks do not change.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.config import HyperParameter
from edgemask.errors import InputError
from edgemask.methods.base import Method
from edgemask.methods.execution import Record, seeded
from edgemask.methods.sources import Pairs
from edgemask.methods.views import backbone, drop_edges, mask_columns, representation_width
from edgemask.nn.tensors import Edges, GraphTensors, SparseMatrix
from edgemask.runtime.precision import precision
from edgemask.seeds import derive

View = tuple[Tensor | SparseMatrix, Tensor | None]  # features, and a mask of the edges


class FLOOD(Method):
    hyper: ClassVar = {
        "views": HyperParameter(3, 2, 100, law="int", search=(2, 5), about="environments per source"),
        "drop_edges": HyperParameter(
            0.5, 0, 0.999, search=(0.1, 0.8), about="share of edges dropped in the last environment"
        ),
        "mask_features": HyperParameter(
            0.3, 0, 0.999, search=(0.0, 0.6), about="share of feature columns masked in the last environment"
        ),
        "variance": HyperParameter(1.0, 0, law="log", search=(0.1, 100.0), about="of the variance of risks"),
        "bootstrap": HyperParameter(1.0, 0, law="log", search=(0.01, 10.0), about="of the bootstrapped loss"),
        "momentum": HyperParameter(0.99, 0, 1, search=(0.9, 0.999), about="of the target encoder"),
        "refine": HyperParameter(
            0, 0, 10**4, law="int", search=(0, 0), about="steps on an unseen graph before predicting"
        ),
        "refine_lr": HyperParameter(1e-3, 0, law="log", search=(1e-4, 1e-2), about="learning rate of these steps"),
    }

    def build(self) -> dict[str, nn.Module]:
        networks = super().build()
        width = representation_width(networks["task"], self.num_features)
        return networks | {"bootstrap": Bootstrap(networks["task"], width)}

    def make_optimisers(self) -> dict[str, torch.optim.Optimizer]:
        both = nn.ModuleList([self.networks["task"], self.bootstrap.predictor])  # one loss moves them
        return {"task": self.adam(both, self.recipe.lr, self.recipe.weight_decay)}

    @property
    def bootstrap(self) -> Bootstrap:
        return cast(Bootstrap, self.networks["bootstrap"])

    def joint_step(self, pairs: Pairs) -> Record:
        record: Record = {}
        risks, losses = [], []
        task = self.networks["task"]
        for source, edges in pairs:
            name, views = source.domain.name, self.views(source.domain, edges)
            seen = (dataclasses.replace(source, domain=dataclasses.replace(source.domain, x=x)) for x, _ in views)
            mine = torch.stack([self.risk(one, edges, s) for one, (_, s) in zip(seen, views, strict=True)])
            loss = bootstrapped(task, self.wrapped["bootstrap"], self.bootstrap.target, views, edges, source.train)
            record |= {f"loss {name}": mine.mean().detach(), f"bootstrap {name}": loss.detach()}
            risks.append(mine)
            losses.append(loss)
        variance, mean = torch.var_mean(torch.cat(risks))
        self.step(
            "task",
            mean
            + float(self.hparams["variance"]) * variance
            + float(self.hparams["bootstrap"]) * torch.stack(losses).mean(),
        )
        turn, turns = self.shard_progress
        if turn + 1 == turns:  # the step was taken
            self.bootstrap.follow(task, float(self.hparams["momentum"]))
        return record | {"variance": variance.detach()}

    def views(self, domain: GraphTensors, edges: Edges, s: Tensor | None = None) -> list[View]:
        """The environments of a graph, from itself to the most augmented one."""
        last = int(self.hparams["views"]) - 1
        views: list[View] = [(domain.x, s)]
        for e in range(1, last + 1):
            kept = drop_edges(edges, e / last * float(self.hparams["drop_edges"]))
            x = mask_columns(domain.x, e / last * float(self.hparams["mask_features"]))
            views.append((x, kept if s is None else kept * s))
        return views

    def logits(self, domain: GraphTensors, edges: Edges, s: Tensor | None = None) -> Tensor:
        if not self.hparams["refine"]:
            return super().logits(domain, edges, s)
        task, bootstrap = copy.deepcopy(self.networks["task"]), copy.deepcopy(self.bootstrap)
        optimiser = self.adam(nn.ModuleList([task, bootstrap.predictor]), float(self.hparams["refine_lr"]))
        nodes = torch.arange(domain.num_nodes, device=edges.src.device)
        once = seeded(derive(self.seed, "refine", domain.name), self.device)
        with once, precision(self.recipe.precision, self.device):
            for _ in range(int(self.hparams["refine"])):
                with torch.enable_grad():
                    views = self.views(domain, edges, s)
                    loss = bootstrapped(task.train(), bootstrap, bootstrap.target, views, edges, nodes)
                    optimiser.zero_grad(set_to_none=True)
                    loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                bootstrap.follow(task, float(self.hparams["momentum"]))
            with torch.no_grad():
                out: Tensor = task.eval()(domain.x, edges, s)
        return out.float() if out.dtype == torch.bfloat16 else out

    def logits_in_blocks(self, domain: GraphTensors, edges: Edges, s: Tensor | None = None) -> Tensor:
        if self.hparams["refine"]:
            raise InputError(
                f"refinement needs the whole graph: with refine = {self.hparams['refine']} set inference_batch=None"
            )
        return super().logits_in_blocks(domain, edges, s)


class Bootstrap(nn.Module):
    """The predictor q of the online encoder, and the target encoder that follows it."""

    def __init__(self, encoder: nn.Module, width: int):
        super().__init__()
        self.predictor = nn.Sequential(nn.Linear(width, width), nn.PReLU(), nn.Linear(width, width))
        self.target = copy.deepcopy(encoder).requires_grad_(False)

    def forward(self, h: Tensor) -> Tensor:
        q: Tensor = self.predictor(h)
        return q

    def follow(self, encoder: nn.Module, momentum: float) -> None:
        """ξ ← momentum · ξ + (1 - momentum) · θ."""
        with torch.no_grad():
            for mine, theirs in zip(self.target.parameters(), encoder.parameters(), strict=True):
                mine.lerp_(theirs, 1 - momentum)


def bootstrapped(
    online: nn.Module, predictor: nn.Module, target: nn.Module, views: Sequence[View], edges: Edges, nodes: Tensor
) -> Tensor:
    """Mean loss of predicting, from each view's online representation, the target's of the next view."""
    with torch.no_grad():
        slow = [backbone(target.eval()).embed(x, edges, s).index_select(0, nodes) for x, s in views]
    fast = [backbone(online).embed(x, edges, s).index_select(0, nodes) for x, s in views]
    pairs = zip(fast, slow[1:] + slow[:1], strict=True)
    return torch.stack([disagreement(predictor(h), aim) for h, aim in pairs]).mean()


def disagreement(q: Tensor, aim: Tensor) -> Tensor:
    """2 - 2 cos(q_v, aim_v), the mean over nodes: 0 when they point the same way."""
    return (2 - 2 * F.cosine_similarity(q, aim, dim=1)).mean()


STATUS = (
    "partial: no public code, the paper's outline only; augmentations, weights and predictor ours; no test-time steps"
)
CITATION = "Liu et al., FLOOD: A Flexible Invariant Learning Framework for OOD Generalization on Graphs, KDD 2023"
SUMMARY = "risk extrapolation over augmented environments, with bootstrapped representations of a shared encoder"
