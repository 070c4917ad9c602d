"""The approximate index: the neighbours it finds, their order, and its measured recall."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from edgemask.enrich import index, knn
from edgemask.enrich.index import _back, _descend, _rank, approximate_knn, empty_lists, recall, rows_of
from edgemask.enrich.knn import SCALE, unit_rows

pytest.importorskip("faiss", reason="needs the extra edgemask[scale]")

N, K = 3000, 5


def blobs(width, seed=0):
    """50 Gaussian blobs of 60 points in 12 dimensions, mapped to `width` columns."""
    rng = np.random.default_rng(seed)
    centres, turn = 2 * rng.standard_normal((50, 12)), rng.standard_normal((12, width))
    return ((centres[np.arange(N) % 50] + rng.standard_normal((N, 12))) @ turn).astype(np.float32)


def words(seed=0):
    """Documents of about 20 words on one of 30 topics."""
    rng = np.random.default_rng(seed)
    rates = rng.gamma(0.1, size=(30, 400))
    rates *= 20 / rates.sum(1, keepdims=True)
    return sp.csr_array(rng.poisson(rates[np.arange(N) % 30]).astype(np.float32))


def similarities(x):
    unit, _ = unit_rows(x)
    w = unit @ unit.T
    return np.rint((w.toarray() if sp.issparse(w) else w) * SCALE)


def true_recall(x, lists):
    """Recall over all nodes, computed naively."""
    w, hits = similarities(x), 0
    for i in range(len(w)):
        last = np.sort(np.delete(w[i], i))[-lists.shape[1]]
        hits += sum(j >= 0 and w[i, j] >= last for j in lists[i])
    return hits / lists.size


CASES = {"dense": blobs(32), "odd width": blobs(31), "narrow": blobs(6), "wide": blobs(300), "sparse": words()}


@pytest.mark.slow
@pytest.mark.parametrize("x", CASES.values(), ids=CASES)
def test_nearly_all_neighbours_are_found_and_in_order(x):
    lists, w = approximate_knn(x, K, seed=0), similarities(x)
    assert lists.dtype == np.int64
    assert true_recall(x, lists) > 0.97
    for i in range(0, N, 7):
        assert len({i, *lists[i]}) == K + 1  # distinct, and never the node itself
        assert sorted(lists[i], key=lambda j: (-w[i, j], j)) == lists[i].tolist()


def test_descent_finds_neighbours_that_the_index_lost(monkeypatch):
    monkeypatch.setattr(index, "CANDIDATES", 2)
    x = words()
    with_descent = recall(x, approximate_knn(x, K, seed=0), seed=0)
    monkeypatch.setattr(index, "PASSES", 0)
    assert recall(x, approximate_knn(x, K, seed=0), seed=0) < with_descent - 0.1


def test_deterministic_by_seed(monkeypatch):
    monkeypatch.setattr(index, "PASSES", 0)  # otherwise both seeds find all neighbours
    first, again, other = (approximate_knn(words(), K, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_an_empty_row_has_no_neighbours_and_is_no_neighbour(form):
    x = blobs(32)
    x[[0, 5, N - 1]] = 0
    lists = approximate_knn(form(x), K, seed=0)
    assert (lists[[0, 5, N - 1]] == -1).all()
    rest = np.delete(lists, [0, 5, N - 1], axis=0)
    assert not np.isin(rest, [-1, 0, 5, N - 1]).any()
    assert recall(form(x), lists, seed=0) > 0.97


@pytest.mark.parametrize("k", [0, N])
def test_k_out_of_range_is_named(k):
    with pytest.raises(ValueError, match=rf"k must be in 1 … 2999 .*got {k}"):
        approximate_knn(blobs(8), k, seed=0)


def test_without_faiss_the_error_names_the_extra_and_the_exact_search(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"edgemask\[scale\].*raise knn_exact_up_to"):
        approximate_knn(blobs(8), K, seed=0)


def test_torch_and_faiss_keep_their_thread_counts():
    import faiss

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        own = faiss.omp_get_max_threads()
        approximate_knn(blobs(8), K, seed=0)
        assert (torch.get_num_threads(), faiss.omp_get_max_threads()) == (2, own)
    finally:
        torch.set_num_threads(before)


# ---- recall --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [CASES["dense"], CASES["sparse"]], ids=["dense", "sparse"])
def test_recall_is_the_share_found(x, monkeypatch):
    monkeypatch.setattr(index, "SAMPLE", N)  # all of them
    lists = knn(x, K)
    assert recall(x, lists, seed=0) == 1
    rng = np.random.default_rng(0)
    spoilt = np.where(rng.random(lists.shape) < 0.3, rng.integers(N, size=lists.shape), lists)
    spoilt[::9, -1] = -1
    assert recall(x, spoilt, seed=0) == pytest.approx(true_recall(x, spoilt), abs=1e-12)


def test_recall_counts_any_of_equally_near_nodes():
    x = np.repeat(np.eye(4), 20, axis=0)  # 19 copies of every node
    highest = np.stack([np.setdiff1d(np.arange(80)[i // 20 * 20 : i // 20 * 20 + 20], [i])[-3:] for i in range(80)])
    assert not np.array_equal(highest, knn(x, 3))
    assert recall(x, highest, seed=0) == 1


def test_recall_of_a_sample_is_near_that_of_all(monkeypatch):
    x, lists = CASES["dense"], knn(CASES["dense"], K)
    lists = np.where(np.random.default_rng(0).random(lists.shape) < 0.2, -1, lists)
    monkeypatch.setattr(index, "SAMPLE", 1000)
    sampled = recall(x, lists, seed=0)
    assert sampled == recall(x, lists, seed=0) != recall(x, lists, seed=1)
    assert sampled == pytest.approx((lists >= 0).mean(), abs=0.02)


# ---- descent -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_descent_alone_leads_from_random_lists_to_the_nearest(form):
    x, n = form(blobs(16)[:400]), 400
    rows = rows_of(unit_rows(x)[0], np.float32)
    start = np.stack([np.random.default_rng(i).choice(n, 10, replace=False) for i in range(n)])
    lists, similarity, fresh = empty_lists(n, 10)
    _rank(*rows, 16, np.arange(n), start, lists, similarity, fresh)
    assert true_recall(x, lists) < 0.1
    for _ in range(8):
        before, news, back = lists.copy(), fresh.copy(), _back(lists, fresh)
        fresh[:] = False
        _descend(*rows, 16, before, news, back, lists, similarity, fresh)
        true = np.take_along_axis(similarities(x), lists.astype(np.int64), 1)
        np.testing.assert_allclose(similarity, true, atol=20)  # of 2²⁴
        assert np.array_equal(fresh, (lists[:, :, None] != before[:, None, :]).all(2))
    assert true_recall(x, lists) > 0.99


def test_back_lists_hold_the_nodes_that_list_a_node():
    lists = np.array([[1, 2], [0, 2], [1, -1], [1, 0]], dtype=np.int32)
    fresh = np.array([[0, 1], [0, 0], [1, 0], [0, 0]], dtype=bool)
    assert _back(lists, fresh).tolist() == [[2, 6], [0, 5], [1, 2], [-1, -1]]
