"""Propagation of logits over the target graph: Z ← α Â Z + (1 - α) Z⁽⁰⁾."""

from __future__ import annotations

import torch
from torch import Tensor

from edgemask.nn.aggregate import aggregate, gcn_weights
from edgemask.nn.tensors import Edges


def propagate(edges: Edges, logits: Tensor, alpha: float, steps: int) -> Tensor:
    """Propagate logits over a graph (personalised propagation).

    Args:
        edges: Edges of the graph. Â is normalised as in a GCN, with self-loops.
        logits: The logits Z⁽⁰⁾ (N × C).
        alpha: Strength α in [0, 1).
        steps: Number of rounds.

    Returns:
        The propagated logits. If `alpha` or `steps` is 0, `logits` itself.
    """
    if alpha == 0 or steps == 0:
        return logits
    with torch.no_grad():
        weight, z = gcn_weights(edges), logits
        for _ in range(steps):
            z = alpha * aggregate(edges, weight, z) + (1 - alpha) * logits
    return z
