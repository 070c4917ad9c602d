"""Spectral clustering of the node features without an N × N matrix: the communities of E_Spec (section 4.1).

The affinity W is only ever multiplied with a thin block of vectors. The K leading eigenvectors of
D^{-1/2} W D^{-1/2} come from subspace iteration with a Rayleigh-Ritz step; their rows, scaled to length 1,
are clustered by k-means (Ng, Jordan and Weiss, 2001). All of it takes time in proportion to N.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse as sp
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from edgemask.enrich.knn import is_sparse, unit_rows
from edgemask.errors import EnrichWarning, InputError
from edgemask.seeds import derive, numpy_stream

Array = npt.NDArray[Any]
Product = Callable[[Array], Array]
Affinity = Literal["cosine", "rbf"]

SPARE = 10  # vectors iterated beside the K wanted ones
PASSES = 3  # multiplications of the subspace with the affinity before the Rayleigh-Ritz step
RBF_LIMIT = 20_000  # nodes; the RBF affinity has full rank, so every pass takes O(N²) time
BLOCK = 2**23  # affinities held at a time (64 MiB)
LARGE = 50_000  # nodes; above it the iteration goes over features instead of nodes, and k-means over a sample
WIDE = 8192  # features up to which their products are made once (512 MiB), which pays at that many nodes
CHUNK = 2**16  # rows of a large graph multiplied at a time
PAIRS = 10_000  # sampled by the median rule


def spectral_clusters(x: Any, K: int, *, affinity: Affinity = "cosine", seed: int, gamma: float | None = None) -> Array:
    """Spectral clustering of the N rows of `x` (sparse or dense) into K clusters: N cluster indices.

    `cosine`  W_ij = cos(x_i, x_j), or (1 + cos)/2 where features have negative entries. Either is Z Zᵀ for
              a thin or sparse Z, so a pass costs no more than two products with the features. An all-zero
              row has no cosine and gets cluster -1.
    `rbf`     W_ij = exp(-γ‖x_i - x_j‖²), computed in row blocks, up to 20,000 nodes. Without `gamma`, the
              median rule: γ = 1/(2 median ‖x_i - x_j‖²) over 10,000 seeded pairs. Warns when the affinity
              is numerically diagonal, which leaves nothing to cluster by.

    Deterministic by `seed`, to the rounding of threaded sums. A cluster may come out empty.
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
    with threadpool_limits(1, user_api="blas"):  # thin products: more threads only wait for each other
        if affinity == "cosine":
            rows = leading_left_vectors(cosine_factor(x), K, seed)
        else:
            rows = leading_eigenvectors(rbf_product(x, gamma, seed), nodes, K, seed)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
    most = max(LARGE, 100 * K)
    some = rows if nodes <= most else rows[numpy_stream(seed, "k-means").choice(nodes, most, replace=False)]
    kmeans = KMeans(K, n_init=1, max_iter=30, random_state=derive(seed, "k-means") % 2**32).fit(some)
    clusters = np.full(len(usable), -1, dtype=np.int64)
    clusters[usable] = kmeans.predict(rows)
    return clusters


def cosine_factor(unit: Any) -> Any:
    """Z with Z Zᵀ = D^{-1/2} W D^{-1/2} for the cosine affinity W of rows of length 1, which are written over."""
    if unit.min() < 0:  # (1 + cos)/2 is the cosine of the rows with a constant column appended
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
    """The K leading eigenvectors of Z Zᵀ, N × K; fewer when its rank is lower.

    Of a large graph they are Z v for eigenvectors v of Zᵀ Z: as many numbers as features to iterate on, not nodes.
    """
    nodes, width = z.shape
    across = z.T.tocsr() if is_sparse(z) else z.T  # rows side by side: a third faster
    if nodes <= max(LARGE, width):
        return leading_eigenvectors(lambda q: z @ (across @ q), nodes, K, seed)
    if width <= WIDE:
        gram = across @ z
        gram = gram.toarray() if is_sparse(gram) else gram
        product: Product = lambda w: gram @ w  # noqa: E731
    else:
        product = lambda w: across @ (z @ w)  # noqa: E731
    v = leading_eigenvectors(product, width, K, seed)
    v /= np.sqrt((v * product(v)).sum(axis=0))  # ‖Z v‖
    rows = np.empty((nodes, v.shape[1]), dtype=np.float32)
    for start in range(0, nodes, CHUNK):
        rows[start : start + CHUNK] = z[start : start + CHUNK] @ v
    return rows


def rbf_product(x: Any, gamma: float | None, seed: int) -> Product:
    """Q ↦ D^{-1/2} W D^{-1/2} Q for W_ij = exp(-γ‖x_i - x_j‖²); γ by the median rule when None."""
    nodes = x.shape[0]
    if nodes > RBF_LIMIT:
        raise InputError(
            f"affinity 'rbf' takes O(N²) time and stops at {RBF_LIMIT:,} nodes, got {nodes:,}; use 'cosine'"
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
        warnings.warn(
            f"the RBF affinity is numerically diagonal at gamma={gamma:.3g}: half of the nodes have a total "
            f"affinity of {np.median(degrees - 1):.1e} or less to all others; clusters will be arbitrary",
            EnrichWarning,
            stacklevel=3,
        )
    root = np.sqrt(degrees)
    return lambda q: affinity_product(q / root) / root


def median_gamma(x: Any, seed: int) -> float:
    """The median rule γ = 1/(2 median ‖x_i - x_j‖²), over 10,000 random pairs of distinct nodes."""
    nodes, rng = x.shape[0], numpy_stream(seed, "median-rule")
    i = rng.integers(nodes, size=PAIRS)
    j = (i + rng.integers(1, nodes, size=PAIRS)) % nodes
    apart = x[i] - x[j]
    median = float(np.median(np.asarray((apart * apart).sum(axis=1))))
    if median == 0:
        raise InputError("x: more than half of the pairs of rows are equal, the median rule fails; give gamma")
    return 1 / (2 * median)


def leading_eigenvectors(product: Product, nodes: int, K: int, seed: int) -> Array:
    """The K leading eigenvectors (N × K, orthonormal) of the positive semi-definite matrix that `product`
    multiplies with; fewer when its rank is lower."""
    size = min(nodes, K + SPARE)
    q = product(numpy_stream(seed, "subspace").standard_normal((nodes, size)))
    for _ in range(PASSES):
        q = product(scipy.linalg.lu(q, permute_l=True)[0])  # a cheap basis; QR is needed only at the end
    q = np.linalg.qr(q)[0]
    values, vectors = np.linalg.eigh(q.T @ product(q))
    kept = np.flatnonzero(values > 1e-10 * values[-1])[-K:]
    return np.asarray(q @ vectors[:, kept])
