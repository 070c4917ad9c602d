"""Statistics for penalties: how much the representations or classifiers of the sources differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import torch
from torch import Tensor

WIDTHS = (
    4.0,
    2.0,
    1.0,
    0.5,
    0.25,
)  # widths of the Gaussians in the kernel of `mmd`, in medians; each is half the one before


def over_pairs(statistic: Callable[[Tensor, Tensor], Tensor], parts: Sequence[Tensor]) -> Tensor:
    """Return the mean of a statistic over all pairs of parts, or 0 if there is only one part."""
    values = [statistic(a, b) for a, b in combinations(parts, 2)]
    return torch.stack(values).mean() if values else parts[0].new_zeros(())


def mmd(x: Tensor, y: Tensor) -> Tensor:
    """Return the squared maximum mean discrepancy of two samples (Gretton et al., 2012, Eq. 5).

    mean k(x, x') + mean k(y, y') - 2 mean k(x, y),  k(a, b) = mean_w exp(-|a - b|² / (2 w m)),  w in `WIDTHS`

    m is the median of |a - b|² over the pairs of the pooled sample. The gradient treats it as a constant. The estimate
    is biased and never negative.
    """
    d = squared_distances(torch.cat([x, y]))
    size, n = len(d), len(x)
    # Exclude the diagonal: in the flattened matrix without its first entry, it is every (size + 1)-th entry.
    median = d.detach().flatten()[1:].view(size - 1, size + 1)[:, :-1].median()
    k = gaussian = (d / (-2 * WIDTHS[0] * median.clamp_min(torch.finfo(d.dtype).tiny))).exp()
    for _ in WIDTHS[1:]:
        gaussian = gaussian.square()  # half as wide
        k = k + gaussian
    share = torch.cat([d.new_full((n,), 1 / n), d.new_full((size - n,), -1 / (size - n))])
    return (share * (k * share).sum(1)).sum() / len(WIDTHS)  # combines all three means


def squared_distances(x: Tensor) -> Tensor:
    """Return the n × n squared Euclidean distances of the rows of x.

    The rows are centred first, because their products then have smaller rounding errors.
    """
    with torch.autocast(x.device.type, enabled=False):
        x = x - x.mean(0)
        products = x @ x.T
    squares = products.diagonal()
    return (squares[:, None] + squares - 2 * products).clamp_min(0)


def coral(x: Tensor, y: Tensor) -> Tensor:
    """Return |C_x - C_y|²_F / 4d², with C the covariance of d columns (Sun and Saenko, 2016, Eq. 1)."""
    return (covariance(x) - covariance(y)).square().mean() / 4


def covariance(x: Tensor) -> Tensor:
    """Return the d × d covariance with divisor n - 1, or 0 for a single row."""
    with torch.autocast(x.device.type, enabled=False):
        x = x - x.mean(0)
        return x.T @ x / max(len(x) - 1, 1)


def irm(logits: Tensor, labels: Tensor) -> Tensor:
    """Return (∂/∂w R(w · logits))² at w = 1, with R the cross-entropy (Arjovsky et al., 2019).

    It is 0 if no other scale of the logits has a lower risk. In closed form the derivative is mean Σ_c (p_c - y_c)
    logit_c.
    """
    expected = (logits.softmax(1) * logits).sum(1)
    return (expected - logits.gather(1, labels[:, None]).squeeze(1)).mean().square()
