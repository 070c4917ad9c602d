"""Sorting by small whole numbers, and laying out edges, on the CPU: a few passes over the memory each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
import torch
from torch import Tensor

from edgemask.nn.compiled import BLOCKS, Array, arrays, compiled, empty
from edgemask.runtime.threads import shared_threads

BUCKETS = 1 << 10  # ranges of keys that the first pass deals entries to: as many open ends as a cache holds


@dataclass(frozen=True)
class SourceOrder:
    """Entries sorted by keys in 0 … count - 1, stably: their `order`, and where each key's entries begin (`starts`,
    count + 1 values). Called, it brings values of the entries into this order without jumping all over the memory: it
    deals them to buckets of 2^`bits` keys, one block of entries after the other, and sorts inside each."""

    keys: Tensor
    bits: int
    ends: Array  # where each block's first entry for each bucket goes
    local: Tensor  # where each entry in order was in its bucket, as dealt
    order: Tensor
    starts: Tensor

    @classmethod
    def of(cls, keys: Tensor, count: int) -> SourceOrder:
        order, starts, dealt = empty(keys, len(keys)), keys.new_zeros(count + 1), empty(keys, len(keys))
        local = empty(torch.empty(0, dtype=torch.int32), len(keys))
        bits = max(0, (count - 1).bit_length() - BUCKETS.bit_length() + 1)  # of a key that lie inside a bucket
        ends = np.zeros((BLOCKS + 1, BUCKETS), np.int64)
        with shared_threads():
            _sort(*arrays(keys), bits, ends, *arrays(dealt, starts, order, local))
        return cls(keys, bits, ends, local, order, starts)

    def __call__(self, values: Tensor) -> Tensor:
        """Of values by entry (and any that follow), a copy in order."""
        dealt, turned = empty(values, len(self.keys), *values.shape[1:]), empty(values, *values.shape)
        width = math.prod(values.shape[1:])
        flat = (v.reshape(len(v), width) for v in (values, dealt, turned))
        with shared_threads():
            _turn(*arrays(self.keys), self.bits, self.ends, *arrays(self.local, *flat))
        return turned


def with_loops(src: Tensor, dst: Tensor, num_nodes: int) -> tuple[Tensor, ...]:
    """Edges sorted by destination, with a self-loop after those into each node: their sources and destinations, where
    the given ones are now, and where each node's edges begin, with the loops and without."""
    loops, given = empty(src, len(src) + num_nodes), empty(src, len(src))
    both = empty(src, len(src) + num_nodes)
    starts, real_starts = src.new_empty(num_nodes + 1), src.new_empty(num_nodes + 1)
    with shared_threads():
        _with_loops(*arrays(src, dst, loops, both, given, starts, real_starts))
    return loops, both, given, starts, real_starts


@compiled
def _sort(keys: Array, bits: int, ends: Array, dealt: Array, starts: Array, order: Array, local: Array) -> None:
    """Deals the positions, each with the low bits of its key; then sorts every bucket by counting."""
    nodes, entries, low = len(starts) - 1, len(keys), (1 << bits) - 1
    for block in numba.prange(BLOCKS):
        for p in range(entries * block // BLOCKS, entries * (block + 1) // BLOCKS):
            ends[block, keys[p] >> bits] += 1
    total = 0
    for bucket in range(BUCKETS):
        for block in range(BLOCKS):
            total, ends[block, bucket] = total + ends[block, bucket], total
        ends[BLOCKS, bucket] = total
    for block in numba.prange(BLOCKS):
        end = ends[block].copy()
        for p in range(entries * block // BLOCKS, entries * (block + 1) // BLOCKS):
            bucket = keys[p] >> bits
            dealt[end[bucket]] = (p << bits) | (keys[p] & low)
            end[bucket] += 1
    for bucket in numba.prange(BUCKETS):
        least, first, past = bucket << bits, ends[0, bucket], ends[BLOCKS, bucket]
        if least < nodes:
            following = np.zeros(min(1 << bits, nodes - least) + 1, np.int64)
            for q in range(first, past):
                following[(dealt[q] & low) + 1] += 1
            following[0] = first
            for i in range(1, len(following)):
                following[i] += following[i - 1]
                starts[least + i] = following[i]
            for q in range(first, past):
                i = dealt[q] & low
                order[following[i]], local[following[i]] = dealt[q] >> bits, q - first
                following[i] += 1


@compiled
def _turn(keys: Array, bits: int, ends: Array, local: Array, values: Array, dealt: Array, turned: Array) -> None:
    entries, width = len(keys), values.shape[1]
    for block in numba.prange(BLOCKS):
        end = ends[block].copy()
        for p in range(entries * block // BLOCKS, entries * (block + 1) // BLOCKS):
            bucket = keys[p] >> bits
            for k in range(width):
                dealt[end[bucket], k] = values[p, k]
            end[bucket] += 1
    for bucket in numba.prange(BUCKETS):
        first = ends[0, bucket]
        for q in range(first, ends[BLOCKS, bucket]):
            for k in range(width):
                turned[q, k] = dealt[first + local[q], k]


@compiled
def _with_loops(
    src: Array, dst: Array, all_src: Array, all_dst: Array, real: Array, starts: Array, real_starts: Array
) -> None:
    """Edge i goes to i + dst[i], after the loops of all nodes before its own; the loop of v after the last into v."""
    edges, nodes = len(src), len(starts) - 1
    starts[0] = real_starts[0] = 0
    for block in numba.prange(BLOCKS):
        i = np.searchsorted(dst, nodes * block // BLOCKS)
        for v in range(nodes * block // BLOCKS, nodes * (block + 1) // BLOCKS):
            while i < edges and dst[i] == v:
                real[i], all_src[i + v], all_dst[i + v] = i + v, src[i], v
                i += 1
            all_src[i + v] = all_dst[i + v] = v
            real_starts[v + 1], starts[v + 1] = i, i + v + 1
