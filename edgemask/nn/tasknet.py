"""The TaskNet f_θ of a recipe: the masked GAT of the paper, or any other backbone under the same mask."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from edgemask.nn.backbones import GCN, GIN, MLP, SGC
from edgemask.nn.egc import EGC
from edgemask.nn.masked_gat import MaskedGAT
from edgemask.recipe import Recipe

PLAIN: dict[str, Callable[..., nn.Module]] = {"mlp": MLP, "gcn": GCN, "gin": GIN, "sgc": SGC, "egc": EGC}


def tasknet(recipe: Recipe, inputs: int, classes: int) -> nn.Module:
    """The TaskNet of a recipe."""
    shape = (inputs, recipe.hidden, classes, recipe.layers, recipe.dropout)
    if recipe.backbone != "gat":
        return PLAIN[recipe.backbone](*shape)
    return MaskedGAT(
        *shape,
        heads=recipe.heads,
        attention_dropout=recipe.attention_dropout,
        gate=recipe.gate,
        activation=recipe.activation,
    )
