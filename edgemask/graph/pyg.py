"""Graphs of PyTorch Geometric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from edgemask.errors import GraphError, GraphWarning, warn

if TYPE_CHECKING:
    from torch_geometric.data import Data

NAMES = ("classes", "feature_names", "text_columns")  # fields of `Graph` that a `Data` object may hold as they are
KNOWN = {"x", "edge_index", "y", "edge_weight", "node_ids", "num_nodes", "name", *NAMES}


def fields(data: Data, name: str | None = None) -> dict[str, Any]:
    """Return the arguments of `Graph` for a `Data` object; see `Graph.from_pyg`."""
    if hasattr(data, "to_homogeneous"):
        raise GraphError(
            f"graph {name or 'graph'!r}: expected a PyTorch Geometric Data object, got {type(data).__name__}; "
            "data.to_homogeneous() converts it if all types of nodes have the same features"
        )
    if not hasattr(data, "to_dict"):
        raise GraphError(f"expected a PyTorch Geometric Data object, got {type(data).__name__}")
    values = data.to_dict()
    name = name or values.get("name") or "graph"
    if values.get("edge_index") is None:
        raise GraphError(
            f"graph {name!r}, edge_index: the field is missing in the PyTorch Geometric data (fields: "
            f"{', '.join(values) or 'none'})"
            + ("; ToSparseTensor(remove_edge_index=False) keeps it beside adj_t" if "adj_t" in values else "")
        )
    masks = sorted(key for key in values if key.endswith("_mask"))
    for key in masks:
        if np.ndim(values[key]) == 2:  # without it, labels outside the split would be used
            raise GraphError(
                f"graph {name!r}, {key}: expected one value per node, got several splits of shape "
                f"{tuple(values[key].shape)}; data.{key} = data.{key}[:, 0] chooses the first one"
            )
    if ignored := sorted(values.keys() - KNOWN - {*masks}):
        weights = "edge_attr" in ignored and values.get("edge_weight") is None
        hint = "; if edge_attr holds weights, store them as data.edge_weight" if weights else ""
        message = f"graph {name!r}: a Graph cannot store {', '.join(ignored)}; the data is ignored{hint}"
        warn(message, GraphWarning)
    y, names = array(values.get("y")), {field: tuple(values.get(field, ())) for field in NAMES}
    if np.ndim(y) == 2 and y.shape[1] == 1 and len(names["classes"]) != 1:  # a column of labels, not a 0/1 matrix
        y = y[:, 0]
    x, ids = array(values.get("x")), array(values.get("node_ids"))
    if x is None and y is None and ids is None and values.get("num_nodes") is not None:
        ids = np.arange(int(values["num_nodes"]))  # isolated nodes at the end count as well
    return {
        "name": str(name),
        "x": x,
        "edges": array(values["edge_index"]),
        "y": y,
        "masks": {m.removesuffix("_mask"): mask(array(values[m])) for m in masks},
        "weights": array(values.get("edge_weight")),
        "node_ids": ids,
        **names,
    }


def mask(values: Any) -> Any:
    """Return a mask of 0 and 1 as booleans, and other values as they are: `Graph` checks them."""
    values = np.asarray(values)
    return values.astype(bool) if values.dtype.kind in "iu" and np.isin(values, (0, 1)).all() else values


def data(graph: Any) -> Data:
    """Return a graph as a `Data` object; see `Graph.to_pyg`."""
    import torch
    from torch_geometric.data import Data  # this import takes as long as torch's, and only this function needs it

    if graph.is_sparse:
        indptr, indices, values = map(torch.tensor, (graph.x.indptr, graph.x.indices, graph.x.data))
        x = torch.sparse_csr_tensor(indptr, indices, values, graph.x.shape, check_invariants=True)
    else:
        x = torch.tensor(graph.x)
    result = Data(x=x, edge_index=torch.tensor(graph.edges), classes=graph.classes)
    if graph.y is not None:
        result.y = torch.tensor(graph.y)
    if graph.weights is not None:
        result.edge_weight = torch.tensor(graph.weights)
    for field in ("feature_names", "text_columns"):
        if getattr(graph, field):
            result[field] = getattr(graph, field)
    if graph.node_ids is not None:
        result.node_ids = graph.node_ids.tolist()
    for name, mask in graph.masks.items():
        result[f"{name}_mask"] = torch.tensor(mask)
    return result


def array(value: Any) -> Any:
    """Convert a dense or sparse tensor to a NumPy array or SciPy matrix, and return any other value as it is."""
    if not hasattr(value, "layout"):  # not a tensor
        return value
    import torch

    if value.is_meta:
        raise GraphError("a tensor on the device meta holds no values")
    if value.is_quantized:
        raise GraphError("a tensor is quantized; tensor.dequantize() converts it")
    value = value.detach().cpu()
    if value.layout == torch.strided:
        return value.float().numpy() if value.dtype == torch.bfloat16 else value.numpy()
    value = value.to_sparse_coo().coalesce()
    return sp.coo_array((value.values().numpy(), tuple(value.indices().numpy())), shape=tuple(value.shape))
