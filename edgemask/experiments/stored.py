"""The user's own graphs as a benchmark: files named by their content, and graphs in the common form of a protocol.

A worker finds the graphs of a task by the hashes in its options. The sources of its protocol alone decide the columns,
vocabularies, scales and classes; every other graph is aligned with them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgemask.data import Benchmark, Card, File, Store, benchmark, read_graph, write_graph
from edgemask.errors import DataError
from edgemask.estimator.inputs import restricted
from edgemask.experiments.records import Task, canonical
from edgemask.graph import Graph, unify
from edgemask.protocol import Protocol

OWN = "own"  # the benchmark of the user's own graphs in records
FOLDER = "graphs"  # below the folder of the results
TOPICS = ("nodes", "edges", "features", "labels", "shift", "split", "metric", "licence", "origin", "citation")
CARD = Card("own graphs", **dict.fromkeys(TOPICS, ""))


def content_hash(graph: Graph) -> str:
    """Return a hash of everything that decides the results on a graph: its content and the names of its columns."""
    names = [graph.hash, list(graph.feature_names), list(graph.text_columns)]
    return hashlib.sha256(canonical(names).encode()).hexdigest()[:32]


def keep(graphs: Sequence[Graph], results: Path) -> dict[str, str]:
    """Write graphs below a folder of results, unless they are there, and return their hashes by name."""
    hashes = {graph.name: content_hash(graph) for graph in graphs}
    for graph in graphs:
        if not (path := results / _path(hashes[graph.name])).exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_graph(graph.replace(node_ids=None), path)
    return hashes


def benchmark_of(task: Task) -> Benchmark:
    """Return the benchmark of a task. That of the user's own graphs is made from its options and protocol."""
    return find_benchmark(task.benchmark, task.options, task.protocol)


def find_benchmark(name: str, options: Mapping[str, Any], protocol: Protocol) -> Benchmark:
    """Return a benchmark by name, or that of the user's own graphs under a protocol."""
    if name != OWN:
        return benchmark(name)
    hashes: Mapping[str, str] = options["graphs"]

    def read(store: Store, domains: Sequence[str], scale: bool, **_: Any) -> dict[str, Graph]:
        return aligned({n: load(store.root, n, hashes[n]) for n in domains}, protocol, scale)

    def files(domain: str) -> tuple[File, ...]:
        return (File(_path(hashes[domain]), "", ""),)

    return Benchmark(OWN, CARD, tuple(hashes), (protocol,), files, read, options)


def load(root: Path, name: str, content: str) -> Graph:
    """Read a stored graph and check its content.

    Raises:
        DataError: The file was changed.
    """
    path = root / _path(content)
    graph = read_graph(path, name=name)
    if content_hash(graph) != content:
        raise DataError(f"{path} was changed after it was written: remove it and run again")
    return graph


def aligned(graphs: Mapping[str, Graph], protocol: Protocol, scale: bool) -> dict[str, Graph]:
    """Return the graphs of a protocol in a common form, as `EdgeMaskClassifier` brings them into it.

    Args:
        graphs: The graphs by name.
        protocol: Sources, validation graphs and targets.
        scale: Whether numeric columns are standardised, with the means and deviations of the sources.

    Raises:
        GraphError: The graphs do not have the same columns or classes.
    """
    roles = [(n, "train") for n in protocol.sources] + [(n, "val") for n in protocol.validation]
    trained = [restricted(graphs[name], mask) for name, mask in roles]
    contract, forms = unify(trained, scale=scale, fitted=len(protocol.sources))
    targets = [contract.aligned(graphs[name]) for name in protocol.targets if name in graphs]
    return {graph.name: graph for graph in (*forms, *targets)}


def _path(content: str) -> str:
    return f"{FOLDER}/{content}.npz"
