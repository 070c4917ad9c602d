"""Devices, CPU cores and memory of the machine."""

from __future__ import annotations

import errno
import os
import platform
import resource
from pathlib import Path

import torch

from edgemask.errors import InputError

STATUS = Path("/proc/self/status")


def resolve_device(name: str) -> torch.device:
    """Return the torch device with a name.

    Args:
        name: `cpu`, `cuda`, `cuda:N`, or `auto` (cuda if there is one, else cpu).

    Raises:
        InputError: The name is not a device, or this machine does not have it.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device must be auto, cpu or cuda, got {name!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {name!r} was requested, but this machine has no CUDA device")
    return device


def cores() -> int:
    """Return the number of CPU cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> float:
    """Return the MiB that a new process can use, within the limits of the system and of the control group."""
    if not (info := Path("/proc/meminfo")).exists():
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**20
    free = int(info.read_text().split("MemAvailable:")[1].split()[0]) / 2**10
    limit, used = (Path("/sys/fs/cgroup") / f"memory.{name}" for name in ("max", "current"))
    if limit.exists() and (text := limit.read_text().strip()) != "max":
        free = min(free, (int(text) - int(used.read_text())) / 2**20)
    return free


def out_of_memory(error: BaseException) -> bool:
    """Return whether an exception means that the host or the device has not enough memory."""
    host = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)  # torch has no class for this
    system = isinstance(error, OSError) and error.errno == errno.ENOMEM
    return host or system or isinstance(error, MemoryError | torch.OutOfMemoryError)


def peak_rss() -> float:
    """Return the peak resident memory of this process in MiB.

    On Linux `ru_maxrss` of a child process includes the parent's peak, so the kernel's own counter is read there.
    """
    if STATUS.exists():
        return int(STATUS.read_text().split("VmHWM:")[1].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if platform.system() == "Darwin" else 2**10)


def peak_memory(device: torch.device) -> float:
    """Return the peak memory in MiB: of allocations on the device if it is a GPU, else of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return peak_rss()
