"""Distributed fits: processes started by `torchrun` share the shards of every batch and keep the same weights."""

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
PATIENCE = timedelta(minutes=30)  # how long the other processes wait for work that one process does alone


@dataclass(frozen=True)
class World:
    """The processes of a fit, seen from one of them.

    Args:
        rank: Number of this process.
        size: Number of processes; 1 if the fit is not distributed.
    """

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the first process, the only one that writes files and prints."""
        return self.rank == 0

    def check(self, shards: int) -> None:
        """Check that the shards can be divided evenly among the processes.

        Args:
            shards: Number of shards of every batch.

        Raises:
            InputError: `shards` is not a multiple of the number of processes.
        """
        if shards % self.size:
            raise InputError(
                f"{self.size} processes share the shards of every batch, so shards must be a multiple of "
                f"{self.size}, got {shards}: set shards={self.size} and batch_size"
            )

    def local_shards(self, shards: int) -> range:
        """Return the shards of this process."""
        count = shards // self.size
        return range(self.rank * count, (self.rank + 1) * count)

    def wrap(self, network: nn.Module, idle: bool = False) -> nn.Module:
        """Wrap a network so that its gradients are averaged over the processes as they are computed.

        Args:
            network: The network.
            idle: Whether some of its parameters get no gradient.
        """
        return network if self.size == 1 else DistributedDataParallel(network, find_unused_parameters=idle)

    def mean(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the mean of each value over the processes that have it."""
        if self.size == 1:
            return dict(values)
        records: list[Any] = [None] * self.size
        dist.all_gather_object(records, dict(values))
        names = dict.fromkeys(name for record in records for name in record)
        by_name = {name: [record[name] for record in records if name in record] for name in names}
        return {name: sum(numbers) / len(numbers) for name, numbers in by_name.items()}

    def average(self, value: Tensor) -> Tensor:
        """Return the mean of a tensor over the processes. The tensor is overwritten."""
        if self.size > 1:
            dist.all_reduce(value)
            value /= self.size
        return value

    def on_rank_zero(self, work: Callable[[], T]) -> T:
        """Run `work` in the first process only, and return its result or raise its error in all processes.

        Args:
            work: A function without arguments. Its result is pickled if there are several processes.

        Returns:
            The result of `work`.

        Raises:
            Exception: Whatever `work` raised, in all processes.
        """
        if self.size == 1:
            return work()
        outcome: list[Any] = [None, None]  # result and error
        if self.first:
            try:
                outcome[0] = work()
            except Exception as error:
                outcome[1] = error
        dist.broadcast_object_list(outcome)
        if outcome[1] is not None:
            raise outcome[1]
        result: T = outcome[0]
        return result

    @contextmanager
    def rank_zero_first(self) -> Iterator[None]:
        """Let the first process finish a block before the others enter it, so that they find its results in a cache."""
        if self.size > 1 and not self.first:
            dist.barrier()
        yield
        if self.size > 1 and self.first:
            dist.barrier()

    def check_together(self, networks: nn.Module) -> None:
        """Check that all processes hold the same weights. Their sums must agree to the last bit.

        Raises:
            DriftError: The sums differ.
        """
        if self.size == 1:
            return
        total = torch.stack([p.detach().double().sum() for p in networks.parameters()]).sum()
        ends = torch.stack([total, -total])
        dist.all_reduce(ends, dist.ReduceOp.MAX)
        if ends.isfinite().all() and ends[0] != -ends[1]:
            raise DriftError(
                "the weights of the processes have drifted apart: this method computes gradients outside "
                "`Method.wrapped`, so they are not averaged; run it in one process"
            )


def started() -> World:
    """Return the world that `torchrun` has set in the environment, or a world of one process."""
    return World(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))


def place(device: torch.device) -> torch.device:
    """Return the device of this process. If `cuda` has no number, each process gets its own GPU."""
    if str(device) == "cuda" and started().size > 1:
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return device


@contextmanager
def processes(device: torch.device, advice: str) -> Iterator[World]:
    """Connect the processes of a fit for the duration of a block, by nccl on GPUs and gloo on CPUs.

    Args:
        device: Where this process computes.
        advice: How to continue after a failure. It ends the message of the error.

    Raises:
        WorkerLostError: Another process was lost, or this process was stopped.
    """
    world = started()
    if world.size == 1:
        yield world
        return
    signals = threading.current_thread() is threading.main_thread()

    def fail(reason: str) -> NoReturn:
        if signals:  # torchrun now stops the other processes; this one must end by itself to report the reason
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise WorkerLostError(f"process {world.rank} of {world.size} {reason}; {advice}")

    def stop(*_: object) -> NoReturn:
        fail("was stopped because another worker was lost or the run was cancelled")

    before = signal.signal(signal.SIGTERM, stop) if signals else None
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield world
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            fail(f"lost another worker: {str(error).splitlines()[0]}")
        raise
    dist.destroy_process_group()
    if signals:
        signal.signal(signal.SIGTERM, before)
