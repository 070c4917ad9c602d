"""The operators in plain torch, written directly from their equations. They run on any device."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from edgemask.config import Gate
from edgemask.nn.kernels import LARGEST, SLOPE, Activation
from edgemask.nn.tensors import Edges, csr_tensor


def attend(
    edges: Edges,
    z: Tensor,
    logit_src: Tensor,
    logit_dst: Tensor,
    s: Tensor | None,
    c: Tensor,
    *,
    gate: Gate,
    dropout: float = 0.0,
) -> Tensor:
    """Implement `edgemask.nn.attention.attend`."""
    weight = edges.spread(s)
    logits = logit_src[edges.src] + logit_dst[edges.dst]
    if gate != "softmax":
        logits = logits + weight.unsqueeze(1) * c
    alpha = edge_softmax(edges, F.leaky_relu(logits, SLOPE), weight if gate == "softmax" else None)
    if gate == "message":
        alpha = alpha * weight.unsqueeze(1)
    alpha = F.dropout(alpha, dropout, training=dropout > 0)
    # One product per head, so that no edges × heads × d_h tensor is formed.
    return torch.stack([aggregate(edges, alpha[:, k], z[:, k]) for k in range(z.shape[1])], dim=1)


def edge_softmax(edges: Edges, logits: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the softmax of M × H logits over the edges into each node.

    With `weight`, exp(logit) is replaced by w · exp(logit), where w has one value per edge.
    """
    if weight is None:
        exp = (logits - segment_max(edges, logits.detach())[edges.dst]).exp()
    else:  # an edge of weight 0 counts as removed, so it must not set the scale for the others
        present = logits.detach().masked_fill(weight.unsqueeze(1) == 0, -torch.inf)
        exp = (logits - segment_max(edges, present)[edges.dst]).clamp_max(LARGEST).exp() * weight.unsqueeze(1)
    return exp / segment_sum(edges, exp)[edges.dst]


def aggregate(edges: Edges, weight: Tensor, h: Tensor) -> Tensor:
    """Implement `edgemask.nn.aggregate.aggregate`."""
    out: Tensor = _Aggregate.apply(weight, h, edges)  # type: ignore[no-untyped-call]
    return out


class _Aggregate(torch.autograd.Function):
    """The product of the weighted adjacency matrix and h, with gradients for the weights and h."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, h: Tensor, edges: Edges) -> Tensor:
        ctx.save_for_backward(weight, h)
        ctx.edges = edges
        return product(edges.indptr, edges.src, weight.detach(), h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (weight, h), edges = ctx.saved_tensors, ctx.edges
        grad = grad.contiguous()
        grad_weight = grad_h = None
        if ctx.needs_input_grad[0]:  # grad[v] · h[u], only at the edges u → v
            pattern = _square(edges.indptr, edges.src, torch.zeros_like(weight))
            grad_weight = torch.sparse.sampled_addmm(pattern, grad, h.t(), beta=0.0).values()
        if ctx.needs_input_grad[1]:
            order, indptr = edges.by_source
            grad_h = product(indptr, edges.dst_by_source, weight[order], grad)
        return grad_weight, grad_h, None


def product(indptr: Tensor, columns: Tensor, values: Tensor, w: Tensor) -> Tensor:
    """Return the product of the CSR matrix (indptr, columns, values) and w."""
    return csr_tensor(indptr, columns, values, (len(indptr) - 1, len(w)), w.device) @ w


def _square(indptr: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    """Return a square CSR tensor."""
    return csr_tensor(indptr, columns, values, (len(indptr) - 1, len(indptr) - 1), values.device)


def gcn_weights(edges: Edges, s: Tensor | None = None) -> Tensor:
    """Implement `edgemask.nn.aggregate.gcn_weights`."""
    weight = edges.spread(s)
    inverse = segment_sum(edges, weight).rsqrt()  # every degree is at least 1, because of the self-loop
    return inverse[edges.src] * weight * inverse[edges.dst]


def edge_mlp(edges: Edges, at_src: Tensor, at_dst: Tensor, extra: Tensor | None, w: Tensor) -> Tensor:
    """Implement `edgemask.nn.edge_mlp.edge_mlp`."""
    hidden = at_src[edges.src[edges.real]] + at_dst[edges.dst[edges.real]]
    return F.relu(hidden if extra is None else hidden + extra) @ w


def head_logits(z: Tensor, a_src: Tensor, a_dst: Tensor) -> tuple[Tensor, Tensor]:
    """Implement `edgemask.nn.nodes.head_logits`."""
    return (z * a_src).sum(-1), (z * a_dst).sum(-1)


def head_mean(h: Tensor) -> Tensor:
    """Implement `edgemask.nn.nodes.head_mean`."""
    return h.mean(1)


def activate(h: Tensor, bias: Tensor | None, activation: Activation, dropout: float = 0.0) -> Tensor:
    """Implement `edgemask.nn.nodes.activate`."""
    h = h if bias is None else h + bias
    h = F.relu(h) if activation == "relu" else F.elu(h) if activation == "elu" else h
    return F.dropout(h, dropout, training=dropout > 0)


def segment_sum(edges: Edges, values: Tensor) -> Tensor:
    """Return the sum of the per-edge values at each destination: (M,) → (N,), (M, H) → (N, H)."""
    return torch.segment_reduce(values, "sum", offsets=edges.indptr, axis=0, unsafe=True)


def segment_max(edges: Edges, values: Tensor) -> Tensor:
    """Return the largest per-edge value at each destination, with shapes as in `segment_sum`."""
    return torch.segment_reduce(values, "max", offsets=edges.indptr, axis=0, unsafe=True)
