"""What the layers of a network do at their nodes, between one round of messages and the next."""

from __future__ import annotations

from torch import Tensor

from edgemask.errors import InputError
from edgemask.nn.backend import backend
from edgemask.nn.kernels import Activation


def head_logits(z: Tensor, a_src: Tensor, a_dst: Tensor) -> tuple[Tensor, Tensor]:
    """a_src·z and a_dst·z per node and head (N × H), from z (N × H × d_h) and both vectors (H × d_h)."""
    at_src, at_dst = backend(z).head_logits(z, a_src, a_dst)
    return at_src, at_dst


def head_mean(h: Tensor) -> Tensor:
    """The mean over the heads: N × H × d_h → N × d_h."""
    out: Tensor = backend(h).head_mean(h)
    return out


def activate(h: Tensor, bias: Tensor | None, activation: Activation, dropout: float = 0.0) -> Tensor:
    """σ(h + bias) under dropout; h is N × … and the bias, if any, has the shape of its rows."""
    if not 0 <= dropout < 1:
        raise InputError(f"dropout must be in [0, 1), got {dropout}")
    out: Tensor = backend(h).activate(h, bias, activation, dropout)
    return out
