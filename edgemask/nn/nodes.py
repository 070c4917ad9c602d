"""Operators on single nodes, which layers apply between two rounds of message passing."""

from __future__ import annotations

from torch import Tensor

from edgemask.legal import Legal
from edgemask.nn.backend import backend
from edgemask.nn.kernels import Activation


def head_logits(z: Tensor, a_src: Tensor, a_dst: Tensor) -> tuple[Tensor, Tensor]:
    """Return a_src·z and a_dst·z for each node and head.

    Args:
        z: Values of the nodes (N × H × d_h).
        a_src: One vector per head for nodes as sources (H × d_h).
        a_dst: One vector per head for nodes as destinations (H × d_h).

    Returns:
        Two tensors of N × H values.
    """
    at_src, at_dst = backend(z).head_logits(z, a_src, a_dst)
    return at_src, at_dst


def head_mean(h: Tensor) -> Tensor:
    """Return the mean over the heads: N × H × d_h → N × d_h."""
    out: Tensor = backend(h).head_mean(h)
    return out


def activate(h: Tensor, bias: Tensor | None, activation: Activation, dropout: float = 0.0) -> Tensor:
    """Return σ(h + bias) with dropout.

    Args:
        h: Values of the nodes (N × …).
        bias: Bias with the shape of one row of h. None means no bias.
        activation: The nonlinearity σ.
        dropout: Dropout rate in [0, 1).

    Raises:
        InputError: `dropout` is not in [0, 1).
    """
    Legal(0, 1, open_high=True).check("dropout", dropout)
    out: Tensor = backend(h).activate(h, bias, activation, dropout)
    return out
