"""Stable sorting by small integer keys, and the layout of edges, on the CPU in a few passes over the memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numba
import numpy as np
import torch
from torch import Tensor

from edgemask.nn.compiled import BLOCKS, Array, arrays, compiled, empty
from edgemask.runtime.loops import Loop
from edgemask.runtime.threads import shared_threads

SMALL = 1 << 19  # entries; fewer of them are sorted and permuted directly, since they stay in a cache
BUCKETS = 1 << 10  # key ranges that the first pass distributes entries to; a cache holds this many write positions


@dataclass(frozen=True)
class SourceOrder:
    """A stable sort of entries by keys in 0 … count - 1.

    Call it to permute values of the entries into key order. To avoid random access to the memory, it first distributes
    the values to buckets of 2^`bits` keys, one block of entries after another, and then sorts inside each bucket. A few
    entries are sorted without buckets; `ends` and `local` are then empty.

    Attributes:
        keys: Key of each entry.
        bits: Number of low bits of a key that differ inside a bucket.
        ends: Where each block writes its first entry for each bucket; the last row has the end of each bucket.
        local: Position, inside its bucket and before sorting, of each entry in sorted order.
        order: Permutation that sorts the entries.
        starts: Where the entries of each key begin in sorted order (count + 1 values).

    Example:
        >>> sort = SourceOrder.of(torch.tensor([2, 0, 2, 1]), count=3)
        >>> sort.order.tolist(), sort.starts.tolist()
        ([1, 3, 0, 2], [0, 1, 2, 4])
        >>> sort(torch.tensor([5.0, 6.0, 7.0, 8.0])).tolist()
        [6.0, 8.0, 5.0, 7.0]
    """

    keys: Tensor
    bits: int
    ends: Array
    local: Tensor
    order: Tensor
    starts: Tensor

    @classmethod
    def of(cls, keys: Tensor, count: int) -> SourceOrder:
        """Sort entries by their keys, which must be in 0 … count - 1."""
        order, starts = empty(keys, len(keys)), keys.new_zeros(count + 1)
        if len(keys) < SMALL:
            _count_and_place(*arrays(keys, starts, order))
            return cls(keys, 0, np.empty((0, 0), np.int64), torch.empty(0, dtype=torch.int32), order, starts)
        buckets = empty(keys, len(keys))
        local = empty(torch.empty(0, dtype=torch.int32), len(keys))
        bits = max(0, (count - 1).bit_length() - BUCKETS.bit_length() + 1)  # so that the buckets cover all keys
        ends = np.zeros((BLOCKS + 1, BUCKETS), np.int64)
        with shared_threads():
            _sort(*arrays(keys), bits, ends, *arrays(buckets, starts, order, local))
        return cls(keys, bits, ends, local, order, starts)

    def __call__(self, values: Tensor) -> Tensor:
        """Return `values` permuted into key order.

        Rows of `values` beyond the number of entries are not part of the sort; their content in the result is
        undefined.
        """
        permuted = empty(values, *values.shape)
        if len(self.keys) < SMALL:
            torch.index_select(values.detach(), 0, self.order, out=permuted[: len(self.keys)])
            return permuted
        buckets = empty(values, len(self.keys), *values.shape[1:])
        width = math.prod(values.shape[1:])
        flat = (v.reshape(len(v), width) for v in (values, buckets, permuted))
        with shared_threads():
            _permute(*arrays(self.keys), self.bits, self.ends, *arrays(self.local, *flat))
        return permuted


def with_loops(src: Tensor, dst: Tensor, num_nodes: int) -> tuple[Tensor, ...]:
    """Insert a self-loop at every node, after the other edges into it.

    Args:
        src: Sources of the edges, without self-loops.
        dst: Destinations of the edges, in ascending order.
        num_nodes: Number of nodes N.

    Returns:
        Sources and destinations of all edges, the positions of the given edges among them, and where the edges into
        each node begin (N + 1 values), first with self-loops and then without.
    """
    all_src, real = empty(src, len(src) + num_nodes), empty(src, len(src))
    all_dst = empty(src, len(src) + num_nodes)
    starts, real_starts = src.new_empty(num_nodes + 1), src.new_empty(num_nodes + 1)
    with shared_threads():
        _with_loops(*arrays(src, dst, all_src, all_dst, real, starts, real_starts))
    return all_src, all_dst, real, starts, real_starts


@partial(Loop, parallel=False)
def _count_and_place(keys: Array, starts: Array, order: Array) -> None:
    """Fill `starts` and `order` by counting, on one thread. `starts` is 0 at first."""
    following = np.zeros(len(starts), np.int64)
    for key in keys:
        following[key + 1] += 1
    for key in range(1, len(starts)):
        following[key] += following[key - 1]
        starts[key] = following[key]
    for p in range(len(keys)):
        order[following[keys[p]]] = p
        following[keys[p]] += 1


@compiled
def _sort(keys: Array, bits: int, ends: Array, by_bucket: Array, starts: Array, order: Array, local: Array) -> None:
    """Distribute the positions, each with the low bits of its key, to buckets; then sort every bucket by counting."""
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
            by_bucket[end[bucket]] = (p << bits) | (keys[p] & low)
            end[bucket] += 1
    for bucket in numba.prange(BUCKETS):
        least, first, past = bucket << bits, ends[0, bucket], ends[BLOCKS, bucket]
        if least < nodes:
            following = np.zeros(min(1 << bits, nodes - least) + 1, np.int64)
            for q in range(first, past):
                following[(by_bucket[q] & low) + 1] += 1
            following[0] = first
            for i in range(1, len(following)):
                following[i] += following[i - 1]
                starts[least + i] = following[i]
            for q in range(first, past):
                i = by_bucket[q] & low
                order[following[i]], local[following[i]] = by_bucket[q] >> bits, q - first
                following[i] += 1


@compiled
def _permute(keys: Array, bits: int, ends: Array, local: Array, values: Array, by_bucket: Array, out: Array) -> None:
    """Distribute `values` to the buckets (`by_bucket`), then write them in key order to `out`."""
    entries, width = len(keys), values.shape[1]
    for block in numba.prange(BLOCKS):
        end = ends[block].copy()
        for p in range(entries * block // BLOCKS, entries * (block + 1) // BLOCKS):
            bucket = keys[p] >> bits
            for k in range(width):
                by_bucket[end[bucket], k] = values[p, k]
            end[bucket] += 1
    for bucket in numba.prange(BUCKETS):
        first = ends[0, bucket]
        for q in range(first, ends[BLOCKS, bucket]):
            for k in range(width):
                out[q, k] = by_bucket[first + local[q], k]


@compiled
def _with_loops(
    src: Array, dst: Array, all_src: Array, all_dst: Array, real: Array, starts: Array, real_starts: Array
) -> None:
    """Fill the outputs of `with_loops`.

    Edge i moves to position i + dst[i], because the self-loops of all nodes before dst[i] precede it. The self-loop of
    v follows the last edge into v.
    """
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
