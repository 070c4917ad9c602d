"""Execution of a method's steps: edge samples, batches, shards, captured CUDA graphs, distributed processes.

`Method` in `methods/base.py` derives from `Execution`. A method normally uses only `iter_batches`, `risk`, `replayed`
and `step`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from edgemask.config import Recipe
from edgemask.errors import InputError
from edgemask.methods.batches import Batches
from edgemask.methods.capture import LARGEST_CAPTURE, Replay, captures
from edgemask.methods.draw import Draw
from edgemask.methods.sources import Pairs, Source, draw_edges, ratios
from edgemask.nn.adam import Adam
from edgemask.nn.tensors import Edges
from edgemask.runtime.distributed import World
from edgemask.seeds import derive, torch_stream

Record = dict[str, Tensor]  # measurements of an epoch, still on the device


class Execution:
    """Execution of a method's steps on whole graphs, batches or shards, in one process or several.

    Attributes:
        networks: The method's networks by name.
        wrapped: The same networks, with gradients averaged over processes. A loss that `step` minimises must be
            computed through these.
        shard_progress: Index of the current shard among this process's shards, and their number.
    """

    capturable: ClassVar[bool] = True  # whether steps on whole graphs can be captured as CUDA graphs
    padded_draws: ClassVar[bool] = False  # whether all steps go through `replayed` and also run on padded edges

    recipe: Recipe
    seed: int
    device: torch.device
    networks: nn.ModuleDict
    optimisers: dict[str, torch.optim.Optimizer]

    def prepare_execution(self) -> None:
        """Start as a single process with nothing captured. Call once the networks exist."""
        self.replays: dict[tuple[int, ...], Replay] = {}
        self.draws: dict[
            int, tuple[Source, Draw]
        ] = {}  # by the source's id; the source is kept so that it stays unique
        self.world, self.wrapped = World(), dict(self.networks.items())
        self.shard_progress = (0, 1)
        self.stepped: set[str] = set()  # networks that have already taken their step on this shard

    def attach(self, world: World) -> None:
        """Train together with the other processes of a distributed fit."""
        world.check(self.recipe.shards)
        # With the softmax gate, the mask's logit coefficients of a GAT get no gradients.
        idle = {"task": (self.recipe.backbone, self.recipe.gate) == ("gat", "softmax")}
        self.world = world
        self.wrapped = {name: world.wrap(n, idle.get(name, False)) for name, n in self.networks.items()}

    def adam(self, network: nn.Module, lr: float, weight_decay: float = 0.0) -> torch.optim.Optimizer:
        """Return an Adam optimiser. On a GPU its state is on the device, so that a captured step can update it."""
        gpu = self.device.type == "cuda"
        fused = True if gpu else None  # None: torch's choice
        make = torch.optim.Adam if gpu else Adam
        return make(network.parameters(), lr, weight_decay=weight_decay, fused=fused, capturable=gpu)

    # ---- what an epoch trains on -----------------------------------------------------------------------------

    def iter_batches(self, sources: Sequence[Source], epoch: int) -> Iterator[Iterable[tuple[Source, Edges]]]:
        """Yield the parts of an epoch, each an iterable of (source, edges) pairs.

        Without `batch_size` there is one part: every source with this epoch's edges. With `batch_size` each part has a
        batch of every source; with shards, this process's shards of that batch come one after the other, and `step`
        averages over them.
        """
        if self.recipe.batch_size is None:
            yield ((source, self.sample(source, epoch)) for source in sources)
            return
        batches = self.batches(sources, epoch)
        for number in range(batches.rounds):
            for shard in self.world.local_shards(self.recipe.shards):
                with self.shard_context(shard, epoch, number):
                    yield (batches.part(i, number, shard) for i in range(len(sources)))

    def batches(self, sources: Sequence[Source], epoch: int) -> Batches:
        """Return an epoch's batches, cut from its sample of every source's edges."""
        return Batches(self.recipe, sources, [self.sample(s, epoch) for s in sources], self.seed, epoch)

    @contextmanager
    def shard_context(self, shard: int, *when: int | str) -> Iterator[None]:
        """Run a block on one shard.

        The block has its own random state, derived from the shard and `when`. Inside it, `step` updates a network only
        on the last shard.
        """
        own = self.world.local_shards(self.recipe.shards)
        self.shard_progress, self.stepped = (shard - own.start, len(own)), set()
        with ExitStack() as stack:
            stack.callback(setattr, self, "shard_progress", (0, 1))
            stack.enter_context(seeded(derive(self.seed, "shard", *when, shard), self.device))
            for network in self.wrapped.values():
                if isinstance(network, DistributedDataParallel) and shard + 1 < own.stop:
                    stack.enter_context(network.no_sync())
            yield

    def sample(self, source: Source, epoch: int) -> Edges:
        """Return this epoch's edges of a source: original ∪ sampled kNN ∪ sampled spectral (Section 4.1)."""
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

    # ---- steps -----------------------------------------------------------------------------------------------

    def step(self, network: str, loss: Tensor) -> None:
        """Take one optimiser step of a network on a loss.

        With shards, call it on every shard: gradients are averaged, and the step is taken on the last one. Compute the
        loss through `self.wrapped`, so that distributed processes share gradients.

        Args:
            network: Name of the network and of its optimiser.
            loss: The loss to minimise.

        Raises:
            InputError: The network takes a second step on a batch that is cut into shards.
        """
        optimiser, (shard, shards) = self.optimisers[network], self.shard_progress
        if shards > 1 and network in self.stepped:
            raise InputError(
                f"{type(self).__name__} takes several steps of its {network} network per batch and cannot accumulate "
                f"them over shards: set shards to the number of processes, {self.world.size}, got {self.recipe.shards}"
            )
        self.stepped.add(network)
        if shard == 0:
            optimiser.zero_grad(set_to_none=True)
        (loss if shards == 1 else loss / shards).backward()  # type: ignore[no-untyped-call]
        if shard + 1 < shards:
            return
        if self.recipe.clip:
            nn.utils.clip_grad_norm_(self.networks[network].parameters(), self.recipe.clip)
        optimiser.step()

    def replayed(self, step: Callable[[Pairs], Record], pairs: Iterable[tuple[Source, Edges]]) -> Record:
        """Run `step` on sources and edges and return what it measured.

        On a GPU, steps on whole graphs are captured once as a CUDA graph and replayed afterwards. A captured step must
        not read values on the host, and must update the same tensors in place every time.
        """
        pairs = list(pairs)
        if not self.replays_on(pairs):
            return step(pairs)
        sources = [source for source, _ in pairs]
        key = tuple(id(source) for source in sources)
        if key not in self.replays:  # the closure keeps the sources alive, so their ids stay unique
            self.replays[key] = Replay(lambda *edges: step(list(zip(sources, edges, strict=True))))
        return self.replays[key](*(edges for _, edges in pairs))

    def replays_on(self, pairs: Pairs) -> bool:
        """Tell whether a step on these pairs can be captured: same sources every epoch, and all sizes known."""
        whole = all(not s.batch and 0 < e.num_real < LARGEST_CAPTURE for s, e in pairs)
        fixed = self.padded_draws or all(s.sampler is None for s, _ in pairs)
        return self.capturable and whole and fixed and self.captures()

    def captures(self) -> bool:
        """Tell whether steps and draws can be captured on this device with this recipe."""
        alone = self.device.type == "cuda" and self.world.size == 1
        return alone and not self.recipe.mask_inputs and self.recipe.batch_size is None and captures(self.networks)

    def release(self) -> None:
        """Free the memory held by captured steps and draws."""
        self.replays.clear()
        self.draws.clear()


class Means:
    """Means of the records of several batches, still on the device."""

    def __init__(self) -> None:
        self.values: dict[str, list[Tensor]] = {}

    def add(self, record: Record) -> None:
        """Add the record of one batch."""
        for name, value in record.items():
            self.values.setdefault(name, []).append(value)

    def record(self) -> Record:
        """Return the means. The mean mask of an origin is over the batches that have such edges (others hold NaN)."""
        stacks = {name: torch.stack(values) for name, values in self.values.items()}
        return {name: v.nanmean() if name.startswith("mask ") else v.mean() for name, v in stacks.items()}


def floats(record: Record) -> dict[str, float]:
    """Convert a record to plain numbers with a single transfer from the device."""
    values = torch.stack([v.double() for v in record.values()]).tolist() if record else []
    return dict(zip(record, values, strict=True))


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Run a block with torch's random state set from `seed`, and restore the caller's state afterwards."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed takes a millisecond to look for other devices
        if devices:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
