"""Base classes of methods that minimise risk and a penalty on the differences between sources.

min_θ (1/M) Σ_i R_i + w · penalty
"""

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
    """The classifier's output on the training nodes of one source.

    Args:
        name: Name of the source.
        labels: Classes of its training nodes.
        logits: Their logits.
        h: Their representation; None if the method does not use it.
    """

    name: str
    labels: Tensor
    logits: Tensor
    h: Tensor | None = None

    @property
    def risk(self) -> Tensor:
        """Cross-entropy on the training nodes."""
        return F.cross_entropy(self.logits, self.labels)


class Penalised(ERM):
    """A method that takes one step per batch on the mean risk plus the weighted penalty.

    The weight of the penalty may change from epoch to epoch.
    """

    any_loss = False

    def build(self) -> dict[str, nn.Module]:
        """Return the classifier."""
        self.weight = torch.zeros((), device=self.device)  # of this epoch; a tensor, so that captured steps see changes
        return super().build()

    def strength(self, epoch: int) -> float:
        """Return the weight w of the penalty in an epoch."""
        return float(self.hparams["weight"])

    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        """Set the weight of the penalty and train for one epoch."""
        self.weight.fill_(self.strength(epoch))
        return super().update(sources, epoch)

    def joint_step(self, pairs: Pairs) -> Record:
        """Take one step on the mean risk plus the weighted penalty."""
        outputs = [self.source_output(source, edges) for source, edges in pairs]
        risks = torch.stack([output.risk for output in outputs])
        penalty = self.penalty(risks, outputs)
        self.step("task", risks.mean() + self.weight * penalty)
        return {**losses(outputs, risks), "penalty": penalty.detach()}

    @abstractmethod
    def penalty(self, risks: Tensor, outputs: Sequence[SourceOutput]) -> Tensor:
        """Return the penalty, given the sources' risks and outputs."""

    def source_output(self, source: Source, edges: Edges) -> SourceOutput:
        """Run the classifier on one source, in training mode."""
        self.networks["task"].train()
        logits = self.wrapped["task"](source.domain.x, edges)
        return self.at_training_nodes(source, logits)

    def at_training_nodes(self, source: Source, logits: Tensor, h: Tensor | None = None) -> SourceOutput:
        """Return the output at the training nodes of one source.

        Args:
            source: The source.
            logits: N × C logits of its nodes.
            h: Representations of its nodes, if the penalty uses them.
        """
        nodes, labels = source.train, source.domain.labels()
        rows = [full(t.index_select(0, nodes)) for t in (logits, h) if t is not None]
        return SourceOutput(source.domain.name, labels[nodes], *rows)


class Annealed(Penalised):
    """A penalised method with the weight min(1, `weight`) for the first `anneal` epochs and `weight` afterwards.

    When the weight rises, Adam's moments are reset.
    """

    def strength(self, epoch: int) -> float:
        """Return the weight of the penalty in an epoch."""
        weight = float(self.hparams["weight"])
        return min(1.0, weight) if epoch < int(self.hparams["anneal"]) else weight

    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        """Reset Adam when the weight rises, and train for one epoch."""
        if epoch == int(self.hparams["anneal"]) and self.strength(epoch) > 1:
            for moments in self.optimisers["task"].state.values():
                for value in moments.values():
                    value.zero_()  # in place, because a captured step uses these tensors
        return super().update(sources, epoch)


class Aligned(Penalised):
    """A penalised method whose penalty compares the representations of the sources' training nodes."""

    def build(self) -> dict[str, nn.Module]:
        """Return the classifier, and store the width of its representation."""
        networks = super().build()
        self.width = representation_width(networks["task"], self.num_features)
        return networks

    def source_output(self, source: Source, edges: Edges) -> SourceOutput:
        """Run the classifier on one source, and keep the representation."""
        task = backbone(self.networks["task"].train())
        h = task.embed(source.domain.x, edges)
        return self.at_training_nodes(source, task.read(h, edges), h)


def losses(outputs: Sequence[SourceOutput], risks: Tensor) -> Record:
    """Return the risks of the sources by the names under which they are recorded."""
    return {f"loss {s.name}": risk for s, risk in zip(outputs, risks.detach(), strict=True)}


def full(values: Tensor) -> Tensor:
    """Convert bfloat16 to float32, because penalties are small differences."""
    return values.float() if values.dtype == torch.bfloat16 else values
