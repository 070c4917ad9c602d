"""Risk with a penalty on what sets the sources apart: min_θ (1/M) Σ_i R_i + w · penalty, what several methods share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.methods.erm import ERM
from edgemask.methods.execution import Record
from edgemask.methods.sources import Pairs, Source
from edgemask.methods.views import backbone, representation_width
from edgemask.nn.tensors import Edges


@dataclass(frozen=True)
class SourceOutput:
    """What the classifier makes of one source's training nodes; `h` is their representation, where it is asked for."""

    name: str
    labels: Tensor
    logits: Tensor
    h: Tensor | None = None

    @property
    def risk(self) -> Tensor:
        return F.cross_entropy(self.logits, self.labels)


class Penalised(ERM):
    """One step per round on the mean risk and the penalty, whose weight may change from epoch to epoch."""

    def build(self) -> dict[str, nn.Module]:
        self.weight = torch.zeros((), device=self.device)  # of this epoch; a captured step reads it from here
        return super().build()

    def strength(self, epoch: int) -> float:
        """The penalty's weight w in an epoch."""
        return float(self.hparams["weight"])

    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        self.weight.fill_(self.strength(epoch))
        return super().update(sources, epoch)

    def joint_step(self, pairs: Pairs) -> Record:
        seen = [self.look(source, edges) for source, edges in pairs]
        risks = torch.stack([s.risk for s in seen])
        penalty = self.penalty(risks, seen)
        self.step("task", risks.mean() + self.weight * penalty)
        return {**losses(seen, risks), "penalty": penalty.detach()}

    @abstractmethod
    def penalty(self, risks: Tensor, seen: Sequence[SourceOutput]) -> Tensor:
        """What the sources differ by, of their risks and what is seen of each."""

    def look(self, source: Source, edges: Edges) -> SourceOutput:
        self.networks["task"].train()
        logits = self.wrapped["task"](source.domain.x, edges, None)
        return self.seen(source, logits)

    def seen(self, source: Source, logits: Tensor, h: Tensor | None = None) -> SourceOutput:
        at, labels = source.train, source.domain.labels()
        rows = [full(t.index_select(0, at)) for t in (logits, h) if t is not None]
        return SourceOutput(source.domain.name, labels[at], *rows)


class Annealed(Penalised):
    """The penalty with weight min(1, `weight`) for `anneal` epochs, then `weight`; where it jumps, Adam starts anew."""

    def strength(self, epoch: int) -> float:
        weight = float(self.hparams["weight"])
        return min(1.0, weight) if epoch < int(self.hparams["anneal"]) else weight

    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        if epoch == int(self.hparams["anneal"]) and self.strength(epoch) > 1:
            for moments in self.optimisers["task"].state.values():
                for value in moments.values():
                    value.zero_()  # in place: a captured step knows these tensors
        return super().update(sources, epoch)


class Aligned(Penalised):
    """A penalty on the representations of the sources' training nodes."""

    def build(self) -> dict[str, nn.Module]:
        networks = super().build()
        self.width = representation_width(networks["task"], self.num_features)
        return networks

    def look(self, source: Source, edges: Edges) -> SourceOutput:
        task = backbone(self.networks["task"].train())
        h = task.embed(source.domain.x, edges)
        return self.seen(source, task.read(h, edges), h)


def losses(seen: Sequence[SourceOutput], risks: Tensor) -> Record:
    return {f"loss {s.name}": risk for s, risk in zip(seen, risks.detach(), strict=True)}


def full(values: Tensor) -> Tensor:
    """In float32 what a GPU has in bfloat16: penalties are small differences."""
    return values.float() if values.dtype == torch.bfloat16 else values
