"""Algorithm 1: the MaskNet looks for the worst edge mask, the TaskNet learns to stay accurate under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.enrich import Origin
from edgemask.methods.base import Method, Record, Source, floats
from edgemask.nn.masknet import EdgeFacts, MaskNet, mask_values
from edgemask.nn.tensors import Domain, Edges

COLLAPSE = 0.02  # a mean mask of the original edges below this is a collapsed game


class Game(Method):
    """The min-max game of Sections 4.2 and 4.4, with three bounds on the adversary:

    `penalty`  the paper's fixed λ:      min over the MaskNet of  -ℓ + λ mean(s)
    `dual`     dual ascent on λ for mean(s) = ρ, λ free to change sign:  λ ← λ + η (mean(s) - ρ)
    `budget`   s = σ(logit + b) with b such that mean(s) = ρ exactly: the adversary only chooses where
    """

    def build(self) -> dict[str, nn.Module]:
        r = self.recipe
        self.lam = r.lam
        if not r.mask:
            return super().build()
        if r.backbone == "mlp":
            raise ValueError("backbone = 'mlp' ignores edges, so a mask of them does nothing: set mask = False")
        return super().build() | {"mask": MaskNet(self.num_features, r.mask_projection, r.mask_hidden, r.mask_inputs)}

    def make_optimisers(self) -> dict[str, torch.optim.Optimizer]:
        optimisers = super().make_optimisers()
        if self.recipe.mask:
            optimisers["mask"] = torch.optim.Adam(self.networks["mask"].parameters(), self.recipe.mask_lr)
        return optimisers

    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        record: Record = {}
        for part in self.rounds(sources, epoch):
            for source, edges in part:
                record |= self.play(source, edges)
        return floats(record)

    def play(self, source: Source, edges: Edges) -> Record:
        """Algorithm 1 on one source: `n_descent` steps of the TaskNet, then `n_ascent` of the MaskNet."""
        record: Record = {}
        name = source.domain.name
        if not self.recipe.mask or not edges.num_real:  # the same schedule without an adversary
            for _ in range(self.recipe.n_descent):
                record[f"loss {name}"] = self.task_step(source, edges, None)
            return record

        # --- TaskNet descent, on a mask detached from its generator ---
        facts = self.edge_facts(source.domain, edges)
        with torch.no_grad():
            logits = self.networks["mask"](source.domain, edges, facts)
        for _ in range(self.recipe.n_descent):
            s = self.mask(logits, sample=True)
            record[f"loss {name}"] = self.task_step(source, edges, s)

        # --- MaskNet ascent, through the frozen TaskNet ---
        for _ in range(self.recipe.n_ascent):
            s = self.mask(self.networks["mask"](source.domain, edges, facts), sample=True)
            record[f"adversary {name}"] = self.mask_step(source, edges, s)
        return record | self.observe(name, edges, s)

    def task_step(self, source: Source, edges: Edges, s: Tensor | None) -> Tensor:
        """One step of the TaskNet on ℓ (Eq. task_min); returns the loss."""
        loss = self.risk(source, edges, s)
        self.step("task", loss)
        return loss.detach()

    def mask_step(self, source: Source, edges: Edges, s: Tensor) -> Tensor:
        """One step of the MaskNet on -ℓ + λ mean(s) (Eq. mask_min); the TaskNet's weights are frozen."""
        task = self.networks["task"].eval().requires_grad_(False)
        with torch.set_grad_enabled(self.recipe.adversarial):
            logits = task(source.domain.x, edges, s)
        task.requires_grad_(True)
        loss = F.cross_entropy(logits[source.train], source.domain.labels()[source.train])
        objective = -loss if self.recipe.bound == "budget" else -loss + self.lam * s.mean()
        self.step("mask", objective)
        if self.recipe.bound == "dual":
            self.lam += self.recipe.dual_lr * (float(s.detach().mean()) - self.recipe.rho)
        return loss.detach()

    def mask(self, logits: Tensor, *, sample: bool) -> Tensor:
        """The mask s of given MaskNet logits, under this recipe's kind and bound."""
        if self.recipe.bound == "budget" and len(logits):
            logits = logits + budget_shift(logits, self.recipe.rho)
        return mask_values(logits, self.recipe.mask_kind, sample=sample)

    def edge_facts(self, domain: Domain, edges: Edges) -> EdgeFacts | None:
        """What a richer MaskNet sees of each edge; None for the paper's, which sees features alone."""
        names = self.recipe.mask_inputs
        if not names:
            return None
        p = self.logits(domain, edges).softmax(1) if "predictions" in names else None
        with torch.no_grad():
            return EdgeFacts.of(edges, names, p)

    def mask_of(self, domain: Domain, edges: Edges) -> Tensor:
        """The trained MaskNet's mask of any graph's edges, without randomness."""
        network = self.networks["mask"].eval()
        with torch.no_grad():
            return self.mask(network(domain, edges, self.edge_facts(domain, edges)), sample=False)

    def observe(self, name: str, edges: Edges, s: Tensor) -> Record:
        """Mean mask by origin, gradient norms of both networks, the dual variable."""
        record: Record = {"lambda": self.lam}
        for origin in Origin:
            held = edges.origin == int(origin)
            if held.any():
                record[f"mask {origin.name.lower()} {name}"] = s.detach()[held].mean()
        for key in ("task", "mask"):
            norms = [p.grad.norm() for p in self.networks[key].parameters() if p.grad is not None]
            if norms:
                record[f"gradient {key} {name}"] = torch.stack(norms).norm()
        return record

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, numbers = super().state()
        return tensors, numbers | {"lam": self.lam}

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        super().load_state(tensors, numbers)
        self.lam = float(numbers["lam"])


def budget_shift(logits: Tensor, rho: float, iterations: int = 100) -> Tensor:
    """The scalar b with mean(σ(logits + b)) = ρ: the threshold τ* of the KKT lemma made explicit.

    Newton's method finds it, kept inside a shrinking bracket by bisection; its gradient is the implicit
    function's, ∂b/∂logit_e = -σ'_e / Σ σ'.
    """
    if rho >= 1:
        return 40 - logits.detach().min()  # σ(40) is 1 in float32 and in float64
    with torch.no_grad():
        target = torch.logit(logits.new_tensor(rho))
        low, high = target - logits.max(), target - logits.min()  # every σ is ≤ ρ at one end, ≥ ρ at the other
        b = (low + high) / 2
        for _ in range(iterations):
            s = (logits + b).sigmoid()
            error, slope = s.mean() - rho, (s * (1 - s)).mean()
            low, high = torch.where(error > 0, low, b), torch.where(error > 0, b, high)
            middle = (low + high) / 2
            if error.abs() <= 4 * torch.finfo(s.dtype).eps or middle in (low, high):
                break
            newton = b - error / slope  # infinite or undefined where all σ are flat
            b = torch.where((low < newton) & (newton < high), newton, middle)
        slope = slope.clamp_min(torch.finfo(s.dtype).tiny)
    mean = (logits + b).sigmoid().mean()
    return b - (mean - mean.detach()) / slope


def collapsed(record: dict[str, float]) -> list[str]:
    """The sources whose original edges have all but vanished: mean mask below 2 %."""
    key = "mask original "
    return [k.removeprefix(key) for k, v in record.items() if k.startswith(key) and v < COLLAPSE]
