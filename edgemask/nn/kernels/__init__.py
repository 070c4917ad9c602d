"""Backends of the edge-wise operators, each a module with the same functions:

`reference`  plain torch, any device and precision
`cpu`        multi-threaded loops on the processor, float32 and float64
`gpu`        Triton on a CUDA device, all but float64
"""

import warnings
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Literal, get_args

import torch
from torch import Tensor

Gate = Literal["message", "attention", "softmax"]
GATES: tuple[Gate, ...] = get_args(Gate)
Activation = Literal["none", "relu", "elu"]
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
SLOPE = 0.2  # of the LeakyReLU, as in GAT
LARGEST = 80.0  # exp of it is finite in float32; only an edge of weight 0 can lie above


def backend(tensor: Tensor) -> ModuleType:
    """The module of operators for tensors like this one."""
    if tensor.device.type == "cpu":
        return import_module(f"{__name__}.cpu")
    if tensor.device.type == "cuda" and tensor.dtype != torch.float64 and _has_triton():
        return import_module(f"{__name__}.gpu")
    return import_module(f"{__name__}.reference")


@cache
def _has_triton() -> bool:
    """Whether Triton can be imported; said once where it cannot."""
    try:
        import_module("triton")
    except ImportError as error:
        message = f"Triton cannot be imported ({error}): plain torch operators, several times slower, are used"
        warnings.warn(message, RuntimeWarning, stacklevel=4)
        return False
    return True
