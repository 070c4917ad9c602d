"""Sorting by small whole numbers on the CPU: one count and one pass."""

from __future__ import annotations

import numba
import torch
from torch import Tensor

from edgemask.nn.kernels.cpu.common import Array, arrays


def sort_by(keys: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The stable order of keys in 0 … count - 1, and where each key's entries begin (count + 1 values)."""
    order, starts = torch.empty_like(keys), keys.new_zeros(count + 1)
    _sort(*arrays(keys, starts, order))
    return order, starts


@numba.njit(cache=True, nogil=True)
def _sort(keys: Array, starts: Array, order: Array) -> None:
    for key in keys:
        starts[key + 1] += 1
    for key in range(len(starts) - 1):
        starts[key + 1] += starts[key]
    following = starts[:-1].copy()
    for p in range(len(keys)):
        key = keys[p]
        order[following[key]] = p
        following[key] += 1
