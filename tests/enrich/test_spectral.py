"""Implicit spectral clustering compared with the explicit one."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.io import loadmat
from sklearn.cluster import SpectralClustering
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import rbf_kernel

from edgemask.data.store import Store
from edgemask.enrich import spectral
from edgemask.enrich.knn import unit_rows
from edgemask.enrich.spectral import (
    cosine_factor,
    leading_eigenvectors,
    leading_left_vectors,
    median_gamma,
    rbf_product,
    spectral_clusters,
)
from edgemask.errors import EnrichWarning

K = 5


@pytest.fixture
def documents():
    """Word counts of K topics, 60 documents each."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(K), 60)
    rates = 0.05 + 1.5 * (np.arange(100) // 20 == truth[:, None])
    return rng.poisson(rates).astype(np.float32), truth


@pytest.fixture
def points():
    """K Gaussian blobs in 8 dimensions, 60 points each, with negative entries."""
    rng = np.random.default_rng(1)
    truth = np.repeat(np.arange(K), 60)
    return (3 * rng.standard_normal((K, 8))[truth] + 0.6 * rng.standard_normal((300, 8))), truth


def cosine(x):
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    w = unit @ unit.T
    return w if x.min() >= 0 else (1 + w) / 2


def normalised(w):
    root = np.sqrt(w.sum(1))
    return w / root[:, None] / root


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("data", ["documents", "points"])
def test_cosine_partition_is_scikit_learns(data, form, request):
    x, truth = request.getfixturevalue(data)
    reference = SpectralClustering(K, affinity="precomputed", random_state=0).fit_predict(cosine(x.astype(np.float64)))
    clusters = spectral_clusters(form(x), K, seed=0)
    assert adjusted_rand_score(reference, clusters) > 0.95
    assert adjusted_rand_score(truth, clusters) > 0.95


def test_rbf_partition_is_scikit_learns(points):
    x, _ = points
    reference = SpectralClustering(K, affinity="rbf", gamma=0.05, random_state=0).fit_predict(x)
    clusters = spectral_clusters(x, K, affinity="rbf", gamma=0.05, seed=0)
    assert adjusted_rand_score(reference, clusters) > 0.95


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("data", ["documents", "points"])
def test_cosine_factor_times_itself_is_the_normalised_affinity(data, form, request):
    x = request.getfixturevalue(data)[0].astype(np.float64)
    z = cosine_factor(unit_rows(form(x))[0])
    got = z @ z.T
    np.testing.assert_allclose(got.toarray() if sp.issparse(got) else got, normalised(cosine(x)), atol=1e-12)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_rbf_product_in_blocks_is_the_normalised_affinity(documents, form, monkeypatch):
    x = documents[0].astype(np.float64)
    monkeypatch.setattr(spectral, "BLOCK", 7 * len(x))  # blocks of 7 rows, the last one shorter
    got = rbf_product(form(x), 0.01, seed=0)(np.eye(len(x)))
    np.testing.assert_allclose(got, normalised(rbf_kernel(x, gamma=0.01)), atol=1e-12)


def test_eigenvectors_span_the_leading_subspace(documents):
    w = normalised(cosine(documents[0].astype(np.float64)))
    vectors = leading_eigenvectors(lambda q: w @ q, len(w), K, seed=0)
    expected = np.linalg.eigh(w)[1][:, -K:]
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-4)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize(("large", "wide"), [(50_000, 8192), (100, 8192), (100, 1)], ids=["nodes", "features", "wide"])
def test_left_vectors_span_the_leading_subspace(documents, form, large, wide, monkeypatch):
    monkeypatch.setattr(spectral, "LARGE", large)
    monkeypatch.setattr(spectral, "WIDE", wide)
    monkeypatch.setattr(spectral, "CHUNK", 70)  # the last one shorter
    x = documents[0].astype(np.float64)
    vectors = leading_left_vectors(cosine_factor(unit_rows(form(x))[0]), K, seed=0)
    expected = np.linalg.eigh(normalised(cosine(x)))[1][:, -K:]
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-4)


@pytest.mark.parametrize("large", [50_000, 10], ids=["over nodes", "over features"])
def test_left_vectors_stop_at_the_rank(large, monkeypatch):
    monkeypatch.setattr(spectral, "LARGE", large)
    x, _ = unit_rows(np.repeat(np.eye(3), 10, axis=0))
    assert leading_left_vectors(cosine_factor(x), 6, seed=0).shape == (30, 3)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("data", ["documents", "points"])
def test_a_large_graph_is_clustered_as_well(data, form, request, monkeypatch):
    monkeypatch.setattr(spectral, "LARGE", 120)  # features instead of nodes; k-means on a part of the rows
    x, truth = request.getfixturevalue(data)
    clusters = spectral_clusters(form(np.tile(x, (2, 1))), K, seed=0)
    assert adjusted_rand_score(np.tile(truth, 2), clusters) > 0.95
    assert np.array_equal(clusters, spectral_clusters(form(np.tile(x, (2, 1))), K, seed=0))


@pytest.mark.parametrize("affinity", ["cosine", "rbf"])
def test_deterministic_by_seed(points, affinity):
    first, second = (spectral_clusters(points[0], 20, affinity=affinity, seed=3) for _ in range(2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, spectral_clusters(points[0], 20, affinity=affinity, seed=4))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_empty_rows_have_no_cluster(documents, form):
    x = documents[0].copy()
    x[[0, 100]] = 0
    clusters = spectral_clusters(form(x), K, seed=0)
    assert np.flatnonzero(clusters == -1).tolist() == [0, 100]
    assert clusters.max() == K - 1


def test_median_rule(documents):
    x = documents[0].astype(np.float64)
    i, j = np.triu_indices(len(x), 1)
    exact = 1 / (2 * np.median(((x[i] - x[j]) ** 2).sum(1)))
    assert median_gamma(x, seed=0) == pytest.approx(exact, rel=0.05)
    assert median_gamma(sp.csr_array(x), seed=0) == median_gamma(x, seed=0)


def test_a_diagonal_rbf_affinity_is_reported(documents):
    with pytest.warns(EnrichWarning, match="numerically diagonal at gamma=1"):
        spectral_clusters(documents[0], K, affinity="rbf", gamma=1.0, seed=0)


def test_the_median_rule_gives_no_warning(documents):
    with warnings.catch_warnings():
        warnings.simplefilter("error", EnrichWarning)
        spectral_clusters(documents[0], K, affinity="rbf", seed=0)


def test_rbf_refuses_large_graphs():
    with pytest.raises(ValueError, match=r"allows at most 20,000 nodes, got 20,001"):
        spectral_clusters(np.ones((20_001, 1)), 2, affinity="rbf", seed=0)


def test_median_rule_refuses_equal_rows():
    with pytest.raises(ValueError, match="median rule fails; set gamma"):
        spectral_clusters(np.ones((10, 2)), 2, affinity="rbf", seed=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"K": 1}, r"K must be in 2 … 10 .*got 1"),
        ({"K": 11}, r"K must be in 2 … 10 .*got 11"),
        ({"K": 2, "affinity": "linear"}, "'cosine' or 'rbf', got 'linear'"),
        ({"K": 2, "gamma": 1.0}, "needs affinity='rbf'"),
        ({"K": 2, "affinity": "rbf", "gamma": 0.0}, "gamma must be positive"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        spectral_clusters(np.eye(10), seed=0, **arguments)


@pytest.mark.slow
def test_clusters_of_acm_match_the_labels(store: Store):
    stored = loadmat(store.root / "citation" / "acmv9.mat")
    y = np.asarray(stored["group"]).argmax(1)
    clusters = spectral_clusters(sp.csr_array(stored["attrb"]), 100, seed=0)
    purity = sum(np.bincount(y[clusters == c]).max() for c in np.unique(clusters)) / len(y)
    assert purity >= 0.46
    assert np.bincount(clusters).max() < 300  # balanced, unlike an RBF of width 1 with its 3,791
