"""Mixup of nodes from different sources: predictions in between for nodes in between.

H. Zhang, M. Cisse, Y. Dauphin, D. Lopez-Paz, "mixup: Beyond Empirical Risk Minimization", ICLR 2018; for nodes:
Y. Wang, W. Wang, Y. Liang, Y. Cai, B. Hooi, "Mixup for Node and Graph Classification", WWW 2021.

    min_θ (1/M) Σ_i E_{a in i, b not in i, λ ~ Beta(α, α)} [ λ ℓ(f_θ(a ⊕ b), y_a) + (1 - λ) ℓ(f_θ(a ⊕ b), y_b) ]

a ⊕ b is a node between a and b. It starts from λ x_a + (1 - λ) x_b; in every round of message passing it stands once
in the place of a, among a's neighbours, and once in that of b, and the two results are mixed, λ to 1 - λ (the paper's
two-branch convolution). The neighbours are as they are without any mixing (its two stages).

Rebuilt in full for backbones whose rounds are sums with fixed weights (GCN, GIN, SGC): what a node would collect in
another's place is what that one collected, with the own message replaced. By linearity the features are mixed after the
first linear map, so that sparse ones stay sparse. The authors' own convolution has a second linear map for the node
itself; our backbones have not, there its share is the weight of the self-loop. Ours: each training node has a partner
drawn from the training nodes of all other sources, anew in every step, as in mixup across domains (DomainBed; of its
own source where it is the only one, as in both papers), and a λ of its own (the authors: one for all in a step).

Defaults: α = 4 is that of the authors' code, on PubMed; GOOD (Gui et al., NeurIPS 2022) searches 0.4 to 2.
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

SUMS = ("gcn", "gin", "sgc")  # the backbones whose rounds are sums with fixed weights


@dataclass(frozen=True)
class Trace:
    """What passed through some nodes, without mixing: the message each sent and what it collected, in every round;
    `own` is the share of its message that a node collects itself."""

    labels: Tensor
    own: Tensor
    sent: list[Tensor]
    collected: list[Tensor]


class Mixup(ERM):
    hyper: ClassVar = {
        "concentration": HyperParameter(4.0, 1e-3, law="log", search=(0.1, 10.0), about="α of the shares' Beta(α, α)")
    }

    def build(self) -> dict[str, nn.Module]:
        if (backbone := self.recipe.backbone) not in SUMS:
            legal = ", ".join(SUMS)
            raise InputError(f"mixup: backbone must be one whose rounds are plain sums ({legal}), got {backbone!r}")
        return super().build()

    def joint_step(self, pairs: Pairs) -> Record:
        traces = [self.trace(source, edges) for source, edges in pairs]
        sizes = [len(t.labels) for t in traces]
        whole, partner = pooled(traces), partners(sizes, self.device)
        share = self.shares(len(partner))
        logits = self.mixed(whole, partner, share.unsqueeze(1))
        mine, other = (F.cross_entropy(logits, y, reduction="none") for y in (whole.labels, whole.labels[partner]))
        parts = torch.split(share * mine + (1 - share) * other, sizes)
        risks = torch.stack([part.mean() for part in parts])
        self.step("task", risks.mean())
        names = [source.domain.name for source, _ in pairs]
        return {f"loss {name}": risk for name, risk in zip(names, risks.detach(), strict=True)}

    def trace(self, source: Source, edges: Edges) -> Trace:
        """The first stage: a plain forward, in training mode, and what it left at the training nodes."""
        task = self.task.train()
        weight, z = task.weigh(edges, None), task.at_nodes(0, source.domain.x)
        sent, collected = [], []
        for i in range(task.rounds):
            got = task.collect(i, edges, weight, z)
            sent.append(z.index_select(0, source.train))
            collected.append(got.index_select(0, source.train))
            if i + 1 < task.rounds:
                z = task.at_nodes(i + 1, got)
        own = loop_weights(edges, weight).index_select(0, source.train)
        return Trace(source.domain.labels()[source.train], own, sent, collected)

    def mixed(self, nodes: Trace, partner: Tensor, share: Tensor) -> Tensor:
        """The second stage: the logits of every node mixed with its partner."""
        task = self.task

        def mix(mine: Tensor, other: Tensor) -> Tensor:
            return share * mine + (1 - share) * other

        message = mix(nodes.sent[0], nodes.sent[0].index_select(0, partner))
        for i, (sent, got) in enumerate(zip(nodes.sent, nodes.collected, strict=True)):
            here = got + nodes.own * (message - sent)
            there = (got - nodes.own * sent).index_select(0, partner) + nodes.own[partner] * message
            message = task.send(i + 1, mix(task.receive(i + 1, here), task.receive(i + 1, there)))
        return message

    def shares(self, count: int) -> Tensor:
        """λ ~ Beta(α, α) for so many nodes."""
        alpha = torch.full((), float(self.hparams["concentration"]), device=self.device)
        return Beta(alpha, alpha, validate_args=False).sample((count,))  # its checks would look at values

    @property
    def task(self) -> Backbone:
        task = self.networks["task"]
        assert isinstance(task, Backbone)
        return task


def pooled(traces: Sequence[Trace]) -> Trace:
    """The nodes of all sources, one source after the other."""
    return Trace(
        torch.cat([t.labels for t in traces]),
        torch.cat([t.own for t in traces]),
        [torch.cat(parts) for parts in zip(*(t.sent for t in traces), strict=True)],
        [torch.cat(parts) for parts in zip(*(t.collected for t in traces), strict=True)],
    )


def partners(sizes: Sequence[int], device: torch.device) -> Tensor:
    """For each node of parts of these sizes, one after the other, a node of another part; of its own if it is alone."""
    total, end, chosen = sum(sizes), 0, []
    for size in sizes:
        end += size
        others = torch.randint(total - size or total, (size,), device=device)
        chosen.append((end + others) % total)  # counted from the next part on, round to the one before
    return torch.cat(chosen)


def loop_weights(edges: Edges, weight: Any) -> Tensor:
    """N × 1 weights of the self-loops, from the weights of all edges."""
    loops = weight.index_fill(0, edges.real, 0)
    own: Tensor = loops.new_zeros(edges.num_nodes).index_add(0, edges.dst, loops)
    return own.unsqueeze(1)


STATUS = "full"
CITATION = "Zhang et al., mixup, ICLR 2018; Wang et al., Mixup for Node and Graph Classification, WWW 2021"
SUMMARY = "risk of nodes mixed with nodes of other sources, neighbourhoods included"
