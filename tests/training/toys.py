"""Small graphs, a small recipe and helpers of the tests of training."""

from __future__ import annotations

import numpy as np
import torch

from edgemask.config import Recipe
from edgemask.graph import Graph
from edgemask.training.fit import Fit

TINY = Recipe(
    backbone="gcn", hidden=8, mask_projection=8, mask_hidden=8, epochs=12, n_descent=1, k=3, clusters=4,
    knn_ratio=0.5, spectral_ratio=0.2, bound="budget", rho=0.8, average=0.2, eval_every=3,
)  # fmt: skip


def domain(name: str, seed: int, n: int = 60, homophily: float = 0.9) -> Graph:
    """A small graph of 3 classes with Gaussian features and mostly same-class edges."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    x = np.eye(3)[y] * 1.5 + rng.standard_normal((n, 3))
    src, dst = rng.integers(0, n, (2, 12 * n))
    keep = (src != dst) & (rng.random(12 * n) < np.where(y[src] == y[dst], homophily, 1 - homophily))
    return Graph(
        name, x, np.stack([src[keep], dst[keep]]), y, undirected=True, duplicates="merge", classes=tuple("abc")
    )


A, B, C = domain("a", 1), domain("b", 2), domain("c", 3, homophily=0.4)


def weights(fit: Fit) -> dict[str, torch.Tensor]:
    trainer, _ = fit.run()
    return trainer.method.networks.state_dict()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)
