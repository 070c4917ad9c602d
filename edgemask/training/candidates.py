"""The candidates of a race: methods with settings, from cheap to expensive.

A candidate is named by a method and the settings that differ from it: `erm-gcn`, or
`edgemask-dg:backbone=mix:rho=0.7`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgemask.config import Recipe, parse_settings
from edgemask.errors import InputError
from edgemask.graph import Graph
from edgemask.legal import did_you_mean
from edgemask.methods.base import Method
from edgemask.methods.registry import method_spec

# Settings of every candidate, unless its name gives others. The race chooses the epoch and the propagation.
SHARED: dict[str, Any] = {
    "epochs": 1000,
    "eval_every": 10,
    "average": 0.05,
    "average_from": 0.0,
    "alpha": (0.0, 0.5, 0.8, 0.9, 0.95),
    "select": "auto",
    "spectral_budget": 10.0,  # pairs per node; smaller graphs have fewer
}
AUTO_RECIPE = Recipe(**SHARED)  # stands for the settings of all candidates in the record of a race
BINARY_LR = 4e-3  # learning rate of the binary cross-entropy, chosen on held-out sources of the citation networks

DEFAULTS: tuple[str, ...] = (
    "erm-mlp",
    *(f"erm-{backbone}" for backbone in ("gcn", "mix", "sage", "gpr", "egc")),
    *(f"erm-{backbone}-enriched" for backbone in ("gcn", "mix", "sage", "gpr")),
    *(f"edgemask-dg:backbone={backbone}:rho={rho}" for backbone in ("mix", "sage") for rho in (0.9, 0.7, 0.5)),
    "edgemask-dg-star",
)


@dataclass(frozen=True)
class Candidate:
    """A method with all its settings.

    Args:
        name: Name of the candidate, `METHOD[:SETTING=VALUE]…`.
        make: Class of the method.
        recipe: All settings.
    """

    name: str
    make: type[Method]
    recipe: Recipe

    @classmethod
    def parse(cls, name: str, /, **more: Any) -> Candidate:
        """Return the candidate of a name.

        Args:
            name: `METHOD[:SETTING=VALUE]…`.
            **more: Settings of all candidates of a race. Settings that define the method, such as the backbone of
                `erm-gcn`, are not changed, and those in the name take precedence.

        Raises:
            InputError: The method or a setting is unknown, or a value is not legal. The message names the candidate.

        >>> Candidate.parse("edgemask-dg:backbone=mix:rho=0.7").recipe.rho
        0.7
        """
        method, *settings = name.split(":")
        try:
            spec = method_spec(method)
            shared = {k: v for k, v in more.items() if k not in spec.defining}
            return cls(name, spec.make, spec.under(None, **SHARED | shared | parse_settings(settings)))
        except InputError as error:
            raise InputError(f"candidate {name!r}: {error}") from error

    def with_binary_loss(self) -> Candidate | None:
        """Return the same candidate with a loss on all labels of a node, or None if it does not support one."""
        if not self.make.any_loss or self.recipe.loss == "binary":
            return None
        recipe = self.recipe.replace(loss="binary", lr=BINARY_LR)
        return Candidate(f"{self.name}:loss=binary:lr={BINARY_LR:g}", self.make, recipe)


def choose_candidates(names: Sequence[str] | None, sources: Sequence[Graph], /, **settings: Any) -> list[Candidate]:
    """Return the candidates of a race.

    If nodes of the sources have several labels, every candidate that supports it also takes part with a loss on all
    labels.

    Args:
        names: Names of candidates, which replace the default ones. If every name starts with `+` or `-`, the candidates
            are added to the default ones or removed from them. None takes the default ones.
        sources: The source graphs.
        **settings: Settings of all candidates.

    Raises:
        InputError: A name is unknown or repeated, a name to remove is not among the default ones, none is left, or a
            setting would change what defines every candidate.

    >>> [c.name for c in choose_candidates(["erm-mlp", "irm"], [])]
    ['erm-mlp', 'irm']
    """
    chosen = _edited(names) if names and all(n[:1] in ("+", "-") for n in names) else list(names or DEFAULTS)
    if len(set(chosen)) != len(chosen):
        raise InputError(f"candidates must be distinct, got {', '.join(chosen)}")
    candidates = [Candidate.parse(name, **settings) for name in chosen]
    for setting in settings:
        if all(setting in method_spec(name.partition(":")[0]).defining for name in chosen):
            raise InputError(f"{setting} defines the candidates: choose them by name instead, with candidates=…")
    if any(g.is_multilabel for g in sources):
        candidates = [c for one in candidates for c in (one, one.with_binary_loss()) if c is not None]
    return candidates


def _edited(names: Sequence[str]) -> list[str]:
    """Return the default names with some added and some removed."""
    removed = [n[1:] for n in names if n[0] == "-"]
    for name in removed:
        if name not in DEFAULTS:
            near = did_you_mean(name, DEFAULTS)
            raise InputError(f"no default candidate {name!r} (candidates: {', '.join(DEFAULTS)}){near}")
    left = [n for n in DEFAULTS if n not in removed] + [n[1:] for n in names if n[0] == "+"]
    if not left:
        raise InputError("no candidate is left: every default candidate was removed")
    return left
