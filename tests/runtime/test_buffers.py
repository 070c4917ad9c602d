"""Memory of large arrays, used again."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest
import torch

from edgemask.nn.compiled import empty
from edgemask.runtime import buffers as module
from edgemask.runtime.buffers import KEPT, BufferPool, from_pool

LIKE = torch.empty(0)
LENGTH = KEPT // LIKE.element_size()
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="huge pages are asked of Linux")


@pytest.fixture
def made(monkeypatch):
    """The sizes of all blocks that come from the system."""
    sizes, fresh = [], module.fresh

    def listen(size):
        sizes.append(size)
        return fresh(size)

    monkeypatch.setattr(module, "fresh", listen)
    return sizes


def test_a_block_serves_again_once_its_array_is_gone(made):
    with from_pool(BufferPool()):
        first = empty(LIKE, LENGTH)
        second = empty(LIKE, 2, LENGTH // 2)
        where = second.data_ptr()
        view = second[1]
        del second
        third = empty(LIKE, LENGTH)  # a view still holds the second's
        assert len(made) == 3
        del view
        fourth = empty(LIKE, LENGTH)
        assert fourth.data_ptr() == where
    assert len(made) == 3
    assert len({t.data_ptr() for t in (first, third, fourth)}) == 3


def test_what_autograd_saved_is_not_taken_away(made):
    with from_pool(BufferPool()):
        x = empty(LIKE, LENGTH).fill_(2).requires_grad_()
        y = (x * 1).square()
        del x
        empty(LIKE, LENGTH).fill_(7)
        (grad,) = torch.autograd.grad(y.sum(), [y])
        assert (grad == 1).all()
        assert (y == 4).all()


@pytest.mark.parametrize("size", [KEPT, KEPT + 4, 3 * KEPT // 2, 2 * KEPT - 4, 2 * KEPT])
def test_a_block_is_large_enough_and_at_most_an_eighth_larger(size, made):
    taken = BufferPool().take(size)
    assert size <= len(taken) <= size + size / 8
    assert made == [len(taken)]
    taken[-1] = 1


def test_samples_that_differ_a_little_in_length_share_a_block(made):
    held = BufferPool()
    for length in np.random.default_rng(0).integers(LENGTH * 1.2, LENGTH * 1.21, 20):
        with from_pool(held):
            assert empty(LIKE, int(length)).shape == (length,)
    assert len(made) <= 2


def test_nothing_is_kept_outside_of_a_block_nor_of_small_arrays(made):
    held = BufferPool()
    empty(LIKE, LENGTH)
    with from_pool(held):
        empty(LIKE, LENGTH - 1)
    empty(LIKE, LENGTH)
    gc.collect()
    assert not held.free
    assert len(made) == 3
