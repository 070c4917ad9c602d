"""Random seeds. A seed is derived by hash for each purpose, so that no two random streams are the same by accident."""

from __future__ import annotations

import hashlib
from operator import index
from typing import SupportsIndex

import numpy as np
import torch

from edgemask.errors import InputError

SEPARATOR = "\x1f"  # between the parts of the hashed text, so that ("ab",) and ("a", "b") differ


def derive(seed: SupportsIndex, *purpose: str | SupportsIndex) -> int:
    """Return a 63-bit seed for one purpose.

    Args:
        seed: Seed of the run.
        *purpose: Strings and integers that identify the purpose, such as `"sample", "acmv9", epoch`.

    Raises:
        InputError: A string contains the separator.
        TypeError: The seed or a part of the purpose has another type.

    >>> derive(0, "init")
    2410301491197795094
    """
    for p in purpose:
        if isinstance(p, str) and SEPARATOR in p:
            raise InputError(f"a purpose must not contain the separator {SEPARATOR!r}, got {p!r}")
    parts = (
        f"str:{p}" if isinstance(p, str) else f"int:{index(p)}" for p in purpose
    )  # "1" and 1 are different purposes
    text = SEPARATOR.join([str(index(seed)), *parts])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def numpy_stream(seed: SupportsIndex, *purpose: str | SupportsIndex) -> np.random.Generator:
    """Return a NumPy generator with the seed `derive(seed, *purpose)`.

    Args:
        seed: Seed of the run.
        *purpose: Strings and integers that identify the purpose.

    Raises:
        InputError: A string contains the separator.
    """
    return np.random.default_rng(derive(seed, *purpose))


def torch_stream(
    seed: SupportsIndex, *purpose: str | SupportsIndex, device: str | torch.device = "cpu"
) -> torch.Generator:
    """Return a PyTorch generator on `device` with the seed `derive(seed, *purpose)`.

    Args:
        seed: Seed of the run.
        *purpose: Strings and integers that identify the purpose.
        device: Device of the generator.

    Raises:
        InputError: A string contains the separator.
    """
    return torch.Generator(device=device).manual_seed(derive(seed, *purpose))
