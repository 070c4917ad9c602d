"""Stand-ins: small graphs that cost what a part of a large one would, for `edgemask.experiments.plan` to measure on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgemask.config import Recipe
from edgemask.enrich.enriched import LEAST_INDEXED
from edgemask.graph import MISSING, Graph
from edgemask.seeds import numpy_stream

SMALLEST, GROWTH = 2_000, 3  # nodes of the first level, all graphs together, and how much larger each next one is
LARGEST = 200_000  # nodes of a level
ENTRIES = 2**25  # of dense features in a level
FEWEST = 300  # nodes of one stand-in, where the graph has them


def level_sizes(graphs: Sequence[Graph]) -> list[int]:
    """Nodes of the levels that may be measured, growing; the last is the graphs themselves where they are small
    enough."""
    total = sum(g.num_nodes for g in graphs)
    most = LARGEST if all(g.is_sparse for g in graphs) else min(LARGEST, ENTRIES // graphs[0].num_features)
    sizes = []
    size = SMALLEST
    while size < min(most, 0.7 * total):
        sizes.append(size)
        size *= GROWTH
    return [*sizes, total] if total <= most else sizes


def write_level(
    size: int, sources: Sequence[Graph], validation: Sequence[Graph], recipe: Recipe, folder: Path
) -> dict[str, Any]:
    """The graphs of one level as files, and the recipe to run on them.

    Fewer nodes have fewer pairs inside a cluster: of these a larger share is drawn, so that a node has as many edges
    as in the whole graph. Neighbours are searched for as in the whole graph, exactly or by an index. With batches there
    are labels for two of them alone.
    """
    graphs = [*sources, *validation]
    part = size / sum(g.num_nodes for g in graphs)
    paths = [str(folder / f"{size}-{i}.npz") for i in range(len(graphs))]
    for graph, path in zip(graphs, paths, strict=True):
        if part < 1 or recipe.batch_size is not None:
            nodes = max(min(FEWEST, graph.num_nodes), round(part * graph.num_nodes))
            graph = stand_in(graph, nodes, 2 * (recipe.batch_size or nodes))
        write(graph, path)
    small = recipe.replace(
        spectral_ratio=min(1.0, recipe.spectral_ratio / part),
        knn_exact_up_to=max(LEAST_INDEXED, round(part * recipe.knn_exact_up_to)),
        epochs=10**6,
        eval_every=10**6,
        patience=0,
    )
    return {"recipe": small.to_json(), "sources": paths[: len(sources)], "validation": paths[len(sources) :]}


def enriched_graphs(recipe: Recipe, sources: Sequence[Graph], validation: Sequence[Graph]) -> list[Graph]:
    """The graphs a fit enriches: the sources to train on, the validation graphs where they are read enriched."""
    if not recipe.enriched:
        return []
    return [*sources, *(validation if recipe.test_graph == "enriched" else [])]


def stand_in(graph: Graph, nodes: int, labels: int) -> Graph:
    """A graph of fewer nodes like this one: a sample of its rows, their degrees kept and wired anew; at most so many
    labels, of every class."""
    stream = numpy_stream(0, "stand-in", graph.name, nodes)
    rows = np.sort(stream.choice(graph.num_nodes, nodes, replace=False))
    out = np.bincount(graph.edges[0], minlength=graph.num_nodes)[rows]
    src, dst = (np.repeat(np.arange(nodes), np.minimum(d, nodes - 1)) for d in (out, graph.degrees[rows]))
    length = min(len(src), len(dst))
    return Graph(
        name=graph.name,
        x=graph.x[rows],
        edges=np.stack([stream.permutation(src)[:length], stream.permutation(dst)[:length]]),
        y=np.where(np.arange(nodes) < labels, np.arange(nodes) % graph.num_classes, MISSING),
        classes=graph.classes,
        duplicates="merge",
        self_loops="drop",
    )


def write(graph: Graph, path: str) -> None:
    """As `edgemask.data.files.write_npz`, but not compressed, which takes longer than all the rest."""
    info = {"name": graph.name, "classes": graph.classes, "masks": []}
    fields: dict[str, Any] = {"edges": graph.edges, "masks": np.zeros((0, graph.num_nodes), dtype=bool), "y": graph.y}
    if graph.is_sparse:
        fields |= {f"x_{part}": getattr(graph.x, part) for part in ("data", "indices", "indptr", "shape")}
    else:
        fields["x"] = graph.x
    np.savez(path, info=np.array(json.dumps(info)), **fields)
