"""Exact neighbours with one tie rule, for sparse and dense features."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.io import loadmat
from sklearn.neighbors import kneighbors_graph

from edgemask.data.store import Store
from edgemask.enrich.knn import SCALE, knn, search, unit_rows

neighbours = importlib.import_module("edgemask.enrich.knn")  # the package has a function of that name


def brute_force(x, k):
    """The rule computed naively: larger rounded similarity first, then lower index."""
    lengths = np.linalg.norm(x, axis=1)
    out = np.full((len(x), k), -1)
    for i in np.flatnonzero(lengths):
        others = [j for j in np.flatnonzero(lengths) if j != i]
        cosine = {j: np.rint(x[i] @ x[j] / (lengths[i] * lengths[j]) * SCALE) for j in others}
        best = sorted(others, key=lambda j: (-cosine[j], j))[:k]
        out[i, : len(best)] = best
    return out


@pytest.fixture
def counts():
    """Short documents over few words: ties in nearly every row, and two empty rows."""
    x = np.random.default_rng(0).poisson(0.25, (150, 12)).astype(np.float32)
    x[[3, 77]] = 0
    return x


@pytest.fixture
def signed():
    return np.random.default_rng(1).standard_normal((200, 16)).astype(np.float32)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.coo_array], ids=["dense", "csr", "coo"])
def test_agrees_with_scikit_learn_where_there_are_no_ties(signed, form):
    graph = kneighbors_graph(signed.astype(np.float64), 7, metric="cosine", mode="connectivity")
    expected = [set(graph.indices[graph.indptr[i] : graph.indptr[i + 1]]) for i in range(len(signed))]
    assert [set(row) for row in knn(form(signed), 7)] == expected


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_ties_go_to_the_lower_index(counts, form):
    assert np.array_equal(knn(form(counts), 10), brute_force(counts.astype(np.float64), 10))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_differences_below_the_rounding_are_ties(form):
    x = form(np.array([[1, 0], [1, 1.1e-4], [1, 1e-4]]))  # cosines 1 - 6e-9 and 1 - 5e-9
    assert knn(x, 2)[0].tolist() == [1, 2]


def test_sparse_and_dense_routes_agree_on_negative_similarities(signed):
    k = len(signed) - 1  # down to the least similar
    assert np.array_equal(knn(sp.csr_array(signed), k), knn(signed, k))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_searching_some_rows_gives_the_lists_of_these_rows(counts, form):
    unit, usable = unit_rows(form(counts))
    some = np.array([130, 0, 5, 70])
    assert np.array_equal(search(unit[usable], 6, some), search(unit[usable], 6)[some])


def test_dense_blocks_of_any_size_find_the_same(counts, signed, monkeypatch):
    expected = [knn(x, 4) for x in (counts, signed)]
    monkeypatch.setattr(neighbours, "TILE", (7, 19))  # tiles with fewer columns than candidates
    monkeypatch.setattr(neighbours, "BLOCK", 500)
    for x, lists in zip((counts, signed), expected, strict=True):
        assert np.array_equal(knn(x, 4), lists)


@pytest.mark.parametrize("spread", [1e-2, 1e-3, 3e-4, 1e-4])
def test_similarities_too_close_for_float32_are_told_apart(spread):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(64) + spread * rng.standard_normal((300, 64))
    assert np.array_equal(knn(x, 5), brute_force(x, 5))


def test_float64_is_used_only_for_uncertain_rows(signed, monkeypatch):
    asked, best = [], neighbours._best

    def watched(similarity, candidates, rows, k):
        asked.append(candidates.ndim == 1)  # against every node, not candidates alone
        return best(similarity, candidates, rows, k)

    monkeypatch.setattr(neighbours, "_best", watched)
    knn(signed, 10)
    assert not any(asked)
    knn(np.ones((60, 3)), 10)
    assert any(asked)


def test_a_shorter_float_format_changes_nothing_and_stays_chosen(signed):
    expected, before = knn(signed, 7), torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert np.array_equal(knn(signed, 7), expected)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_scaling_a_row_changes_nothing(counts):
    scales = np.random.default_rng(2).uniform(0.1, 10, (len(counts), 1))
    assert np.array_equal(knn(counts * scales, 10), knn(counts, 10))


def test_never_the_node_itself_even_among_copies():
    x = np.ones((6, 3))
    assert knn(x, 2).tolist() == [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1], [0, 1]]
    assert np.array_equal(knn(sp.csr_array(x), 2), knn(x, 2))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_an_empty_row_has_no_neighbours_and_is_no_neighbour(form):
    x = form(np.array([[0.0, 0], [1, 0], [1, 1], [0, 2]]))
    assert knn(x, 3).tolist() == [[-1, -1, -1], [2, 3, -1], [1, 3, -1], [2, 1, -1]]


def test_orthogonal_nodes_are_neighbours_once_nothing_better_is_left():
    x = sp.csr_array(np.eye(4))
    assert knn(x, 2).tolist() == [[1, 2], [0, 2], [0, 1], [0, 1]]


def test_thread_count_changes_nothing(counts):
    x, before = sp.csr_array(np.tile(counts, (4, 1))), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = knn(x, 10)
        torch.set_num_threads(4)
        many = knn(x, 10)
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(one, many)


@pytest.mark.slow
def test_torch_keeps_its_thread_count():
    code = (
        "import torch, numpy as np, scipy.sparse as sp; from edgemask.enrich.knn import knn; "
        "torch.set_num_threads(3); knn(sp.csr_array(np.eye(9, dtype=np.float32)), 2); "
        "print(torch.get_num_threads())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert run.stdout.strip() == "3"


@pytest.mark.parametrize("k", [0, -1, 4, 10])
def test_k_out_of_range_is_named(k):
    with pytest.raises(ValueError, match=rf"k must be in 1 … 3 .*got {k}"):
        knn(np.ones((4, 2)), k)


def test_a_row_that_is_not_finite_is_named():
    x = np.ones((4, 2))
    x[2, 1] = np.nan
    with pytest.raises(ValueError, match="row 2 has length nan"):
        knn(x, 1)


@pytest.mark.slow
def test_routes_agree_on_real_word_counts(store: Store):
    x = sp.csr_array(loadmat(store.root / "citation" / "acmv9.mat")["attrb"])[:1500]
    assert np.array_equal(knn(x, 10), knn(x.toarray(), 10))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_finds_the_same_neighbours(counts):
    assert np.array_equal(knn(counts, 10, device="cuda"), knn(counts, 10))
