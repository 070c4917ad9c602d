"""Settings of a run: recipes and methods' hyper-parameters, each with its default and its legal values."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from edgemask.errors import InputError
from edgemask.legal import Legal, did_you_mean, is_number

Gate = Literal["message", "attention", "softmax"]
EdgeInput = Literal["origin", "structure", "predictions"]
Precision = Literal["tf32", "float32", "bf16"]
Bound = Literal["penalty", "dual", "budget"]
Loss = Literal["cross-entropy", "binary"]
Select = Literal["auto", "last", "source-val", "validation", "leave-one-source-out"]
Law = Literal["uniform", "log", "int", "choice"]
Value = float | int | str

GATES: tuple[Gate, ...] = get_args(Gate)
EDGE_INPUTS: tuple[EdgeInput, ...] = get_args(EdgeInput)


@dataclass(frozen=True)
class BackboneSpec:
    """A backbone by name.

    Args:
        path: Dotted path of its class. It is imported when a network is built.
        extra_hops: 1 if messages are weighted by the degrees of both ends, which reach one hop further; else 0.
        uses_edges: Whether the backbone uses the graph at all.
        rounds: Rounds of message passing, if their number is fixed. By default there is one per layer.
        batch_norm: Whether training normalises with statistics of all nodes, so that it needs whole graphs.
    """

    path: str
    extra_hops: int = 0
    uses_edges: bool = True
    rounds: int | None = None
    batch_norm: bool = False


GPR_HOPS = 10  # hops of the backbone `gpr`

# The table is data: recipes are checked and hops are counted without any network. It names the classes instead of
# importing them, so that `config` loads no torch; `nn.tasknet` imports a class when it builds a network.
BACKBONES: dict[str, BackboneSpec] = {
    "gat": BackboneSpec("edgemask.nn.gat.MaskedGAT"),
    "gcn": BackboneSpec("edgemask.nn.gcn.GCN", extra_hops=1),
    "gcn-sum": BackboneSpec("edgemask.nn.gcn_sum.GCNSum", batch_norm=True),
    "gin": BackboneSpec("edgemask.nn.gin.GIN"),
    "sgc": BackboneSpec("edgemask.nn.sgc.SGC", extra_hops=1),
    "egc": BackboneSpec("edgemask.nn.egc.EGC", extra_hops=1),
    "mix": BackboneSpec("edgemask.nn.mix.Mix", extra_hops=1),
    "sage": BackboneSpec("edgemask.nn.sage.SAGE", extra_hops=1),
    "gpr": BackboneSpec("edgemask.nn.gpr.GPR", extra_hops=1, rounds=GPR_HOPS),
    "mlp": BackboneSpec("edgemask.nn.mlp.MLP", uses_edges=False),
}

# Settings that were removed, with the value they had in every record. Old records and models still hold them.
RETIRED = {"mask_kind": "sigmoid", "activation": "elu", "knn_budget": None}


@dataclass(frozen=True)
class HyperParameter:
    """A hyper-parameter of a method: a number in [low, high], or one of `choices`.

    Args:
        default: Value used unless another is given.
        low: Smallest legal number.
        high: Largest legal number.
        law: How a search draws values: uniformly, uniformly in the logarithm (`log`), among integers (`int`), or
            among the choices (`choice`).
        search: Range a search draws from. The legal range by default.
        choices: Legal values of a hyper-parameter that is not a number.
        about: One line for `edgemask methods NAME`.
    """

    default: Value
    low: float = -math.inf
    high: float = math.inf
    law: Law = "uniform"
    search: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()
    about: str = ""

    @property
    def legal(self) -> Legal:
        """The values that may be given."""
        return Legal(self.low, self.high, whole=self.law == "int", choices=self.choices)

    @property
    def search_range(self) -> tuple[float, float]:
        """The range a search draws numbers from."""
        return self.search or (self.low, self.high)

    def clip(self, value: Value) -> Value:
        """Move a value into the range that a search draws from."""
        if self.law == "choice":
            return value
        low, high = self.search_range
        clipped = min(max(float(value), low), high)
        return int(clipped) if self.law == "int" else clipped

    def draw(self, trial: Any, name: str) -> Value:
        """Draw a value from an Optuna trial."""
        if self.law == "choice":
            return str(trial.suggest_categorical(name, list(self.choices)))
        low, high = self.search_range
        if self.law == "int":
            return int(trial.suggest_int(name, int(low), int(high)))
        return float(trial.suggest_float(name, low, high, log=self.law == "log"))


# Hyper-parameters that all methods share and a search may change.
COMMON: dict[str, HyperParameter] = {
    "lr": HyperParameter(1e-3, 0, law="log", search=(1e-4, 1e-2), about="learning rate"),
    "weight_decay": HyperParameter(5e-4, 0, law="log", search=(1e-5, 1e-2), about="weight decay"),
    "dropout": HyperParameter(0.5, 0, 0.999, search=(0.0, 0.8), about="dropout between layers"),
    "hidden": HyperParameter(64, 1, law="int", search=(32, 128), about="width"),
}


def resolve_hparams(declared: Mapping[str, HyperParameter], given: Mapping[str, Any]) -> dict[str, Value]:
    """Return the values of all declared hyper-parameters: the given ones, and defaults for the others.

    Args:
        declared: The hyper-parameters of a method by name.
        given: Values by name.

    Returns:
        The values by name, in the order of `declared`.

    Raises:
        InputError: A name is not declared, or a value is not legal.
    """
    for name in given:
        if name not in declared:
            known = ", ".join(declared) or "none"
            near = did_you_mean(name, declared)
            raise InputError(f"this method has no hyper-parameter {name!r} (it has: {known}){near}")
    return {name: h.legal.check(name, given.get(name, h.default)) for name, h in declared.items()}


def _number(default: float | None, low: float, high: float = math.inf, *, open_low: bool = False) -> Any:
    """Declare a numeric setting. It is an integer if the default is one, and optional if the default is None."""
    whole = type(default) is int
    legal = Legal(low, high, open_low=open_low, whole=whole, optional=default is None)
    return field(default=default, metadata={"legal": legal})


def _optional_integer(low: int) -> Any:
    """Declare an integer setting that can be None, which is the default."""
    return field(default=None, metadata={"legal": Legal(low, whole=True, optional=True)})


def _choice(default: Any, choices: tuple[Any, ...]) -> Any:
    """Declare a setting with a fixed set of values."""
    return field(default=default, metadata={"legal": Legal(choices=choices)})


@dataclass(frozen=True)
class Recipe:
    """All settings of training and inference.

    The fields are the settings, each with its default and a comment that says what it does. `docs/method.md` lists them
    in a table with their legal values (section "All settings"). `RECIPES` holds the stock recipes by name, `recipe`
    returns one with other settings, and `replace` returns a changed copy.

    Raises:
        InputError: A value is not legal, or two settings contradict each other.

    >>> Recipe(epochs=100).epochs
    100
    """

    # Enrichment (Section 4.1): edges that are added from the features. k = 0 or clusters = 0 omits that kind of edge.
    k: int = _number(10, 0)  # nearest neighbours per node
    clusters: int = _number(100, 0)  # spectral clusters; every pair of nodes in one cluster is a spectral pair
    affinity: Literal["cosine", "rbf"] = _choice("cosine", ("cosine", "rbf"))  # similarity for spectral clusters
    knn_exact_up_to: int = _number(200_000, 1000)  # nodes; larger graphs use an approximate index and report its recall
    knn_ratio: float = _number(0.1, 0, 1)  # share of the kNN pairs in a sample
    spectral_ratio: float = _number(0.1, 0, 1)  # share of the spectral pairs in a sample
    spectral_budget: float | None = _number(
        None, 0
    )  # maximal mean number of pairs per node; None: above 100 is an error

    # TaskNet (Section 4.3): the classifier
    backbone: str = _choice("gat", tuple(BACKBONES))  # kind of network
    layers: int = _number(2, 1, 1000)  # number of layers
    hidden: int = _number(64, 1)  # hidden width; in a GAT, the width per head
    heads: int = _number(8, 1)  # attention heads (GAT only)
    dropout: float = _number(0.5, 0, 0.999)  # dropout rate between layers
    attention_dropout: float = _number(0.6, 0, 0.999)  # dropout rate of the attention coefficients (GAT only)

    # MaskNet (Section 4.2): the adversary, which computes a mask s in [0, 1] for every edge
    mask: bool = True  # False: no adversary, plain risk minimisation on the same graphs
    gate: Gate = _choice("message", GATES)  # how the mask acts in a GAT; see `edgemask.nn.attention`
    mask_inputs: tuple[EdgeInput, ...] = ()  # inputs per edge in addition to the node features (not in the paper)
    mask_projection: int = _number(128, 1)  # width of the projected node features
    mask_hidden: int = _number(64, 1)  # hidden width of the MLP that computes an edge's mask

    # The game (Algorithm 1). `bound` limits the mask: `penalty` adds λ mean(s) to the MaskNet's objective, `dual` also
    # adapts λ so that mean(s) approaches ρ, and `budget` keeps mean(s) = ρ.
    epochs: int = _number(200, 1)  # number of epochs
    n_descent: int = _number(5, 1)  # TaskNet steps per source and epoch (per batch, if training uses batches)
    n_ascent: int = _number(1, 0)  # MaskNet steps after the TaskNet steps
    lr: float = _number(1e-3, 0, open_low=True)  # learning rate of the TaskNet
    mask_lr: float = _number(1e-3, 0, open_low=True)  # learning rate of the MaskNet
    weight_decay: float = _number(5e-4, 0)  # weight decay of the TaskNet
    loss: Loss = _choice("cross-entropy", get_args(Loss))  # `binary`: binary cross-entropy on all labels of a node
    clip: float = _number(0.0, 0)  # maximal gradient norm; 0: no clipping
    adversarial: bool = True  # False: the MaskNet gets no gradient of the loss, as in the released code
    bound: Bound = _choice("penalty", get_args(Bound))  # how the mask is limited
    lam: float = _number(1e-3, -math.inf)  # λ of `penalty`; the initial λ of `dual`
    rho: float = _number(0.5, 0, 1, open_low=True)  # ρ, the mean mask of `dual` and `budget`
    dual_lr: float = _number(0.1, 0, open_low=True)  # step size of λ with `dual`

    # Precision of matrix products
    precision: Precision = _choice("tf32", get_args(Precision))  # on a GPU; a CPU always uses float32

    # Graphs that do not fit into memory
    batch_size: int | None = _optional_integer(1)  # training nodes per source and step; None: the whole graph
    fan_out: int | tuple[int, ...] | None = None  # in-edges sampled per node, for all hops or per hop; None or -1: all
    shards: int = _number(1, 1)  # equal parts of a batch whose gradients are averaged; processes share them
    inference_batch: int | None = _optional_integer(1)  # nodes per block of prediction; None: the whole graph

    # Averaged weights: θ̄ ← (1 - average) θ̄ + average θ after each epoch
    average: float = _number(0.0, 0, 1)  # rate of the average; 0: no averaging
    average_from: float = _number(0.25, 0, 1)  # share of the epochs after which averaging starts

    # Inference
    test_graph: Literal["original", "enriched"] = _choice("original", ("original", "enriched"))  # edges to predict on
    test_mask: Literal["ones", "zeros", "masknet"] = _choice("ones", ("ones", "zeros", "masknet"))  # mask in prediction
    alpha: tuple[float, ...] = (0.0,)  # strengths α of logit propagation, or one; selection chooses among several
    steps: int = _number(20, 0, 10_000)  # steps of logit propagation

    # Selection of the epoch and of α
    select: Select = _choice("last", get_args(Select))  # selection rule; see `edgemask.training.selection`
    eval_every: int = _number(5, 1)  # epochs between two evaluations
    patience: int = _number(0, 0)  # stop after this many evaluations in a row without a better score; 0: never

    # Hyper-parameters of the method
    hyper: tuple[tuple[str, float | int | str], ...] = ()  # (name, value) pairs unlike the defaults, sorted by name

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if f.type == "bool" and not isinstance(value, bool):
                raise InputError(f"{f.name} must be True or False, got {value!r}")
            if "legal" in f.metadata:  # converts 0 to 0.0, so that equal recipes have equal records
                object.__setattr__(self, f.name, f.metadata["legal"].check(f.name, value))
        self._check_tuples()
        self._check_batches()
        self._check_combinations()

    def _check_tuples(self) -> None:
        if not (isinstance(self.mask_inputs, tuple) and all(name in EDGE_INPUTS for name in self.mask_inputs)):
            raise InputError(f"mask_inputs must be a tuple of {', '.join(EDGE_INPUTS)}, got {self.mask_inputs!r}")
        alpha: Any = (self.alpha,) if is_number(self.alpha) else self.alpha
        if not (isinstance(alpha, tuple) and alpha and all(is_number(a) and 0 <= a < 1 for a in alpha)):
            legal = "a number in [0, 1) or a tuple of at least one number in [0, 1)"
            raise InputError(f"alpha must be {legal}, got {self.alpha!r}")
        object.__setattr__(self, "alpha", tuple(float(a) for a in alpha))
        names = [pair[0] for pair in self.hyper if isinstance(pair, tuple) and len(pair) == 2]
        if not isinstance(self.hyper, tuple) or len(names) != len(self.hyper) or names != sorted(set(names)):
            raise InputError(f"hyper must be a tuple of (name, value) pairs sorted by name, got {self.hyper!r}")

    def _check_combinations(self) -> None:
        if not self.adversarial and self.bound == "budget":
            raise InputError("adversarial = False leaves the MaskNet nothing to learn under bound = 'budget'")
        if self.test_mask == "masknet" and not self.mask:
            raise InputError("test_mask = 'masknet' needs a MaskNet, got mask = False")
        if self.test_graph == "enriched" and not self.enriched:
            raise InputError("test_graph = 'enriched' needs enrichment, but k, clusters or their ratios are 0")
        if len(self.alpha) > 1 and self.select == "last":
            raise InputError(f"select = 'last' does not choose among strengths: give alpha one value, got {self.alpha}")

    def _check_batches(self) -> None:
        fans = self.fan_out if isinstance(self.fan_out, tuple) else (self.fan_out,)
        if self.fan_out is not None and not (fans and all(type(f) is int and (f >= 1 or f == -1) for f in fans)):
            legal = "None, an integer of at least 1 (-1 keeps all neighbours), or a tuple of such integers"
            raise InputError(f"fan_out must be {legal}, got {self.fan_out!r}")
        if isinstance(self.fan_out, tuple) and len(self.fan_out) != self.hops:
            degrees = " (the last one is needed for degrees)" if BACKBONES[self.backbone].extra_hops else ""
            raise InputError(
                f"fan_out needs one value per hop: {self.hops} for {self.backbone} with {self.layers} layers"
                f"{degrees}, got {self.fan_out!r}"
            )
        if self.shards > (self.batch_size or 1):
            raise InputError(
                f"shards = {self.shards} splits every batch, so batch_size must be at least {self.shards}, "
                f"got {self.batch_size}"
            )

    def replace(self, **changes: Any) -> Recipe:
        """Return a copy with some settings changed.

        Args:
            **changes: The new values by name of the setting.

        Returns:
            The changed recipe. This one stays as it is.

        Raises:
            InputError: A name is not a setting, or a value is not legal.
        """
        names = [f.name for f in dataclasses.fields(self)]
        for name in changes:
            if name not in names:
                raise InputError(f"no setting {name!r} (settings: {', '.join(names)}){did_you_mean(name, names)}")
        return dataclasses.replace(self, **changes)

    @property
    def enriched(self) -> bool:
        """Whether training adds edges that are derived from the features."""
        knn = self.k > 0 and self.knn_ratio > 0
        spectral = self.clusters > 0 and self.spectral_ratio > 0 and self.spectral_budget != 0
        return knn or spectral

    @property
    def hops(self) -> int:
        """Distance within which nodes influence a batch's logits.

        One hop per round of message passing, and one more where messages are weighted by the degrees of both ends.
        """
        spec = BACKBONES[self.backbone]
        return (spec.rounds or self.layers) + spec.extra_hops if spec.uses_edges else 0

    def changes(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults. They identify a recipe when settings are added later."""
        return {k: v for k, v in self.to_json().items() if v != _DEFAULTS[k]}

    def to_json(self) -> dict[str, Any]:
        """Return all settings as JSON values."""
        values = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(self).items()}
        return values | {"hyper": dict(self.hyper)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Recipe:
        """Return the recipe that `to_json` wrote.

        Args:
            values: Settings by name. Settings that are missing have their defaults.

        Returns:
            The recipe.

        Raises:
            InputError: A name is not a setting, a value is not legal, or a removed setting has another value than the
                one that is now fixed.
        """
        for name, fixed in RETIRED.items():
            if name in values and values[name] != fixed:
                raise InputError(f"{name} = {values[name]!r} is no longer supported: the setting was removed")
        plain = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items() if k not in RETIRED}
        return cls().replace(**plain | {"hyper": tuple(sorted(values.get("hyper", {}).items()))})


_DEFAULTS = Recipe().to_json()

RECIPES: dict[str, Recipe] = {
    # The settings of the paper: message gate, fixed λ, 5 descent steps and 1 ascent step, ratios 0.1.
    "paper": Recipe(),
    # The behaviour of the authors' released code: the mask is an input of the attention and is trained on the sparsity
    # term only, and targets are predicted on their original graph with s = 0.
    "released": Recipe(gate="attention", adversarial=False, clip=1.0, test_mask="zeros"),
    # The settings of this package, and the default.
    "robust": Recipe(
        backbone="gcn",
        gate="message",
        bound="budget",
        rho=0.9,
        n_descent=1,
        knn_ratio=1.0,
        spectral_ratio=0.1,
        average=0.05,
        average_from=0.0,  # selection can choose an early epoch, which must be averaged too
        alpha=(0.0, 0.5, 0.8, 0.9, 0.95),
        select="auto",
    ),
}


def recipe(name: str = "robust", **overrides: Any) -> Recipe:
    """Return a stock recipe, with any settings overridden.

    Args:
        name: `robust`, `paper` or `released`.
        **overrides: Settings of `Recipe` by name.

    Raises:
        InputError: The recipe or a setting is unknown, or a value is not legal.

    >>> recipe("robust", epochs=100).epochs
    100
    """
    if name not in RECIPES:
        raise InputError(f"no recipe {name!r} (recipes: {', '.join(RECIPES)}){did_you_mean(name, RECIPES)}")
    return RECIPES[name].replace(**overrides)


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Parse NAME=VALUE pairs. A value is JSON, a comma-separated list of JSON values, or else plain text.

    Args:
        settings: The texts, such as `epochs=3`.

    Returns:
        The values by name.

    Raises:
        InputError: A text is not a NAME=VALUE pair.

    >>> parse_settings(["epochs=3", "alpha=0,0.5", "gate=attention", "mask=false"])
    {'epochs': 3, 'alpha': (0, 0.5), 'gate': 'attention', 'mask': False}
    """
    values = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise InputError(f"expected NAME=VALUE, got {setting!r}")
        value = _value(text)
        if isinstance(value, str) and "," in value:
            value = [_value(part) for part in value.split(",") if part]
        if name in ("alpha", "mask_inputs") and not isinstance(value, list):
            value = [value]
        values[name] = tuple(value) if isinstance(value, list) else value
    return values


def _value(text: str) -> Any:
    words = {"true": True, "True": True, "false": False, "False": False, "none": None, "None": None}
    if text in words:
        return words[text]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
