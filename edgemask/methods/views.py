"""Augmented views of a graph: edges dropped, columns of the features masked, their first linear image perturbed."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from edgemask.errors import InputError
from edgemask.nn.backbone import Backbone
from edgemask.nn.tensors import Edges, SparseMatrix


class Masked(SparseMatrix):
    """Sparse features with columns masked: (X ⊙ keep) W = X (keep ⊙ W), so nothing is copied or made dense."""

    def __init__(self, x: SparseMatrix, keep: Tensor):
        self.shape, self.forward, self.transpose, self.keep = x.shape, x.forward, x.transpose, keep

    def __matmul__(self, weight: Tensor) -> Tensor:
        return super().__matmul__(self.keep.unsqueeze(1).to(weight.dtype) * weight)


class Perturbed(SparseMatrix):
    """Features, sparse or not, whose images under a network's first linear maps are shifted: X W + δ_W.

    A δ starts uniform in [-size, size] when its map is first seen, and is a leaf with a gradient.
    """

    def __init__(self, x: Tensor | SparseMatrix, size: float):
        self.x, self.shape, self.size = x, (int(x.shape[0]), int(x.shape[1])), size
        self.deltas: dict[int, Tensor] = {}  # by the id of the map's weights

    def __matmul__(self, weight: Tensor) -> Tensor:
        image = self.x @ weight
        if id(weight) not in self.deltas:
            self.deltas[id(weight)] = torch.empty_like(image).uniform_(-self.size, self.size).requires_grad_()
        return image + self.deltas[id(weight)]

    def ascend(self, loss: Tensor) -> None:
        """A step of `size` up the sign of a loss's gradient."""
        slopes = torch.autograd.grad(loss, list(self.deltas.values()))
        for (name, delta), slope in zip(self.deltas.items(), slopes, strict=True):
            self.deltas[name] = (delta.detach() + self.size * slope.sign()).requires_grad_()


def mask_columns(x: Tensor | SparseMatrix, rate: float) -> Tensor | SparseMatrix:
    """Features with each column set to 0 with probability `rate`, for all nodes alike."""
    device = x.forward.device if isinstance(x, SparseMatrix) else x.device
    keep = torch.rand(x.shape[1], device=device) >= rate
    return Masked(x, keep) if isinstance(x, SparseMatrix) else x * keep


def drop_edges(edges: Edges, rate: float) -> Tensor:
    """A mask that is 0 with probability `rate` on each real edge, and 1 elsewhere."""
    return (torch.rand(edges.num_real, device=edges.src.device) >= rate).to(torch.get_default_dtype())


def backbone(network: nn.Module) -> Backbone:
    """A network as what has a representation, `embed` and `read`."""
    if not hasattr(network, "embed"):
        raise InputError(f"a backbone with a representation is needed, {type(network).__name__} has none")
    return cast(Backbone, network)


def representation_width(network: nn.Module, num_features: int) -> int:
    """How wide a backbone's representation is: asked of one node without edges."""
    nowhere, x = torch.empty(0, dtype=torch.int64), torch.zeros(1, num_features)
    with torch.no_grad():
        h = backbone(network.eval()).embed(x, Edges.build(nowhere, nowhere, 1))
    if h is x:
        raise InputError("layers = 1 leaves no representation between the features and the logits: set layers >= 2")
    return int(h.shape[1])
