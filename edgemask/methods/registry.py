"""All methods behind one interface and one registry: a class, and the recipe it runs with by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgemask.game import Game
from edgemask.methods.base import Method
from edgemask.methods.erm import ERM
from edgemask.recipe import Backbone, Recipe, recipe

__all__ = ["METHODS", "Entry", "Method", "entry"]


@dataclass(frozen=True)
class Entry:
    """A method by name: what it is, who wrote of it, and what it runs with unless told otherwise."""

    make: type[Method]
    recipe: Recipe
    summary: str
    citation: str
    defining: tuple[str, ...] = ()  # the settings that make the method what it is, whatever recipe it runs with

    def under(self, name: str | None, **settings: Any) -> Recipe:
        """The method's recipe, or a stock one by name with what defines the method put back; then `settings`."""
        if name is None:
            return self.recipe.with_(**settings)
        kept = {field: getattr(self.recipe, field) for field in self.defining}
        return recipe(name).with_(**kept).with_(**settings)


_ERM = ("backbone", "mask", "k", "clusters")
_VAPNIK = "Vapnik, NeurIPS 1991"
_PAPER = "Bhattacharya and Manwani, EdgeMask-DG*, 2025"
_STAR = recipe("robust")
_PLAIN = Recipe(mask=False, k=0, clusters=0)
_ENRICHED = Recipe(
    mask=False,
    epochs=400,
    **{f: getattr(_STAR, f) for f in ("knn_ratio", "spectral_ratio", "average", "average_from", "alpha", "select")},
)


def _erm(backbone: Backbone, summary: str) -> dict[str, Entry]:
    return {
        f"erm-{backbone}": Entry(ERM, _PLAIN.with_(backbone=backbone), summary, _VAPNIK, _ERM),
        f"erm-{backbone}-enriched": Entry(
            ERM,
            _ENRICHED.with_(backbone=backbone),
            f"{summary}; trained on the enriched graph, averaged weights, propagated logits",
            _VAPNIK,
            ("backbone", "mask"),
        ),
    }


METHODS: dict[str, Entry] = {
    "erm-mlp": Entry(ERM, _PLAIN.with_(backbone="mlp"), "risk minimisation, features alone", _VAPNIK, _ERM),
    **_erm("gcn", "risk minimisation, GCN"),
    **_erm("gat", "risk minimisation, GAT"),
    **_erm("gin", "risk minimisation, GIN"),
    **_erm("sgc", "risk minimisation, SGC"),
    "edgemask-dg": Entry(
        Game, _STAR.with_(k=0, clusters=0), "the game on the original graph", _PAPER, ("k", "clusters")
    ),
    "edgemask-dg-star-knn": Entry(
        Game, _STAR.with_(clusters=0), "the game on original and kNN edges", _PAPER, ("clusters",)
    ),
    "edgemask-dg-star": Entry(Game, _STAR, "the game on original, kNN and spectral edges", _PAPER),
}


def entry(name: str) -> Entry:
    """A method by name; an unknown name is an error that lists the known ones."""
    if name not in METHODS:
        raise ValueError(f"no method {name!r} (methods: {', '.join(METHODS)})")
    return METHODS[name]
