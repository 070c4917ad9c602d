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


def propagate_each(edges: Edges, values: Sequence[Tensor], alphas: Sequence[float], steps: int) -> list[Tensor]:
    """Propagate several matrices, each with a strength of its own.

    All share each pass over the edges, which is much faster than one call of `propagate` for each.

    Args:
        edges: Edges of the graph.
        values: The values to propagate: matrices with a row per node.
        alphas: The strength for each of them.
        steps: Number of rounds.

    Returns:
        The result of `propagate` for each, up to rounding.
    """
    results = list(values)
    moving = [i for i, alpha in enumerate(alphas) if alpha > 0 and steps]
    if moving:
        start = torch.cat([values[i] for i in moving], dim=1)
        widths = [values[i].shape[1] for i in moving]
        alpha = torch.tensor([alphas[i] for i in moving], dtype=start.dtype, device=start.device)
        alpha = alpha.repeat_interleave(torch.tensor(widths, device=start.device))
        with torch.no_grad():
            weight, z, restart = gcn_weights(edges), start, (1 - alpha) * start
            for _ in range(steps):
                z = aggregate(edges, weight, z).mul_(alpha).add_(restart)
        for i, part in zip(moving, torch.split(z, widths, dim=1), strict=True):
            results[i] = part
    return results


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
