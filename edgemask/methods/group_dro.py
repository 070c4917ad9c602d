"""GroupDRO: the risk of the worst source; the "DRNN" of the EdgeMask-DG* paper.

S. Sagawa, P. W. Koh, T. Hashimoto, P. Liang, "Distributionally Robust Neural Networks for Group Shifts: On the
Importance of Regularization for Worst-Case Generalization", ICLR 2020.

    min_θ max_q Σ_i q_i R_i,   q a distribution over the M sources:   q_i ← q_i exp(η R_i) / Σ_j q_j exp(η R_j)

Rebuilt in full: Algorithm 1, a step of q, then one of θ on the new weights. The paper draws one group at a time; with
whole graphs every source takes part in every step, as in the authors' code and DomainBed. Not here: the group
adjustments C / √n_i, which the paper offers for groups of very different sizes, and its strong weight decay, which
belongs to the recipe (`weight_decay`). Over shards of a batch, q moves to the mean of where each alone would move it.

Defaults: the authors' code has η = 0.01, over thousands of batches; an epoch of whole graphs is one step, so ours is
0.1, the value GOOD (Gui et al., NeurIPS 2022) publishes most often for Cora and Twitch (its q, unlike the paper's,
forgets after every step). With one source this is risk minimisation.
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


class GroupDRO(ERM):
    hyper: ClassVar = {
        "eta": HyperParameter(0.1, 0, law="log", search=(1e-3, 1.0), about="step size of the sources' weights")
    }

    def build(self) -> dict[str, nn.Module]:
        self.log_q = torch.empty(
            0, dtype=torch.float64, device=self.device
        )  # one value per source, once they are known
        self.moved: list[Tensor] = []  # where this round's shards would move it
        return super().build()

    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        if not len(self.log_q):
            self.log_q = self.log_q.new_zeros(len(sources)).log_softmax(0)
        return super().update(sources, epoch)

    def joint_step(self, pairs: Pairs) -> Record:
        risks = torch.stack([self.risk(source, edges) for source, edges in pairs])
        log_q = (self.log_q + float(self.hparams["eta"]) * risks.detach().double()).log_softmax(0)
        self.step("task", (log_q.exp().to(risks.dtype) * risks).sum())
        turn, turns = self.shard_progress
        self.moved = [*self.moved, log_q] if turn else [log_q]
        if turn + 1 == turns:
            self.log_q.copy_(self.world.average(torch.stack(self.moved).mean(0)).log_softmax(0))
        names = [source.domain.name for source, _ in pairs]
        record = {f"loss {name}": risk for name, risk in zip(names, risks.detach(), strict=True)}
        return record | {f"weight {name}": q for name, q in zip(names, log_q.exp(), strict=True)}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, numbers = super().state()
        return tensors | {"log_q": self.log_q}, numbers

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        super().load_state(tensors, numbers)
        self.log_q = tensors["log_q"].to(self.device, copy=True)


STATUS = "full"
CITATION = "Sagawa et al., Distributionally Robust Neural Networks for Group Shifts, ICLR 2020"
SUMMARY = "risk of the worst source: weights of the sources that follow their risks"
