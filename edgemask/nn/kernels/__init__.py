"""Backends of one operator, the masked attention of `edgemask.nn.attention`: `reference` in plain torch for any
device, `cpu` in fused, multi-threaded loops."""

from typing import Literal, get_args

Gate = Literal["message", "attention", "softmax"]
GATES: tuple[Gate, ...] = get_args(Gate)
SLOPE = 0.2  # of the LeakyReLU, as in GAT
LARGEST = 80.0  # exp of it is finite in float32; only an edge of weight 0 can lie above
