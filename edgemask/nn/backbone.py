"""The interface of backbones: each maps features, edges and an optional edge mask to N × C logits.

The weight of an edge multiplies its mask. A mask of None means ones; self-loops always have weight 1. A backbone is a
sequence of rounds of message passing, with maps of single nodes between them. `forward` runs the rounds on a whole
graph, and `edgemask.nn.blocks` runs them on blocks of nodes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from edgemask.errors import InputError
from edgemask.legal import Legal
from edgemask.nn.arguments import check_features, check_mask
from edgemask.nn.tensors import Edges, SparseMatrix


class InputLinear(nn.Module):
    """A linear layer x W + b. Its input may be a sparse matrix, which is never converted to a dense one.

    Args:
        inputs: Number of input features.
        outputs: Number of outputs.
        bias: Whether to add b.
    """

    def __init__(self, inputs: int, outputs: int, bias: bool = True):
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def forward(self, x: Tensor | SparseMatrix) -> Tensor:
        """Return x W + b.

        Raises:
            InputError: `x` has another number of columns than W has rows.
        """
        if isinstance(x, Tensor | SparseMatrix) and x.shape[1] != len(self.weight):
            raise InputError(f"x has {x.shape[1]} columns, but the network has inputs = {len(self.weight)}")
        out = x @ self.weight
        return out if self.bias is None else out + self.bias


def arguments(
    like: Tensor, x: Any, edge_index: Any, edge_weight: Any = None, mask: Any = None
) -> tuple[Any, Edges, Tensor | None]:
    """Check the arguments of a network, and convert them to those that its rounds take.

    Args:
        like: A parameter of the network.
        x: N × d features, or anything that can be multiplied with the network's first weights.
        edge_index: 2 × M LongTensor, or `Edges`.
        edge_weight: M weights, or None.
        mask: M values in the order of the given edges, or None.

    Returns:
        The features, the edges, and the mask in their order. The mask is None only if it means ones in the precision
        of the network.

    Raises:
        InputError: An argument is not as `Backbone.forward` describes it.
    """
    if isinstance(x, Tensor) and x.layout != torch.strided:
        x = SparseMatrix(x, x.device)
    elif isinstance(x, Tensor):
        check_features(x, like)
    elif not hasattr(x, "__matmul__") or hasattr(x, "__array_priority__"):  # arrays of NumPy and SciPy have both
        raise InputError(
            f"x must be a tensor or a SparseMatrix, got {type(x).__name__}; convert it with torch.as_tensor(x) or, if "
            "it is sparse, SparseMatrix(x)"
        )
    if isinstance(edge_index, Edges):
        edges = edge_index
        if edge_weight is not None:
            raise InputError(
                "edge_weight must be None with Edges, which hold their own weights: build them with "
                "Edges.of(edge_index, num_nodes, edge_weight); a mask is given as mask="
            )
        if isinstance(x, Tensor | SparseMatrix) and x.shape[0] != edges.num_nodes:
            raise InputError(f"x has {x.shape[0]} rows, but the edges have num_nodes = {edges.num_nodes}")
    else:
        edges = Edges.of(edge_index, x.shape[0], edge_weight)
    if mask is not None:
        check_mask(mask, edges.num_real, like)
        if edges is not edge_index:
            mask = mask[edges.order]
    elif like.dtype == torch.float64 != torch.get_default_dtype():
        mask = like.new_ones(edges.num_real)
    return x, edges, mask


class Backbone(nn.Module):
    """A network of `rounds` rounds of message passing. It is a plain `nn.Module`.

    A backbone defines four functions:

    `weigh`    turns the mask into weights that all rounds share: a value per edge, per real edge, or None.
    `receive`  maps the features (i = 0), or what round i - 1 collected, to the state of each node.
    `send`     maps the state to the messages of round i; after the last round, to the logits.
    `collect`  aggregates the messages of round i over incoming edges.

    The representation of a node is its state before round `depth`: `embed` returns it, and `read` computes the logits
    from it.

    The constructor of every backbone takes these arguments, in this order:

    `inputs`   number of input features
    `hidden`   hidden width
    `classes`  number of classes
    `layers`   number of layers
    `dropout`  dropout rate between layers
    """

    rounds: int
    depth: int

    def __init__(self, inputs: int = 1, hidden: int = 1, classes: int = 1, layers: int = 1, dropout: float = 0.0):
        super().__init__()
        for name, size in (("inputs", inputs), ("hidden", hidden), ("classes", classes), ("layers", layers)):
            Legal(1, whole=True).check(name, size)
        Legal(0, 1, open_high=True).check("dropout", dropout)

    def weigh(self, edges: Edges, s: Tensor | None) -> Tensor | None:
        """Return the edge weights that all rounds share, from the mask `s` on the real edges.

        The weights of `edges` multiply the mask, here or in `collect`: `gcn_weights`, `attend` and `Edges.spread` do.

        Args:
            edges: Edges of the graph.
            s: Mask of the real edges. None means ones.

        Returns:
            A value per edge or per real edge, as `collect` takes it, or None.
        """
        return s

    def receive(self, i: int, h: Any) -> Tensor:
        """Return the state of each node before round i.

        Args:
            i: Number of the round, from 0 to `rounds`.
            h: The features if i is 0, else what round i - 1 collected.

        Returns:
            The state, one row per node.
        """
        raise NotImplementedError

    def send(self, i: int, h: Any) -> Tensor:
        """Return the messages of round i or, after the last round, the logits.

        Args:
            i: Number of the round, from 0 to `rounds`.
            h: The state that `receive` returned.

        Returns:
            The messages, one row per node, or the N × C logits if i is `rounds`.
        """
        raise NotImplementedError

    def at_nodes(self, i: int, h: Any) -> Tensor:
        """Apply `receive` and `send`: everything that happens at single nodes before round i."""
        return self.send(i, self.receive(i, h))

    def collect(self, i: int, edges: Edges, weight: Any, z: Tensor) -> Tensor:
        """Aggregate the messages of round i over the incoming edges of each node.

        Args:
            i: Number of the round.
            edges: Edges of the graph.
            weight: Edge weights that `weigh` returned.
            z: Messages of all nodes, as `send` returned them.

        Returns:
            What each node collected, one row per node.
        """
        raise NotImplementedError

    def forward(
        self,
        x: Tensor | SparseMatrix,
        edge_index: Tensor | Edges,
        edge_weight: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Return the N × C logits of a whole graph.

        Args:
            x: N × d features: a dense tensor, a torch sparse tensor, or a `SparseMatrix`. A torch sparse tensor is
                converted in every call; a `SparseMatrix` is converted once.
            edge_index: 2 × M LongTensor of sources and destinations in any order, without self-loops, or `Edges`, which
                are sorted only once (`Edges.of`).
            edge_weight: M weights of at least 0. None means ones. `Edges` hold their own weights.
            mask: M values, in the order of the given edges, which multiply the weights. None means ones.

        Raises:
            InputError: A shape, a dtype or a value is not as described.
        """
        x, edges, mask = arguments(next(self.parameters()), x, edge_index, edge_weight, mask)
        weight, z = self.weigh(edges, mask), self.at_nodes(0, x)
        for i in range(self.rounds):
            z = self.at_nodes(i + 1, self.collect(i, edges, weight, z))
        return z

    def embed(self, x: Tensor | SparseMatrix, edges: Edges, s: Tensor | None = None) -> Tensor:
        """Return the representation of each node: the input of the last linear map.

        Args:
            x: N × d features.
            edges: Edges of the graph.
            s: Mask of the real edges. None means ones.
        """
        weight, h = self.weigh(edges, s), self.receive(0, x)
        for i in range(self.depth):
            h = self.receive(i + 1, self.collect(i, edges, weight, self.send(i, h)))
        return h

    def read(self, h: Tensor, edges: Edges, s: Tensor | None = None) -> Tensor:
        """Return the N × C logits of a representation, so that `read(embed(x, edges, s), edges, s)` equals `forward`.

        Args:
            h: Representation of each node, as `embed` returns it.
            edges: Edges of the graph.
            s: Mask of the real edges. None means ones.
        """
        weight, z = self.weigh(edges, s), self.send(self.depth, h)
        for i in range(self.depth, self.rounds):
            z = self.at_nodes(i + 1, self.collect(i, edges, weight, z))
        return z
