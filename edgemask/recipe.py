"""Recipes: every setting of a run in one visible declaration, each with its legal range."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from edgemask.nn.attention import GATES, Gate
from edgemask.nn.masknet import EDGE_INPUTS, MASK_KINDS, EdgeInput, MaskKind
from edgemask.nn.precision import Precision

Bound = Literal["penalty", "dual", "budget"]
Backbone = Literal["gat", "gcn", "gin", "sgc", "egc", "mlp"]
Select = Literal["auto", "last", "source-val", "validation", "leave-one-source-out"]


def _number(default: float, low: float, high: float = math.inf, *, open_low: bool = False) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "open_low": open_low})


def _choice(default: Any, choices: tuple[Any, ...]) -> Any:
    return field(default=default, metadata={"choices": choices})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class Recipe:
    """All settings of training and inference. `RECIPES` names the stock ones; `with_` overrides fields."""

    # enrichment (Section 4.1); k = 0 or clusters = 0 leaves that kind of edge out
    k: int = _number(10, 0)
    clusters: int = _number(100, 0)
    affinity: Literal["cosine", "rbf"] = _choice("cosine", ("cosine", "rbf"))
    knn_exact_up_to: int = _number(200_000, 1000)  # nodes; above, an approximate index, its recall said
    knn_ratio: float = _number(0.1, 0, 1)
    spectral_ratio: float = _number(0.1, 0, 1)
    knn_budget: float | None = _number(None, 0)  # type: ignore[arg-type]  # at most so many pairs per node
    spectral_budget: float | None = _number(None, 0)  # type: ignore[arg-type]

    # TaskNet (Section 4.3)
    backbone: Backbone = _choice("gat", get_args(Backbone))
    layers: int = _number(2, 1)
    hidden: int = _number(64, 1)  # per head in a GAT
    heads: int = _number(8, 1)
    activation: Literal["elu", "relu"] = _choice("elu", ("elu", "relu"))
    dropout: float = _number(0.5, 0, 0.999)
    attention_dropout: float = _number(0.6, 0, 0.999)

    # MaskNet (Section 4.2)
    mask: bool = True  # False: no adversary, plain risk minimisation on the same graphs
    gate: Gate = _choice("message", GATES)
    mask_kind: MaskKind = _choice("sigmoid", MASK_KINDS)
    mask_inputs: tuple[EdgeInput, ...] = field(default=(), metadata={"subset": EDGE_INPUTS})
    mask_projection: int = _number(128, 1)
    mask_hidden: int = _number(64, 1)

    # the game (Algorithm 1)
    epochs: int = _number(200, 1)
    n_descent: int = _number(5, 1)
    n_ascent: int = _number(1, 0)
    lr: float = _number(1e-3, 0, open_low=True)
    mask_lr: float = _number(1e-3, 0, open_low=True)
    weight_decay: float = _number(5e-4, 0)  # of the TaskNet
    clip: float = _number(0.0, 0)  # gradient norm; 0 is off
    adversarial: bool = True  # False: the loss is a constant to the MaskNet, as in the released code
    bound: Bound = _choice("penalty", get_args(Bound))
    lam: float = _number(1e-3, -math.inf)  # λ; the first value of the dual variable when bound = dual
    rho: float = _number(0.5, 0, 1, open_low=True)  # ρ, the mean mask of `dual` and `budget`
    dual_lr: float = _number(0.1, 0, open_low=True)

    # how exactly a GPU multiplies; on a CPU always float32
    precision: Precision = _choice("tf32", get_args(Precision))

    # graphs that do not fit: batches of nodes (None: the whole graph) and of their sampled neighbourhoods
    batch_size: int | None = _number(None, 1)  # type: ignore[arg-type]  # training nodes per source and step
    fan_out: int | tuple[int, ...] | None = None  # in-edges kept per node, for all hops or each; None or -1: all
    shards: int = _number(1, 1)  # equal parts of a batch whose gradients are averaged; processes share them out
    inference_batch: int | None = _number(None, 1)  # type: ignore[arg-type]  # nodes per block of layer-wise inference

    # averaged weights: θ̄ ← (1 - rate) θ̄ + rate θ after each epoch, from `average_from` · epochs on; 0 is off
    average: float = _number(0.0, 0, 1)
    average_from: float = _number(0.25, 0, 1)

    # inference
    test_graph: Literal["original", "enriched"] = _choice("original", ("original", "enriched"))
    test_mask: Literal["ones", "zeros", "masknet"] = _choice("ones", ("ones", "zeros", "masknet"))
    alpha: tuple[float, ...] = (0.0,)  # strength of logit propagation; several are candidates of the selection
    steps: int = _number(20, 0)

    # selection
    select: Select = _choice("last", get_args(Select))
    eval_every: int = _number(5, 1)
    patience: int = _number(0, 0)  # stop after so many evaluations in a row without a better score; 0 is off

    # a method's own hyper-parameters that differ from its defaults, (name, value) in the order of names
    hyper: tuple[tuple[str, float | int | str], ...] = ()

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value, rule = getattr(self, f.name), f.metadata
            if f.type == "bool" and not isinstance(value, bool):
                raise ValueError(f"{f.name} must be True or False, got {value!r}")
            if "choices" in rule and value not in rule["choices"]:
                raise ValueError(f"{f.name} must be one of {', '.join(rule['choices'])}, got {value!r}")
            if "subset" in rule and not (isinstance(value, tuple) and all(v in rule["subset"] for v in value)):
                raise ValueError(f"{f.name} must be a tuple of {', '.join(rule['subset'])}, got {value!r}")
            if "low" in rule and not (value is None and "None" in str(f.type)):
                self._check_number(f.name, value, rule, whole=str(f.type).startswith("int"))
        if not (isinstance(self.alpha, tuple) and self.alpha and all(_is_number(a) and 0 <= a < 1 for a in self.alpha)):
            raise ValueError(f"alpha must be a tuple of strengths in [0, 1), at least one, got {self.alpha!r}")
        self._check_batches()
        names = [pair[0] for pair in self.hyper if isinstance(pair, tuple) and len(pair) == 2]
        if not isinstance(self.hyper, tuple) or len(names) != len(self.hyper) or names != sorted(set(names)):
            raise ValueError(f"hyper must be a tuple of (name, value) pairs in the order of names, got {self.hyper!r}")
        for f in dataclasses.fields(self):  # 0 and 0.0 are one setting, and must have one name in a record
            if f.type in ("float", "float | None") and getattr(self, f.name) is not None:
                object.__setattr__(self, f.name, float(getattr(self, f.name)))
        object.__setattr__(self, "alpha", tuple(float(a) for a in self.alpha))
        if not self.adversarial and self.bound == "budget":
            raise ValueError("adversarial = False leaves the MaskNet nothing to learn under bound = 'budget'")
        if self.test_mask == "masknet" and not self.mask:
            raise ValueError("test_mask = 'masknet' needs a MaskNet, got mask = False")
        if self.test_graph == "enriched" and not self.enriched:
            raise ValueError("test_graph = 'enriched' needs enrichment, but k, clusters or their ratios leave none")
        if len(self.alpha) > 1 and self.select == "last":
            raise ValueError(f"select = 'last' chooses nothing, so alpha must be one value, got {self.alpha}")

    def _check_batches(self) -> None:
        fans = self.fan_out if isinstance(self.fan_out, tuple) else (self.fan_out,)
        if self.fan_out is not None and not (fans and all(type(f) is int and (f >= 1 or f == -1) for f in fans)):
            legal = "None, an integer of at least 1 (-1 for all neighbours), or a tuple of such integers"
            raise ValueError(f"fan_out must be {legal}, got {self.fan_out!r}")
        if isinstance(self.fan_out, tuple) and len(self.fan_out) != self.hops:
            degrees = ", the last for degrees alone" if self.hops > self.layers else ""
            raise ValueError(
                f"fan_out needs one value for each hop, {self.hops} for {self.backbone} of {self.layers} layers"
                f"{degrees}, got {self.fan_out!r}"
            )
        if self.shards > (self.batch_size or 1):
            raise ValueError(
                f"shards = {self.shards} cuts every batch into as many parts, so batch_size must be at least that, "
                f"got {self.batch_size}"
            )

    @staticmethod
    def _check_number(name: str, value: Any, rule: Mapping[str, Any], *, whole: bool) -> None:
        low, high, open_low = rule["low"], rule["high"], rule["open_low"]
        left, right = "(" if open_low or low == -math.inf else "[", ")" if high == math.inf else "]"
        legal = f"{'an integer' if whole else 'a number'} in {left}{low:g}, {high:g}{right}"
        fits = _is_number(value) and low <= value <= high and not (open_low and value == low)
        if not fits or (whole and not isinstance(value, int)):
            raise ValueError(f"{name} must be {legal}, got {value!r}")

    def with_(self, **changes: Any) -> Recipe:
        """A copy with some fields replaced; an unknown name is an error that lists the known ones."""
        names = [f.name for f in dataclasses.fields(self)]
        for name in changes:
            if name not in names:
                raise ValueError(f"no setting {name!r} (settings: {', '.join(names)})")
        return dataclasses.replace(self, **changes)

    @property
    def enriched(self) -> bool:
        """Whether training adds feature-derived edges."""
        knn = self.k > 0 and self.knn_ratio > 0 and self.knn_budget != 0
        spectral = self.clusters > 0 and self.spectral_ratio > 0 and self.spectral_budget != 0
        return knn or spectral

    @property
    def hops(self) -> int:
        """How far from a batch its logits reach: a hop per layer, and one more where messages are weighed by the
        degrees of both ends."""
        return 0 if self.backbone == "mlp" else self.layers + (self.backbone not in ("gat", "gin"))

    def changes(self) -> dict[str, Any]:
        """The settings that differ from the defaults: what names a recipe, however many settings there come to be."""
        return {k: v for k, v in self.to_json().items() if v != _DEFAULTS[k]}

    def to_json(self) -> dict[str, Any]:
        values = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(self).items()}
        return values | {"hyper": dict(self.hyper)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Recipe:
        plain = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls().with_(**plain | {"hyper": tuple(sorted(values.get("hyper", {}).items()))})


_DEFAULTS = Recipe().to_json()

RECIPES: dict[str, Recipe] = {
    # the letter of the paper: message gate, fixed λ, 5 descent and 1 ascent steps, ratios 0.1
    "paper": Recipe(),
    # how the authors' released code behaves: the mask is an attention input and follows the sparsity term alone,
    # and the target is read on its original graph at s = 0
    "released": Recipe(gate="attention", adversarial=False, clip=1.0, test_mask="zeros"),
    # ours, and the default
    "robust": Recipe(
        backbone="gcn",
        gate="message",
        bound="budget",
        rho=0.9,
        n_descent=1,
        knn_ratio=1.0,
        spectral_ratio=0.1,
        average=0.05,
        average_from=0.0,  # an early epoch that selection may choose is averaged too
        alpha=(0.0, 0.5, 0.8, 0.9, 0.95),
        select="auto",
    ),
}


def recipe(name: str = "robust", **overrides: Any) -> Recipe:
    """A stock recipe by name, with any field overridden."""
    if name not in RECIPES:
        raise ValueError(f"no recipe {name!r} (recipes: {', '.join(RECIPES)})")
    return RECIPES[name].with_(**overrides)
