"""Empirical risk minimisation (ERM): one step per epoch or batch on the mean risk of all sources.

V. Vapnik, "Principles of Risk Minimization for Learning Theory", NeurIPS 1991.

    min_θ (1/M) Σ_i ℓ(f_θ(G_i), Y_i)

Trained on the enriched graph, with averaged weights and propagated logits, it is the strong simple baseline of every
table.
"""

from __future__ import annotations

import torch

from edgemask.methods.base import Method
from edgemask.methods.execution import Record
from edgemask.methods.sources import Pairs


class ERM(Method):
    """Minimisation of the mean risk of the sources."""

    padded_draws = True
    any_loss = True

    def joint_step(self, pairs: Pairs) -> Record:
        """Take one step on the mean risk."""
        losses = {f"loss {source.domain.name}": self.risk(source, edges) for source, edges in pairs}
        self.step("task", torch.stack(list(losses.values())).mean())
        return {name: loss.detach() for name, loss in losses.items()}
