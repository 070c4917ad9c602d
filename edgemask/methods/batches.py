"""Batches of training nodes for large graphs, each with the sampled neighbourhood its logits depend on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from edgemask.config import Recipe
from edgemask.errors import InputError
from edgemask.methods.sources import Source
from edgemask.nn.tensors import Edges, GraphTensors, features
from edgemask.seeds import derive, torch_stream


class Batches:
    """All batches of one epoch.

    The training nodes of a source are shuffled and cut into ⌈n / batch_size⌉ batches whose sizes differ by at most one
    node. A source with fewer batches than the largest one starts again from its first batch. Every batch is cut into
    shards whose sizes differ by at most one node.

    Args:
        recipe: Settings `batch_size`, `fan_out` and `shards`.
        sources: The sources to train on.
        edges: Edges of every source in this epoch.
        seed: Seed of the run.
        epoch: Number of the epoch.

    Attributes:
        rounds: Number of batches taken from each source.

    Raises:
        InputError: The recipe has no `batch_size`, or a batch has fewer nodes than there are shards.
    """

    def __init__(self, recipe: Recipe, sources: Sequence[Source], edges: Sequence[Edges], seed: int, epoch: int):
        fan_out, size = recipe.fan_out, recipe.batch_size
        if size is None:
            raise InputError("batch_size is None: this recipe trains on whole graphs")
        self.fan_outs = fan_out if isinstance(fan_out, tuple) else (fan_out or -1,) * recipe.hops
        self.sources, self.shards = sources, recipe.shards
        self.neighbours, self.batches = [], []
        for source, drawn in zip(sources, edges, strict=True):
            name, nodes, count = source.domain.name, source.train, math.ceil(len(source.train) / size)
            if len(nodes) // count < recipe.shards:
                problem = f"{len(nodes)} training nodes in batches of {len(nodes) // count}"
                raise InputError(f"graph {name!r}: {problem} cannot be cut into shards = {recipe.shards}")
            salt = derive(seed, "neighbours", name, epoch) if any(f >= 0 for f in self.fan_outs) else None
            self.neighbours.append(Neighbours(drawn, salt))
            order = torch.randperm(len(nodes), generator=torch_stream(seed, "batches", name, epoch))
            self.batches.append(torch.tensor_split(nodes[order.to(nodes.device)], count))
        self.rounds = max(map(len, self.batches))

    def part(self, i: int, number: int, shard: int) -> tuple[Source, Edges]:
        """Return a shard of a batch.

        Args:
            i: Index of the source.
            number: Number of the round.
            shard: Index of the shard.

        Returns:
            The shard as a source of its own, which has only the sampled neighbourhood of its nodes, and its edges.
        """
        source, neighbours, batches = self.sources[i], self.neighbours[i], self.batches[i]
        seeds = torch.tensor_split(batches[number % len(batches)], self.shards)[shard]
        nodes, chosen = neighbours.around(seeds, self.fan_outs)
        edges = neighbours.among(nodes, chosen)
        y = source.domain.labels()[nodes]
        domain = GraphTensors(
            name=source.domain.name,
            x=features(source.domain.graph, nodes),
            edges=edges,
            y=y,
            labelled=torch.nonzero(y >= 0).squeeze(1),
            graph=source.domain.graph,
            every_y=None if source.domain.every_y is None else source.domain.every_y[nodes],
        )
        train = torch.searchsorted(nodes, seeds)
        return dataclasses.replace(source, domain=domain, train=train, sampler=None, batch=True), edges


class Neighbours:
    """The edges of one epoch, grouped by destination.

    The edges into a node are ordered by a hash of `salt` and the edge's two ends. The first `fan_out` of them are the
    node's sample. The sample is therefore the same in every batch, shard and process, and a smaller fan-out keeps a
    subset of what a larger one keeps.

    Args:
        edges: Edges of the epoch.
        salt: Seed of the hash; None if no neighbours are to be dropped.
    """

    def __init__(self, edges: Edges, salt: int | None):
        self.src, self.dst, self.origin = edges.src[edges.real], edges.dst[edges.real], edges.origin
        self.weight = edges.weight
        if salt is not None:
            number = scramble(scramble(self.src ^ salt) ^ self.dst) & 0xFFFFFFFF
            order = ((self.dst << 32) + number).sort(stable=True).indices  # does not move the destinations
            self.src, self.origin = self.src[order], self.origin[order]
            self.weight = None if self.weight is None else self.weight[order]
        self.indptr = edges.indptr - torch.arange(edges.num_nodes + 1, device=self.dst.device)  # without self-loops

    def around(self, seeds: Tensor, fan_outs: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the neighbourhood of some nodes.

        Args:
            seeds: Nodes of the batch.
            fan_outs: Edges to keep per node, one value per hop from the seeds outwards; -1 keeps all.

        Returns:
            The nodes within `len(fan_outs)` hops, sorted, and the positions of the edges into all nodes but the
                outermost ones.
        """
        nodes = frontier = seeds.sort().values
        chosen = [seeds.new_empty(0)]
        for fan_out in fan_outs:
            begin = self.indptr[frontier]
            count = self.indptr[frontier + 1] - begin
            if fan_out >= 0:
                count = count.clamp_max(fan_out)
            shift = torch.repeat_interleave(begin - count.cumsum(0) + count, count)
            chosen.append(shift + torch.arange(len(shift), device=shift.device))
            reached = torch.unique(self.src[chosen[-1]])
            frontier = reached[~torch.isin(reached, nodes, assume_unique=True)]
            nodes = torch.cat([nodes, frontier])
        return nodes.sort().values, torch.cat(chosen)

    def among(self, nodes: Tensor, chosen: Tensor) -> Edges:
        """Return the edges at the given positions, as a graph of only the given nodes."""
        src, dst = (torch.searchsorted(nodes, ends[chosen]) for ends in (self.src, self.dst))
        order = torch.argsort(dst * len(nodes) + src)
        sorted_chosen = chosen[order]
        weight = None if self.weight is None else self.weight[sorted_chosen]
        return Edges.build(src[order], dst[order], len(nodes), self.origin[sorted_chosen], weight)


def scramble(x: Tensor) -> Tensor:
    """Apply the 64-bit finaliser of SplitMix64 to int64 values, whose products wrap around."""
    x = (x ^ ((x >> 30) & (2**34 - 1))) * (0xBF58476D1CE4E5B9 - 2**64)
    x = (x ^ ((x >> 27) & (2**37 - 1))) * (0x94D049BB133111EB - 2**64)
    return x ^ ((x >> 31) & (2**33 - 1))
