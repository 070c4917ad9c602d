"""How exactly a GPU multiplies: set for a block of code, given back after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from edgemask.config import Precision
from edgemask.errors import InputError


@contextmanager
def precision(kind: Precision, device: torch.device) -> Iterator[None]:
    """`tf32`     products of float32 matrices with 10-bit mantissas (on a CPU: plain float32)
    `float32`  all 24 bits
    `bf16`     tf32, and the activations between layers in bfloat16; on a GPU alone
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
