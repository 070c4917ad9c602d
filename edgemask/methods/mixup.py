"""Mixup of nodes from different sources.

H. Zhang, M. Cisse, Y. Dauphin, D. Lopez-Paz, "mixup: Beyond Empirical Risk Minimization", ICLR 2018; for nodes:
Y. Wang, W. Wang, Y. Liang, Y. Cai, B. Hooi, "Mixup for Node and Graph Classification", WWW 2021.

    min_θ (1/M) Σ_i E_{a in i, b not in i, λ ~ Beta(α, α)} [ λ ℓ(f_θ(a ⊕ b), y_a) + (1 - λ) ℓ(f_θ(a ⊕ b), y_b) ]

a ⊕ b is a node between a and b. It starts from λ x_a + (1 - λ) x_b. In every round of message passing it takes the
place of a among a's neighbours, and also the place of b among b's neighbours, and the two results are mixed with the
weights λ and 1 - λ (the two-branch convolution of the paper). The neighbours have the representations they have without
mixing (the two stages of the paper).

This is a full implementation for backbones whose rounds are sums with fixed weights (GCN, GIN, SGC). In the
place of another node, a node collects the same as that node, except that its own message replaces that node's message.
Because the first map is linear, the features are mixed after it, so sparse features stay sparse. The authors'
convolution has a second linear map for the node itself; our backbones have none, and the weight of the self-loop takes
its role.

Choices made here: each training node has a partner drawn from the training nodes of all other sources, again in every
step, as in mixup across domains (DomainBed). If there is only one source, the partner is from the same source, as in
both papers. Each node has its own λ (authors: one for all nodes of a step).

Defaults: α = 4 is from the authors' code, for PubMed; GOOD (Gui et al., NeurIPS 2022) searches 0.4 to 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Beta

from edgemask.config import HyperParameter
from edgemask.errors import InputError
from edgemask.methods.erm import ERM
from edgemask.methods.execution import Record
from edgemask.methods.sources import Pairs, Source
from edgemask.nn.backbone import Backbone
from edgemask.nn.tensors import Edges

SUMS = ("gcn", "gin", "sgc")  # backbones whose rounds are sums with fixed weights


@dataclass(frozen=True)
class Trace:
    """The values that passed through some nodes in a forward pass without mixing.

    Args:
        labels: Classes of the nodes.
        own: Weight with which a node collects its own message.
        sent: The message each node sent, in every round.
        collected: What each node collected, in every round.
    """

    labels: Tensor
    own: Tensor
    sent: list[Tensor]
    collected: list[Tensor]


class Mixup(ERM):
    """Risk minimisation on nodes mixed with nodes of other sources."""

    any_loss = False
    hyper: ClassVar = {
        "concentration": HyperParameter(
            4.0, 1e-3, law="log", search=(0.1, 10.0), about="α of Beta(α, α), which the mixing shares are drawn from"
        )
    }

    def build(self) -> dict[str, nn.Module]:
        """Return the classifier.

        Raises:
            InputError: The rounds of the recipe's backbone are not plain sums.
        """
        if (backbone := self.recipe.backbone) not in SUMS:
            legal = ", ".join(SUMS)
            raise InputError(f"mixup: backbone must be one whose rounds are plain sums ({legal}), got {backbone!r}")
        return super().build()

    def joint_step(self, pairs: Pairs) -> Record:
        """Take one step on the mean risk of the mixed nodes."""
        traces = [self.trace(source, edges) for source, edges in pairs]
        sizes = [len(t.labels) for t in traces]
        pool, partner = pooled(traces), partners(sizes, self.device)
        share = self.shares(len(partner))
        logits = self.mixed(pool, partner, share.unsqueeze(1))
        own_loss, partner_loss = (
            F.cross_entropy(logits, y, reduction="none") for y in (pool.labels, pool.labels[partner])
        )
        parts = torch.split(share * own_loss + (1 - share) * partner_loss, sizes)
        risks = torch.stack([part.mean() for part in parts])
        self.step("task", risks.mean())
        names = [source.domain.name for source, _ in pairs]
        return {f"loss {name}": risk for name, risk in zip(names, risks.detach(), strict=True)}

    def trace(self, source: Source, edges: Edges) -> Trace:
        """Run the first stage: a plain forward pass in training mode, traced at the training nodes."""
        task = self.task.train()
        weight, z = task.weigh(edges, None), task.at_nodes(0, source.domain.x)
        sent, collected = [], []
        for i in range(task.rounds):
            aggregated = task.collect(i, edges, weight, z)
            sent.append(z.index_select(0, source.train))
            collected.append(aggregated.index_select(0, source.train))
            if i + 1 < task.rounds:
                z = task.at_nodes(i + 1, aggregated)
        own = loop_weights(edges, weight).index_select(0, source.train)
        return Trace(source.domain.labels()[source.train], own, sent, collected)

    def mixed(self, nodes: Trace, partner: Tensor, share: Tensor) -> Tensor:
        """Run the second stage: return the logits of every node mixed with its partner.

        Args:
            nodes: Trace of the training nodes of all sources.
            partner: Index of each node's partner among these nodes.
            share: Share λ of each node itself, as a column.
        """
        task = self.task

        def mix(mine: Tensor, other: Tensor) -> Tensor:
            return share * mine + (1 - share) * other

        message = mix(nodes.sent[0], nodes.sent[0].index_select(0, partner))
        for i, (sent, aggregated) in enumerate(zip(nodes.sent, nodes.collected, strict=True)):
            in_own_place = aggregated + nodes.own * (message - sent)
            in_partners_place = (aggregated - nodes.own * sent).index_select(0, partner) + nodes.own[partner] * message
            message = task.send(i + 1, mix(task.receive(i + 1, in_own_place), task.receive(i + 1, in_partners_place)))
        return message

    def shares(self, count: int) -> Tensor:
        """Draw λ ~ Beta(α, α) for `count` nodes."""
        alpha = torch.full((), float(self.hparams["concentration"]), device=self.device)
        return Beta(alpha, alpha, validate_args=False).sample((count,))  # validation would read values on the host

    @property
    def task(self) -> Backbone:
        """The classifier."""
        task = self.networks["task"]
        assert isinstance(task, Backbone)
        return task


def pooled(traces: Sequence[Trace]) -> Trace:
    """Concatenate the nodes of all sources."""
    return Trace(
        torch.cat([t.labels for t in traces]),
        torch.cat([t.own for t in traces]),
        [torch.cat(parts) for parts in zip(*(t.sent for t in traces), strict=True)],
        [torch.cat(parts) for parts in zip(*(t.collected for t in traces), strict=True)],
    )


def partners(sizes: Sequence[int], device: torch.device) -> Tensor:
    """Draw a partner for each node from the other parts, or from its own part if it is the only one.

    Args:
        sizes: Number of nodes of each part. The parts are numbered consecutively.
        device: Where to draw.
    """
    total, end, chosen = sum(sizes), 0, []
    for size in sizes:
        end += size
        others = torch.randint(total - size or total, (size,), device=device)
        chosen.append((end + others) % total)  # counted from the next part on, wrapping around
    return torch.cat(chosen)


def loop_weights(edges: Edges, weight: Any) -> Tensor:
    """Return the N × 1 weights of the self-loops, from the weights of all edges."""
    loops = weight.index_fill(0, edges.real, 0)
    own: Tensor = loops.new_zeros(edges.num_nodes).index_add(0, edges.dst, loops)
    return own.unsqueeze(1)


STATUS = "full"
CITATION = "Zhang et al., mixup, ICLR 2018; Wang et al., Mixup for Node and Graph Classification, WWW 2021"
SUMMARY = "risk of nodes mixed with nodes of other sources, including their neighbourhoods"
