"""The registry of methods: for each name, a class and the recipe it runs with by default."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from edgemask.config import Recipe, recipe, resolve_hparams
from edgemask.errors import InputError
from edgemask.legal import did_you_mean
from edgemask.methods import (
    ada,
    arm,
    canet,
    coral,
    dann,
    eerm,
    flood,
    graph_aug,
    grm,
    group_dro,
    irm,
    is_gib,
    lisa,
    mario,
    mat,
    mixup,
    mmd,
    random_mask,
    traci,
    vrex,
)
from edgemask.methods.base import Method
from edgemask.methods.edgemask import Game
from edgemask.methods.erm import ERM

__all__ = ["METHODS", "Method", "MethodSpec", "cost_class", "method_spec"]


@dataclass(frozen=True)
class MethodSpec:
    """A method by name.

    Args:
        make: Class of the method.
        recipe: Recipe it runs with by default.
        summary: One line that says what the method does.
        citation: The paper that introduced it.
        defining: Settings that define the method. They stay the same under any other stock recipe.
        status: "full", or "partial: " and what differs from the paper.
    """

    make: type[Method]
    recipe: Recipe
    summary: str
    citation: str
    defining: tuple[str, ...] = ()
    status: str = "full"

    def under(self, name: str | None, /, **settings: Any) -> Recipe:
        """Return the recipe to run this method with.

        Args:
            name: A stock recipe, whose defining settings are replaced by the method's; None takes the method's recipe.
            **settings: Settings to override, including the method's own hyper-parameters.

        Raises:
            InputError: The recipe or a setting is unknown, or a value is not legal.

        >>> method_spec("irm").under("robust", anneal=10, epochs=50).hyper
        (('anneal', 10),)
        """
        if "hyper" in settings:
            raise InputError("no setting 'hyper': hyper-parameters of a method are settings of their own")
        own = {k: v for k, v in settings.items() if k in self.make.hyper}
        shared = {k: v for k, v in settings.items() if k not in own}
        base = self.recipe
        if name is not None:
            defining_values = {field: getattr(self.recipe, field) for field in self.defining}
            base = recipe(name).replace(**defining_values, hyper=self.recipe.hyper)
        values = resolve_hparams(self.make.hyper, dict(base.hyper) | own)
        changed = {k: v for k, v in values.items() if v != self.make.hyper[k].default}
        return base.replace(**shared, hyper=tuple(sorted(changed.items())))


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


def _erm(backbone: str, summary: str) -> dict[str, MethodSpec]:
    return {
        f"erm-{backbone}": MethodSpec(ERM, _PLAIN.replace(backbone=backbone), summary, _VAPNIK, _ERM),
        f"erm-{backbone}-enriched": MethodSpec(
            ERM,
            _ENRICHED.replace(backbone=backbone),
            f"{summary}; enriched graph, averaged weights and propagated logits",
            _VAPNIK,
            ("backbone", "mask"),
        ),
    }


def _baseline(module: ModuleType, make: type[Method], backbone: str = "gcn") -> MethodSpec:
    """Register a baseline of the paper's tables, on the original graph with the recipe of ERM.

    Averaging, propagation and the enriched graph are settings of a run, which apply to all baselines or to none.
    """
    recipe = _PLAIN.replace(backbone=backbone)
    return MethodSpec(make, recipe, module.SUMMARY, module.CITATION, ("mask", "k", "clusters"), module.STATUS)


METHODS: dict[str, MethodSpec] = {
    "erm-mlp": MethodSpec(
        ERM, _PLAIN.replace(backbone="mlp"), "empirical risk minimisation, MLP on the features only", _VAPNIK, _ERM
    ),
    **_erm("gcn", "empirical risk minimisation, GCN"),
    **_erm("gat", "empirical risk minimisation, GAT"),
    **_erm("gin", "empirical risk minimisation, GIN"),
    **_erm("sgc", "empirical risk minimisation, SGC"),
    **_erm("egc", "empirical risk minimisation, EGC"),
    **_erm("mix", "empirical risk minimisation, channels for a node, its neighbours and the difference"),
    **_erm("sage", "empirical risk minimisation, GraphSAGE"),
    **_erm("gpr", "empirical risk minimisation, GPR-GNN"),
    "group-dro": _baseline(group_dro, group_dro.GroupDRO),
    "mmd": _baseline(mmd, mmd.MMD),
    "coral": _baseline(coral, coral.CORAL),
    "irm": _baseline(irm, irm.IRM),
    "vrex": _baseline(vrex, vrex.VREx),
    "dann": _baseline(dann, dann.DANN),
    "mixup": _baseline(mixup, mixup.Mixup),
    "arm": _baseline(arm, arm.ARM),
    "ada": _baseline(ada, ada.ADA),
    "mat": _baseline(mat, mat.MAT),
    "eerm": _baseline(eerm, eerm.EERM),
    "lisa": _baseline(lisa, lisa.LiSA),
    "flood": _baseline(flood, flood.FLOOD),
    "is-gib": _baseline(is_gib, is_gib.ISGIB),
    "mario": _baseline(mario, mario.MARIO),
    "grm": _baseline(grm, grm.GRM),
    "traci": _baseline(traci, traci.TRACI),
    "graph-aug-gcn": _baseline(graph_aug, graph_aug.GraphAug),
    "graph-aug-gin": _baseline(graph_aug, graph_aug.GraphAug, "gin"),
    "canet": _baseline(canet, canet.CaNet),
    "random-mask": MethodSpec(
        random_mask.RandomMask,
        _STAR.replace(mask=False, k=0, clusters=0),
        random_mask.SUMMARY,
        random_mask.CITATION,
        ("mask", "k", "clusters"),
        random_mask.STATUS,
    ),
    "edgemask-dg": MethodSpec(
        Game, _STAR.replace(k=0, clusters=0), "adversarial edge masks on the original graph", _PAPER, ("k", "clusters")
    ),
    "edgemask-dg-star-knn": MethodSpec(
        Game, _STAR.replace(clusters=0), "adversarial edge masks on original and kNN edges", _PAPER, ("clusters",)
    ),
    "edgemask-dg-star": MethodSpec(Game, _STAR, "adversarial edge masks on original, kNN and spectral edges", _PAPER),
}


# Median training time of the default runs under results/citation (3 transfers, 5 seeds, an H200 shared by many runs),
# relative to erm-gcn (0.4 s): 1–3, 4–8 or 10–50 times. tests/paper/test_baselines.py compares them with the records.
# The slowest methods train several times for 400 epochs (enriched), draw new edges without a captured step (EERM) or
# cluster in every run (GraphAug).
_MEDIUM = {"erm-gat", "mmd", "ada", "grm", "traci", "edgemask-dg"}
_HIGH = {"eerm", "lisa", "flood", "mario", "graph-aug-gcn", "graph-aug-gin", "edgemask-dg-star-knn", "edgemask-dg-star"}


def cost_class(name: str) -> str:
    """Return the training time of a method, as a range of multiples of that of `erm-gcn`."""
    if name in _HIGH or name.endswith("-enriched"):
        return "10–50×"
    return "4–8×" if name in _MEDIUM else "1–3×"


def method_spec(name: str) -> MethodSpec:
    """Return a method by name.

    Raises:
        InputError: The name is unknown. The message lists the known ones, with the nearest at the end.

    >>> method_spec("vrex").status
    'full'
    """
    if name not in METHODS:
        raise InputError(f"no method {name!r} (methods: {', '.join(METHODS)}){did_you_mean(name, METHODS)}")
    return METHODS[name]
