"""Selection of the backend that runs the edge-wise operators.

Every backend is a module of `edgemask.nn.kernels` with the same functions:

`reference`  plain torch, on any device and in any precision
`cpu`        multi-threaded loops compiled by Numba, float32 and float64
`gpu`        Triton kernels on a CUDA device, every precision except float64
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from edgemask.errors import warn

KERNELS = "edgemask.nn.kernels"


def backend(tensor: Tensor) -> ModuleType:
    """Return the module of operators for a tensor's device and precision."""
    if tensor.device.type == "cpu":
        return import_module(f"{KERNELS}.cpu")
    if tensor.device.type == "cuda" and tensor.dtype != torch.float64 and _has_triton():
        return import_module(f"{KERNELS}.gpu")
    return import_module(f"{KERNELS}.reference")


@cache
def _has_triton() -> bool:
    """Return whether Triton can be imported, and warn once if it cannot."""
    try:
        import_module("triton")
    except ImportError as error:
        message = f"Triton cannot be imported ({error}): plain torch operators are used, which are several times slower"
        warn(message, RuntimeWarning)
        return False
    return True
