"""Empirical risk minimisation: min_θ (1/M) Σ_i ℓ(f_θ(G_i), Y_i), one step per epoch on all sources.

V. Vapnik, "Principles of Risk Minimization for Learning Theory", NeurIPS 1991. Trained on the enriched graph, with
averaging and propagation granted, this is the strong simple baseline of every table.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from edgemask.methods.base import Method, Source


class ERM(Method):
    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        losses = [self.risk(source, self.sample(source, epoch)) for source in sources]
        self.step("task", torch.stack(losses).mean())
        return {f"loss {s.domain.name}": float(loss.detach()) for s, loss in zip(sources, losses, strict=True)}
