"""Seeds, derived by hash for each purpose, so that no two streams are ever the same by accident."""

from __future__ import annotations

import hashlib
from operator import index
from typing import SupportsIndex

import numpy as np
import torch

from edgemask.errors import InputError

SEPARATOR = "\x1f"  # between the parts of what is hashed, so that ("ab",) and ("a", "b") differ


def derive(seed: SupportsIndex, *purpose: str | SupportsIndex) -> int:
    """A 63-bit seed for one purpose: `derive(0, "init")`, `derive(0, "sample", "acmv9", epoch)`."""
    for p in purpose:
        if isinstance(p, str) and SEPARATOR in p:
            raise InputError(f"a purpose must not hold the separator {SEPARATOR!r}, got {p!r}")
    parts = (f"str:{p}" if isinstance(p, str) else f"int:{index(p)}" for p in purpose)  # "1" is not 1
    text = SEPARATOR.join([str(index(seed)), *parts])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def numpy_stream(seed: SupportsIndex, *purpose: str | SupportsIndex) -> np.random.Generator:
    return np.random.default_rng(derive(seed, *purpose))


def torch_stream(
    seed: SupportsIndex, *purpose: str | SupportsIndex, device: str | torch.device = "cpu"
) -> torch.Generator:
    return torch.Generator(device=device).manual_seed(derive(seed, *purpose))
