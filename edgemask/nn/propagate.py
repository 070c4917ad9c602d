"""Propagation of logits over the target's graph: Z ← α Â Z + (1 - α) Z⁽⁰⁾."""

from __future__ import annotations

import torch
from torch import Tensor

from edgemask.nn.aggregate import aggregate, gcn_weights
from edgemask.nn.tensors import Edges


def propagate(edges: Edges, logits: Tensor, alpha: float, steps: int) -> Tensor:
    """`steps` rounds of personalised propagation with strength α in [0, 1); Â as in a GCN, self-loops among it.

    α = 0 or no steps returns the logits as they are.
    """
    if alpha == 0 or steps == 0:
        return logits
    with torch.no_grad():
        weight, z = gcn_weights(edges), logits
        for _ in range(steps):
            z = alpha * aggregate(edges, weight, z) + (1 - alpha) * logits
    return z
