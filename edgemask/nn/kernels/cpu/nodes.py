"""Operators on single nodes on the CPU, in one pass each: attention logits, mean over heads, activation, dropout."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from edgemask.nn.compiled import (
    BLOCKS,
    Array,
    arrays,
    compiled,
    draw,
    dropped,
    empty,
    exp,
    require_one_precision,
    stream,
)
from edgemask.nn.kernels import ACTIVATIONS, Activation
from edgemask.runtime.threads import shared_threads

RELU, ELU = (ACTIVATIONS.index(a) for a in ("relu", "elu"))


def head_logits(z: Tensor, a_src: Tensor, a_dst: Tensor) -> tuple[Tensor, Tensor]:
    """Implement `edgemask.nn.nodes.head_logits`."""
    require_one_precision(z=z, a_src=a_src, a_dst=a_dst)
    at_src, at_dst = _HeadLogits.apply(z, a_src, a_dst)  # type: ignore[no-untyped-call]
    return at_src, at_dst


def head_mean(h: Tensor) -> Tensor:
    """Implement `edgemask.nn.nodes.head_mean`."""
    require_one_precision(h=h)
    out: Tensor = _HeadMean.apply(h)  # type: ignore[no-untyped-call]
    return out


def activate(h: Tensor, bias: Tensor | None, activation: Activation, dropout: float = 0.0) -> Tensor:
    """Implement `edgemask.nn.nodes.activate`.

    With dropout, each call draws one number from torch's default generator.
    """
    require_one_precision(h=h, bias=bias)
    out: Tensor = _Activate.apply(h, bias, ACTIVATIONS.index(activation), dropout)  # type: ignore[no-untyped-call]
    return out


class _HeadLogits(torch.autograd.Function):
    """The products a_src·z and a_dst·z."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, a_src: Tensor, a_dst: Tensor) -> tuple[Tensor, Tensor]:
        at_src, at_dst = z.new_empty(z.shape[:2]), z.new_empty(z.shape[:2])
        with shared_threads():
            _head_logits(*arrays(z, a_src, a_dst, at_src, at_dst))
        ctx.save_for_backward(z, a_src, a_dst)
        return at_src, at_dst

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_src: Tensor, grad_dst: Tensor) -> tuple[Tensor | None, ...]:
        z, a_src, a_dst = ctx.saved_tensors
        wants_z, wants_src, wants_dst = ctx.needs_input_grad
        grad_z = empty(z, *z.shape) if wants_z else None
        parts = z.new_empty(2, BLOCKS, *a_src.shape) if wants_src or wants_dst else None
        with shared_threads():
            _head_logits_gradients(*arrays(z, a_src, a_dst, grad_src, grad_dst, grad_z, parts))
        grads = (None, None) if parts is None else parts.sum(1).unbind()
        return grad_z, *grads


class _HeadMean(torch.autograd.Function):
    """The mean over the heads."""

    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        nodes, ctx.heads, width = h.shape
        out = h.new_empty(nodes, width)
        with shared_threads():
            _head_mean(*arrays(h, out))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        heads: int = ctx.heads
        return (grad / heads).unsqueeze(1).expand(-1, heads, -1)  # a view, since all heads have the same gradient


class _Activate(torch.autograd.Function):
    """Bias, activation and dropout."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, bias: Tensor | None, activation: int, dropout: float) -> Tensor:
        out = empty(h, *h.shape)
        ctx.settings = activation, 1 / (1 - dropout), *draw(dropout)
        with shared_threads():
            _activate(*_flat(h), *_flat(bias, 0), *ctx.settings, *_flat(out))
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (out,) = ctx.saved_tensors
        if grad.dim() == 3 and grad.stride(1) == 0:
            grad = grad[:, :1]  # all heads have the same gradient
        grad_h = empty(out, *out.shape) if ctx.needs_input_grad[0] else None
        parts = out.new_empty(BLOCKS, *out.shape[1:]) if ctx.needs_input_grad[1] else None
        with shared_threads():
            _activate_gradients(*_flat(out), *_flat(grad), *ctx.settings, *_flat(grad_h), *_flat(parts))
        return grad_h, None if parts is None else parts.sum(0), None, None


def _flat(tensor: Tensor | None, start: int = 1) -> list[Any]:
    """Return a list of one array: the tensor with all dimensions from `start` on flattened, or None."""
    return arrays(None if tensor is None else tensor.flatten(start))


@compiled
def _head_logits(z: Array, a_src: Array, a_dst: Array, at_src: Array, at_dst: Array) -> None:
    """Fill `at_src` with a_src·z and `at_dst` with a_dst·z."""
    nodes, heads, width = z.shape
    for block in numba.prange(BLOCKS):
        for i in range(nodes * block // BLOCKS, nodes * (block + 1) // BLOCKS):
            for k in range(heads):
                x = y = z.dtype.type(0)
                for j in range(width):
                    x += z[i, k, j] * a_src[k, j]
                    y += z[i, k, j] * a_dst[k, j]
                at_src[i, k], at_dst[i, k] = x, y


@compiled
def _head_logits_gradients(
    z: Array, a_src: Array, a_dst: Array, grad_src: Array, grad_dst: Array, grad_z: Array, parts: Array
) -> None:
    """Fill the gradient of z, and those of a_src and a_dst in parts, one per block.

    `grad_z` or `parts` may be None if they are not needed.
    """
    nodes, heads, width = z.shape
    for block in numba.prange(BLOCKS):
        if parts is not None:
            parts[:, block] = 0
        for i in range(nodes * block // BLOCKS, nodes * (block + 1) // BLOCKS):
            for k in range(heads):
                x, y = grad_src[i, k], grad_dst[i, k]
                if grad_z is not None:
                    for j in range(width):
                        grad_z[i, k, j] = x * a_src[k, j] + y * a_dst[k, j]
                if parts is not None:
                    for j in range(width):
                        parts[0, block, k, j] += x * z[i, k, j]
                        parts[1, block, k, j] += y * z[i, k, j]


@compiled
def _head_mean(h: Array, out: Array) -> None:
    """Fill `out` with the mean over the heads."""
    nodes, heads, width = h.shape
    for block in numba.prange(BLOCKS):
        for i in range(nodes * block // BLOCKS, nodes * (block + 1) // BLOCKS):
            for j in range(width):
                out[i, j] = h[i, 0, j]
            for k in range(1, heads):
                for j in range(width):
                    out[i, j] += h[i, k, j]
            for j in range(width):
                out[i, j] /= heads


@compiled
def _activate(h: Array, bias: Array, activation: int, scale: float, threshold: int, seed: int, out: Array) -> None:
    """Fill `out` with σ(h + bias) under dropout."""
    nodes, width = h.shape
    zero, one, scaled = h.dtype.type(0), h.dtype.type(1), h.dtype.type(scale)
    for block in numba.prange(BLOCKS):
        for i in range(nodes * block // BLOCKS, nodes * (block + 1) // BLOCKS):
            for j in range(width):
                out[i, j] = h[i, j] if bias is None else h[i, j] + bias[j]
            if activation == RELU:
                for j in range(width):
                    out[i, j] = zero if out[i, j] < 0 else out[i, j]
            elif activation == ELU:
                for j in range(width):
                    below = zero if out[i, j] > 0 else out[i, j]
                    out[i, j] = (zero if out[i, j] < 0 else out[i, j]) + (exp(below) - one)
            if threshold:
                row = stream(seed, i)
                for j in range(width):
                    out[i, j] = zero if dropped(row, j, threshold) else scaled * out[i, j]


@compiled
def _activate_gradients(
    out: Array, grad: Array, activation: int, scale: float, threshold: int, seed: int, grad_h: Array, parts: Array
) -> None:
    """Fill the gradient of h, and that of the bias in parts, one per block, unless they are None."""
    nodes, width = out.shape
    same = grad.shape[1]  # columns of one head if all heads have the same gradient, otherwise all columns
    zero, one, scaled = out.dtype.type(0), out.dtype.type(1), out.dtype.type(scale)
    for block in numba.prange(BLOCKS):
        g, total = np.empty(width, out.dtype), np.zeros(width, out.dtype)
        for i in range(nodes * block // BLOCKS, nodes * (block + 1) // BLOCKS):
            for start in range(0, width, same):
                for j in range(same):
                    g[start + j] = scaled * grad[i, j]
            if activation == RELU:
                for j in range(width):
                    g[j] = g[j] if out[i, j] > 0 else zero
            elif activation == ELU:  # the slope is 1 above zero and σ + 1 below; `out` is σ times the scale
                for j in range(width):
                    g[j] *= min(out[i, j] / scaled, zero) + one
            if threshold:
                row = stream(seed, i)
                for j in range(width):
                    g[j] = zero if dropped(row, j, threshold) else g[j]
            for j in range(width):
                total[j] += g[j]
            if grad_h is not None:
                for j in range(width):
                    grad_h[i, j] = g[j]
        if parts is not None:
            for j in range(width):
                parts[block, j] = total[j]
