"""GraphAug: risk minimisation on graphs without their low-weight edges and with new edges inside feature clusters.

G. Chen, J. Zhang and Y. Li, "Graph Augmentation for Cross Graph Domain Generalization", arXiv 2502.18188, 2025.

    min_θ (1/M) Σ_i ℓ(f_θ(X_i, (E_i without its lightest edges) ∪ new pairs inside clusters of X_i), Y_i)

From the paper: the weight of an edge is its entry of D^{-1/2} A D^{-1/2}, which is w_uv/√(d_u d_v), with w = 1 in a
graph without edge weights; edges of low weight are considered noise and dropped. Nodes are clustered by their features,
whose distribution the domains share, and edges are added inside clusters. The network (GCN, GIN) and its training do
not change.

Only the abstract of the paper and descriptions by others were available, and no code. The rates, the number of clusters
and the following details were chosen here:

- In every epoch the same share of lightest edges is dropped, with ties broken at random, and new pairs are drawn.
- The clusters are spectral clusters on the cosine of the features, as in our enrichment; 100 by default.
- The target is predicted on its original graph.
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
    """Risk minimisation on augmented graphs."""

    padded_draws = False  # edges are augmented after they are drawn

    hyper: ClassVar[Mapping[str, HyperParameter]] = {
        "drop": HyperParameter(0.2, 0, 0.99, search=(0.0, 0.5), about="share of edges dropped, lightest first"),
        "add": HyperParameter(
            0.2, 0, 100, search=(0.0, 1.0), about="pairs added inside clusters, per edge of the graph"
        ),
        "groups": HyperParameter(100, 2, law="int", search=(20, 200), about="clusters of the node features"),
    }

    def build(self) -> dict[str, nn.Module]:
        """Return the classifier."""
        self.samplers: dict[str, Sampler] = {}
        return super().build()

    def sample(self, source: Source, epoch: int) -> Edges:
        """Return this epoch's augmented edges of a source."""
        edges = super().sample(source, epoch)
        stream = torch_stream(self.seed, "graph-aug", source.domain.name, epoch, device=self.device)
        src, dst = edges.src[edges.real], edges.dst[edges.real]
        kept = heavy(edges, float(self.hparams["drop"]), stream)
        weight = torch.ones_like(src, dtype=torch.float32) if edges.weight is None else edges.weight
        parts = [(src[kept], dst[kept], edges.origin[kept], weight[kept])]
        if self.hparams["add"] and edges.num_real:
            budget = float(self.hparams["add"]) * edges.num_real / 2 / edges.num_nodes
            drawn = self.sampler(source).sample(stream, knn_ratio=0, spectral_ratio=1, spectral_budget=budget)
            new = drawn.origin == int(Origin.SPECTRAL)
            ones = torch.ones_like(drawn.src, dtype=weight.dtype)
            parts.append((drawn.src[new], drawn.dst[new], drawn.origin[new], ones[new]))
        src, dst, origin, weight = (torch.cat(column) for column in zip(*parts, strict=True))
        key, order = (dst * edges.num_nodes + src).sort(stable=True)  # among duplicates, the existing edge comes first
        order = order[torch.diff(key, prepend=key.new_tensor([-1])) > 0]
        kept_weight = None if edges.weight is None else weight[order]
        return Edges.build(src[order], dst[order], edges.num_nodes, origin[order], kept_weight)

    def sampler(self, source: Source) -> Sampler:
        """Return a sampler of pairs inside a source's feature clusters, which are computed on first use."""
        name, graph = source.domain.name, source.domain.graph
        if name not in self.samplers:
            clusters = int(self.hparams["groups"])
            self.samplers[name] = Sampler(enrich(graph, k=0, clusters=clusters, device=self.device), self.device)
        return self.samplers[name]


def heavy(edges: Edges, drop: float, stream: torch.Generator) -> Tensor:
    """Return which real edges to keep.

    Args:
        edges: Edges of the graph.
        drop: Share of the undirected pairs to drop, those of least weight w_uv/√(d_u d_v) first. If the two directions
            of a pair have different weights, the larger one counts.
        stream: Random stream that breaks ties.
    """
    src, dst = edges.src[edges.real], edges.dst[edges.real]
    low, high = torch.minimum(src, dst), torch.maximum(src, dst)
    pairs, pair = torch.unique(low * edges.num_nodes + high, return_inverse=True)
    weight = None if edges.weight is None else edges.weight.double()
    degree = torch.bincount(dst, weight, minlength=edges.num_nodes)
    product = degree[pairs // edges.num_nodes] * degree[pairs % edges.num_nodes]  # integers, so that ties are exact
    if weight is not None:  # the inverse square of the pair's entry, which is d_u d_v if the weight is 1
        product = product / torch.zeros_like(product).scatter_reduce(0, pair, weight, "amax").square()
        product = product.nan_to_num(torch.inf)  # pairs of weight 0, even between nodes of degree 0, are the lightest
    shuffled = torch.randperm(len(pairs), generator=stream, device=stream.device)
    order = shuffled[product[shuffled].sort(stable=True).indices]  # heaviest first
    kept = torch.zeros(len(pairs), dtype=torch.bool, device=src.device)
    kept[order[: len(pairs) - round(drop * len(pairs))]] = True
    return kept[pair]


STATUS = "partial: no public code or rates; drops edges by weight and adds edges in clusters at our own rates"
CITATION = "Chen et al., Graph Augmentation for Cross Graph Domain Generalization, arXiv 2502.18188, 2025"
SUMMARY = "risk minimisation on graphs without their lightest edges and with new edges inside feature clusters"
