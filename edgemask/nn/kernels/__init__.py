"""Implementations of the edge-wise operators. `edgemask.nn.backend` selects one by device and precision."""

from __future__ import annotations

from typing import Literal, get_args

Activation = Literal["none", "relu", "elu"]
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
SLOPE = 0.2  # negative slope of the LeakyReLU in a GAT
LARGEST = 80.0  # exp(80) is finite in float32; only an edge of weight 0 can have a larger logit
