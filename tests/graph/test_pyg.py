"""Tests of conversions from and to PyTorch Geometric."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from edgemask.errors import GraphError, GraphWarning
from edgemask.graph import Graph


def small(**changes: Any) -> Graph:
    fields: dict[str, Any] = {"name": "small", "x": np.eye(3), "edges": [[0, 1], [1, 2]], "y": [0, 1, -1], **changes}
    return Graph(**fields)


def pyg(**fields: Any) -> Data:
    return Data(**{"x": torch.eye(3), "edge_index": torch.tensor([[0, 1], [1, 2]]), **fields})


def test_pyg_layout() -> None:
    data = small(x=sp.eye_array(3), classes=("a", "b"), masks={"train": np.array([True, False, True])}).to_pyg()
    assert data.x.layout == torch.sparse_csr
    assert data.num_nodes == 3
    assert data.y.tolist() == [0, 1, -1]
    assert data.train_mask.tolist() == [True, False, True]
    assert data.classes == ("a", "b")


def test_pyg_copies() -> None:
    graph = small()
    data = graph.to_pyg()
    data.x[0, 0] = 7
    assert graph.x[0, 0] == 1


def test_pyg_accepts_a_column_of_labels_and_any_sparse_layout() -> None:
    data = pyg(x=torch.eye(3).to_sparse(), y=torch.tensor([[0], [2], [1]]))
    assert Graph.from_pyg(data, "g") == Graph("g", sp.eye_array(3), [[0, 1], [1, 2]], [0, 2, 1])


def test_pyg_distinguishes_a_matrix_of_one_class_from_a_column_of_labels() -> None:
    graph = small(y=[[1], [0], [-1]], classes=("a",))
    back = Graph.from_pyg(graph.to_pyg(), "small")
    assert back == graph
    assert back.y.shape == (3, 1)


def test_pyg_missing_field() -> None:
    with pytest.raises(GraphError, match="'g', edge_index: the field is missing in the PyTorch Geometric data"):
        Graph.from_pyg(pyg(edge_index=None), "g")
    with pytest.raises(GraphError, match="'g', x: the graph has no features; features='degree' derives them"):
        Graph.from_pyg(pyg(x=None), "g")


@pytest.mark.parametrize("field", ["edge_attr", "pos"])
def test_pyg_warns_about_ignored_fields(field: str) -> None:
    with pytest.warns(GraphWarning, match=f"'g': a Graph cannot store {field}"):
        Graph.from_pyg(pyg(**{field: torch.ones(2, 1)}), "g")


def test_pyg_rejects_an_invalid_mask() -> None:
    with pytest.raises(GraphError, match=r"'g', masks\['train'\]: must be 3 booleans"):
        Graph.from_pyg(pyg(train_mask=torch.tensor([0, 1])), "g")


def test_masks_of_several_splits_are_an_error_because_labels_outside_a_split_would_be_used():
    data = Data(x=torch.ones(4, 2), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0, 1, 0, 1]))
    data.train_mask, data.val_mask = torch.ones(4, 10, dtype=torch.bool), torch.ones(4, dtype=torch.bool)
    with pytest.raises(GraphError, match=r"'g', train_mask: .* several splits of shape \(4, 10\); data.train_mask = "):
        Graph.from_pyg(data, "g")
    data.train_mask = data.train_mask[:, 0]
    graph = Graph.from_pyg(data, "g", classes=("a", "b", "c"))
    assert list(graph.masks) == ["train", "val"]
    assert graph.classes == ("a", "b", "c")


def test_edge_attr_is_ignored_with_advice():
    data = Data(x=torch.ones(4, 2), edge_index=torch.tensor([[0], [1]]), edge_attr=torch.ones(1, 1))
    with pytest.warns(
        GraphWarning, match="cannot store edge_attr; .*if edge_attr holds weights, store them as data.edge_we"
    ):
        Graph.from_pyg(data)
