"""Precision of matrix products on a GPU, set for a block of code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from edgemask.config import Precision
from edgemask.errors import InputError


@contextmanager
def precision(kind: Precision, device: torch.device) -> Iterator[None]:
    """Set the precision of matrix products inside a block, and restore it afterwards.

    Args:
        kind: `tf32` multiplies float32 matrices with 10-bit mantissas (on a CPU: plain float32). `float32` uses all
            24 bits. `bf16` is `tf32` with activations in bfloat16 between layers; it needs a GPU.
        device: Where the products are computed.

    Raises:
        InputError: `bf16` was requested on a device that is not a GPU.
    """
    if device.type != "cuda":
        if kind == "bf16":
            raise InputError(f"precision 'bf16' needs a CUDA device, got {device}")
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = kind != "float32"
    try:
        with torch.autocast("cuda", torch.bfloat16, enabled=kind == "bf16", cache_enabled=False):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
