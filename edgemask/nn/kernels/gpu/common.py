"""Common parts of the Triton kernels."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from torch import Tensor


def accumulator(values: Tensor) -> Any:
    """Return the Triton type in which sums are computed: float64 for float64 values, otherwise float32."""
    return tl.float64 if values.dtype == torch.float64 else tl.float32
