"""Airports: the air-traffic networks of the USA, Brazil and Europe, with the activity of an airport as its class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from edgemask.data.benchmark import Benchmark, Card
from edgemask.data.forms import benchmark_file
from edgemask.data.store import File, Store
from edgemask.errors import DataError, InputError
from edgemask.graph import Array, Graph
from edgemask.protocol import leave_one_out

WIDTH = 241  # columns of the one-hot degrees: 0 … 239, and 240 or more
CLASSES = ("level 0", "level 1", "level 2", "level 3")
_ORIGIN = (
    "https://raw.githubusercontent.com/Skyorca/OpenGDA/de0d970fe071c8dac25020967475085a283c778e/data/nc/airport/"
    "{domain}/raw/"
)
_SHA256 = {  # edges, labels: size and checksum
    "usa": (
        (163188, "c73fec3eef27ed6d6ef4d8dfa7fd1604b959601a38d399eeaa1f87e8d8d58fc0"),
        (9531, "d4062ff3b3a67c3ae72b581bb68228433223e35d6f0b2d41844d197ad3772195"),
    ),
    "brazil": (
        (6047, "896b7bd460ad2da9160888d99bc9099ffe8ed7de3e410833889ea393831bcaa7"),
        (687, "8f9d19f10192fbaeb91dfb46dd7eae0fef28bfe1272d41ab96a4494a0d06785f"),
    ),
    "europe": (
        (40007, "bd202178d0d1253c15bd3c9a22cc2a25f630244bbef9060bc30adbf0a5e130f6"),
        (2295, "92bace031cc02937ac9629d6c69387458e5d5016a7dab98490fbf33e392cec4e"),
    ),
}


def files(domain: str) -> tuple[File, ...]:
    """Return the edges and labels files of a network."""
    names = (f"{domain}-airports.edgelist", f"labels-{domain}-airports.txt")
    return tuple(
        File(f"airports/{name}", _ORIGIN.format(domain=domain) + name, f"sha256:{digest}", size)
        for name, (size, digest) in zip(names, _SHA256[domain], strict=True)
    )


def read(store: Store, domains: Sequence[str], *, features: str) -> dict[str, Graph]:
    """Read the given networks.

    Args:
        store: The data store.
        domains: Names of the networks.
        features: `"degree"`, the only legal value: the one-hot degree of each airport.

    Raises:
        InputError: `features` has another value.
        DataError: A file is altered or not valid, or it is missing and cannot be downloaded.
    """
    if features != "degree":
        raise InputError(f"airports: features must be 'degree', got {features!r}")
    return {name: read_network(name, *(store.get(f) for f in files(name))) for name in domains}


def read_network(name: str, edges: Path, labels: Path) -> Graph:
    """Read one network: undirected edges, N × 241 one-hot CSR degrees, and four classes.

    Nodes are numbered in the order of their ids.

    Args:
        name: Name of the graph.
        edges: Path of the edges file: two ids per line.
        labels: Path of the labels file: a header line, then an id and a class per line.

    Raises:
        DataError: The content of a file is not valid. The message names the file.
    """
    rows, pairs = _integers(labels, skip=1), _integers(edges)
    ids, y = rows[np.argsort(rows[:, 0], kind="stable")].T
    if (ids[1:] == ids[:-1]).any():
        raise DataError(f"{labels}: node {ids[1:][ids[1:] == ids[:-1]][0]} has several rows")
    unknown = ~np.isin(pairs, ids)
    if unknown.any():
        raise DataError(f"{edges}: node {pairs[unknown][0]} is not in {labels.name}")
    if not np.isin(y, range(len(CLASSES))).all():
        raise DataError(f"{labels}: classes must be 0 … {len(CLASSES) - 1}, got {y.min()} … {y.max()}")
    wired = Graph(
        name,
        x=np.zeros((len(ids), 1)),
        edges=np.searchsorted(ids, pairs).T,
        y=y,
        classes=CLASSES,
        undirected=True,
        duplicates="merge",
        self_loops="drop",
    )
    return wired.replace(x=one_hot(wired.degrees, WIDTH))


def one_hot(values: Array, width: int) -> sp.csr_array:
    """Return an N × `width` CSR matrix with a 1 in column `values[i]` of row i. Larger values use the last column."""
    n = len(values)
    return sp.csr_array((np.ones(n, np.float32), np.minimum(values, width - 1), np.arange(n + 1)), shape=(n, width))


def _integers(path: Path, skip: int = 0) -> Array:
    """Return a file of two integers per line as an M × 2 array."""
    with benchmark_file(path):
        table = np.loadtxt(path, dtype=np.int64, skiprows=skip, ndmin=2)
    if not len(table) or table.shape[1] != 2:
        raise DataError(f"{path}: expected lines of two integers, got a table of shape {table.shape}")
    return table


AIRPORTS = Benchmark(
    name="airports",
    card=Card(
        title="Airports of the USA, Brazil and Europe",
        nodes="airports: usa 1,190, brazil 131, europe 399; none isolated",
        edges="flights, undirected: usa 13,599, brazil 1,003, europe 5,993, after dropping self-loops and repeats",
        features="241 shared columns, sparse: the one-hot degree of the airport (the largest degree is 238); "
        "the networks have no features of their own",
        labels="4 classes of nearly equal size, numbered as in the files: the quarter in which an airport's activity "
        "(people, or landings and take-offs) lies within its network; no label is missing",
        shift="the continent: the networks differ in size and degrees, so the degrees of a class differ too",
        split="leave one domain out: whole graphs, no validation domain",
        metric="accuracy over all nodes",
        licence="not stated for the data; MIT for the repository of this copy",
        origin="GitHub Skyorca/OpenGDA, data/nc/airport/; first published in GitHub leoribeiro/struc2vec, graph/",
        citation="Ribeiro, Saverese, Figueiredo: struc2vec: Learning Node Representations from Structural Identity, "
        "KDD 2017",
    ),
    domains=tuple(_SHA256),
    protocols=leave_one_out(tuple(_SHA256), ("accuracy",)),
    files=files,
    read=read,
    options={"features": "degree"},
)
