"""The interface every method fits: `update(sources, epoch)` learns for one epoch, `logits` predicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from edgemask import checkpoint
from edgemask.batches import Batches, skeleton
from edgemask.distributed import World
from edgemask.enrich import Cache, EnrichedGraph, Sampler, enrich
from edgemask.graph import Array, Graph
from edgemask.methods.hyper import Hyper, settle
from edgemask.nn.adam import Adam
from edgemask.nn.backbones import Backbone
from edgemask.nn.blocks import logits_in_blocks
from edgemask.nn.draw import Draw
from edgemask.nn.precision import precision
from edgemask.nn.replay import LARGEST_CAPTURE, Replay, captures
from edgemask.nn.tasknet import tasknet
from edgemask.nn.tensors import Domain, Edges
from edgemask.recipe import Recipe
from edgemask.seeds import derive, torch_stream

# Nodes of a graph from which a CPU trains on it relabelled: the rows of a smaller one stay in the caches in any order.
RELABELLED = 20_000

Record = dict[str, Tensor]  # what an epoch measured, still on the device


@dataclass(frozen=True)
class Source:
    """A domain to train on: its tensors, the nodes whose labels the loss may use, and its edge sampler."""

    domain: Domain
    train: Tensor
    sampler: Sampler | None  # None: the original graph
    batch: bool = False  # whether this is a batch of such a source, with its neighbourhood alone


Pairs = Sequence[tuple[Source, Edges]]


class Method(ABC):
    """A method: its networks, its optimisers, and one epoch of learning.

    Everything random in an epoch comes from `seeded(self.seed, …, epoch)`, so a run that is resumed at an
    epoch continues as if it had not stopped.
    """

    hyper: ClassVar[Mapping[str, Hyper]] = {}  # its own hyper-parameters; their values are in `h`
    padded_draws: ClassVar[bool] = False  # whether all its steps go through `replayed`, and run on padded edges as well

    def __init__(self, recipe: Recipe, num_features: int, num_classes: int, seed: int, device: torch.device):
        self.recipe, self.seed, self.device = recipe, seed, device
        self.h = settle(self.hyper, dict(recipe.hyper))
        self.num_features, self.num_classes = num_features, num_classes
        with seeded(derive(seed, "init"), device):
            self.networks = nn.ModuleDict(self.build()).to(device)
        self.optimisers = self.make_optimisers()
        self.replays: dict[tuple[int, ...], Replay] = {}
        self.draws: dict[int, tuple[Source, Draw]] = {}  # by the source's id, which holding it keeps its own
        self.world, self.wrapped = World(), dict(self.networks.items())
        self.turns = (0, 1)  # which of this process's shards `step` is at, and of how many
        self.stepped: set[str] = set()  # the networks that have had their step in this turn

    def join(self, world: World) -> None:
        """Learn together with the other processes of a fit."""
        world.check(self.recipe.shards)
        # Under the softmax gate a GAT has parameters without gradients, the mask's logit coefficients.
        idle = {"task": (self.recipe.backbone, self.recipe.gate) == ("gat", "softmax")}
        self.world = world
        self.wrapped = {name: world.wrap(n, idle.get(name, False)) for name, n in self.networks.items()}

    def build(self) -> dict[str, nn.Module]:
        """The networks by name; `task` is the classifier."""
        return {"task": tasknet(self.recipe, self.num_features, self.num_classes)}

    def make_optimisers(self) -> dict[str, torch.optim.Optimizer]:
        return {"task": self.adam(self.networks["task"], self.recipe.lr, self.recipe.weight_decay)}

    def adam(self, network: nn.Module, lr: float, weight_decay: float = 0.0) -> torch.optim.Optimizer:
        """Adam; on a GPU in one kernel whose state lives there, so that a captured step can move it."""
        gpu = self.device.type == "cuda"
        fused = True if gpu else None  # None: torch's choice
        make = torch.optim.Adam if gpu else Adam
        return make(network.parameters(), lr, weight_decay=weight_decay, fused=fused, capturable=gpu)

    @abstractmethod
    def update(self, sources: Sequence[Source], epoch: int) -> dict[str, float]:
        """Learn for one epoch; returns the losses and whatever else a curve is wanted of."""

    def logits(self, domain: Domain, edges: Edges, s: Tensor | None = None) -> Tensor:
        """N × C logits of the classifier in evaluation mode, on the given edges and mask."""
        task = self.networks["task"].eval()
        with torch.no_grad(), precision(self.recipe.precision, self.device):
            out: Tensor = task(domain.x, edges, s)
        return out.float() if out.dtype == torch.bfloat16 else out

    def logits_in_blocks(self, domain: Domain, edges: Edges, s: Tensor | None = None) -> Tensor:
        """The same, layer by layer in blocks of `inference_batch` nodes, from what is on the host."""
        task, size = self.networks["task"].eval(), self.recipe.inference_batch or domain.num_nodes
        with torch.no_grad(), precision(self.recipe.precision, self.device):
            out = logits_in_blocks(cast(Backbone, task), domain.graph, edges, s, size)
        return out.float() if out.dtype == torch.bfloat16 else out

    def rounds(self, sources: Sequence[Source], epoch: int) -> Iterator[Iterable[tuple[Source, Edges]]]:
        """What an epoch learns on, round by round: each source with its edges, drawn when it is reached.

        With a `batch_size`, a batch of each source; with shards, those of this process one after the other. A method
        that takes one step of a network per round then takes it on their mean, see `step`.
        """
        if self.recipe.batch_size is None:
            yield ((source, self.sample(source, epoch)) for source in sources)
            return
        batches = self.batches(sources, epoch)
        for number in range(batches.rounds):
            for shard in self.world.share(self.recipe.shards):
                with self.turn(shard, epoch, number):
                    yield (batches.part(i, number, shard) for i in range(len(sources)))

    def batches(self, sources: Sequence[Source], epoch: int) -> Batches:
        """An epoch's batches, over its sample of every source's edges."""
        return Batches(self.recipe, sources, [self.sample(s, epoch) for s in sources], self.seed, epoch)

    @contextmanager
    def turn(self, shard: int, *when: int | str) -> Iterator[None]:
        """A block on one shard: with a random state of its own, decided by the shard and `when`, and a `step` that
        moves the network only in the last shard's turn."""
        mine = self.world.share(self.recipe.shards)
        self.turns, self.stepped = (shard - mine.start, len(mine)), set()
        with ExitStack() as stack:
            stack.callback(setattr, self, "turns", (0, 1))
            stack.enter_context(seeded(derive(self.seed, "shard", *when, shard), self.device))
            for network in self.wrapped.values():
                if isinstance(network, DistributedDataParallel) and shard + 1 < mine.stop:
                    stack.enter_context(network.no_sync())
            yield

    def sample(self, source: Source, epoch: int) -> Edges:
        """This epoch's edges of a source: original ∪ sampled kNN ∪ sampled spectral (Section 4.1)."""
        if source.sampler is None:
            return source.domain.edges
        if self.padded_draws and self.captures():
            _, draw = self.draws.setdefault(
                id(source), (source, Draw(source.sampler, ratios(self.recipe), self.device))
            )
            if draw.length < LARGEST_CAPTURE:
                with seeded(derive(self.seed, "sample", source.domain.name, epoch), self.device):
                    return draw()
        stream = torch_stream(self.seed, "sample", source.domain.name, epoch, device=self.device)
        return draw_edges(self.recipe, source.sampler, stream)

    def risk(self, source: Source, edges: Edges, s: Tensor | None = None) -> Tensor:
        """Cross-entropy of the classifier, in training mode, on the training nodes of one source."""
        self.networks["task"].train()
        logits = self.wrapped["task"](source.domain.x, edges, s)
        return F.cross_entropy(logits.index_select(0, source.train), source.domain.labels()[source.train])

    def replayed(self, step: Callable[[Pairs], Record], pairs: Iterable[tuple[Source, Edges]]) -> Record:
        """What `step` measures on these sources and edges; on a GPU, whole graphs' steps are captured and replayed.

        A step that is captured never looks at a value on the host, and changes the same tensors in place every time.
        """
        pairs = list(pairs)
        if not self.replays_on(pairs):
            return step(pairs)
        sources = [source for source, _ in pairs]
        key = tuple(id(source) for source in sources)
        if key not in self.replays:  # holds the sources, so that their ids stay theirs
            self.replays[key] = Replay(lambda *edges: step(list(zip(sources, edges, strict=True))))
        return self.replays[key](*(edges for _, edges in pairs))

    def release(self) -> None:
        """Give back the memory that captured steps and draws hold."""
        self.replays.clear()
        self.draws.clear()

    def replays_on(self, pairs: Pairs) -> bool:
        """Whether a step on these can be captured: the same sources every epoch, and nothing of unknown size in it."""
        whole = all(not s.batch and 0 < e.num_real < LARGEST_CAPTURE for s, e in pairs)
        fixed = self.padded_draws or all(s.sampler is None for s, _ in pairs)
        return whole and fixed and self.captures()

    def captures(self) -> bool:
        """Whether steps and draws can be captured here."""
        alone = self.device.type == "cuda" and self.world.size == 1
        return alone and not self.recipe.mask_inputs and self.recipe.batch_size is None and captures(self.networks)

    def step(self, network: str, loss: Tensor) -> None:
        """One step of a network on a loss, over shards on its mean: called in the turn of each, and done in the last.

        The forward of a loss that is stepped on goes through `self.wrapped`, so that processes share gradients.
        """
        optimiser, (turn, turns) = self.optimisers[network], self.turns
        if turns > 1 and network in self.stepped:
            raise ValueError(
                f"{type(self).__name__} takes several steps of its {network} network on a batch, and cannot take them "
                f"shard by shard: set shards to the number of processes, {self.world.size}, got {self.recipe.shards}"
            )
        self.stepped.add(network)
        if turn == 0:
            optimiser.zero_grad(set_to_none=True)
        (loss if turns == 1 else loss / turns).backward()  # type: ignore[no-untyped-call]
        if turn + 1 < turns:
            return
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
    return enriched(recipe, graph, device, cache).sampler(device)


def enriched(recipe: Recipe, graph: Graph, device: torch.device, cache: Cache | None) -> EnrichedGraph:
    """A graph's enrichment under a recipe."""
    settings = {name: getattr(recipe, name) for name in ("k", "clusters", "affinity", "knn_exact_up_to")}
    return enrich(graph, **settings, cache=cache, device=device)


def make_source(recipe: Recipe, graph: Graph, nodes: Array, device: torch.device, cache: Cache | None) -> Source:
    """A graph as a source under a recipe, with the loss on the given nodes.

    A large one is relabelled on a CPU, cluster by cluster: the ends of most edges then lie near each other in memory,
    and an isomorphic graph trains the same networks.
    """
    sampler = None
    if recipe.enriched:
        found = enriched(recipe, graph, device, cache)
        if device.type == "cpu" and recipe.batch_size is None and graph.num_nodes >= RELABELLED:
            order = np.argsort(found.clusters, kind="stable")
            found, nodes = found.reordered(order), np.flatnonzero(np.isin(order, nodes))
        graph, sampler = found.graph, found.sampler(device)
    domain = Domain.of(graph, device) if recipe.batch_size is None else skeleton(graph, device)
    return Source(domain, torch.tensor(nodes, device=device), sampler)


def ratios(recipe: Recipe) -> dict[str, Any]:
    """A recipe's ratios and budgets, as samplers take them."""
    names = [f"{kind}_{what}" for kind in ("knn", "spectral") for what in ("ratio", "budget")]
    return {name: getattr(recipe, name) for name in names}


def draw_edges(recipe: Recipe, sampler: Sampler, stream: torch.Generator) -> Edges:
    """One sample of an enriched graph, at the recipe's ratios and budgets."""
    drawn = sampler.sample(stream, **ratios(recipe))
    return Edges.build(drawn.src, drawn.dst, drawn.num_nodes, drawn.origin)


class Means:
    """Means of what several batches measured, still on the device."""

    def __init__(self) -> None:
        self.values: dict[str, list[Tensor]] = {}

    def add(self, record: Record) -> None:
        for name, value in record.items():
            self.values.setdefault(name, []).append(value)

    def record(self) -> Record:
        """Of the masks by origin, over the batches that have such edges (NaN is none)."""
        stacks = {name: torch.stack(values) for name, values in self.values.items()}
        return {name: v.nanmean() if name.startswith("mask ") else v.mean() for name, v in stacks.items()}


def floats(record: Record) -> dict[str, float]:
    """A record as plain numbers: one transfer from the device, however many there are."""
    values = torch.stack([v.double() for v in record.values()]).tolist() if record else []
    return dict(zip(record, values, strict=True))


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Run a block under its own torch random state and give the caller's back after."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed takes a millisecond to look for other devices
        if devices:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
