"""Algorithm 1: the MaskNet looks for the worst edge mask, the TaskNet learns to stay accurate under it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask.enrich import Origin
from edgemask.errors import InputError
from edgemask.methods.base import Method
from edgemask.methods.capture import LARGEST_CAPTURE
from edgemask.methods.execution import Means, Record, floats
from edgemask.methods.sources import Source
from edgemask.nn.masknet import EdgeFacts, MaskNet
from edgemask.nn.tensors import Edges, GraphTensors

COLLAPSE = 0.02  # a mean mask of the original edges below this is a collapsed game


class Game(Method):
    """The min-max game of Sections 4.2 and 4.4, with three bounds on the adversary:

    `penalty`  the paper's fixed λ:      min over the MaskNet of  -ℓ + λ mean(s)
    `dual`     dual ascent on λ for mean(s) = ρ, λ free to change sign:  λ ← λ + η (mean(s) - ρ)
    `budget`   s = σ(logit + b) with b such that mean(s) = ρ exactly: the adversary only chooses where
    """

    padded_draws = True

    def build(self) -> dict[str, nn.Module]:
        r = self.recipe
        self.lam = torch.tensor(r.lam, dtype=torch.float64, device=self.device)  # changed in place by `dual`
        if not r.mask:
            return super().build()
        if r.backbone == "mlp":
            raise InputError("backbone = 'mlp' ignores edges, so a mask of them does nothing: set mask = False")
        networks = super().build()
        networks["mask"] = mask = MaskNet(self.num_features, r.mask_projection, r.mask_hidden, r.mask_inputs)
        if r.bound == "budget":  # the budget's shift cancels the last bias, whose gradient is rounding noise
            mask.score.bias.requires_grad_(False)
        return networks

    def make_optimisers(self) -> dict[str, torch.optim.Optimizer]:
        optimisers = super().make_optimisers()
        if self.recipe.mask:
            optimisers["mask"] = self.adam(self.networks["mask"], self.recipe.mask_lr)
        return optimisers

    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        record: Record = {}
        if self.recipe.batch_size is not None:
            record = self.batched(sources, epoch)
        else:
            for part in self.iter_batches(sources, epoch):
                for pair in part:
                    record |= self.replayed(lambda pairs: self.train_on_source(*pairs[0]), [pair])
        return {name: v for name, v in floats(record).items() if not (name.startswith("mask ") and math.isnan(v))}

    def train_on_source(self, source: Source, edges: Edges) -> Record:
        """Algorithm 1 on one source: `n_descent` steps of the TaskNet, then `n_ascent` of the MaskNet."""
        record: Record = {}
        name = source.domain.name
        if not self.recipe.mask or not edges.num_real:  # the same schedule without an adversary
            for _ in range(self.recipe.n_descent):
                record[f"loss {name}"] = self.task_step(source, edges, None)
            return record

        # --- TaskNet descent, on a mask detached from its generator, which does not change before the first ascent ---
        facts = self.edge_facts(source.domain, edges)
        with torch.set_grad_enabled(self.recipe.n_ascent > 0):
            logits = self.networks["mask"](source.domain, edges, facts)
        for _ in range(self.recipe.n_descent):
            s = self.mask(logits.detach(), edges)
            record[f"loss {name}"] = self.task_step(source, edges, s)

        # --- MaskNet ascent, through the frozen TaskNet ---
        for step in range(self.recipe.n_ascent):
            if step > 0:
                logits = self.networks["mask"](source.domain, edges, facts)
            s = self.mask(logits, edges)
            record[f"adversary {name}"] = self.mask_step(source, edges, s)
        return record | self.diagnostics(name, edges, s)

    def batched(self, sources: Sequence[Source], epoch: int) -> Record:
        """An epoch batch by batch; each is played on as a source is in an epoch of whole graphs."""
        batches, means = self.batches(sources, epoch), Means()
        for number in range(batches.rounds):
            for i in range(len(sources)):
                shards = {n: batches.part(i, number, n) for n in self.world.local_shards(self.recipe.shards)}
                for record in self.train_on_batch(shards, epoch, number):
                    means.add(record)
        return means.record()

    def train_on_batch(self, shards: Mapping[int, tuple[Source, Edges]], *when: int) -> list[Record]:
        """`play` on one source's batch, its shards one after the other, every step on their mean; a record of each.

        A shard without edges takes part, and gives the MaskNet no gradient.
        """
        recipe, records = self.recipe, {n: Record() for n in shards}
        facts, logits, masks = {}, {}, dict[int, Tensor]()
        for n, (source, edges) in shards.items() if recipe.mask else ():
            facts[n] = self.edge_facts(source.domain, edges)
            with torch.no_grad():
                logits[n] = self.networks["mask"](source.domain, edges, facts[n])

        for step in range(recipe.n_descent):
            for n, (source, edges) in shards.items():
                with self.shard_context(n, *when, source.domain.name, "descent", step):
                    if recipe.mask:
                        masks[n] = self.mask(logits[n], edges)
                    records[n][f"loss {source.domain.name}"] = self.task_step(source, edges, masks.get(n))

        for step in range(recipe.n_ascent if recipe.mask else 0):
            lam, moved = self.lam.clone(), []
            for n, (source, edges) in shards.items():
                with self.shard_context(n, *when, source.domain.name, "ascent", step):
                    self.lam.copy_(lam)
                    s = self.mask(self.wrapped["mask"](source.domain, edges, facts[n]), edges)
                    if edges.num_real:
                        records[n][f"adversary {source.domain.name}"] = self.mask_step(source, edges, s)
                    else:
                        self.step("mask", s.sum())
                    masks[n] = s.detach()
                    moved.append(self.lam.clone())
            if recipe.bound == "dual":  # to the mean of where each shard alone would move it
                self.lam.copy_(self.world.average(torch.stack(moved).mean()))

        for n, (source, edges) in shards.items():
            if recipe.mask and edges.num_real:
                records[n] |= self.diagnostics(source.domain.name, edges, masks[n])
        return list(records.values())

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
        loss = F.cross_entropy(logits.index_select(0, source.train), source.domain.labels()[source.train])
        objective = -loss if self.recipe.bound == "budget" else -loss + self.lam.to(s.dtype) * edges.mean(s)
        self.step("mask", objective)
        if self.recipe.bound == "dual":
            self.lam += self.recipe.dual_lr * (edges.mean(s.detach()).double() - self.recipe.rho)
        return loss.detach()

    def mask(self, logits: Tensor, edges: Edges) -> Tensor:
        """Return the mask s of given MaskNet logits, under the recipe's bound."""
        if self.recipe.bound == "budget" and len(logits):
            logits = logits + budget_shift(logits, self.recipe.rho, edges.count)
        return logits.sigmoid()

    def edge_facts(self, domain: GraphTensors, edges: Edges) -> EdgeFacts | None:
        """What a richer MaskNet sees of each edge; None for the paper's, which sees features alone."""
        names = self.recipe.mask_inputs
        if not names:
            return None
        p = self.logits(domain, edges).softmax(1) if "predictions" in names else None
        with torch.no_grad():
            return EdgeFacts.of(edges, names, p)

    def mask_of(self, domain: GraphTensors, edges: Edges) -> Tensor:
        """The trained MaskNet's mask of any graph's edges, without randomness."""
        network = self.networks["mask"].eval()
        with torch.no_grad():
            return self.mask(network(domain, edges, self.edge_facts(domain, edges)), edges)

    def diagnostics(self, name: str, edges: Edges, s: Tensor) -> Record:
        """Mean mask by origin (NaN of an origin without edges), gradient norms of both networks, the dual variable."""
        record: Record = {"lambda": self.lam.clone()}
        for origin in Origin:
            held = edges.origin == int(origin)
            record[f"mask {origin.name.lower()} {name}"] = torch.where(held, s.detach(), 0).sum() / held.sum()
        for key in ("task", "mask"):
            grads = [p.grad for p in self.networks[key].parameters() if p.grad is not None]
            if grads:
                record[f"gradient {key} {name}"] = nn.utils.get_total_norm(grads)
        return record

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, numbers = super().state()
        return tensors, numbers | {"lam": float(self.lam)}

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        super().load_state(tensors, numbers)
        self.lam.fill_(numbers["lam"])


def budget_shift(logits: Tensor, rho: float, count: Tensor | None = None) -> Tensor:
    """The scalar b with mean(σ(logits + b)) = ρ, over the first `count` logits where given: the threshold τ* of the
    KKT lemma made explicit. Its gradient is the implicit function's, ∂b/∂logit_e = -σ'_e / Σ σ'."""
    if rho >= 1:
        return 40 - logits.detach().min()  # σ(40) is 1 in float32 and in float64
    if logits.device.type == "cpu":
        from edgemask.nn.kernels.cpu.budget import implicit

        held = len(logits) if count is None else int(count)
        return implicit(logits, bracketed_newton(logits.detach()[:held], rho), held)
    total = len(logits) if count is None else count.squeeze(0)
    there = None if count is None else torch.arange(len(logits), device=logits.device) < count

    def mean(values: Tensor) -> Tensor:
        return values.mean() if there is None else torch.where(there, values, 0).sum() / total

    with torch.no_grad():
        if logits.is_cuda and logits.dtype == torch.float32 and len(logits) < LARGEST_CAPTURE:
            from edgemask.nn.kernels.gpu import budget_root

            everything = torch.full((1,), len(logits), device=logits.device)
            b = budget_root(logits, everything if count is None else count, rho)
        else:
            b = bracketed_newton(logits if count is None else logits[: int(count)], rho)
        s = (logits + b).sigmoid()
        slope = mean(s * (1 - s)).clamp_min(torch.finfo(s.dtype).tiny)
    now = mean((logits + b).sigmoid())
    return b - (now - now.detach()) / slope


def bracketed_newton(logits: Tensor, rho: float, iterations: int = 100) -> Tensor:
    """The root b of mean(σ(logits + b)) - ρ: Newton's method, kept inside a shrinking bracket by bisection."""
    target = torch.logit(logits.new_tensor(rho))
    low, high = target - logits.max(), target - logits.min()  # every σ is ≤ ρ at one end, ≥ ρ at the other
    b = target - logits.mean()  # exact for logits that are all the same
    for _ in range(iterations):
        mean, slope = moments(logits, b)
        error = mean - rho
        low, high = torch.where(error > 0, low, b), torch.where(error > 0, b, high)
        middle = (low + high) / 2
        if error.abs() <= 4 * torch.finfo(b.dtype).eps or middle in (low, high):
            break
        newton = b - error / slope  # infinite or undefined where all σ are flat
        b = torch.where((low < newton) & (newton < high), newton, middle)
    return b


def moments(logits: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """mean σ(logits + b) and mean σ'(logits + b)."""
    if logits.device.type == "cpu":
        from edgemask.nn.kernels.cpu import budget

        return budget.moments(logits, b)
    s = (logits + b).sigmoid()
    return s.mean(), (s * (1 - s)).mean()


def collapsed(record: dict[str, float]) -> list[str]:
    """The sources whose original edges have all but vanished: mean mask below 2 %."""
    key = "mask original "
    return [k.removeprefix(key) for k, v in record.items() if k.startswith(key) and v < COLLAPSE]
