"""GraphAug: risk minimisation on graphs whose light edges are dropped and whose feature clusters are joined.

G. Chen, J. Zhang and Y. Li, "Graph Augmentation for Cross Graph Domain Generalization", arXiv 2502.18188, 2025.

    min_θ (1/M) Σ_i ℓ(f_θ(X_i, (E_i less its lightest edges) ∪ new pairs inside clusters of X_i), Y_i)

From the paper: the weight of an edge is its entry of D^{-1/2} A D^{-1/2}, so 1/√(d_u d_v), and edges of low weight are
taken for noise and dropped; nodes are clustered by their features, whose law the domains share, and edges are added
inside clusters; the network (GCN, GIN) and its training stay as they are. Of the paper only its abstract and
descriptions by others were at hand, and no code: the rates and the number of clusters are ours, and so is that

- the same share of lightest edges is dropped in every epoch, ties at random, and the added pairs are drawn anew;
- clusters are spectral on the cosine of features, as in our enrichment, whose 100 are the default;
- the target is read on its original graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from edgemask.config import HyperParameter
from edgemask.enrich import Origin, Sampler, enrich
from edgemask.methods.erm import ERM
from edgemask.methods.sources import Source
from edgemask.nn.tensors import Edges
from edgemask.seeds import torch_stream


class GraphAug(ERM):
    padded_draws = False  # its own edges are made from those drawn

    hyper: ClassVar[Mapping[str, HyperParameter]] = {
        "drop": HyperParameter(0.2, 0, 0.99, search=(0.0, 0.5), about="share of edges dropped, the lightest"),
        "add": HyperParameter(
            0.2, 0, 100, search=(0.0, 1.0), about="pairs added inside clusters, per edge of the graph"
        ),
        "groups": HyperParameter(100, 2, law="int", search=(20, 200), about="clusters of the node features"),
    }

    def build(self) -> dict[str, nn.Module]:
        self.samplers: dict[str, Sampler] = {}
        return super().build()

    def sample(self, source: Source, epoch: int) -> Edges:
        """This epoch's edges of a source, augmented."""
        edges = super().sample(source, epoch)
        stream = torch_stream(self.seed, "graph-aug", source.domain.name, epoch, device=self.device)
        src, dst = edges.src[edges.real], edges.dst[edges.real]
        kept = heavy(edges, float(self.hparams["drop"]), stream)
        parts = [(src[kept], dst[kept], edges.origin[kept])]
        if self.hparams["add"] and edges.num_real:
            budget = float(self.hparams["add"]) * edges.num_real / 2 / edges.num_nodes
            drawn = self.sampler(source).sample(stream, knn_ratio=0, spectral_ratio=1, spectral_budget=budget)
            new = drawn.origin == int(Origin.SPECTRAL)
            parts.append((drawn.src[new], drawn.dst[new], drawn.origin[new]))
        src, dst, origin = (torch.cat(column) for column in zip(*parts, strict=True))
        key, order = (dst * edges.num_nodes + src).sort(stable=True)  # what is there already comes first
        order = order[torch.diff(key, prepend=key.new_tensor([-1])) > 0]
        return Edges.build(src[order], dst[order], edges.num_nodes, origin[order])

    def sampler(self, source: Source) -> Sampler:
        """Draws pairs inside the clusters of a source's features, which are found when it is first met."""
        name, graph = source.domain.name, source.domain.graph
        if name not in self.samplers:
            clusters = int(self.hparams["groups"])
            self.samplers[name] = Sampler(enrich(graph, k=0, clusters=clusters, device=self.device), self.device)
        return self.samplers[name]


def heavy(edges: Edges, drop: float, stream: torch.Generator) -> Tensor:
    """Which real edges are kept when a share `drop` of the pairs goes, those of least weight 1/√(d_u d_v) first."""
    src, dst = edges.src[edges.real], edges.dst[edges.real]
    low, high = torch.minimum(src, dst), torch.maximum(src, dst)
    pairs, pair = torch.unique(low * edges.num_nodes + high, return_inverse=True)
    degree = torch.bincount(dst, minlength=edges.num_nodes)
    product = degree[pairs // edges.num_nodes] * degree[pairs % edges.num_nodes]  # whole numbers: no rounding in ties
    shuffled = torch.randperm(len(pairs), generator=stream, device=stream.device)
    order = shuffled[product[shuffled].sort(stable=True).indices]  # the heaviest first
    kept = torch.zeros(len(pairs), dtype=torch.bool, device=src.device)
    kept[order[: len(pairs) - round(drop * len(pairs))]] = True
    return kept[pair]


STATUS = "partial: no code and no rates are public; edges dropped by weight and added in clusters at rates of ours"
CITATION = "Chen et al., Graph Augmentation for Cross Graph Domain Generalization, arXiv 2502.18188, 2025"
SUMMARY = "risk minimisation on graphs less their lightest edges, joined inside feature clusters"
