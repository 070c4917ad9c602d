"""The MaskNet m_{φ,ψ}: a score in [0, 1] for every edge from what is known at its two ends (Eq. mask_gen)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.config import EdgeInput
from edgemask.errors import InputError
from edgemask.nn.backbone import InputLinear
from edgemask.nn.edge_mlp import edge_mlp
from edgemask.nn.tensors import Edges, GraphTensors

ORIGINS = 3
WORK = 1 << 22  # neighbour look-ups held at once when counting common neighbours


class MaskNet(nn.Module):
    """Logits of s_uv = σ(g_φ([z_u, z_v])), z = ReLU(p_ψ(x)); g_φ a two-layer MLP.

    The first linear of g_φ is split into its halves for u and v and applied to nodes before the gather:
    the same function, without an edges × 2d' tensor, and `edge_mlp` forms none of edges × hidden either.
    `inputs_per_edge` adds, beyond the paper:

    `origin`       one-hot origin of the edge
    `structure`    log degrees of both ends and log(1 + common neighbours) in the sampled graph
    `predictions`  the TaskNet's detached class probabilities at both ends: their inner product and entropies
    """

    def __init__(
        self,
        inputs: int,
        projection: int = 128,
        hidden: int = 64,
        inputs_per_edge: Sequence[EdgeInput] = (),
    ):
        super().__init__()
        self.inputs_per_edge = tuple(inputs_per_edge)
        self.project = InputLinear(inputs, projection)
        self.from_src = nn.Linear(projection, hidden)
        self.from_dst = nn.Linear(projection, hidden, bias=False)
        widths = {"origin": ORIGINS, "structure": 3, "predictions": 3}
        extra = sum(widths[name] for name in self.inputs_per_edge)
        self.from_edge = nn.Linear(extra, hidden, bias=False) if extra else None
        self.score = nn.Linear(hidden, 1)

    def forward(self, domain: GraphTensors, edges: Edges, extra: EdgeFacts | None = None) -> Tensor:
        """One logit per real edge."""
        at_edge = None
        if self.from_edge is not None:
            if extra is None:
                raise InputError("this MaskNet takes edge inputs, none were given")
            at_edge = self.from_edge(extra.columns(self.inputs_per_edge))
        z = F.relu(self.project(domain.x), inplace=True)
        logits = edge_mlp(edges, self.from_src(z), self.from_dst(z), at_edge, self.score.weight.squeeze(0))
        return logits + self.score.bias


@dataclass(frozen=True)
class EdgeFacts:
    """What the richer MaskNet may know of each real edge, one block of columns per input."""

    blocks: dict[str, Tensor]

    def columns(self, names: Sequence[str]) -> Tensor:
        return torch.cat([self.blocks[name] for name in names], dim=1)

    @classmethod
    def of(cls, edges: Edges, names: Sequence[str], probabilities: Tensor | None = None) -> EdgeFacts:
        src, dst = edges.src[edges.real], edges.dst[edges.real]
        blocks = {}
        if "origin" in names:
            blocks["origin"] = F.one_hot(edges.origin.long(), ORIGINS).float()
        if "structure" in names:
            degree = torch.bincount(dst, minlength=edges.num_nodes).float().log1p()
            common = common_neighbours(edges).float().log1p()
            blocks["structure"] = torch.stack([degree[src], degree[dst], common], dim=1)
        if "predictions" in names:
            if probabilities is None:
                raise InputError("the input 'predictions' needs the TaskNet's class probabilities")
            p = probabilities.detach()
            entropy = -(p * p.clamp_min(1e-12).log()).sum(1)
            blocks["predictions"] = torch.stack([(p[src] * p[dst]).sum(1), entropy[src], entropy[dst]], dim=1)
        return cls(blocks)


def common_neighbours(edges: Edges) -> Tensor:
    """For each real edge u → v, how many nodes have an edge into both u and v (self-loops left out).

    Every edge checks the in-neighbours of its end of smaller degree against the sorted edge keys of the other, in
    chunks, so the work is Σ_e min(d_u, d_v) log M and nothing N × N is formed.
    """
    src, dst, n = edges.src[edges.real], edges.dst[edges.real], edges.num_nodes
    keys = dst * n + src  # sorted: destination-major
    degree = torch.bincount(dst, minlength=n)
    start = torch.cat([degree.new_zeros(1), degree.cumsum(0)])
    small = torch.where(degree[src] <= degree[dst], src, dst)
    other = src + dst - small
    work = degree[small]
    total = torch.zeros_like(src)
    for chunk in _chunks(work, WORK):
        count = work[chunk]
        edge = torch.repeat_interleave(chunk, count)
        begin = torch.repeat_interleave(count.cumsum(0) - count, count)
        offset = torch.arange(len(edge), device=edge.device) - begin
        neighbour = src[start[small[edge]] + offset]
        wanted = other[edge] * n + neighbour
        at = torch.searchsorted(keys, wanted).clamp_max(len(keys) - 1)
        total.index_add_(0, edge, (keys[at] == wanted).long())
    return total


def _chunks(work: Tensor, limit: int) -> list[Tensor]:
    """Consecutive runs of edge positions whose work adds up to about `limit`."""
    if not len(work):
        return []
    group = (work.cumsum(0) - work) // limit
    positions = torch.arange(len(work), device=work.device)
    return list(torch.split(positions, torch.unique_consecutive(group, return_counts=True)[1].tolist()))
