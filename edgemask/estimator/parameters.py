"""The parameters of `EdgeMaskClassifier`, as scikit-learn wants them: explicit, stored unchanged, checked by `fit`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

from sklearn.base import BaseEstimator

from edgemask.config import Recipe
from edgemask.errors import InputError, InputTypeError
from edgemask.graph.frames import OPTIONS
from edgemask.legal import did_you_mean, parse_duration
from edgemask.methods.registry import METHODS
from edgemask.metrics import parse
from edgemask.training.race import MAX_MEMBERS

AUTO = "auto"
PARAMETERS = ("method", "recipe", "candidates", "budget", "max_members", "jobs", "seed", "device", "metric")
OWN = (*PARAMETERS, "read", "scale", "verbose")
SETTINGS = tuple(f.name for f in dataclasses.fields(Recipe) if f.name != "hyper")
SYNONYMS = {"random_state": "seed", "learning_rate": "lr", "max_iter": "epochs", "n_jobs": "jobs"}  # of other libraries
HYPER = frozenset(name for spec in METHODS.values() for name in spec.make.hyper) - {*OWN}


class Parameters(BaseEstimator):  # type: ignore[misc]
    """The parameters of the estimator. `EdgeMaskClassifier` documents them."""

    def __init__(
        self,
        method: str = AUTO,
        *,
        recipe: str | None = None,
        candidates: Sequence[str] | None = None,
        budget: float | str | None = None,
        max_members: int = MAX_MEMBERS,
        jobs: int = 1,
        seed: int = 0,
        device: str = "auto",
        metric: str = "micro_f1",
        read: Mapping[str, Any] | None = None,
        scale: bool = True,
        verbose: int = 0,
        k: int | None = None,
        clusters: int | None = None,
        affinity: str | None = None,
        knn_exact_up_to: int | None = None,
        knn_ratio: float | None = None,
        spectral_ratio: float | None = None,
        spectral_budget: float | None = None,
        backbone: str | None = None,
        layers: int | None = None,
        hidden: int | None = None,
        heads: int | None = None,
        dropout: float | None = None,
        attention_dropout: float | None = None,
        mask: bool | None = None,
        gate: str | None = None,
        mask_inputs: tuple[str, ...] | None = None,
        mask_projection: int | None = None,
        mask_hidden: int | None = None,
        epochs: int | None = None,
        n_descent: int | None = None,
        n_ascent: int | None = None,
        lr: float | None = None,
        mask_lr: float | None = None,
        weight_decay: float | None = None,
        loss: str | None = None,
        clip: float | None = None,
        adversarial: bool | None = None,
        bound: str | None = None,
        lam: float | None = None,
        rho: float | None = None,
        dual_lr: float | None = None,
        precision: str | None = None,
        batch_size: int | None = None,
        fan_out: int | tuple[int, ...] | None = None,
        shards: int | None = None,
        inference_batch: int | None = None,
        average: float | None = None,
        average_from: float | None = None,
        test_graph: str | None = None,
        test_mask: str | None = None,
        alpha: float | tuple[float, ...] | None = None,
        steps: int | None = None,
        select: str | None = None,
        eval_every: int | None = None,
        patience: int | None = None,
        **hyper: Any,
    ):
        given = locals()
        for name in (*OWN, *SETTINGS):
            setattr(self, name, given[name])
        self.hyper = {_known(name): value for name, value in hyper.items()}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings and hyper-parameters that are given, by name."""
        return {name: getattr(self, name) for name in SETTINGS if getattr(self, name) is not None} | self.hyper

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters, and the given hyper-parameters, by name. `deep` has no effect."""
        return {name: getattr(self, name) for name in (*OWN, *SETTINGS)} | self.hyper

    def set_params(self, **params: Any) -> Any:
        """Set parameters and hyper-parameters by name, and return the estimator. `fit` checks the values.

        Raises:
            InputTypeError: There is no parameter or hyper-parameter of a name.
        """
        for name, value in params.items():
            if name in OWN or name in SETTINGS:
                setattr(self, name, value)
            else:
                self.hyper[_known(name)] = value
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # X is a list of graphs
        tags.target_tags.required = False  # graphs hold their labels
        tags.no_validation = True
        return tags

    def check_values(self) -> None:
        """Check the parameters, except settings and hyper-parameters, whose values the recipe checks.

        Raises:
            InputTypeError: A value has the wrong type.
            InputError: Parameters contradict each other.
            MetricError: The metric is unknown.
        """
        parse(self.metric)
        for name, optional in (("method", False), ("recipe", True), ("device", False)):
            value = getattr(self, name)
            if not isinstance(value, str) and not (optional and value is None):
                raise InputTypeError(f"{name} must be a name, got {value!r}")
        for name in ("max_members", "jobs", "seed", "verbose"):
            self.integer(name)
        if not isinstance(self.scale, bool):
            raise InputTypeError(f"scale must be True or False, got {self.scale!r}")
        parse_duration(self.budget)
        names = self.candidates
        if names is not None and (isinstance(names, str) or not all(isinstance(n, str) for n in _items(names))):
            raise InputTypeError(f"candidates must be a list of names or None, got {names!r}")
        _check_read(self.read)
        for name in () if self.method == AUTO else ("candidates", "budget"):
            if getattr(self, name) is not None:
                raise InputError(f"{name} needs method = 'auto', got method = {self.method!r}")
        if self.method == AUTO and self.recipe is not None:
            raise InputError(f"recipe needs a single method, got recipe = {self.recipe!r} with method = 'auto'")

    def integer(self, name: str) -> int:
        """Return the value of a parameter that must be an integer.

        Raises:
            InputTypeError: It is not.
        """
        value = getattr(self, name)
        try:
            return index(value)
        except TypeError as error:
            raise InputTypeError(f"{name} must be an integer, got {value!r}") from error


def _known(name: str) -> str:
    """Return the name of a hyper-parameter of some method.

    Raises:
        InputTypeError: No method has it.
    """
    if name not in HYPER:
        near = did_you_mean(name, [*OWN, *SETTINGS, *sorted(HYPER)])
        if name in OPTIONS:
            near = f"; it is an option of reading graphs: read={{{name!r}: …}}"
        elif name in SYNONYMS:
            near = f"; did you mean {SYNONYMS[name]!r}?"
        raise InputTypeError(f"EdgeMaskClassifier has no parameter {name!r}{near}")
    return name


def _items(value: Any) -> Sequence[Any]:
    """Return the items of a sequence; the value itself as the only item if it is not one."""
    return list(value) if isinstance(value, Sequence | set | frozenset) or hasattr(value, "tolist") else [value]


def _check_read(read: Any) -> None:
    """Check that reading options can be written to a model file."""
    try:
        if read is not None and not (isinstance(read, Mapping) and all(isinstance(name, str) for name in read)):
            raise TypeError
        json.dumps(dict(read or {}))
    except (TypeError, ValueError) as error:
        raise InputTypeError(
            f"read must map names of options to texts, numbers or lists of texts, got {read!r}"
        ) from error
