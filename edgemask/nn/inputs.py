"""Features with something added that is small. A linear map is applied to them without their being formed, so that
sparse features stay sparse and constant: they stand wherever a network multiplies its input by its first weights."""

from __future__ import annotations

from torch import Tensor

from edgemask.nn.tensors import SparseMatrix


class Appended:
    """[X ‖ 1 cᵀ]: the same context c beside the features of every node."""

    def __init__(self, x: Tensor | SparseMatrix, context: Tensor):
        self.x, self.context = x, context

    def __matmul__(self, weight: Tensor) -> Tensor:
        features = len(weight) - len(self.context)
        return self.x @ weight[:features] + self.context @ weight[features:]


class Shifted:
    """X + A B: features changed by a matrix of few ranks, A of N × r and B of r × F."""

    def __init__(self, x: Tensor | SparseMatrix | Shifted, a: Tensor, b: Tensor):
        self.x, self.a, self.b = x, a, b

    def __matmul__(self, weight: Tensor) -> Tensor:
        return self.x @ weight + self.a @ (self.b @ weight)
