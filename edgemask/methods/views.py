"""Augmented views of a graph: dropped edges, masked feature columns, perturbed first linear maps."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from edgemask.errors import InputError
from edgemask.nn.backbone import Backbone
from edgemask.nn.tensors import Edges, SparseMatrix


class Masked(SparseMatrix):
    """Sparse features with masked columns.

    (X ⊙ keep) W = X (keep ⊙ W), so nothing is copied or made dense.
    """

    def __init__(self, x: SparseMatrix, keep: Tensor):
        self.shape, self.forward, self.transpose, self.keep = x.shape, x.forward, x.transpose, keep

    def __matmul__(self, weight: Tensor) -> Tensor:
        return super().__matmul__(self.keep.unsqueeze(1).to(weight.dtype) * weight)


class Perturbed(SparseMatrix):
    """Features, sparse or dense, whose products with a network's first linear maps are shifted: X W + δ_W.

    Each δ is a leaf with a gradient. It starts uniform in [-size, size] when its map is used for the first time.
    """

    def __init__(self, x: Tensor | SparseMatrix, size: float):
        self.x, self.shape, self.size = x, (int(x.shape[0]), int(x.shape[1])), size
        self.deltas: dict[int, Tensor] = {}  # by the id of the map's weight tensor

    def __matmul__(self, weight: Tensor) -> Tensor:
        image = self.x @ weight
        if id(weight) not in self.deltas:
            self.deltas[id(weight)] = torch.empty_like(image).uniform_(-self.size, self.size).requires_grad_()
        return image + self.deltas[id(weight)]

    def ascend(self, loss: Tensor) -> None:
        """Move every δ by `size` along the sign of the loss's gradient."""
        gradients = torch.autograd.grad(loss, list(self.deltas.values()))
        for (key, delta), gradient in zip(self.deltas.items(), gradients, strict=True):
            self.deltas[key] = (delta.detach() + self.size * gradient.sign()).requires_grad_()


def mask_columns(x: Tensor | SparseMatrix, rate: float) -> Tensor | SparseMatrix:
    """Return the features with each column set to 0 with probability `rate`, the same for all nodes."""
    device = x.forward.device if isinstance(x, SparseMatrix) else x.device
    keep = torch.rand(x.shape[1], device=device) >= rate
    return Masked(x, keep) if isinstance(x, SparseMatrix) else x * keep


def drop_edges(edges: Edges, rate: float) -> Tensor:
    """Return a mask that is 0 with probability `rate` on each real edge, and 1 otherwise."""
    return (torch.rand(edges.num_real, device=edges.src.device) >= rate).to(torch.get_default_dtype())


def backbone(network: nn.Module) -> Backbone:
    """Return the network as a `Backbone`, which has a representation (`embed` and `read`).

    Raises:
        InputError: The network has no representation.
    """
    if not hasattr(network, "embed"):
        raise InputError(f"this method needs a backbone with a representation, but {type(network).__name__} has none")
    return cast(Backbone, network)


def representation_width(network: nn.Module, num_features: int) -> int:
    """Return the width of a backbone's representation, from a forward pass on one node without edges.

    Raises:
        InputError: The backbone has no representation, or only one layer.
    """
    no_nodes, x = torch.empty(0, dtype=torch.int64), torch.zeros(1, num_features)
    with torch.no_grad():
        h = backbone(network.eval()).embed(x, Edges.build(no_nodes, no_nodes, 1))
    if h is x:
        raise InputError("layers = 1 leaves no representation between the features and the logits: set layers >= 2")
    return int(h.shape[1])
