"""FLOOD: invariant learning over augmented environments, with bootstrapped representations.

Liu, Ao, Feng, Ma, Li, Chua and He, "FLOOD: A Flexible Invariant Learning Framework for Out-of-Distribution
Generalization on Graphs", KDD 2023.

    min_θ  mean_e R_e + `variance` · Var_e(R_e) + `bootstrap` · L,   e over the augmented environments of all sources
    L = mean_v 2 - 2 cos(q(f_θ(view)_v), f_ξ(other view)_v),         ξ ← momentum · ξ + (1 - momentum) · θ

The method combines invariant learning, by risk extrapolation over environments made by graph augmentation, with
bootstrapped representation learning (BYOL/BGRL: an online encoder with a predictor q follows a slow target encoder).
Both parts share the encoder. At test time the paper refines the encoder on the target graph with L alone, without
labels; the classifier does not change.

The two parts, their sum, the shared encoder and the refinement are from the paper's abstract and from public summaries
of it. There is no public code. Everything else was chosen here:

- Environments: there are `views` per source. The first is the source itself; the others have dropped edges and masked
  feature columns, at rates that rise evenly to `drop_edges` and `mask_features`. Equal rates would give almost equal
  risks.
- L is taken between each view and the next one of the same source, cyclically, over the training nodes. For two views
  this is the symmetric loss of BGRL. The encoder is the backbone up to its representation; q is a two-layer network.
- The momentum is 0.99, as in BGRL. Both weights are 1.
- Refinement is off by default (`refine` = 0 steps): here a target is unseen until its prediction, and no other method
  of the tables adapts to it. With `refine` > 0, a copy of the networks takes that many Adam steps on L for each graph
  to predict; the trained networks do not change.
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

View = tuple[Tensor | SparseMatrix, Tensor | None]  # features and an edge mask


class FLOOD(Method):
    """Risk extrapolation over augmented environments, with a bootstrapped loss on the shared encoder."""

    hyper: ClassVar = {
        "views": HyperParameter(3, 2, 100, law="int", search=(2, 5), about="environments per source"),
        "drop_edges": HyperParameter(
            0.5, 0, 0.999, search=(0.1, 0.8), about="share of edges dropped in the last environment"
        ),
        "mask_features": HyperParameter(
            0.3, 0, 0.999, search=(0.0, 0.6), about="share of feature columns masked in the last environment"
        ),
        "variance": HyperParameter(1.0, 0, law="log", search=(0.1, 100.0), about="weight of the variance of the risks"),
        "bootstrap": HyperParameter(1.0, 0, law="log", search=(0.01, 10.0), about="weight of the bootstrapped loss"),
        "momentum": HyperParameter(0.99, 0, 1, search=(0.9, 0.999), about="momentum of the target encoder"),
        "refine": HyperParameter(
            0, 0, 10**4, law="int", search=(0, 0), about="refinement steps on a graph before its prediction"
        ),
        "refine_lr": HyperParameter(1e-3, 0, law="log", search=(1e-4, 1e-2), about="learning rate of the refinement"),
    }

    def build(self) -> dict[str, nn.Module]:
        """Return the classifier, and the predictor with the target encoder."""
        networks = super().build()
        width = representation_width(networks["task"], self.num_features)
        return networks | {"bootstrap": Bootstrap(networks["task"], width)}

    def make_optimisers(self) -> dict[str, torch.optim.Optimizer]:
        """Return one optimiser for the classifier and the predictor."""
        both = nn.ModuleList([self.networks["task"], self.bootstrap.predictor])  # they share one loss
        return {"task": self.adam(both, self.recipe.lr, self.recipe.weight_decay)}

    @property
    def bootstrap(self) -> Bootstrap:
        """The predictor and the target encoder."""
        return cast(Bootstrap, self.networks["bootstrap"])

    def joint_step(self, pairs: Pairs) -> Record:
        """Take one step on the risks of all views, their variance and the bootstrapped loss."""
        record: Record = {}
        risks, losses = [], []
        task = self.networks["task"]
        for source, edges in pairs:
            name, views = source.domain.name, self.views(source.domain, edges)
            augmented = (dataclasses.replace(source, domain=dataclasses.replace(source.domain, x=x)) for x, _ in views)
            view_risks = torch.stack([self.risk(view, edges, s) for view, (_, s) in zip(augmented, views, strict=True)])
            loss = bootstrapped(task, self.wrapped["bootstrap"], self.bootstrap.target, views, edges, source.train)
            record |= {f"loss {name}": view_risks.mean().detach(), f"bootstrap {name}": loss.detach()}
            risks.append(view_risks)
            losses.append(loss)
        variance, mean = torch.var_mean(torch.cat(risks))
        self.step(
            "task",
            mean
            + float(self.hparams["variance"]) * variance
            + float(self.hparams["bootstrap"]) * torch.stack(losses).mean(),
        )
        shard, shards = self.shard_progress
        if shard + 1 == shards:  # the optimiser step was taken on this shard
            self.bootstrap.follow(task, float(self.hparams["momentum"]))
        return record | {"variance": variance.detach()}

    def views(self, domain: GraphTensors, edges: Edges, s: Tensor | None = None) -> list[View]:
        """Return the environments of a graph, from the graph itself to the most augmented one.

        Args:
            domain: Tensors of the graph.
            edges: Its edges.
            s: Mask of the real edges. None means ones.

        Returns:
            The features and the mask of each environment.
        """
        last = int(self.hparams["views"]) - 1
        views: list[View] = [(domain.x, s)]
        for e in range(1, last + 1):
            kept = drop_edges(edges, e / last * float(self.hparams["drop_edges"]))
            x = mask_columns(domain.x, e / last * float(self.hparams["mask_features"]))
            views.append((x, kept if s is None else kept * s))
        return views

    def logits(self, domain: GraphTensors, edges: Edges, s: Tensor | None = None) -> Tensor:
        """Return the logits, after refinement on this graph if `refine` is above 0."""
        if not self.hparams["refine"]:
            return super().logits(domain, edges, s)
        task, bootstrap = copy.deepcopy(self.networks["task"]), copy.deepcopy(self.bootstrap)
        optimiser = self.adam(nn.ModuleList([task, bootstrap.predictor]), float(self.hparams["refine_lr"]))
        nodes = torch.arange(domain.num_nodes, device=edges.src.device)
        random_state = seeded(derive(self.seed, "refine", domain.name), self.device)
        with random_state, precision(self.recipe.precision, self.device):
            for _ in range(int(self.hparams["refine"])):
                with torch.enable_grad():
                    views = self.views(domain, edges, s)
                    loss = bootstrapped(task.train(), bootstrap, bootstrap.target, views, edges, nodes)
                    optimiser.zero_grad(set_to_none=True)
                    loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                bootstrap.follow(task, float(self.hparams["momentum"]))
            with torch.no_grad():
                out: Tensor = task.eval()(domain.x, edges, mask=s)
        return out.float() if out.dtype == torch.bfloat16 else out

    def logits_in_blocks(self, domain: GraphTensors, edges: Edges, s: Tensor | None = None) -> Tensor:
        """Return the logits, computed in blocks of nodes.

        Raises:
            InputError: `refine` is above 0.
        """
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
        """Return the prediction of the target's representation."""
        q: Tensor = self.predictor(h)
        return q

    def follow(self, encoder: nn.Module, momentum: float) -> None:
        """Update the target encoder: ξ ← momentum · ξ + (1 - momentum) · θ."""
        with torch.no_grad():
            for target_weight, online_weight in zip(self.target.parameters(), encoder.parameters(), strict=True):
                target_weight.lerp_(online_weight, 1 - momentum)


def bootstrapped(
    online: nn.Module, predictor: nn.Module, target: nn.Module, views: Sequence[View], edges: Edges, nodes: Tensor
) -> Tensor:
    """Return the mean loss of predicting the target's representation of the next view from each view.

    Args:
        online: The online encoder.
        predictor: Network q, applied to the online representations.
        target: The target encoder.
        views: Views of one graph, taken cyclically.
        edges: Edges of the graph.
        nodes: Nodes that the loss is computed on.
    """
    with torch.no_grad():
        slow = [backbone(target.eval()).embed(x, edges, s).index_select(0, nodes) for x, s in views]
    fast = [backbone(online).embed(x, edges, s).index_select(0, nodes) for x, s in views]
    pairs = zip(fast, slow[1:] + slow[:1], strict=True)
    return torch.stack([disagreement(predictor(h), goal) for h, goal in pairs]).mean()


def disagreement(q: Tensor, aim: Tensor) -> Tensor:
    """Return the mean over nodes of 2 - 2 cos(q_v, aim_v), which is 0 if the directions are equal."""
    return (2 - 2 * F.cosine_similarity(q, aim, dim=1)).mean()


STATUS = (
    "partial: no public code; built from the paper's outline with our own augmentations, weights and predictor; "
    "no test-time refinement by default"
)
CITATION = "Liu et al., FLOOD: A Flexible Invariant Learning Framework for OOD Generalization on Graphs, KDD 2023"
SUMMARY = "risk extrapolation over augmented environments, with a bootstrapped loss on the shared encoder"
