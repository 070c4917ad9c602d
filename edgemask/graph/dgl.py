"""Graphs of DGL, if it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgemask.errors import GraphError, MissingDependencyError
from edgemask.graph.pyg import array, mask


def fields(graph: Any, name: str) -> dict[str, Any]:
    """Return the arguments of `Graph` for a DGL graph; see `Graph.from_dgl`."""
    if not graph.is_homogeneous:
        raise GraphError(
            f"graph {name!r}: expected a homogeneous DGL graph, got one with several types of nodes or edges"
        )
    nodes, edges = ({k: array(v) for k, v in data.items()} for data in (graph.ndata, graph.edata))

    def first(data: dict[str, Any], *names: str) -> Any:
        return next((data[n] for n in names if n in data), None)

    x, y = first(nodes, "feat", "x"), first(nodes, "label", "y")
    return {
        "name": name,
        "x": x,
        "edges": np.stack([array(end) for end in graph.edges()]),
        "y": y,
        "masks": {k.removesuffix("_mask"): mask(v) for k, v in nodes.items() if k.endswith("_mask")},
        "weights": first(edges, "weight", "w"),
        "node_ids": np.arange(graph.num_nodes()) if x is None and y is None else None,
    }


def graph(source: Any) -> Any:
    """Return a graph as a DGL graph; see `Graph.to_dgl`."""
    try:
        import dgl
        import torch
    except ImportError as error:
        raise MissingDependencyError(
            "to_dgl needs DGL, which cannot be imported; no extra of edgemask installs it, because the package on PyPI "
            "needs an older torch: see https://www.dgl.ai/pages/start.html"
        ) from error

    x = source.x.toarray() if source.is_sparse else source.x
    result = dgl.graph((torch.tensor(source.edges[0]), torch.tensor(source.edges[1])), num_nodes=source.num_nodes)
    result.ndata["feat"] = torch.tensor(x)
    if source.y is not None:
        result.ndata["label"] = torch.tensor(source.y)
    for name, nodes in source.masks.items():
        result.ndata[f"{name}_mask"] = torch.tensor(nodes)
    if source.weights is not None:
        result.edata["weight"] = torch.tensor(source.weights)
    return result
