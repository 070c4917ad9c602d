"""Load a model and the graphs to predict."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgemask.graph import Array, Graph
from edgemask.model import Model, load_model


def load(path: Path, device: str, inference_batch: int | None = None) -> Model:
    """Return a trained model.

    Args:
        path: The model file.
        device: Where to predict.
        inference_batch: Predict in blocks of this many nodes. None: as when the model was trained.

    Raises:
        CheckpointError: The file is damaged, or is not a model.
        InputError: The device or `inference_batch` cannot be used.
    """
    return load_model(path, device=device, inference_batch=inference_batch)


def node_names(graph: Graph) -> Array:
    """Return the ids of a graph's nodes, or their rows if they have none."""
    return np.arange(graph.num_nodes) if graph.node_ids is None else graph.node_ids
