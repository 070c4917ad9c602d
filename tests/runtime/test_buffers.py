"""Reuse of the memory of large arrays."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest
import torch

from edgemask.nn.compiled import empty
from edgemask.runtime import buffers as module
from edgemask.runtime.buffers import POOLED_FROM, BufferPool, from_pool

LIKE = torch.empty(0)
LENGTH = POOLED_FROM // LIKE.element_size()
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="huge pages need Linux")


@pytest.fixture
def allocated(monkeypatch):
    """The sizes of all buffers that the system allocates."""
    sizes, allocate = [], module.allocate

    def recorded(size):
        sizes.append(size)
        return allocate(size)

    monkeypatch.setattr(module, "allocate", recorded)
    return sizes


def test_a_buffer_is_reused_once_its_array_is_freed(allocated):
    with from_pool(BufferPool()):
        first = empty(LIKE, LENGTH)
        second = empty(LIKE, 2, LENGTH // 2)
        address = second.data_ptr()
        view = second[1]
        del second
        third = empty(LIKE, LENGTH)  # a view still uses the second buffer
        assert len(allocated) == 3
        del view
        fourth = empty(LIKE, LENGTH)
        assert fourth.data_ptr() == address
    assert len(allocated) == 3
    assert len({t.data_ptr() for t in (first, third, fourth)}) == 3


def test_a_buffer_saved_by_autograd_is_not_reused(allocated):
    with from_pool(BufferPool()):
        x = empty(LIKE, LENGTH).fill_(2).requires_grad_()
        y = (x * 1).square()
        del x
        empty(LIKE, LENGTH).fill_(7)
        (grad,) = torch.autograd.grad(y.sum(), [y])
        assert (grad == 1).all()
        assert (y == 4).all()


@pytest.mark.parametrize(
    "size", [POOLED_FROM, POOLED_FROM + 4, 3 * POOLED_FROM // 2, 2 * POOLED_FROM - 4, 2 * POOLED_FROM]
)
def test_a_buffer_is_large_enough_and_at_most_an_eighth_larger(size, allocated):
    taken = BufferPool().take(size)
    assert size <= len(taken) <= size + size / 8
    assert allocated == [len(taken)]
    taken[-1] = 1


def test_samples_that_differ_a_little_in_length_share_a_buffer(allocated):
    pool = BufferPool()
    for length in np.random.default_rng(0).integers(LENGTH * 1.2, LENGTH * 1.21, 20):
        with from_pool(pool):
            assert empty(LIKE, int(length)).shape == (length,)
    assert len(allocated) <= 2


def test_small_arrays_and_arrays_made_without_a_pool_are_not_kept(allocated):
    pool = BufferPool()
    empty(LIKE, LENGTH)
    with from_pool(pool):
        empty(LIKE, LENGTH - 1)
    empty(LIKE, LENGTH)
    gc.collect()
    assert not pool.free
    assert len(allocated) == 3
