"""Algorithm 1: the MaskNet searches for the worst edge mask, and the TaskNet learns to stay accurate under it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from edgemask.enrich import Origin
from edgemask.errors import InputError
from edgemask.methods.base import Method
from edgemask.methods.execution import Means, Record, floats
from edgemask.methods.sources import Source
from edgemask.nn.budget import budget_shift
from edgemask.nn.masknet import EdgeFacts, MaskNet
from edgemask.nn.tensors import Edges, GraphTensors

COLLAPSE = 0.02  # training has collapsed if the mean mask of the original edges is below this


class Game(Method):
    """The min-max game of Sections 4.2 and 4.4.

    The setting `bound` restricts the adversary in one of three ways:

    `penalty`  the fixed λ of the paper:  min over the MaskNet of  -ℓ + λ mean(s)
    `dual`     dual ascent on λ, so that mean(s) = ρ; λ may change sign:  λ ← λ + η (mean(s) - ρ)
    `budget`   s = σ(logit + b), with b such that mean(s) = ρ exactly; the adversary only chooses which edges to mask

    Attributes:
        lam: The current λ. `dual` updates it in place.
    """

    padded_draws = True
    any_loss = True

    def build(self) -> dict[str, nn.Module]:
        """Return the TaskNet and, unless `mask` is False, the MaskNet.

        Raises:
            InputError: The backbone is an MLP and `mask` is True.
        """
        r = self.recipe
        self.lam = torch.tensor(r.lam, dtype=torch.float64, device=self.device)
        if not r.mask:
            return super().build()
        if r.backbone == "mlp":
            raise InputError("backbone = 'mlp' ignores edges, so an edge mask has no effect: set mask = False")
        networks = super().build()
        networks["mask"] = mask = MaskNet(self.num_features, r.mask_projection, r.mask_hidden, r.mask_inputs)
        if r.bound == "budget":  # the shift b cancels the last bias, whose gradient would be only rounding noise
            mask.score.bias.requires_grad_(False)
        return networks

    def make_optimisers(self) -> dict[str, torch.optim.Optimizer]:
        """Return one Adam optimiser per network."""
        optimisers = super().make_optimisers()
        if self.recipe.mask:
            optimisers["mask"] = self.adam(self.networks["mask"], self.recipe.mask_lr)
        return optimisers

    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        """Train for one epoch on whole graphs or batches, and return what to record."""
        record: Record = {}
        if self.recipe.batch_size is not None:
            record = self.batched(sources, epoch)
        else:
            for part in self.iter_batches(sources, epoch):
                for pair in part:
                    record |= self.replayed(lambda pairs: self.train_on_source(*pairs[0]), [pair])
        return {name: v for name, v in floats(record).items() if not (name.startswith("mask ") and math.isnan(v))}

    def train_on_source(self, source: Source, edges: Edges) -> Record:
        """Run Algorithm 1 on one source: `n_descent` TaskNet steps, then `n_ascent` MaskNet steps."""
        record: Record = {}
        name = source.domain.name
        if not self.recipe.mask or not edges.num_real:  # same schedule, no adversary
            for _ in range(self.recipe.n_descent):
                record[f"loss {name}"] = self.task_step(source, edges, None)
            return record

        # --- TaskNet descent. The mask is detached: the MaskNet does not change before its first ascent step. ---
        facts = self.edge_facts(source.domain, edges)
        with torch.set_grad_enabled(self.recipe.n_ascent > 0):
            s = self.mask(self.networks["mask"](source.domain.x, edges, facts), edges)
        for _ in range(self.recipe.n_descent):
            record[f"loss {name}"] = self.task_step(source, edges, s.detach())

        # --- MaskNet ascent, through the frozen TaskNet ---
        for step in range(self.recipe.n_ascent):
            if step > 0:
                s = self.mask(self.networks["mask"](source.domain.x, edges, facts), edges)
            record[f"adversary {name}"] = self.mask_step(source, edges, s)
        return record | self.diagnostics(name, edges, s)

    def batched(self, sources: Sequence[Source], epoch: int) -> Record:
        """Train for one epoch in batches. Each batch is treated like a whole source."""
        batches, means = self.batches(sources, epoch), Means()
        for number in range(batches.rounds):
            for i in range(len(sources)):
                shards = {n: batches.part(i, number, n) for n in self.world.local_shards(self.recipe.shards)}
                for record in self.train_on_batch(shards, epoch, number):
                    means.add(record)
        return means.record()

    def train_on_batch(self, shards: Mapping[int, tuple[Source, Edges]], *when: int) -> list[Record]:
        """Run Algorithm 1 on one batch of one source, split into shards.

        The shards run one after the other, and every optimiser step uses the mean of their gradients. A shard without
        edges takes part but gives the MaskNet no gradient.

        Args:
            shards: This process's shards of the batch, by number: the part of the source and its edges.
            when: Epoch and batch number, from which the shards' random states are derived.

        Returns:
            One record per shard.
        """
        recipe, records = self.recipe, {n: Record() for n in shards}
        facts, logits, masks = {}, {}, dict[int, Tensor]()
        for n, (source, edges) in shards.items() if recipe.mask else ():
            facts[n] = self.edge_facts(source.domain, edges)
            with torch.no_grad():
                logits[n] = self.networks["mask"](source.domain.x, edges, facts[n])

        for step in range(recipe.n_descent):
            for n, (source, edges) in shards.items():
                with self.shard_context(n, *when, source.domain.name, "descent", step):
                    if recipe.mask:
                        masks[n] = self.mask(logits[n], edges)
                    records[n][f"loss {source.domain.name}"] = self.task_step(source, edges, masks.get(n))

        for step in range(recipe.n_ascent if recipe.mask else 0):
            lam, shard_lams = self.lam.clone(), []
            for n, (source, edges) in shards.items():
                with self.shard_context(n, *when, source.domain.name, "ascent", step):
                    self.lam.copy_(lam)
                    s = self.mask(self.wrapped["mask"](source.domain.x, edges, facts[n]), edges)
                    if edges.num_real:
                        records[n][f"adversary {source.domain.name}"] = self.mask_step(source, edges, s)
                    else:
                        self.step("mask", s.sum())
                    masks[n] = s.detach()
                    shard_lams.append(self.lam.clone())
            if recipe.bound == "dual":  # the mean of the values that the shards alone would give
                self.lam.copy_(self.world.average(torch.stack(shard_lams).mean()))

        for n, (source, edges) in shards.items():
            if recipe.mask and edges.num_real:
                records[n] |= self.diagnostics(source.domain.name, edges, masks[n])
        return list(records.values())

    def task_step(self, source: Source, edges: Edges, s: Tensor | None) -> Tensor:
        """Take one TaskNet step on ℓ (Eq. task_min) and return the loss.

        Args:
            source: The source.
            edges: Its edges in this step.
            s: Mask of the real edges. None means ones.
        """
        loss = self.risk(source, edges, s)
        self.step("task", loss)
        return loss.detach()

    def mask_step(self, source: Source, edges: Edges, s: Tensor) -> Tensor:
        """Take one MaskNet step on -ℓ + λ mean(s) (Eq. mask_min), with the TaskNet frozen, and return ℓ.

        Args:
            source: The source.
            edges: Its edges in this step.
            s: The mask, with its gradient to the MaskNet.
        """
        task = self.networks["task"].eval().requires_grad_(False)
        with torch.set_grad_enabled(self.recipe.adversarial):
            logits = task(source.domain.x, edges, mask=s)
        task.requires_grad_(True)
        loss = self.classification_loss(logits, source)
        objective = -loss if self.recipe.bound == "budget" else -loss + self.lam.to(s.dtype) * edges.mean(s)
        self.step("mask", objective)
        if self.recipe.bound == "dual":
            self.lam += self.recipe.dual_lr * (edges.mean(s.detach()).double() - self.recipe.rho)
        return loss.detach()

    def mask(self, logits: Tensor, edges: Edges) -> Tensor:
        """Return the mask s of the given MaskNet logits, under the recipe's bound."""
        if self.recipe.bound == "budget" and len(logits):
            logits = logits + budget_shift(logits, self.recipe.rho, edges.count)
        return logits.sigmoid()

    def edge_facts(self, domain: GraphTensors, edges: Edges) -> EdgeFacts | None:
        """Return the extra MaskNet inputs for every edge (`mask_inputs`).

        The result is None for the MaskNet of the paper, which sees only the node features.
        """
        names = self.recipe.mask_inputs
        if not names:
            return None
        p = self.logits(domain, edges).softmax(1) if "predictions" in names else None
        with torch.no_grad():
            return EdgeFacts.of(edges, names, p)

    def mask_of(self, domain: GraphTensors, edges: Edges) -> Tensor:
        """Return the trained MaskNet's mask of a graph's edges. There is no randomness."""
        network = self.networks["mask"].eval()
        with torch.no_grad():
            return self.mask(network(domain.x, edges, self.edge_facts(domain, edges)), edges)

    def diagnostics(self, name: str, edges: Edges, s: Tensor) -> Record:
        """Return the mean mask by origin, the gradient norms of both networks, and λ.

        The mean mask of an origin without edges is NaN.

        Args:
            name: Name of the source.
            edges: Its edges.
            s: Their mask.

        Returns:
            The values by name.
        """
        record: Record = {"lambda": self.lam.clone()}
        for origin in Origin:
            has_origin = edges.origin == int(origin)
            record[f"mask {origin.name.lower()} {name}"] = (
                torch.where(has_origin, s.detach(), 0).sum() / has_origin.sum()
            )
        for key in ("task", "mask"):
            grads = [p.grad for p in self.networks[key].parameters() if p.grad is not None]
            if grads:
                record[f"gradient {key} {name}"] = nn.utils.get_total_norm(grads)
        return record

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return everything the next epoch depends on, including λ."""
        tensors, numbers = super().state()
        return tensors, numbers | {"lam": float(self.lam)}

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        super().load_state(tensors, numbers)
        self.lam.fill_(numbers["lam"])


def collapsed(record: dict[str, float]) -> list[str]:
    """Return the sources whose original edges have almost vanished: mean mask below 2 %."""
    key = "mask original "
    return [k.removeprefix(key) for k, v in record.items() if k.startswith(key) and v < COLLAPSE]
