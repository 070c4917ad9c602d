"""A small random graph, and networks with random parameters, for tests of backbones."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from torch import nn

from edgemask.nn.tensors import Edges

N, INPUTS = 12, 6
Network = TypeVar("Network", bound=nn.Module)


def random_edges(seed: int = 0, n: int = N, count: int = 40) -> Edges:
    keys = np.sort(np.random.default_rng(seed).choice(n * n, count, replace=False))
    keys = torch.tensor(keys[keys % n != keys // n])
    return Edges.build(keys % n, keys // n, n)


def pairs_of(edges: Edges) -> torch.Tensor:
    """Return the real edges as PyTorch Geometric takes them."""
    return torch.stack([edges.src, edges.dst])[:, edges.real]


def randomise(network: Network) -> Network:
    """Give a network random parameters, because an error in a bias of zero would not show, and evaluate it."""
    for parameter in network.parameters():
        nn.init.normal_(parameter)
    return network.eval()
