"""Features to which something small is added, without forming the sum.

They can be used wherever a network multiplies its input by its first weights. The product is computed from the parts,
so sparse features stay sparse and constant.
"""

from __future__ import annotations

from torch import Tensor

from edgemask.nn.tensors import SparseMatrix


class Appended:
    """The matrix [X ‖ 1 cᵀ]: the features of every node, followed by the same context c."""

    def __init__(self, x: Tensor | SparseMatrix, context: Tensor):
        self.x, self.context = x, context

    def __matmul__(self, weight: Tensor) -> Tensor:
        features = len(weight) - len(self.context)
        return self.x @ weight[:features] + self.context @ weight[features:]


class Shifted:
    """The matrix X + A B: features plus a matrix of low rank, where A is N × r and B is r × F.

    Args:
        x: The matrix X (N × F).
        a: The matrix A.
        b: The matrix B.
    """

    def __init__(self, x: Tensor | SparseMatrix | Shifted, a: Tensor, b: Tensor):
        self.x, self.a, self.b = x, a, b

    def __matmul__(self, weight: Tensor) -> Tensor:
        return self.x @ weight + self.a @ (self.b @ weight)
