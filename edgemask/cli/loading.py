"""Load a model and the graphs to predict."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgemask.data import read_graph
from edgemask.data.csv_folder import node_ids
from edgemask.estimator import EdgeMaskClassifier
from edgemask.graph import Array, Graph


def load(path: Path, device: str, inference_batch: int | None = None) -> EdgeMaskClassifier:
    """Return a trained model.

    Args:
        path: The model file.
        device: Where to predict.
        inference_batch: Predict in blocks of this many nodes. None: as when the model was trained.

    Raises:
        CheckpointError: The file is damaged, or is not a model.
        InputError: The device or `inference_batch` cannot be used.
    """
    return EdgeMaskClassifier.load(path, device=device, inference_batch=inference_batch)


def read_target(model: EdgeMaskClassifier, path: Path, options: Mapping[str, Any]) -> Graph:
    """Read a graph with the options that the model was trained with. The given options override them.

    Raises:
        GraphError: The file does not hold a valid graph.
        InputError: The format does not have an option.
    """
    remembered = model.get_params().get("read") or {}
    return read_graph(path, **{**remembered, **options})


def node_names(graph: Graph, path: Path) -> Array:
    """Return the ids of a graph's nodes, or their rows if they have none."""
    if graph.node_ids is not None:
        return np.asarray(graph.node_ids)
    return np.array(node_ids(path)) if path.is_dir() else np.arange(graph.num_nodes)
