"""EERM: explore-to-extrapolate risk minimisation.

Wu, Zhang, Yan and Wipf, "Handling Distribution Shifts on Graphs: An Invariance Perspective", ICLR 2022.

    min_θ Var_k(R_k) + β mean_k(R_k),   R_k = ℓ(f_θ(G_k), Y),   G_k ~ p_{w_k}(· | G),   w = argmax_w Var_k(R_k)

K context generators edit the edges of a source. Every node draws `edits` entries of its row of the adjacency matrix
from a softmax of free logits w_k, and each drawn entry is flipped: an edge is dropped, or a missing edge is added. The
generators learn by REINFORCE with the reward Var_k(R_k). The classifier takes one step on the objective for every
`edit_steps` steps of the generators.

From the paper: the objective, the free logits, REINFORCE and the schedule. The authors' code scores the draws with
logits along a different axis than the one it draws along, and starts from uninitialised memory. This implementation
draws and scores with the same softmax, and starts from logits of 0.

Choices made here:

- The logits of the paper are an N × N matrix per view. Here a node has one logit for each of its in-edges and for
  `candidates` nodes that are drawn once per source, so memory and time are linear:
  O(views · (edges + candidates · N)). Nearly all entries of a row are absent edges that look alike; a small fixed set
  of them preserves both kinds of edits.
- In a weighted graph, edges that are kept keep their weight, and added ones have weight 1.
- On an enriched graph the original edges and the candidates are edited; the sampled feature-derived edges stay.
- The `edits` draws are independent, so that their likelihood is a product. An entry drawn twice is flipped once.
- A moving mean is subtracted from the reward. Without it, everything that was drawn would become more likely.
- With several sources there is one variance per source, as in the code, and one step on the mean of their objectives.

Defaults: those of the code for Cora (1 edit, β = 1) and Facebook (3 views, generator learning rate 0.005). The code
increases β gradually on Twitch only; here β is constant. The method needs whole graphs, and its steps are not captured,
because every view has different edges. It takes about `views` times as long as plain risk minimisation, plus the
sorting of the edited edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from edgemask.config import HyperParameter
from edgemask.errors import InputError
from edgemask.methods.base import Method
from edgemask.methods.execution import Record
from edgemask.methods.sources import Pairs, Source
from edgemask.nn.tensors import Edges, GraphTensors
from edgemask.runtime import checkpoint
from edgemask.seeds import torch_stream

FORGETS = 0.1  # update rate of the moving mean that is subtracted from the reward


class EERM(Method):
    """Minimisation of the variance and mean of risks over graphs that adversarial generators edit."""

    capturable = False  # every step flips a different number of edges

    hyper: ClassVar = {
        "views": HyperParameter(3, 2, 100, law="int", search=(2, 5), about="K, number of edited graphs per source"),
        "edits": HyperParameter(1, 1, 1000, law="int", search=(1, 5), about="draws per node and view"),
        "candidates": HyperParameter(
            20, 1, 10**4, law="int", search=(5, 50), about="candidate edges per node that may be added"
        ),
        "beta": HyperParameter(1.0, 0, law="log", search=(0.1, 10.0), about="β, weight of the mean risk"),
        "edit_lr": HyperParameter(5e-3, 0, law="log", search=(1e-4, 1e-2), about="learning rate of the generators"),
        "edit_steps": HyperParameter(1, 1, 100, law="int", search=(1, 3), about="generator steps per classifier step"),
    }

    def build(self) -> dict[str, nn.Module]:
        """Return the classifier. The generators of a source are created when it is first used.

        Raises:
            InputError: The recipe has a `batch_size`, or its backbone is an MLP.
        """
        if self.recipe.batch_size is not None:
            raise InputError(f"EERM needs whole graphs: batch_size must be None, got {self.recipe.batch_size}")
        if self.recipe.backbone == "mlp":
            raise InputError("EERM edits edges, but backbone = 'mlp' ignores edges: use another backbone")
        self.editors: dict[str, Editor] = {}
        self.restored: Mapping[str, Tensor] = {}  # generators of a checkpoint, until their sources are used
        return super().build()

    def joint_step(self, pairs: Pairs) -> Record:
        """Take one classifier step and `edit_steps` generator steps."""
        record: Record = {}
        objectives = []
        for source, edges in pairs:
            name = source.domain.name
            variance, mean = torch.var_mean(self.explore(source, edges))
            objectives.append(variance + float(self.hparams["beta"]) * mean)
            record |= {f"loss {name}": mean.detach(), f"variance {name}": variance.detach()}
        self.step("task", torch.stack(objectives).mean())
        with torch.no_grad():
            for _ in range(int(self.hparams["edit_steps"]) - 1):
                for source, edges in pairs:
                    self.explore(source, edges)
        return record

    def explore(self, source: Source, edges: Edges) -> Tensor:
        """Return the risks of newly drawn views of a source, and take a step of its generators."""
        editor = self.editor(source.domain)
        counts = editor.draw(int(self.hparams["edits"]))
        risks = torch.stack([self.risk(source, editor.edited(edges, drawn > 0)) for drawn in counts])
        editor.reinforce(counts, risks.detach().var())
        return risks

    def editor(self, domain: GraphTensors) -> Editor:
        """Return the generators of a source. They are created when it is first used."""
        if domain.name not in self.editors:
            stream = torch_stream(self.seed, "candidates", domain.name)
            editor = Editor(domain, int(self.hparams["views"]), int(self.hparams["candidates"]), stream)
            editor.optimiser = self.adam(editor, float(self.hparams["edit_lr"]))
            self.editors[domain.name] = editor
            if state := checkpoint.unpack(f"editor-{domain.name}", self.restored):
                checkpoint.load_module("logits", state, editor)
                checkpoint.unpack_optimiser("optimiser", state, editor.optimiser)
        return self.editors[domain.name]

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return everything the next epoch depends on, including the generators."""
        tensors, numbers = super().state()
        for name, editor in self.editors.items():
            parts = checkpoint.pack_module("logits", editor) | checkpoint.pack_optimiser("optimiser", editor.optimiser)
            tensors |= {f"editor-{name}/{part}": t for part, t in parts.items()}
        return tensors, numbers

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        super().load_state(tensors, numbers)
        self.editors.clear()
        self.restored = {name: t for name, t in tensors.items() if name.startswith("editor-")}

    def check_state(self, sources: Sequence[Source]) -> None:
        """Restore the generators of all sources, which checks them."""
        for source in sources:
            self.editor(source.domain)


class Editor(nn.Module):
    """K generators of one source, with a logit for every edge that may be flipped: in-edges and candidates.

    Args:
        domain: Tensors of the source.
        views: Number of generators K.
        candidates: Number of absent edges drawn per node that may be added.
        stream: Source of randomness of the candidates.

    Attributes:
        optimiser: Optimiser of the logits. It must be set before `reinforce` is called.
    """

    optimiser: torch.optim.Optimizer

    def __init__(self, domain: GraphTensors, views: int, candidates: int, stream: torch.Generator):
        super().__init__()
        edges, n = domain.edges, domain.num_nodes
        device = edges.src.device
        present = edges.dst[edges.real] * n + edges.src[edges.real]  # sorted
        nodes = torch.arange(n, device=device).unsqueeze(1)
        others = torch.randint(n, (n, candidates), generator=stream).to(device)
        absent = torch.unique((nodes * n + others)[others != nodes])
        absent = absent[~torch.isin(absent, present)]
        self.keys, order = torch.cat([present, absent]).sort()  # destination · N + source
        self.present = order < len(present)
        _, self.segment, self.lengths = torch.unique_consecutive(
            self.keys // n, return_inverse=True, return_counts=True
        )
        self.logits = nn.Parameter(torch.zeros(views, len(self.keys), device=device))
        self.register_buffer("baseline", torch.full((), torch.nan, device=device))

    def probabilities(self) -> Tensor:
        """Return the probability of each flip in each view: for every node, a softmax over its own logits."""
        with torch.no_grad():
            e = (self.logits.double() - self.logits.double().amax(1, keepdim=True)).exp()
            totals = [torch.segment_reduce(row, "sum", lengths=self.lengths, unsafe=True) for row in e]
            return e / torch.stack(totals)[:, self.segment]

    def draw(self, edits: int) -> Tensor:
        """Return how often each flip is drawn in each view, in `edits` independent draws per node."""
        nodes, last = len(self.lengths), self.lengths.cumsum(0) - 1
        below = self.probabilities().cumsum(1)  # each node's probabilities fill one interval of length 1
        index = torch.arange(nodes, device=below.device).unsqueeze(1)
        u = (index + torch.rand(len(below), nodes, edits, device=below.device, dtype=below.dtype)).flatten(1)
        drawn = torch.searchsorted(below, u, right=True).view(len(below), nodes, edits)
        drawn = drawn.clamp((last - self.lengths + 1).unsqueeze(1), last.unsqueeze(1)).flatten(1)
        return torch.zeros_like(below, dtype=torch.float32).scatter_add_(1, drawn, torch.ones_like(drawn).float())

    def edited(self, edges: Edges, flipped: Tensor) -> Edges:
        """Return the edges after the flips of one view."""
        n = edges.num_nodes
        keys = edges.dst[edges.real] * n + edges.src[edges.real]
        kept = ~torch.isin(keys, self.keys[flipped & self.present])
        added = self.keys[flipped & ~self.present]
        keys, order = torch.cat([keys[kept], added]).sort(
            stable=True
        )  # among duplicates, the existing edge comes first
        first = torch.diff(keys, prepend=keys.new_tensor([-1])) > 0
        keys, weight = keys[first], edges.weight
        if weight is not None:
            weight = torch.cat([weight[kept], torch.ones_like(added, dtype=weight.dtype)])[order[first]]
        return Edges.build(keys % n, keys // n, n, weight=weight)

    def reinforce(self, counts: Tensor, reward: Tensor) -> None:
        """Take a REINFORCE step. The gradient of Σ_k log p_k(draws) is counts - draws per node · p."""
        self.baseline: Tensor
        advantage = torch.where(self.baseline.isnan(), 0, reward - self.baseline)
        updated = torch.lerp(self.baseline, reward.to(self.baseline.dtype), FORGETS)
        self.baseline.copy_(torch.where(self.baseline.isnan(), reward, updated))
        per_node = counts.sum() / counts.shape[0] / len(self.lengths)
        self.logits.grad = -advantage * (counts - per_node * self.probabilities().float())
        self.optimiser.step()


STATUS = "partial: N × N edit logits reduced to the edges and 20 candidates per node; a reward baseline is added"
CITATION = "Wu et al., Handling Distribution Shifts on Graphs: An Invariance Perspective, ICLR 2022"
SUMMARY = "generators edit edges to raise the variance of the risks; the classifier lowers their variance and mean"
