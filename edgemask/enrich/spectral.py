"""Spectral clustering of the node features without an N × N matrix: the communities of E_Spec (section 4.1).

The affinity W is only multiplied with thin blocks of vectors. The K leading eigenvectors of D^{-1/2} W D^{-1/2} come
from subspace iteration with a Rayleigh-Ritz step. Their rows, scaled to length 1, are clustered by k-means (Ng, Jordan
and Weiss, 2001). The time is proportional to N.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from edgemask.enrich.knn import is_sparse, unit_rows
from edgemask.errors import EnrichWarning, InputError, warn
from edgemask.seeds import derive, numpy_stream

Array = npt.NDArray[Any]
Product = Callable[[Array], Array]
Affinity = Literal["cosine", "rbf"]

SPARE = 10  # vectors that are iterated in addition to the K wanted ones
PASSES = 3  # multiplications of the subspace with the affinity before the Rayleigh-Ritz step
RBF_LIMIT = 20_000  # nodes; the RBF affinity has full rank, so each pass takes O(N²) time
BLOCK = 2**23  # affinities in memory at a time (64 MiB)
LARGE = 50_000  # nodes; in larger graphs the iteration runs over features instead of nodes, and k-means on a sample
WIDE = 8192  # features; up to here, ZᵀZ of a large graph is computed once (512 MiB), which saves time
CHUNK = 2**16  # rows of a large graph multiplied at a time
PAIRS = 10_000  # pairs of nodes sampled by the median rule


def spectral_clusters(x: Any, K: int, *, affinity: Affinity = "cosine", seed: int, gamma: float | None = None) -> Array:
    """Cluster the rows of `x` into K spectral clusters.

    The result is determined by `seed`, up to the rounding of threaded sums. A cluster can be empty.

    Args:
        x: N × d features, sparse or dense.
        K: Number of clusters.
        affinity: `cosine` uses W_ij = cos(x_i, x_j), or (1 + cos)/2 if features have negative entries. Both are Z Zᵀ
            for a thin or sparse Z, so a pass costs no more than two products with the features. An all-zero row has no
            cosine and gets cluster -1. `rbf` uses W_ij = exp(-γ‖x_i - x_j‖²), computed in blocks of rows, for up to
            20,000 nodes. An `EnrichWarning` is issued if this affinity is numerically diagonal, because the clusters
            are then arbitrary.
        seed: Seed of the subspace iteration, of k-means and of the median rule.
        gamma: γ of `rbf`. By default it comes from the median rule γ = 1/(2 median ‖x_i - x_j‖²) over 10,000 seeded
            pairs.

    Returns:
        N cluster indices.

    Raises:
        InputError: An argument is out of range, the graph is too large for `rbf`, or the median rule fails.
    """
    if affinity not in ("cosine", "rbf"):
        raise InputError(f"affinity must be 'cosine' or 'rbf', got {affinity!r}")
    if gamma is not None and (affinity != "rbf" or not 0 < gamma < np.inf):
        raise InputError(f"gamma must be positive and needs affinity='rbf', got {gamma} with {affinity!r}")
    x = sp.csr_array(x, dtype=np.float64) if is_sparse(x) else np.asarray(x, dtype=np.float64)
    usable = np.ones(x.shape[0], dtype=bool)
    if affinity == "cosine":
        x, usable = unit_rows(x)
        x = x[usable]
    nodes = x.shape[0]
    if not 2 <= K <= nodes:
        raise InputError(f"K must be in 2 … {nodes} (nodes with features), got {K}")
    with threadpool_limits(1, user_api="blas"):  # more threads do not speed up thin products
        if affinity == "cosine":
            rows = leading_left_vectors(cosine_factor(x), K, seed)
        else:
            rows = leading_eigenvectors(rbf_product(x, gamma, seed), nodes, K, seed)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
    most = max(LARGE, 100 * K)
    sample = rows if nodes <= most else rows[numpy_stream(seed, "k-means").choice(nodes, most, replace=False)]
    from sklearn.cluster import KMeans  # takes a second to import, and few predictions need it

    kmeans = KMeans(K, n_init=1, max_iter=30, random_state=derive(seed, "k-means") % 2**32).fit(sample)
    clusters = np.full(len(usable), -1, dtype=np.int64)
    clusters[usable] = kmeans.predict(rows)
    return clusters


def cosine_factor(unit: Any) -> Any:
    """Return Z with Z Zᵀ = D^{-1/2} W D^{-1/2} for the cosine affinity W of rows of length 1. `unit` is overwritten."""
    if unit.min() < 0:  # (1 + cos)/2 is the cosine of the rows with an added constant column
        ones = np.ones((unit.shape[0], 1))
        unit = sp.hstack([unit, sp.csr_array(ones)]).tocsr() if is_sparse(unit) else np.hstack([unit, ones])
        unit /= np.sqrt(2)
    root = np.sqrt(unit @ unit.sum(axis=0))  # D = W 1 = X̂ (X̂ᵀ 1)
    if is_sparse(unit):
        unit.data /= np.repeat(root, np.diff(unit.indptr))
    else:
        unit /= root[:, None]
    return unit


def leading_left_vectors(z: Any, K: int, seed: int) -> Array:
    """Return the K leading eigenvectors of Z Zᵀ as an N × K matrix; fewer if its rank is lower.

    For a large graph they are computed as Z v from the eigenvectors v of Zᵀ Z. The iteration then runs on vectors with
    one entry per feature instead of one per node.

    Args:
        z: N × d matrix Z, dense or sparse.
        K: Number of vectors.
        seed: Seed of the random start of the iteration.
    """
    nodes, width = z.shape
    transposed = z.T.tocsr() if is_sparse(z) else z.T  # as CSR the product is a third faster
    if nodes <= max(LARGE, width):
        return leading_eigenvectors(lambda q: z @ (transposed @ q), nodes, K, seed)
    if width <= WIDE:
        gram = transposed @ z
        gram = gram.toarray() if is_sparse(gram) else gram
        product: Product = lambda w: gram @ w  # noqa: E731
    else:
        product = lambda w: transposed @ (z @ w)  # noqa: E731
    v = leading_eigenvectors(product, width, K, seed)
    v /= np.sqrt((v * product(v)).sum(axis=0))  # ‖Z v‖
    rows = np.empty((nodes, v.shape[1]), dtype=np.float32)
    for start in range(0, nodes, CHUNK):
        rows[start : start + CHUNK] = z[start : start + CHUNK] @ v
    return rows


def rbf_product(x: Any, gamma: float | None, seed: int) -> Product:
    """Return the function Q ↦ D^{-1/2} W D^{-1/2} Q for W_ij = exp(-γ‖x_i - x_j‖²).

    Args:
        x: N × d features, as a SciPy sparse matrix or an array.
        gamma: The scale γ. None means the median rule (`median_gamma`).
        seed: Seed of the median rule.

    Raises:
        InputError: There are too many nodes, or the median rule fails.

    Warns:
        EnrichWarning: The affinity is numerically diagonal, so that clusters will be arbitrary.
    """
    nodes = x.shape[0]
    if nodes > RBF_LIMIT:
        raise InputError(
            f"affinity 'rbf' takes O(N²) time and allows at most {RBF_LIMIT:,} nodes, got {nodes:,}; use 'cosine'"
        )
    gamma = median_gamma(x, seed) if gamma is None else gamma
    squares = np.asarray((x * x).sum(axis=1))

    def affinity_product(q: Array) -> Array:
        out, step = np.empty_like(q), max(1, BLOCK // nodes)
        for start in range(0, nodes, step):
            ids = np.arange(start, min(start + step, nodes))
            inner = x[ids] @ x.T
            w = inner.toarray() if is_sparse(inner) else inner
            w *= 2
            w -= squares[ids, None] + squares  # minus the squared distances
            np.exp(np.minimum(w, 0) * gamma, out=w)
            out[ids] = w @ q
        return out

    degrees = affinity_product(np.ones((nodes, 1)))
    if np.median(degrees - 1) < 1e-6:
        warn(
            f"the RBF affinity is numerically diagonal at gamma={gamma:.3g}: half of the nodes have a total "
            f"affinity of {np.median(degrees - 1):.1e} or less to all others; clusters will be arbitrary",
            EnrichWarning,
        )
    root = np.sqrt(degrees)
    return lambda q: affinity_product(q / root) / root


def median_gamma(x: Any, seed: int) -> float:
    """Return γ by the median rule γ = 1/(2 median ‖x_i - x_j‖²), over 10,000 random pairs of distinct nodes.

    Raises:
        InputError: The median is 0, because more than half of the pairs of rows are equal.
    """
    nodes, rng = x.shape[0], numpy_stream(seed, "median-rule")
    i = rng.integers(nodes, size=PAIRS)
    j = (i + rng.integers(1, nodes, size=PAIRS)) % nodes
    difference = x[i] - x[j]
    median = float(np.median(np.asarray((difference * difference).sum(axis=1))))
    if median == 0:
        raise InputError("x: more than half of the pairs of rows are equal, so the median rule fails; set gamma")
    return 1 / (2 * median)


def leading_eigenvectors(product: Product, nodes: int, K: int, seed: int) -> Array:
    """Return the K leading eigenvectors (N × K, orthonormal) of a positive semi-definite matrix.

    Args:
        product: Multiplies the matrix with a block of vectors.
        nodes: Size N of the matrix.
        K: Number of eigenvectors. Fewer are returned if the rank of the matrix is lower.
        seed: Seed of the first subspace.
    """
    size = min(nodes, K + SPARE)
    q = product(numpy_stream(seed, "subspace").standard_normal((nodes, size)))
    for _ in range(PASSES):
        q = product(scipy.linalg.lu(q, permute_l=True)[0])  # LU gives a cheaper basis; QR is needed only at the end
    q = np.linalg.qr(q)[0]
    values, vectors = np.linalg.eigh(q.T @ product(q))
    kept = np.flatnonzero(values > 1e-10 * values[-1])[-K:]
    return np.asarray(q @ vectors[:, kept])
