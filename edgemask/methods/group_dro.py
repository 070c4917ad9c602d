"""GroupDRO: the risk of the worst source. The EdgeMask-DG* paper calls it "DRNN".

S. Sagawa, P. W. Koh, T. Hashimoto, P. Liang, "Distributionally Robust Neural Networks for Group Shifts: On the
Importance of Regularization for Worst-Case Generalization", ICLR 2020.

    min_θ max_q Σ_i q_i R_i,   q a distribution over the M sources:   q_i ← q_i exp(η R_i) / Σ_j q_j exp(η R_j)

This is a full implementation of Algorithm 1: a step of q, then a step of θ with the new weights. The paper draws one
group at a time; with whole graphs every source takes part in every step, as in the authors' code and DomainBed. The
group adjustments C / √n_i, which the paper offers for groups of very different sizes, are not included. Its strong
weight decay is not a default either; it can be set in the recipe (`weight_decay`). With shards, log q moves to the mean
of the values that the shards alone would give.

Defaults: the authors' code has η = 0.01, over thousands of batches. An epoch of whole graphs is one step, so the
default here is 0.1, the value that GOOD (Gui et al., NeurIPS 2022) publishes most often for Cora and Twitch (its q,
unlike that of the paper, is reset after every step). With one source the method is plain risk minimisation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from edgemask.config import HyperParameter
from edgemask.methods.erm import ERM
from edgemask.methods.execution import Record
from edgemask.methods.sources import Pairs, Source
from edgemask.runtime import checkpoint


class GroupDRO(ERM):
    """Minimisation of the worst source's risk, with weights of the sources that grow with their risks."""

    hyper: ClassVar = {
        "eta": HyperParameter(0.1, 0, law="log", search=(1e-3, 1.0), about="η, step size of the weights of the sources")
    }

    def build(self) -> dict[str, nn.Module]:
        """Return the classifier."""
        # One value per source, set in the first epoch.
        self.log_q = torch.empty(0, dtype=torch.float64, device=self.device)
        self.shard_log_q: list[Tensor] = []  # the new values from each shard of this batch
        return super().build()

    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        """Train for one epoch. The weights are uniform before the first one."""
        if not len(self.log_q):
            self.log_q = self.log_q.new_zeros(len(sources)).log_softmax(0)
        return super().update(sources, epoch)

    def joint_step(self, pairs: Pairs) -> Record:
        """Update the weights of the sources, then take one step on the weighted risk."""
        risks = torch.stack([self.risk(source, edges) for source, edges in pairs])
        log_q = (self.log_q + float(self.hparams["eta"]) * risks.detach().double()).log_softmax(0)
        self.step("task", (log_q.exp().to(risks.dtype) * risks).sum())
        shard, shards = self.shard_progress
        self.shard_log_q = [*self.shard_log_q, log_q] if shard else [log_q]
        if shard + 1 == shards:
            self.log_q.copy_(self.world.average(torch.stack(self.shard_log_q).mean(0)).log_softmax(0))
        names = [source.domain.name for source, _ in pairs]
        record = {f"loss {name}": risk for name, risk in zip(names, risks.detach(), strict=True)}
        return record | {f"weight {name}": q for name, q in zip(names, log_q.exp(), strict=True)}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return everything the next epoch depends on, including the weights of the sources."""
        tensors, numbers = super().state()
        return tensors | {"log_q": self.log_q}, numbers

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        super().load_state(tensors, numbers)
        log_q = checkpoint.check_tensor("log_q", tensors.get("log_q"), (None,), torch.float64)
        self.log_q = log_q.to(self.device, copy=True)

    def check_state(self, sources: Sequence[Source]) -> None:
        """Check that there is one weight per source."""
        checkpoint.check_tensor("log_q", self.log_q, (len(sources),), torch.float64)


STATUS = "full"
CITATION = "Sagawa et al., Distributionally Robust Neural Networks for Group Shifts, ICLR 2020"
SUMMARY = "risk of the worst source, by weights of the sources that grow with their risks"
