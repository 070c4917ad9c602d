"""The interface every method fits: `update(sources, epoch)` learns for one epoch, `logits` predicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgemask import checkpoint
from edgemask.enrich import Cache, Sampler, enrich
from edgemask.graph import Graph
from edgemask.nn.tasknet import tasknet
from edgemask.nn.tensors import Domain, Edges
from edgemask.recipe import Recipe
from edgemask.seeds import derive, torch_stream

Record = dict[str, Tensor | float]  # what an epoch measured, still on the device


@dataclass(frozen=True)
class Source:
    """A domain to train on: its tensors, the nodes whose labels the loss may use, and its edge sampler."""

    domain: Domain
    train: Tensor
    sampler: Sampler | None  # None: the original graph


class Method(ABC):
    """A method: its networks, its optimisers, and one epoch of learning.

    Everything random in an epoch comes from `seeded(self.seed, …, epoch)`, so a run that is resumed at an
    epoch continues as if it had not stopped.
    """

    def __init__(self, recipe: Recipe, num_features: int, num_classes: int, seed: int, device: torch.device):
        self.recipe, self.seed, self.device = recipe, seed, device
        self.num_features, self.num_classes = num_features, num_classes
        with seeded(derive(seed, "init"), device):
            self.networks = nn.ModuleDict(self.build()).to(device)
        self.optimisers = self.make_optimisers()

    def build(self) -> dict[str, nn.Module]:
        """The networks by name; `task` is the classifier."""
        return {"task": tasknet(self.recipe, self.num_features, self.num_classes)}

    def make_optimisers(self) -> dict[str, torch.optim.Optimizer]:
        parameters = self.networks["task"].parameters()
        return {"task": torch.optim.Adam(parameters, self.recipe.lr, weight_decay=self.recipe.weight_decay)}

    @abstractmethod
    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        """Learn for one epoch; returns the losses and whatever else a curve is wanted of."""

    def logits(self, domain: Domain, edges: Edges, s: Tensor | None = None) -> Tensor:
        """N × C logits of the classifier in evaluation mode, on the given edges and mask."""
        task = self.networks["task"].eval()
        with torch.no_grad():
            out: Tensor = task(domain.x, edges, s)
        return out

    def rounds(self, sources: Sequence[Source], epoch: int) -> Iterator[Iterable[tuple[Source, Edges]]]:
        """What an epoch learns on, round by round: each source with its edges, drawn when it is reached."""
        yield ((source, self.sample(source, epoch)) for source in sources)

    def sample(self, source: Source, epoch: int) -> Edges:
        """This epoch's edges of a source: original ∪ sampled kNN ∪ sampled spectral (Section 4.1)."""
        if source.sampler is None:
            return source.domain.edges
        stream = torch_stream(self.seed, "sample", source.domain.name, epoch, device=self.device)
        return draw_edges(self.recipe, source.sampler, stream)

    def risk(self, source: Source, edges: Edges, s: Tensor | None = None) -> Tensor:
        """Cross-entropy of the classifier, in training mode, on the training nodes of one source."""
        logits = self.networks["task"].train()(source.domain.x, edges, s)
        return F.cross_entropy(logits[source.train], source.domain.labels()[source.train])

    def step(self, network: str, loss: Tensor) -> None:
        optimiser = self.optimisers[network]
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.recipe.clip:
            nn.utils.clip_grad_norm_(self.networks[network].parameters(), self.recipe.clip)
        optimiser.step()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that the next epoch depends on: tensors, and plain numbers."""
        tensors = checkpoint.pack_module("networks", self.networks)
        for name, optimiser in self.optimisers.items():
            tensors |= checkpoint.pack_optimiser(f"optimiser-{name}", optimiser)
        return tensors, {}

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Take back what `state` gave."""
        self.networks.load_state_dict(checkpoint.unpack("networks", tensors))
        for name, optimiser in self.optimisers.items():
            checkpoint.unpack_optimiser(f"optimiser-{name}", tensors, optimiser)


def make_sampler(recipe: Recipe, graph: Graph, device: torch.device, cache: Cache | None) -> Sampler:
    """The sampler of a graph's enrichment under a recipe."""
    k, clusters, affinity = recipe.k, recipe.clusters, recipe.affinity
    return enrich(graph, k=k, clusters=clusters, affinity=affinity, cache=cache, device=device).sampler(device)


def draw_edges(recipe: Recipe, sampler: Sampler, stream: torch.Generator) -> Edges:
    """One sample of an enriched graph, at the recipe's ratios and budgets."""
    drawn = sampler.sample(
        stream,
        knn_ratio=recipe.knn_ratio,
        spectral_ratio=recipe.spectral_ratio,
        knn_budget=recipe.knn_budget,
        spectral_budget=recipe.spectral_budget,
    )
    return Edges.build(drawn.src, drawn.dst, drawn.num_nodes, drawn.origin)


def floats(record: Record) -> dict[str, float]:
    """A record as plain numbers: one transfer from the device, however many there are."""
    on_device = {name: value for name, value in record.items() if isinstance(value, Tensor)}
    if not on_device:
        return {name: float(value) for name, value in record.items()}
    numbers = dict(zip(on_device, torch.stack([v.double() for v in on_device.values()]).tolist(), strict=True))
    return {name: numbers[name] if name in numbers else float(value) for name, value in record.items()}


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Run a block under its own torch random state and give the caller's back after."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield
