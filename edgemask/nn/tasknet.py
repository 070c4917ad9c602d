"""The TaskNet f_θ of a recipe: the paper's masked GAT, or another backbone with the same mask."""

from __future__ import annotations

from importlib import import_module

from edgemask.config import BACKBONES, Recipe
from edgemask.nn.backbone import Backbone

GAT_SETTINGS = ("heads", "attention_dropout", "gate")


def tasknet(recipe: Recipe, inputs: int, classes: int) -> Backbone:
    """Build the TaskNet that a recipe describes, for the given numbers of input features and classes.

    Args:
        recipe: The settings: backbone, layers, widths and dropout.
        inputs: Number of input features.
        classes: Number of classes.

    Returns:
        The network, with random weights.
    """
    module, _, name = BACKBONES[recipe.backbone].path.rpartition(".")
    extra = {name: getattr(recipe, name) for name in GAT_SETTINGS} if recipe.backbone == "gat" else {}
    network: Backbone = getattr(import_module(module), name)(
        inputs, recipe.hidden, classes, recipe.layers, recipe.dropout, **extra
    )
    return network
