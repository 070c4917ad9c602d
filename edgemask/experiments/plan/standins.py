"""Stand-ins: small graphs with the costs of a part of a large graph, on which `plan` measures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgemask.config import Recipe
from edgemask.enrich.enriched import LEAST_INDEXED
from edgemask.graph import MISSING, Graph
from edgemask.methods.sources import ENRICHING
from edgemask.seeds import numpy_stream

SMALLEST, GROWTH = 2_000, 3  # nodes of the first level in all its graphs together, and growth from level to level
LARGEST = 200_000  # largest number of nodes of a level
ENTRIES = 2**25  # largest number of entries of the dense features of a level
FEWEST = 300  # smallest number of nodes of a stand-in, unless its graph has fewer


def level_sizes(graphs: Sequence[Graph]) -> list[int]:
    """Return the total number of nodes of each level, in ascending order.

    If the graphs are small enough, the last level is the graphs themselves.
    """
    total = sum(g.num_nodes for g in graphs)
    most = LARGEST if all(g.is_sparse for g in graphs) else min(LARGEST, ENTRIES // graphs[0].num_features)
    sizes = []
    size = SMALLEST
    while size < min(most, 0.7 * total):
        sizes.append(size)
        size *= GROWTH
    return [*sizes, total] if total <= most else sizes


def write_level(
    size: int,
    sources: Sequence[Graph],
    validation: Sequence[Graph],
    method: str,
    recipe: Recipe,
    folder: Path,
    *,
    race: bool = False,
) -> dict[str, Any]:
    """Write the graphs of one level to files, unless they are already there.

    A graph with fewer nodes has fewer pairs inside a cluster. The recipe of the level draws a larger share of them, so
    that a node has as many edges as in the whole graph. Neighbours are searched for in the same way as in the whole
    graph: exactly, or with an approximate index. With batches, a stand-in has labels for only two batches.

    Args:
        size: Total number of nodes of the level.
        sources: The whole source graphs.
        validation: The whole validation graphs.
        method: Name of a registered method.
        recipe: The settings of the fit.
        folder: Where the files are written.
        race: Whether the configuration is a candidate of a race. Candidates share what they prepare on a level.

    Returns:
        The level as JSON values: `method` and `recipe` to run, the paths of the files by `sources` and `validation`,
        and `shared`, a folder for what the candidates of a race share, or None.
    """
    graphs = [*sources, *validation]
    part = size / sum(g.num_nodes for g in graphs)
    paths = [str(folder / f"{size}-{recipe.batch_size or 'whole'}-{i}.npz") for i in range(len(graphs))]
    for graph, path in zip(graphs, paths, strict=True):
        if Path(path).exists():
            continue
        if part < 1 or recipe.batch_size is not None:
            nodes = max(min(FEWEST, graph.num_nodes), round(part * graph.num_nodes))
            graph = stand_in(graph, nodes, 2 * (recipe.batch_size or nodes))
        write(graph, path)
    small = recipe.replace(
        spectral_ratio=min(1.0, recipe.spectral_ratio / part),
        knn_exact_up_to=max(LEAST_INDEXED, round(part * recipe.knn_exact_up_to)),
        epochs=10**6,
        eval_every=1 if race else 10**6,
        patience=0,
    )
    return {
        "method": method,
        "recipe": small.to_json(),
        "sources": paths[: len(sources)],
        "validation": paths[len(sources) :],
        "shared": str(folder / f"shared-{size}") if race else None,
    }


def enriched_graphs(recipe: Recipe, sources: Sequence[Graph], validation: Sequence[Graph]) -> list[Graph]:
    """Return the graphs that a fit enriches.

    Args:
        recipe: The settings of the fit.
        sources: The source graphs.
        validation: The validation graphs.

    Returns:
        The sources, and the validation graphs if they are predicted enriched; no graphs if the recipe does not enrich.
    """
    if not recipe.enriched:
        return []
    return [*sources, *(validation if recipe.test_graph == "enriched" else [])]


def enrichment_key(recipe: Recipe) -> tuple[Any, ...]:
    """Return a key that is equal for recipes that enrich the same graphs in the same way; empty if nothing is enriched.

    >>> enrichment_key(Recipe(k=0, clusters=0))
    ()
    """
    return (recipe.test_graph, *(getattr(recipe, name) for name in ENRICHING)) if recipe.enriched else ()


def stand_in(graph: Graph, nodes: int, labels: int) -> Graph:
    """Return a smaller graph that resembles a graph.

    It has a random sample of the graph's nodes with their features. Their degrees are kept, and their edges are wired
    at random.

    Args:
        graph: The whole graph.
        nodes: Number of nodes of the stand-in.
        labels: Largest number of labelled nodes. The labels go through all classes in turn.
    """
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
    """Write a graph as `edgemask.data.files.write_npz` does, but uncompressed: compression would take most of the time.

    Graph masks are not written.
    """
    info = {"name": graph.name, "classes": graph.classes, "masks": []}
    fields: dict[str, Any] = {"edges": graph.edges, "masks": np.zeros((0, graph.num_nodes), dtype=bool), "y": graph.y}
    if graph.is_sparse:
        fields |= {f"x_{part}": getattr(graph.x, part) for part in ("data", "indices", "indptr", "shape")}
    else:
        fields["x"] = graph.x
    np.savez(path, info=np.array(json.dumps(info)), **fields)
