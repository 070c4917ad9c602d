"""Measures of an undirected simple graph and of its enrichment: spectral entropy, smoothness of the features.

Both are of the symmetric normalised Laplacian L = I - P, P = D^(-1/2) A D^(-1/2), with zero rows at isolated nodes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.special import xlogy

from edgemask.errors import InputError
from edgemask.graph import Array, Graph
from edgemask.seeds import numpy_stream

EXACT_UP_TO = 2000  # nodes with edges whose eigenvalues are all found, in about a second
SAMPLE = 160_000  # random values of the estimate above that, in one vector or many: they decide its error, about 0.001
STEPS = 30  # products of each vector with P
EXHAUSTED = 1e-10  # a residual this small: the probe has nothing more in it
BLOCK = 1 << 18  # feature values held at a time: what a cache holds


def adjacency_of(edges: Array, num_nodes: int) -> Any:
    """The sparse 0/1 adjacency of the undirected simple graph under 2 × M edges, in one direction or both."""
    kind = np.int32 if num_nodes < 2**31 else np.int64
    i, j = np.asarray(edges).astype(kind)
    a = sp.coo_array((np.ones(len(i)), (i, j)), shape=(num_nodes, num_nodes)).tocsr()
    a = (a + a.T).tocsr()
    a.setdiag(0)
    a.eliminate_zeros()
    a.data[:] = 1
    return a


def spectral_entropy(adjacency: Any, *, probes: int | None = None, steps: int = STEPS, seed: int = 0) -> float:
    """Von Neumann entropy in nats: -Σ (λ/N') log(λ/N') over the eigenvalues λ of L, N' the nodes that have edges.

    Exact up to 2,000 such nodes; above, estimated from `probes` seeded random vectors (the fewer the more nodes where
    it is None: 16 of 10,000) and `steps` products of each with P (stochastic Lanczos quadrature), linear in the edges.
    """
    if (probes is not None and probes < 1) or steps < 1:
        raise InputError(f"probes and steps must be at least 1, got {probes} and {steps}")
    a = checked(adjacency)
    held = np.flatnonzero(np.diff(a.indptr))
    n, p = len(held), normalised(a[held][:, held])
    if n <= EXACT_UP_TO:
        eigenvalues = 1 - scipy.linalg.eigvalsh(p.toarray()) if n else np.empty(0)
        share = np.maximum(eigenvalues, 0) / max(n, 1)  # a zero may come out a rounding below it
        return float(-xlogy(share, share).sum())
    # The entropy is log N' - mean(λ log λ). Of λ log λ = -μ + μ²/2 + rest, with μ = 1 - λ the eigenvalues of P, the
    # means of the first terms are known, 0 and |P|²/2N'; only the rest is estimated, and varies far less.
    count = probes or math.ceil(SAMPLE / n)
    rest = np.mean([quadrature(p, numpy_stream(seed, "probe", i), steps) for i in range(count)])
    return float(np.log(n) - p.data @ p.data / (2 * n) - rest)


def quadrature(p: Any, stream: np.random.Generator, steps: int) -> float:
    """One random vector's estimate of mean(λ log λ + μ - μ²/2) over the eigenvalues μ = 1 - λ of `p`, by Lanczos.

    Nothing is reorthogonalised: eigenvalues that are found again share the weight of the first, and do no harm.
    """
    n = p.shape[0]
    last, now = np.zeros(n), stream.choice([-1.0, 1.0], n) / np.sqrt(n)
    diagonal: list[float] = []
    beside = [0.0]
    while len(diagonal) < min(steps, n) and (not diagonal or beside[-1] > EXHAUSTED):
        new = p @ now - beside[-1] * last
        diagonal.append(float(now @ new))
        new -= diagonal[-1] * now
        beside.append(float(np.linalg.norm(new)))
        last, now = now, new / max(beside[-1], EXHAUSTED)
    mu, vectors = scipy.linalg.eigh_tridiagonal(np.array(diagonal), np.array(beside[1:-1]))
    eigenvalues = np.maximum(1 - mu, 0)
    return float(vectors[0] ** 2 @ (xlogy(eigenvalues, eigenvalues) + mu - mu**2 / 2))


def smoothness(x: Any, adjacency: Any) -> float:
    """tr(XᵀLX) / tr(XᵀX) of N × d features, dense or sparse: from 0, alike along edges, to 2, opposite.

    Summed as Σ |x_i/√d_i - x_j/√d_j|² over the edges, so that it never falls below 0, in blocks of edges.
    """
    a = checked(adjacency)
    x = sp.csr_array(x, dtype=np.float64) if sp.issparse(x) else np.asarray(x, dtype=np.float64)
    if x.ndim != 2 or x.shape[0] != a.shape[0]:
        raise InputError(f"x must have a row for each of the {a.shape[0]} nodes, got shape {x.shape}")
    total = squares(x)
    if not 0 < total < np.inf:
        raise InputError(f"x: its sum of squares must be finite and above 0, got {total}")
    scaled = sp.diags_array(roots(a)) @ x
    i, j = sp.triu(a).coords
    block = max(1, BLOCK // max(1, x.size // x.shape[0]))  # `size` of a sparse matrix counts what it stores
    parts = (slice(start, start + block) for start in range(0, len(i), block))
    return sum(squares(scaled[i[part]] - scaled[j[part]]) for part in parts) / total


def enrichment_measures(graph: Graph, edges: Array) -> dict[str, float]:
    """What enrichment did to a graph, given the 2 × M edges of the enriched one, the graph's own among them.

    The gains of the paper's table on it, and of what is no count the values before and after: entropy is after less
    before, smoothness before less after.
    """
    before, after = (adjacency_of(e, graph.num_nodes) for e in (graph.edges, edges))
    if before.nnz == 0:
        raise InputError(f"graph {graph.name!r} has no edges: their increase is undefined")
    if lost := before.nnz - before.multiply(after).nnz:
        raise InputError(f"graph {graph.name!r}: {lost // 2} of its edges are not among those of the enriched graph")
    entropy = [spectral_entropy(a) for a in (before, after)]  # of the same random vectors
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
    """The adjacency as CSR, once it is that of an undirected simple graph."""
    if not sp.issparse(adjacency):
        raise TypeError(f"adjacency must be a SciPy sparse matrix, got {type(adjacency).__name__}")
    a = sp.csr_array(adjacency, dtype=np.float64)
    a.sum_duplicates()
    a.eliminate_zeros()
    if a.shape[0] != a.shape[1]:
        raise InputError(f"adjacency must be square, got shape {a.shape}")
    if (a.data != 1).any():
        raise InputError(f"adjacency must hold 0 and 1 alone, got {a.data[a.data != 1][0]}")
    if a.diagonal().any():
        raise InputError(f"adjacency has a self-loop on node {np.flatnonzero(a.diagonal())[0]}")
    if (a != a.T).nnz:
        i, j = (int(c[0]) for c in (a != a.T).tocoo().coords)
        raise InputError(f"adjacency must be symmetric: nodes {i} and {j} are joined in one direction alone")
    return a


def roots(a: Any) -> Array:
    """1/√degree of every node, 0 where it is isolated."""
    degree = np.diff(a.indptr)
    return np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1)), 0.0)


def normalised(a: Any) -> Any:
    """P = D^(-1/2) A D^(-1/2)."""
    scale = sp.diags_array(roots(a))
    return (scale @ a @ scale).tocsr()


def squares(x: Any) -> float:
    """The sum of the squares of all entries."""
    values = x.data if sp.issparse(x) else x.ravel()
    return float(values @ values)
