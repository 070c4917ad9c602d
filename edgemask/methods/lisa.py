"""LiSA: label-invariant subgraph augmentation.

Yu, Liang and He, "Mind the Label Shift of Augmentation-based Graph OOD Generalization", CVPR 2023.

    generators:  min_g  mean_k R_k + `kl` · mean_k KL(q_k ‖ p) - `distance` · mean_{k<l} (√R_k - √R_l)² / 2
    classifier:  min_θ  mean_k R_k + `variance` · Var_k(R_k), over k = 0 (the source itself), 1, …, K

Each of K variational generators gives every edge e a probability q_k(e) of being in the subgraph. A subgraph is drawn
from the relaxed Bernoulli (binary concrete) distribution, so that R_k = ℓ(f_θ(G ⊙ s_k), Y) is differentiable with
respect to the probabilities. A low risk keeps the subgraphs label-invariant, the KL divergence from the prior p =
Bernoulli(1/2) removes other information about the graph, and the distance between their energies, which are the risks,
keeps them different.

The outline is from the paper. The exact terms are those of its public code, which writes the distance as the variance
of √R_k; the two are equal. The code has two kinds of generators: for graph classification, a network of both ends of an
edge with relaxed sampling; for nodes, free logits per edge of which the largest 10 % (Twitch, Facebook) or 1 % (Arxiv,
Elliptic) are kept, without sampling. This implementation uses the first kind: a network of the features at both ends,
of the same shape as the MaskNet. It is the variational one, and it also works if edges are sampled again in each
epoch.

Further choices made here: one generator step per classifier step (the default of the code is 10, which would cost ten
times as much), without dropout in the classifier; the objectives of several sources are averaged. Other defaults are
those of the code. A step costs about 2 (K + 1) passes of plain risk minimisation.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.config import HyperParameter
from edgemask.errors import InputError
from edgemask.methods.base import Method
from edgemask.methods.execution import Record
from edgemask.methods.sources import Pairs
from edgemask.nn.masknet import MaskNet
from edgemask.nn.tensors import Edges, SparseMatrix


class LiSA(Method):
    """Risk minimisation over label-invariant subgraphs that variational generators draw."""

    hyper: ClassVar = {
        "views": HyperParameter(3, 2, 100, law="int", search=(2, 5), about="K, number of generators"),
        "kl": HyperParameter(0.1, 0, law="log", search=(0.01, 1.0), about="weight of the KL divergence from the prior"),
        "distance": HyperParameter(
            0.1, 0, law="log", search=(1e-3, 1.0), about="weight of the distance between the subgraphs' energies"
        ),
        "variance": HyperParameter(
            1.0, 0, law="log", search=(0.1, 10.0), about="weight of the variance of the risks, for the classifier"
        ),
        "width": HyperParameter(64, 1, 10**4, law="int", search=(32, 128), about="width of the generators"),
        "subgraph_lr": HyperParameter(1e-3, 0, law="log", search=(1e-4, 1e-2), about="learning rate of the generators"),
        "subgraph_steps": HyperParameter(
            1, 1, 100, law="int", search=(1, 3), about="generator steps per classifier step"
        ),
    }

    def build(self) -> dict[str, nn.Module]:
        """Return the classifier and the generators.

        Raises:
            InputError: The recipe's backbone is an MLP, or it has several shards and `subgraph_steps` is above 1.
        """
        if self.recipe.backbone == "mlp":
            raise InputError("LiSA selects edges, but backbone = 'mlp' ignores edges: use another backbone")
        if self.recipe.shards > 1 and int(self.hparams["subgraph_steps"]) > 1:
            raise InputError(f"subgraph_steps must be 1 with shards, got {self.hparams['subgraph_steps']}")
        return super().build() | {
            "subgraphs": Subgraphs(int(self.hparams["views"]), self.num_features, int(self.hparams["width"]))
        }

    def make_optimisers(self) -> dict[str, torch.optim.Optimizer]:
        """Return one optimiser for the classifier and one for the generators."""
        generators = self.adam(self.networks["subgraphs"], float(self.hparams["subgraph_lr"]))
        return super().make_optimisers() | {"subgraphs": generators}

    def joint_step(self, pairs: Pairs) -> Record:
        """Take `subgraph_steps` generator steps, then one classifier step."""
        record: Record = {}
        for _ in range(int(self.hparams["subgraph_steps"])):
            record |= self.generator_step(pairs)
        return record | self.classifier_step(pairs)

    def generator_step(self, pairs: Pairs) -> Record:
        """Take one step of the generators, through the frozen classifier."""
        record: Record = {}
        task = self.networks["task"].eval().requires_grad_(False)
        objectives = []
        for source, edges in pairs:
            logits = self.wrapped["subgraphs"](source.domain.x, edges)
            risks = []
            for s in relaxed(logits):
                out = task(source.domain.x, edges, mask=s).index_select(0, source.train)
                risks.append(F.cross_entropy(out, source.domain.labels()[source.train]))
            mean = torch.stack(risks).mean()
            kl = torch.stack([edges.mean(values) for values in divergence(logits)]).mean()
            distance = energy_distance(torch.stack(risks))
            objectives.append(mean + float(self.hparams["kl"]) * kl - float(self.hparams["distance"]) * distance)
            record |= {f"kl {source.domain.name}": kl.detach(), f"distance {source.domain.name}": distance.detach()}
        self.step("subgraphs", torch.stack(objectives).mean())
        task.requires_grad_(True)
        return record

    def classifier_step(self, pairs: Pairs) -> Record:
        """Take one step of the classifier, on the sources and their subgraphs."""
        record: Record = {}
        objectives = []
        for source, edges in pairs:
            with torch.no_grad():
                masks = relaxed(self.networks["subgraphs"](source.domain.x, edges))
            risks = torch.stack([self.risk(source, edges), *(self.risk(source, edges, s) for s in masks)])
            variance, mean = torch.var_mean(risks)
            objectives.append(mean + float(self.hparams["variance"]) * variance)
            record[f"loss {source.domain.name}"] = mean.detach()
        self.step("task", torch.stack(objectives).mean())
        return record


class Subgraphs(nn.Module):
    """K generators of subgraphs.

    Args:
        views: Number of generators K.
        inputs: Number of input features.
        width: Width of the two layers of each generator.
    """

    def __init__(self, views: int, inputs: int, width: int):
        super().__init__()
        self.generators = nn.ModuleList(MaskNet(inputs, width, width) for _ in range(views))

    def forward(self, x: Tensor | SparseMatrix, edges: Edges) -> Tensor:
        """Return K × edges logits of being in the subgraph."""
        return torch.stack([generator(x, edges) for generator in self.generators])


def relaxed(logits: Tensor) -> Tensor:
    """Draw from the binary concrete distribution at temperature 1: above 1/2 with probability σ(logit)."""
    u = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
    return (logits + u.log() - (1 - u).log()).sigmoid()


def divergence(logits: Tensor) -> Tensor:
    """Return KL(Bernoulli(σ(logit)) ‖ Bernoulli(1/2)), elementwise."""
    q = logits.sigmoid()
    return q * F.logsigmoid(logits) + (1 - q) * F.logsigmoid(-logits) + math.log(2)


def energy_distance(risks: Tensor) -> Tensor:
    """Return half the mean of (√R_k - √R_l)² over all pairs of subgraphs, the variance of √R."""
    return risks.clamp_min(1e-12).sqrt().var()


STATUS = (
    "partial: terms of the released code, with its sampling generators for graph classification; "
    "for nodes the code keeps the top 10 % or 1 % of edges instead; 1 generator step per classifier step, not 10"
)
CITATION = "Yu et al., Mind the Label Shift of Augmentation-based Graph OOD Generalization, CVPR 2023"
SUMMARY = (
    "mean and variance of the risks over label-invariant subgraphs, which variational generators draw as environments"
)
