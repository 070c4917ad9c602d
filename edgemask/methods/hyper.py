"""Hyper-parameters of methods: default, legal range and search law, declared once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Value = float | int | str
Law = Literal["uniform", "log", "int", "choice"]


@dataclass(frozen=True)
class Hyper:
    """A number in [low, high], or one of `choices`. A search draws from `search`, by default the legal range:
    uniformly, uniformly in the logarithm (`log`), among whole numbers (`int`) or among the choices (`choice`)."""

    default: Value
    low: float = -math.inf
    high: float = math.inf
    law: Law = "uniform"
    search: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()
    about: str = ""

    def check(self, name: str, value: Any) -> Value:
        """The value, as the type of its kind; an error that names the legal ones if it is not one of them."""
        if self.law == "choice":
            if value not in self.choices:
                raise ValueError(f"{name} must be one of {', '.join(self.choices)}, got {value!r}")
            return str(value)
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not number or not self.low <= value <= self.high or (self.law == "int" and value != int(value)):
            kind = "an integer" if self.law == "int" else "a number"
            raise ValueError(f"{name} must be {kind} in [{self.low:g}, {self.high:g}], got {value!r}")
        return int(value) if self.law == "int" else float(value)

    def inside(self, value: Value) -> Value:
        """The value, brought inside the range a search draws from."""
        if self.law == "choice":
            return value
        low, high = self.search or (self.low, self.high)
        kept = min(max(float(value), low), high)
        return int(kept) if self.law == "int" else kept

    def draw(self, trial: Any, name: str) -> Value:
        """A value of this hyper-parameter from an Optuna trial."""
        if self.law == "choice":
            return str(trial.suggest_categorical(name, list(self.choices)))
        low, high = self.search or (self.low, self.high)
        if self.law == "int":
            return int(trial.suggest_int(name, int(low), int(high)))
        return float(trial.suggest_float(name, low, high, log=self.law == "log"))


# What every method's search may change, where its recipe uses it.
COMMON: dict[str, Hyper] = {
    "lr": Hyper(1e-3, 0, law="log", search=(1e-4, 1e-2), about="learning rate"),
    "weight_decay": Hyper(5e-4, 0, law="log", search=(1e-5, 1e-2), about="weight decay"),
    "dropout": Hyper(0.5, 0, 0.999, search=(0.0, 0.8), about="dropout between layers"),
    "hidden": Hyper(64, 1, law="int", search=(32, 128), about="width"),
}


def settle(declared: Mapping[str, Hyper], given: Mapping[str, Any]) -> dict[str, Value]:
    """All declared values: those given, checked, and the defaults of the others."""
    for name in given:
        if name not in declared:
            known = ", ".join(declared) or "none"
            raise ValueError(f"no hyper-parameter {name!r} in this method (its own: {known})")
    return {name: h.check(name, given.get(name, h.default)) for name, h in declared.items()}
