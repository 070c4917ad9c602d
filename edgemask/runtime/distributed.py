"""Several processes on one fit, as `torchrun` starts them: who takes which shard, and how they stay together."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from edgemask.errors import DriftError, InputError, WorkerLostError

T = TypeVar("T")
PATIENCE = timedelta(minutes=30)  # how long the others wait for what one process does alone


@dataclass(frozen=True)
class World:
    """The processes of a fit, as one of them sees it; a process alone is a world of one."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.rank == 0

    def check(self, shards: int) -> None:
        if shards % self.size:
            raise InputError(
                f"{self.size} processes share out the shards of every batch, so shards must be a multiple of "
                f"{self.size}, got {shards}: set shards={self.size}, and batch_size"
            )

    def local_shards(self, shards: int) -> range:
        """The shards this process takes."""
        each = shards // self.size
        return range(self.rank * each, (self.rank + 1) * each)

    def wrap(self, network: nn.Module, idle: bool = False) -> nn.Module:
        """The network with its gradients averaged over the processes as they are computed; `idle` where some of its
        parameters have none."""
        return network if self.size == 1 else DistributedDataParallel(network, find_unused_parameters=idle)

    def mean(self, values: Mapping[str, float]) -> dict[str, float]:
        """The mean of each value over the processes that have it."""
        if self.size == 1:
            return dict(values)
        held: list[Any] = [None] * self.size
        dist.all_gather_object(held, dict(values))
        names = dict.fromkeys(name for one in held for name in one)
        found = {name: [one[name] for one in held if name in one] for name in names}
        return {name: sum(numbers) / len(numbers) for name, numbers in found.items()}

    def average(self, value: Tensor) -> Tensor:
        """The mean of a tensor over the processes; takes it over."""
        if self.size > 1:
            dist.all_reduce(value)
            value /= self.size
        return value

    def on_rank_zero(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises in the first process, in all of them."""
        if self.size == 1:
            return work()
        said: list[Any] = [None, None]
        if self.first:
            try:
                said[0] = work()
            except Exception as error:
                said[1] = error
        dist.broadcast_object_list(said)
        if said[1] is not None:
            raise said[1]
        result: T = said[0]
        return result

    @contextmanager
    def rank_zero_first(self) -> Iterator[None]:
        """A block that the first process leaves before the others enter it, to find in a cache what it put there."""
        if self.size > 1 and not self.first:
            dist.barrier()
        yield
        if self.size > 1 and self.first:
            dist.barrier()

    def check_together(self, networks: nn.Module) -> None:
        """The same weights in all processes: their sum is compared, to the last bit."""
        if self.size == 1:
            return
        total = torch.stack([p.detach().double().sum() for p in networks.parameters()]).sum()
        ends = torch.stack([total, -total])
        dist.all_reduce(ends, dist.ReduceOp.MAX)
        if ends.isfinite().all() and ends[0] != -ends[1]:
            raise DriftError(
                "the processes' weights have drifted apart: this method computes gradients outside `Method.wrapped`, "
                "where they are averaged, and needs one process"
            )


def started() -> World:
    """This process's place among those `torchrun` started, by its environment; alone where there is none."""
    return World(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))


def place(device: torch.device) -> torch.device:
    """Where this process computes: each has a GPU of its own where `cuda` is named without a number."""
    if str(device) == "cuda" and started().size > 1:
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return device


@contextmanager
def processes(device: torch.device, advice: str) -> Iterator[World]:
    """The processes joined for the length of a block: over nccl on GPUs, over gloo on CPUs.

    One that loses another leaves the block with a `WorkerLostError` that ends with `advice`.
    """
    world = started()
    if world.size == 1:
        yield world
        return
    signals = threading.current_thread() is threading.main_thread()

    def lose(what: str) -> NoReturn:
        if signals:  # torchrun now stops the others: this one is to end by itself, and say why
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise WorkerLostError(f"process {world.rank} of {world.size} {what}; {advice}")

    def stop(*_: object) -> NoReturn:
        lose("was told to stop: another worker was lost, or the run cancelled")

    before = signal.signal(signal.SIGTERM, stop) if signals else None
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield world
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            lose(f"has lost another worker: {str(error).splitlines()[0]}")
        raise
    dist.destroy_process_group()
    if signals:
        signal.signal(signal.SIGTERM, before)
