"""EERM: Wu, Zhang, Yan and Wipf, "Handling Distribution Shifts on Graphs: An Invariance Perspective", ICLR 2022.

    min_θ Var_k(R_k) + β mean_k(R_k),   R_k = ℓ(f_θ(G_k), Y),   G_k ~ p_{w_k}(· | G),   w = argmax_w Var_k(R_k)

K context generators edit the edges of a source: every node draws `edits` entries of its row of the adjacency matrix
from a softmax of free logits w_k, and each is flipped, an edge dropped or a missing one added. They learn by REINFORCE
with the reward Var_k(R_k); the classifier takes one step on the objective for every `edit_steps` of theirs.

From the paper: the objective, the free logits, REINFORCE, the schedule. Its code scores the draws with the logits of
another axis than it draws along, and starts them from whatever memory held; ours draws and scores by the same softmax,
from logits of 0.

Ours, and why:
- The paper's logits are an N × N matrix per view. A node here has one logit for each of its in-edges and for
  `candidates` nodes drawn once per source, so memory and time are linear: O(views · (edges + candidates · N)). Nearly
  all entries of a row are absent edges that look alike; a fixed handful of them keeps the two kinds of edits.
- On an enriched graph the original edges and the candidates are edited; the sampled feature-derived edges stay.
- The `edits` draws are independent (one drawn twice counts once), so that their likelihood is a product.
- The reward has a moving mean subtracted: without it all that was drawn becomes likelier.
- Several sources: a variance each, as in the code, and one step on their mean objective.

Defaults: the code's for Cora (1 edit, β = 1) and Facebook (3 views, learning rate of the generators 0.005); it ramps β
up on Twitch alone, we do not. Whole graphs only, and not captured: every view is another set of edges. About `views`
times the time of plain risk minimisation, and the sorting of the edited edges.
"""

from __future__ import annotations

from collections.abc import Mapping
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

FORGETS = 0.1  # rate of the moving mean that is subtracted from the reward


class EERM(Method):
    capturable = False  # every step draws edges to flip, whose number varies

    hyper: ClassVar = {
        "views": HyperParameter(3, 2, 100, law="int", search=(2, 5), about="K, edited graphs per source"),
        "edits": HyperParameter(1, 1, 1000, law="int", search=(1, 5), about="draws per node and view"),
        "candidates": HyperParameter(20, 1, 10**4, law="int", search=(5, 50), about="edges per node that may be added"),
        "beta": HyperParameter(1.0, 0, law="log", search=(0.1, 10.0), about="β, of the mean risk beside the variance"),
        "edit_lr": HyperParameter(5e-3, 0, law="log", search=(1e-4, 1e-2), about="learning rate of the generators"),
        "edit_steps": HyperParameter(
            1, 1, 100, law="int", search=(1, 3), about="their steps per one of the classifier"
        ),
    }

    def build(self) -> dict[str, nn.Module]:
        if self.recipe.batch_size is not None:
            raise InputError(f"EERM edits whole graphs: batch_size must be None, got {self.recipe.batch_size}")
        if self.recipe.backbone == "mlp":
            raise InputError("EERM edits edges, which backbone = 'mlp' ignores: use another backbone")
        self.editors: dict[str, Editor] = {}
        self.held: Mapping[str, Tensor] = {}  # of a checkpoint, until its sources are seen
        return super().build()

    def joint_step(self, pairs: Pairs) -> Record:
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
        """The risks of the views drawn for a source, whose generators then take a step."""
        editor = self.editor(source.domain)
        counts = editor.draw(int(self.hparams["edits"]))
        risks = torch.stack([self.risk(source, editor.edited(edges, drawn > 0)) for drawn in counts])
        editor.reinforce(counts, risks.detach().var())
        return risks

    def editor(self, domain: GraphTensors) -> Editor:
        """The generators of a source, made when it is first seen."""
        if domain.name not in self.editors:
            stream = torch_stream(self.seed, "candidates", domain.name)
            editor = Editor(domain, int(self.hparams["views"]), int(self.hparams["candidates"]), stream)
            editor.optimiser = self.adam(editor, float(self.hparams["edit_lr"]))
            self.editors[domain.name] = editor
            if state := checkpoint.unpack(f"editor-{domain.name}", self.held):
                editor.load_state_dict(checkpoint.unpack("logits", state))
                checkpoint.unpack_optimiser("optimiser", state, editor.optimiser)
        return self.editors[domain.name]

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, numbers = super().state()
        for name, editor in self.editors.items():
            parts = checkpoint.pack_module("logits", editor) | checkpoint.pack_optimiser("optimiser", editor.optimiser)
            tensors |= {f"editor-{name}/{part}": t for part, t in parts.items()}
        return tensors, numbers

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        super().load_state(tensors, numbers)
        self.editors.clear()
        self.held = {name: t for name, t in tensors.items() if name.startswith("editor-")}


class Editor(nn.Module):
    """K generators of one source: logits of all that may be flipped, node by node: its in-edges and candidates."""

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
        """What each view's node flips: for every node a softmax over its own logits."""
        with torch.no_grad():
            e = (self.logits.double() - self.logits.double().amax(1, keepdim=True)).exp()
            totals = [torch.segment_reduce(row, "sum", lengths=self.lengths, unsafe=True) for row in e]
            return e / torch.stack(totals)[:, self.segment]

    def draw(self, edits: int) -> Tensor:
        """How often each flip is drawn in each view, in `edits` independent draws of every node."""
        nodes, last = len(self.lengths), self.lengths.cumsum(0) - 1
        below = self.probabilities().cumsum(1)  # a node's probabilities fill one unit of this line
        at = torch.arange(nodes, device=below.device).unsqueeze(1)
        u = (at + torch.rand(len(below), nodes, edits, device=below.device, dtype=below.dtype)).flatten(1)
        drawn = torch.searchsorted(below, u, right=True).view(len(below), nodes, edits)
        drawn = drawn.clamp((last - self.lengths + 1).unsqueeze(1), last.unsqueeze(1)).flatten(1)
        return torch.zeros_like(below, dtype=torch.float32).scatter_add_(1, drawn, torch.ones_like(drawn).float())

    def edited(self, edges: Edges, flipped: Tensor) -> Edges:
        """Edges with the flips of one view made."""
        n = edges.num_nodes
        keys = edges.dst[edges.real] * n + edges.src[edges.real]
        keys = keys[~torch.isin(keys, self.keys[flipped & self.present])]
        keys = torch.unique(torch.cat([keys, self.keys[flipped & ~self.present]]))
        return Edges.build(keys % n, keys // n, n)

    def reinforce(self, counts: Tensor, reward: Tensor) -> None:
        """A step of REINFORCE: Σ_k log p_k(draws) has the gradient counts - draws per node · p."""
        self.baseline: Tensor
        advantage = torch.where(self.baseline.isnan(), 0, reward - self.baseline)
        moved = torch.lerp(self.baseline, reward.to(self.baseline.dtype), FORGETS)
        self.baseline.copy_(torch.where(self.baseline.isnan(), reward, moved))
        per_node = counts.sum() / counts.shape[0] / len(self.lengths)
        self.logits.grad = -advantage * (counts - per_node * self.probabilities().float())
        self.optimiser.step()


STATUS = "partial: the paper's N × N edit logits are kept for the edges and 20 candidates per node; a reward baseline"
CITATION = "Wu et al., Handling Distribution Shifts on Graphs: An Invariance Perspective, ICLR 2022"
SUMMARY = "edge edits that raise the variance of risks; the classifier lowers variance and mean"
