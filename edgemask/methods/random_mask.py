"""Random edge masks: the schedule of the game, with a random mask of the same budget in place of the adversary.

Y. Rong, W. Huang, T. Xu, J. Huang, "DropEdge: Towards Deep Graph Convolutional Networks on Node Classification", ICLR
2020.

    min_θ (1/M) Σ_i E_s ℓ(f_θ(X_i, E_i, s), Y_i),   s_e ~ Bernoulli(ρ) for every edge e, independently in every step

It shows what the adversary of EdgeMask-DG adds to dropping edges. Steps, batches and the effect of a mask on a backbone
are those of `Game`; only the mask differs. Under `bound = "budget"` the game's mask has the mean ρ; here ρ is the
expected share of edges that are kept.

From the paper: edges are dropped at random for training, and the remaining graph is normalised again; prediction uses
all edges. In a GAT, the gates `message` and `attention` do not remove an edge with s = 0 from the softmax; `softmax`
does. As in the authors' code, the two directions of an undirected edge are dropped separately, and every step has a
mask of its own. The authors' code keeps a fixed number of edges; here each edge is kept with probability ρ,
independently of the others.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgemask.errors import InputError
from edgemask.methods.edgemask import Game
from edgemask.methods.sources import Source
from edgemask.nn.tensors import Edges


class RandomMask(Game):
    """The game without an adversary: every TaskNet step has a random mask with mean ρ (`rho`)."""

    def build(self) -> dict[str, nn.Module]:
        """Return the TaskNet.

        Raises:
            InputError: The backbone is an MLP, or `mask` is True.
        """
        if self.recipe.backbone == "mlp":
            raise InputError("backbone = 'mlp' ignores edges, so a random edge mask has no effect: choose another one")
        if self.recipe.mask:
            raise InputError("random-mask has no MaskNet: mask must be False, got True")
        return super().build()

    def task_step(self, source: Source, edges: Edges, s: Tensor | None = None) -> Tensor:
        """Take one TaskNet step under a new random mask and return the loss.

        `s` is not used: without a MaskNet the game passes None.
        """
        return super().task_step(source, edges, self.random_mask(edges))

    def random_mask(self, edges: Edges) -> Tensor | None:
        """Return a mask that is 1 with probability ρ and otherwise 0; None, which means ones, if ρ = 1.

        The random numbers come from torch's generator, which is seeded for every epoch and for every shard of a batch.
        """
        rho = self.recipe.rho
        if rho == 1 or not edges.num_real:
            return None
        kept = torch.rand(edges.num_real, device=edges.real.device) < rho
        return kept.to(torch.get_default_dtype())


STATUS = "partial: keeps each edge with probability ρ instead of a fixed number; the schedule is that of edgemask-dg"
CITATION = "Rong et al., DropEdge: Towards Deep Graph Convolutional Networks on Node Classification, ICLR 2020"
SUMMARY = "random edge masks on the original graph, with the schedule and the budget of edgemask-dg"
