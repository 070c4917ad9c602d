"""Checks of the arguments of networks that people call from their own code."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgemask.errors import InputError


def check_edge_index(edge_index: Any, num_nodes: int) -> None:
    """Check the edges of a graph: a 2 × M LongTensor of node indices without self-loops.

    Raises:
        InputError: They are not.
    """
    if not isinstance(edge_index, Tensor):
        raise InputError(
            f"edge_index must be a 2 × M LongTensor or Edges, got {type(edge_index).__name__}; convert it with "
            "torch.as_tensor(edge_index)"
        )
    shape = tuple(edge_index.shape)
    if len(shape) != 2 or shape[0] != 2:
        hint = "; transpose it with edge_index.t()" if len(shape) == 2 and shape[1] == 2 else ""
        raise InputError(f"edge_index must have shape 2 × M (sources, destinations), got {shape}{hint}")
    if edge_index.dtype != torch.int64:
        raise InputError(
            f"edge_index must have dtype torch.int64, got {edge_index.dtype}; convert it with edge_index.long()"
        )
    wrong = (edge_index < 0) | (edge_index >= num_nodes)
    if wrong.any():
        column = int(wrong.any(0).nonzero()[0])
        raise InputError(
            f"edge_index: edge {column} is {_arrow(edge_index, column)}, but the nodes are 0 … {num_nodes - 1} (x has "
            f"{num_nodes} rows)"
        )
    loops = edge_index[0] == edge_index[1]
    if loops.any():
        raise InputError(
            f"edge_index: edge {int(loops.nonzero()[0])} is a self-loop; the networks add one at every node: "
            "remove yours with torch_geometric.utils.remove_self_loops(edge_index)"
        )


def check_edge_weight(edge_weight: Any, edge_index: Tensor) -> None:
    """Check edge weights: one finite number of at least 0 for each edge.

    Raises:
        InputError: They are not.
    """
    _check_values("edge_weight", edge_weight, edge_index.shape[1])
    wrong = ~(edge_weight.isfinite() & (edge_weight >= 0))
    if wrong.any():
        column = int(wrong.nonzero()[0])
        raise InputError(
            f"edge_weight: the weight of edge {column} ({_arrow(edge_index, column)}) must be a finite number of at "
            f"least 0, got {float(edge_weight[column])}"
        )


def check_mask(mask: Any, count: int, like: Tensor) -> None:
    """Check a mask: a floating-point tensor with one value for each of `count` edges.

    Args:
        mask: The mask.
        count: Number of edges.
        like: A parameter of the network. Single and double precision are not mixed.

    Raises:
        InputError: The mask is not as described.
    """
    _check_values("mask", mask, count)
    if {mask.dtype, like.dtype} == {torch.float32, torch.float64}:
        raise InputError(
            f"mask must have the dtype of the network's parameters, {like.dtype}, got {mask.dtype}; convert it with "
            f"mask.to({like.dtype})"
        )


def check_features(x: Tensor, like: Tensor) -> None:
    """Check dense features: an N × d tensor with the dtype of the network's parameters.

    Args:
        x: The features.
        like: A parameter of the network.

    Raises:
        InputError: They are not.
    """
    if x.dim() != 2:
        raise InputError(f"x must have shape N × features, got {tuple(x.shape)}")
    if x.dtype != like.dtype and not (x.is_floating_point() and torch.is_autocast_enabled(x.device.type)):
        raise InputError(
            f"x must have the dtype of the network's parameters, {like.dtype}, got {x.dtype}; convert it with "
            f"x.to({like.dtype})"
        )


def _check_values(name: str, values: Any, count: int) -> None:
    """Check a floating-point tensor with one value for each of `count` edges."""
    if not isinstance(values, Tensor):
        raise InputError(
            f"{name} must be a tensor, got {type(values).__name__}; convert it with torch.as_tensor({name})"
        )
    if tuple(values.shape) != (count,):
        raise InputError(f"{name} must have one value for each of the {count} edges, got shape {tuple(values.shape)}")
    if not values.is_floating_point():
        raise InputError(f"{name} must be floating-point, got {values.dtype}; convert it with {name}.float()")


def _arrow(edge_index: Tensor, column: int) -> str:
    source, destination = edge_index[:, column].tolist()
    return f"{source} → {destination}"
