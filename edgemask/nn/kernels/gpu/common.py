"""What the kernels share."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from torch import Tensor


def accumulator(values: Tensor) -> Any:
    """The type sums are taken in: float64 for float64, else float32."""
    return tl.float64 if values.dtype == torch.float64 else tl.float32
