"""Measures of undirected simple graphs and of their enrichment: spectral entropy and feature smoothness.

Both use the symmetric normalised Laplacian L = I - P, P = D^(-1/2) A D^(-1/2), with zero rows at isolated nodes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.special import xlogy

from edgemask.errors import InputError, InputTypeError
from edgemask.graph import Array, Graph
from edgemask.legal import Legal
from edgemask.seeds import numpy_stream

EXACT_UP_TO = 2000  # nodes with edges; up to here all eigenvalues are computed, in about a second
SAMPLE = 160_000  # random values of the estimate above that, over all vectors; its error is about 0.001
STEPS = 30  # products of each vector with P
EXHAUSTED = 1e-10  # Lanczos stops at a residual this small
BLOCK = 1 << 18  # feature values in memory at a time; they fit into the CPU cache


def adjacency_of(edges: Array, num_nodes: int) -> Any:
    """Return the sparse, symmetric 0/1 adjacency of 2 × M edges, given in one direction or in both."""
    kind = np.int32 if num_nodes < 2**31 else np.int64
    i, j = np.asarray(edges).astype(kind)
    a = sp.coo_array((np.ones(len(i)), (i, j)), shape=(num_nodes, num_nodes)).tocsr()
    a = (a + a.T).tocsr()
    a.setdiag(0)
    a.eliminate_zeros()
    a.data[:] = 1
    return a


def spectral_entropy(adjacency: Any, *, probes: int | None = None, steps: int = STEPS, seed: int = 0) -> float:
    """Compute the von Neumann entropy in nats: -Σ (λ/N') log(λ/N') over the eigenvalues λ of L.

    N' is the number of nodes that have edges. The entropy is exact up to N' = 2,000. Above that, it is estimated by
    stochastic Lanczos quadrature, in time linear in the number of edges.

    Args:
        adjacency: Sparse, symmetric 0/1 adjacency.
        probes: Number of random vectors of the estimate. By default, larger graphs get fewer: 16 at 10,000 nodes.
        steps: Products of each vector with P.
        seed: Seed of the random vectors.

    Raises:
        InputError: `probes` or `steps` is below 1, or `adjacency` is not that of an undirected simple graph.
        InputTypeError: `adjacency` is not a sparse matrix.

    >>> triangle = adjacency_of(np.array([[0, 1, 2], [1, 2, 0]]), 3)
    >>> round(spectral_entropy(triangle), 6) == round(math.log(2), 6)
    True
    """
    Legal(1, whole=True, optional=True).check("probes", probes)
    Legal(1, whole=True).check("steps", steps)
    a = checked(adjacency)
    connected = np.flatnonzero(np.diff(a.indptr))
    n, p = len(connected), normalised(a[connected][:, connected])
    if n <= EXACT_UP_TO:
        eigenvalues = 1 - scipy.linalg.eigvalsh(p.toarray()) if n else np.empty(0)
        share = np.maximum(eigenvalues, 0) / max(n, 1)  # rounding can make a zero slightly negative
        return float(-xlogy(share, share).sum())
    # The entropy is log N' - mean(λ log λ), and λ log λ = -μ + μ²/2 + rest with the eigenvalues μ = 1 - λ of P. The
    # means of the first two terms are known: 0 and |P|²/2N'. Only the rest is estimated, and it varies far less.
    count = probes or math.ceil(SAMPLE / n)
    rest = np.mean([quadrature(p, numpy_stream(seed, "probe", i), steps) for i in range(count)])
    return float(np.log(n) - p.data @ p.data / (2 * n) - rest)


def quadrature(p: Any, stream: np.random.Generator, steps: int) -> float:
    """Estimate mean(λ log λ + μ - μ²/2) over the eigenvalues μ = 1 - λ of `p` by Lanczos with one random vector.

    Vectors are not reorthogonalised: copies of an eigenvalue share its weight, so they do not change the estimate.

    Args:
        p: A sparse symmetric matrix.
        stream: Source of the random vector.
        steps: Largest number of products with `p`.
    """
    n = p.shape[0]
    previous, current = np.zeros(n), stream.choice([-1.0, 1.0], n) / np.sqrt(n)
    diagonal: list[float] = []
    off_diagonal = [0.0]
    while len(diagonal) < min(steps, n) and (not diagonal or off_diagonal[-1] > EXHAUSTED):
        new = p @ current - off_diagonal[-1] * previous
        diagonal.append(float(current @ new))
        new -= diagonal[-1] * current
        off_diagonal.append(float(np.linalg.norm(new)))
        previous, current = current, new / max(off_diagonal[-1], EXHAUSTED)
    mu, vectors = scipy.linalg.eigh_tridiagonal(np.array(diagonal), np.array(off_diagonal[1:-1]))
    eigenvalues = np.maximum(1 - mu, 0)
    return float(vectors[0] ** 2 @ (xlogy(eigenvalues, eigenvalues) + mu - mu**2 / 2))


def smoothness(x: Any, adjacency: Any) -> float:
    """Compute tr(XᵀLX) / tr(XᵀX) of N × d features, dense or sparse.

    The value lies between 0 (features agree along edges) and 2 (features are opposite along edges). It is computed as
    the sum of |x_i/√d_i - x_j/√d_j|² over the edges, in blocks of edges, so that it is never negative.

    Args:
        x: Features, one row per node.
        adjacency: Sparse, symmetric 0/1 adjacency.

    Raises:
        InputError: `x` has the wrong shape or a sum of squares that is 0 or not finite, or `adjacency` is not that of
            an undirected simple graph.
        InputTypeError: `adjacency` is not a sparse matrix.
    """
    a = checked(adjacency)
    x = sp.csr_array(x, dtype=np.float64) if sp.issparse(x) else np.asarray(x, dtype=np.float64)
    if x.ndim != 2 or x.shape[0] != a.shape[0]:
        raise InputError(f"x must have a row for each of the {a.shape[0]} nodes, got shape {x.shape}")
    total = squares(x)
    if not 0 < total < np.inf:
        raise InputError(f"x: the sum of squares must be finite and above 0, got {total}")
    scaled = sp.diags_array(roots(a)) @ x
    i, j = sp.triu(a).coords
    block = max(1, BLOCK // max(1, x.size // x.shape[0]))  # `size` of a sparse matrix counts its stored entries
    parts = (slice(start, start + block) for start in range(0, len(i), block))
    return sum(squares(scaled[i[part]] - scaled[j[part]]) for part in parts) / total


def enrichment_measures(graph: Graph, edges: Array) -> dict[str, float]:
    """Measure how enrichment changed a graph.

    Args:
        graph: The original graph.
        edges: 2 × M edges of the enriched graph. They include the edges of the original graph.

    Returns:
        The gains in the paper's table on enrichment, and the values of entropy and smoothness before and after. The
        gain of the entropy is after minus before, that of the smoothness is before minus after.

    Raises:
        InputError: The graph has no edges, or `edges` lacks some of its edges.
    """
    before, after = (adjacency_of(e, graph.num_nodes) for e in (graph.edges, edges))
    if before.nnz == 0:
        raise InputError(f"graph {graph.name!r} has no edges, so the increase of edges is undefined")
    if lost := before.nnz - before.multiply(after).nnz:
        raise InputError(
            f"graph {graph.name!r}: {lost // 2} of its edges are not among the edges of the enriched graph"
        )
    entropy = [spectral_entropy(a) for a in (before, after)]  # both with the same random vectors
    smooth = [smoothness(graph.x, a) for a in (before, after)]
    return {
        "edge increase %": 100 * (after.nnz / before.nnz - 1),
        "avg degree gain": (after.nnz - before.nnz) / graph.num_nodes,
        "spectral entropy": entropy[1] - entropy[0],
        "spectral entropy before": entropy[0],
        "spectral entropy after": entropy[1],
        "feature Laplacian smoothness": smooth[0] - smooth[1],
        "feature Laplacian smoothness before": smooth[0],
        "feature Laplacian smoothness after": smooth[1],
    }


def checked(adjacency: Any) -> Any:
    """Return an adjacency matrix in CSR format, after checking that it is that of an undirected simple graph.

    Raises:
        InputTypeError: The adjacency is not a SciPy sparse matrix.
        InputError: It is not square or not symmetric, has values other than 0 and 1, or has a self-loop.
    """
    if not sp.issparse(adjacency):
        raise InputTypeError(f"adjacency must be a SciPy sparse matrix, got {type(adjacency).__name__}")
    a = sp.csr_array(adjacency, dtype=np.float64)
    a.sum_duplicates()
    a.eliminate_zeros()
    if a.shape[0] != a.shape[1]:
        raise InputError(f"adjacency must be square, got shape {a.shape}")
    if (a.data != 1).any():
        raise InputError(f"adjacency must hold only 0 and 1, got {a.data[a.data != 1][0]}")
    if a.diagonal().any():
        raise InputError(f"adjacency must have no self-loops, got one on node {np.flatnonzero(a.diagonal())[0]}")
    if (a != a.T).nnz:
        i, j = (int(c[0]) for c in (a != a.T).tocoo().coords)
        raise InputError(f"adjacency must be symmetric: nodes {i} and {j} are connected in one direction only")
    return a


def roots(a: Any) -> Array:
    """Return 1/√degree of every node, and 0 for isolated nodes."""
    degree = np.diff(a.indptr)
    return np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1)), 0.0)


def normalised(a: Any) -> Any:
    """Return P = D^(-1/2) A D^(-1/2)."""
    scale = sp.diags_array(roots(a))
    return (scale @ a @ scale).tocsr()


def squares(x: Any) -> float:
    """Return the sum of squares of all entries."""
    values = x.data if sp.issparse(x) else x.ravel()
    return float(values @ values)
