"""Propagation of predictions over the target graph: Z ← α Â Z + (1 - α) Z⁽⁰⁾, with the weighted edges in Â."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from edgemask.nn.aggregate import aggregate, gcn_weights
from edgemask.nn.tensors import Edges


def propagate(edges: Edges, logits: Tensor, alpha: float, steps: int) -> Tensor:
    """Propagate logits over a graph (personalised propagation).

    Args:
        edges: Edges of the graph, with their weights. Â is normalised as in a GCN, with self-loops.
        logits: The logits Z⁽⁰⁾ (N × C).
        alpha: Strength α in [0, 1).
        steps: Number of rounds.

    Returns:
        The propagated logits, without a gradient. If `alpha` or `steps` is 0, `logits` itself.

    Example:
        >>> edges = Edges.of(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> propagate(edges, torch.tensor([[1.0], [0.0]]), alpha=0.5, steps=1)
        tensor([[0.7500],
                [0.2500]])
    """
    if alpha == 0 or steps == 0:
        return logits
    with torch.no_grad():
        weight, z = gcn_weights(edges), logits
        for _ in range(steps):
            z = alpha * aggregate(edges, weight, z) + (1 - alpha) * logits
    return z


def propagate_each(edges: Edges, values: Tensor, alphas: Sequence[float], steps: int) -> list[Tensor]:
    """Propagate values with several strengths at once.

    All strengths share each pass over the edges, which is much faster than one call of `propagate` per strength.

    Args:
        edges: Edges of the graph.
        values: The values to propagate (N × C).
        alphas: The strengths.
        steps: Number of rounds.

    Returns:
        The result of `propagate` for each strength, up to rounding.
    """
    positive = [a for a in alphas if a > 0]
    results = {0.0: values}
    if positive and steps:
        alpha = torch.tensor(positive, dtype=values.dtype, device=values.device).repeat_interleave(values.shape[1])
        start = values.repeat(1, len(positive))
        with torch.no_grad():
            weight, z, restart = gcn_weights(edges), start, (1 - alpha) * start
            for _ in range(steps):
                z = aggregate(edges, weight, z).mul_(alpha).add_(restart)
        results |= dict(zip(positive, torch.tensor_split(z, len(positive), dim=1), strict=True))
    return [results[a] if steps else values for a in alphas]


def propagate_weighted(edges: Edges, values: Tensor, alpha: float, steps: int, weight: Tensor) -> Tensor:
    """Propagate values over a graph whose edges have further weights. Unlike `propagate`, it has gradients.

    Args:
        edges: Edges of the graph.
        values: The values to propagate (N × C).
        alpha: Strength α in [0, 1).
        steps: Number of rounds.
        weight: Factor of each real edge, times its own weight. 0 is the same as removing the edge.

    Returns:
        The propagated values. If all factors are 1, they are those of `propagate`.
    """
    if alpha == 0 or steps == 0:
        return values
    normalised, z = gcn_weights(edges, weight), values
    for _ in range(steps):
        z = alpha * aggregate(edges, normalised, z) + (1 - alpha) * values
    return z
