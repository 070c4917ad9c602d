"""Dropout on the CPU with the random numbers of torch's generator, which torch itself draws one at a time.

torch draws dropout serially, with two calls of its generator (MT19937) for each value. These loops compute the same
numbers 624 at a time, several times faster, and leave the generator in the same state. On some processors torch draws
other numbers, with a library of the vendor. Whether the two agree is therefore checked once for each rate.
"""

from __future__ import annotations

import math
from functools import cache, partial
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from edgemask.nn.compiled import Array, empty
from edgemask.runtime.loops import Loop

WORDS, MIDDLE = 624, 397  # of MT19937
LEFT, NEXT, STATE = 8, 16, 24  # where the fields of the generator begin in its saved state, in bytes
SAVED = 5056  # bytes of the saved state
CHECKED = 1500  # values that are compared with those of torch: more than one block of random numbers

u32 = np.uint32


def noise(like: Tensor, rate: float, generator: torch.Generator = torch.default_generator) -> Tensor | None:
    """Return what dropout multiplies `like` with: 0 with probability `rate`, else 1 / (1 - rate).

    Args:
        like: A contiguous float32 tensor.
        rate: Dropout rate, above 0 and below 1.
        generator: Source of randomness. It is left in the same state as by torch's dropout.

    Returns:
        The same values as torch's dropout, or None if these loops cannot compute them on this machine.
    """
    return _drawn(like, rate, generator) if _agrees(rate) else None


@cache
def _agrees(rate: float) -> bool:
    """Return whether these loops and torch draw the same values."""
    ours, theirs = (torch.Generator().manual_seed(0) for _ in range(2))
    if len(ours.get_state()) != SAVED:
        return False
    for size in (1, CHECKED, CHECKED):
        for generator in (ours, theirs):  # start in the middle of a pair of numbers, too
            torch.empty(1).uniform_(generator=generator)
        wanted = torch.empty(size).bernoulli_(1 - rate, generator=theirs).div_(1 - rate)
        if not torch.equal(_drawn(wanted, rate, ours), wanted) or not torch.equal(ours.get_state(), theirs.get_state()):
            return False
    return True


def _drawn(like: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Return the values of `noise`."""
    saved, out = generator.get_state(), empty(like, *like.shape)
    fields = saved.numpy()
    left, following = fields[LEFT : LEFT + 4].view(np.int32), fields[NEXT : NEXT + 8].view(np.int64)
    start = WORDS if left[0] == 1 else following[0]
    threshold = np.uint64(math.ceil((1 - rate) * 2.0**53))  # torch compares 53 random bits with the probability
    kept = np.float32(1) / np.float32(1 - rate)
    state = fields[STATE : STATE + 8 * WORDS].view(np.uint64)
    end = _fill(state, start, threshold, kept, out.view(-1).numpy())
    left[0], following[0] = WORDS + 1 - end, end
    generator.set_state(saved)
    return out


@partial(Loop, parallel=False)
def _fill(saved: Array, start: int, threshold: int, kept: float, out: Array) -> int:
    """Fill `out`, update the generator's words, and return how many of them have been used."""
    words, ready = np.empty(WORDS, np.uint32), np.empty(WORDS + 1, np.uint32)
    for i in range(WORDS):
        words[i] = u32(saved[i])
    zero, used, have, filled = np.float32(0), start, 0, 0
    while filled < len(out):
        if used == WORDS:
            _renew(words)
            used = 0
        take = min(WORDS - used, 2 * (len(out) - filled) - have)
        for i in range(take):
            y = words[used + i]
            y = u32(y ^ u32(y >> u32(11)))
            y = u32(y ^ u32(u32(y << u32(7)) & u32(0x9D2C5680)))
            y = u32(y ^ u32(u32(y << u32(15)) & u32(0xEFC60000)))
            ready[have + i] = u32(y ^ u32(y >> u32(18)))
        used, have = used + take, have + take
        for i in range(have // 2):
            high = np.uint64(ready[2 * i] & u32(0x1FFFFF))
            bits = (high << np.uint64(32)) | np.uint64(ready[2 * i + 1])
            out[filled + i] = kept if bits < threshold else zero
        filled += have // 2
        if have % 2:
            ready[0] = ready[have - 1]
        have %= 2
    for i in range(WORDS):
        saved[i] = words[i]
    return used


@numba.njit(nogil=True)
def _renew(words: Array) -> None:
    """Replace all words by the next ones of MT19937. Each loop reads only words that it does not write."""
    for i in range(WORDS - MIDDLE):
        words[i] = words[i + MIDDLE] ^ _twisted(words[i], words[i + 1])
    for i in range(WORDS - MIDDLE, 2 * (WORDS - MIDDLE)):
        words[i] = words[i + MIDDLE - WORDS] ^ _twisted(words[i], words[i + 1])
    for i in range(2 * (WORDS - MIDDLE), WORDS - 1):
        words[i] = words[i + MIDDLE - WORDS] ^ _twisted(words[i], words[i + 1])
    words[WORDS - 1] = words[MIDDLE - 1] ^ _twisted(words[WORDS - 1], words[0])


@numba.njit(nogil=True)
def _twisted(word: int, following: int) -> Any:
    """Return the twist of two words in a row."""
    joined = u32(u32(word & u32(0x80000000)) | u32(following & u32(0x7FFFFFFF)))
    odd = u32(u32(0) - u32(following & u32(1)))
    return u32(u32(joined >> u32(1)) ^ u32(odd & u32(0x9908B0DF)))
