"""The MaskNet m_{φ,ψ}: a score in [0, 1] for every edge, computed from its two end nodes (Eq. mask_gen)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.config import EdgeInput
from edgemask.errors import InputError
from edgemask.nn.backbone import InputLinear, arguments
from edgemask.nn.edge_mlp import edge_mlp
from edgemask.nn.tensors import Edges, SparseMatrix

ORIGINS = 3  # number of different edge origins
WORK = 1 << 22  # neighbour look-ups that are in memory at once when counting common neighbours


class MaskNet(nn.Module):
    """A network that computes the logits of s_uv = σ(g_φ([z_u, z_v])), with z = ReLU(p_ψ(x)) and a two-layer MLP g_φ.

    The first linear map of g_φ is split into its halves for u and v, which are applied to the nodes before the gather.
    This is the same function without an edges × 2d' tensor. `edge_mlp` does not form an edges × hidden tensor either.

    Inputs per edge, which are not in the paper:

    `origin`       one-hot origin of the edge
    `structure`    log degrees of both ends and log(1 + common neighbours) in the sampled graph
    `predictions`  inner product and entropies of the TaskNet's class probabilities (detached) at both ends

    The weights of the edges are no input, except through `predictions`: the mask is a factor of the weights.

    Args:
        inputs: Number of input features.
        projection: Width of z.
        hidden: Hidden width of g_φ.
        inputs_per_edge: Names of the inputs per edge.

    Example:
        >>> from edgemask.nn import GCN, MaskNet, budget_mask
        >>> x, edge_index = torch.rand(4, 3), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> mask = budget_mask(MaskNet(inputs=3)(x, edge_index), rho=0.6)
        >>> mask.shape, round(mask.mean().item(), 4)
        (torch.Size([4]), 0.6)
        >>> GCN(3, 16, 2)(x, edge_index, mask=mask).shape
        torch.Size([4, 2])
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

    def forward(self, x: Tensor | SparseMatrix, edge_index: Tensor | Edges, extra: EdgeFacts | None = None) -> Tensor:
        """Return one logit per edge. `edgemask.nn.budget_mask` turns the logits into a mask with a given mean.

        Args:
            x: N × d features: a dense tensor, a torch sparse tensor, or a `SparseMatrix`.
            edge_index: 2 × M LongTensor of sources and destinations in any order, without self-loops, or `Edges`.
            extra: The inputs per edge, `EdgeFacts.of(edges, names, probabilities)`. They have the order of the `Edges`
                they were computed from, so `edge_index` must be these `Edges`. None if the network takes none.

        Returns:
            M logits, in the order of the given edges.

        Raises:
            InputError: The network takes inputs per edge, but `extra` is None or `edge_index` is not `Edges`; or a
                shape, a dtype or a value is not as described.
        """
        x, edges, _ = arguments(self.score.weight, x, edge_index)
        at_edge = None
        if self.from_edge is not None:
            names = ", ".join(self.inputs_per_edge)
            if extra is None:
                raise InputError(f"this MaskNet takes the edge inputs {names}, but none were given: pass extra=")
            if edges is not edge_index:
                raise InputError(f"this MaskNet takes the edge inputs {names}, which need Edges: use Edges.of(…)")
            at_edge = self.from_edge(extra.columns(self.inputs_per_edge))
        z = F.relu(self.project(x), inplace=True)
        logits = edge_mlp(edges, self.from_src(z), self.from_dst(z), at_edge, self.score.weight.squeeze(0))
        logits = logits + self.score.bias
        return logits if edges is edge_index else logits[torch.argsort(edges.order)]  # type: ignore[arg-type]


@dataclass(frozen=True)
class EdgeFacts:
    """Inputs of the MaskNet for each real edge.

    Attributes:
        blocks: One matrix (real edges × columns) per input, by name.
    """

    blocks: dict[str, Tensor]

    def columns(self, names: Sequence[str]) -> Tensor:
        """Return the columns of the named inputs, in the given order."""
        return torch.cat([self.blocks[name] for name in names], dim=1)

    @classmethod
    def of(cls, edges: Edges, names: Sequence[str], probabilities: Tensor | None = None) -> EdgeFacts:
        """Compute the named inputs.

        Args:
            edges: Edges of the graph.
            names: Names of the inputs; see `MaskNet`.
            probabilities: Class probabilities of the nodes (N × C), needed for `predictions`.

        Raises:
            ValueError: `names` includes `predictions`, but `probabilities` is None.
        """
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
                raise ValueError("the edge input 'predictions' needs the TaskNet's class probabilities, got None")
            p = probabilities.detach()
            entropy = -(p * p.clamp_min(1e-12).log()).sum(1)
            blocks["predictions"] = torch.stack([(p[src] * p[dst]).sum(1), entropy[src], entropy[dst]], dim=1)
        return cls(blocks)


def common_neighbours(edges: Edges) -> Tensor:
    """Return, for each real edge u → v, the number of nodes with an edge into both u and v, without self-loops.

    For every edge, the in-neighbours of the end with the smaller degree are looked up in the sorted edge keys of the
    other end. This is done in chunks. The work is Σ_e min(d_u, d_v) log M, and no N × N matrix is formed.
    """
    src, dst, n = edges.src[edges.real], edges.dst[edges.real], edges.num_nodes
    keys = dst * n + src  # sorted, because the edges are sorted by destination, then source
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
    """Divide the edge positions into consecutive runs whose work adds up to about `limit`."""
    if not len(work):
        return []
    group = (work.cumsum(0) - work) // limit
    positions = torch.arange(len(work), device=work.device)
    return list(torch.split(positions, torch.unique_consecutive(group, return_counts=True)[1].tolist()))
