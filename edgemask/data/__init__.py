"""Benchmarks by name, and graphs in files."""

from __future__ import annotations

from edgemask.data.airports import AIRPORTS
from edgemask.data.arxiv import ARXIV
from edgemask.data.benchmark import Benchmark, Card
from edgemask.data.citation import CITATION
from edgemask.data.elliptic import ELLIPTIC
from edgemask.data.facebook import FACEBOOK100
from edgemask.data.files import read_graph, write_graph
from edgemask.data.shifted import CORA, PHOTO
from edgemask.data.store import File, Store
from edgemask.data.synthetic import SYNTHETIC
from edgemask.data.twitch import TWITCH
from edgemask.errors import InputError
from edgemask.legal import did_you_mean

__all__ = ["BENCHMARKS", "Benchmark", "Card", "File", "Store", "benchmark", "read_graph", "write_graph"]

BENCHMARKS: dict[str, Benchmark] = {
    b.name: b for b in (CITATION, CORA, PHOTO, TWITCH, FACEBOOK100, AIRPORTS, ELLIPTIC, ARXIV, SYNTHETIC)
}


def benchmark(name: str) -> Benchmark:
    """Return a benchmark by name.

    Args:
        name: Name of the benchmark: a key of `BENCHMARKS`.

    Returns:
        The benchmark. Its method `load` returns the graphs.

    Raises:
        InputError: There is no benchmark of this name.

    >>> benchmark("citation").domains
    ('acmv9', 'citationv1', 'dblpv7')
    """
    if name not in BENCHMARKS:
        raise InputError(f"no benchmark {name!r} (benchmarks: {', '.join(BENCHMARKS)}){did_you_mean(name, BENCHMARKS)}")
    return BENCHMARKS[name]
