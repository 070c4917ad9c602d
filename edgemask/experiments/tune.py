"""A seeded search for a method's hyper-parameters on the sources alone, with the same number of trials for everyone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from edgemask.config import COMMON, HyperParameter, Recipe, Value
from edgemask.enrich import Cache
from edgemask.errors import DivergenceError, InputError
from edgemask.methods.registry import method_spec
from edgemask.protocol import Training
from edgemask.runtime.atomic import replacing
from edgemask.seeds import derive
from edgemask.training.fit import Fit
from edgemask.training.selection import mean_scores, rule_of_sources

FORMAT = "edgemask-tune-1"


@dataclass(frozen=True)
class Trial:
    """One point of a search: its settings, and its score or what stopped it."""

    settings: dict[str, Value]
    score: float | None
    failed: str = ""


@dataclass(frozen=True)
class Search:
    """All that decides a search's trials: each of them is a function of this and its number."""

    benchmark: str
    protocol: str
    method: str
    recipe: Recipe
    data: Mapping[str, str]  # of the sources and validation domains: name → content hash
    seed: int = 0

    @property
    def space(self) -> dict[str, HyperParameter]:
        """The method's own hyper-parameters, and those all methods share."""
        return {**COMMON, **method_spec(self.method).make.hyper}

    def describe(self) -> dict[str, Any]:
        about = {"benchmark": self.benchmark, "protocol": self.protocol, "method": self.method, "seed": self.seed}
        return {"format": FORMAT, **about, "recipe": self.recipe.changes(), "data": dict(self.data)}

    def run(
        self,
        trials: int,
        value: Callable[[Recipe], float],
        path: Path,
        on_trial: Callable[[int, Trial], None] | None = None,
    ) -> list[Trial]:
        """`trials` trials, the first of them the defaults. Those that the file at `path` holds are not run again; each
        new one is added to it as it ends. A trial that diverges, or runs out of memory, has failed and says so."""
        done = self.read(path)
        for number in range(len(done), trials):
            settings = self.settings(number, done)
            try:
                trial = Trial(settings, value(self.settled(settings)))
            except (DivergenceError, torch.cuda.OutOfMemoryError) as error:
                trial = Trial(settings, None, f"{type(error).__name__}: {error}")
            done.append(trial)
            self.write(path, done)
            if on_trial:
                on_trial(number, trial)
        return done[:trials]

    def settled(self, settings: Mapping[str, Value]) -> Recipe:
        """The search's recipe with a trial's settings."""
        found = method_spec(self.method)
        own = {k: v for k, v in settings.items() if k in found.make.hyper}
        hyper = dict(self.recipe.hyper) | own
        changed = {k: v for k, v in hyper.items() if v != found.make.hyper[k].default}
        shared = {k: v for k, v in settings.items() if k not in own}
        return self.recipe.replace(**shared, hyper=tuple(sorted(changed.items())))

    def settings(self, number: int, before: list[Trial]) -> dict[str, Value]:
        """The settings of a trial, from the trials before it: a tree-structured Parzen estimator with a seed of the
        trial's own, so that a search that was stopped goes on as if it had not been."""
        if number == 0:
            return self.defaults()
        optuna = import_optuna()
        sampler = optuna.samplers.TPESampler(seed=derive(self.seed, "trial", number) % 2**32)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        laws = {name: distribution(optuna, hyper) for name, hyper in self.space.items()}
        for trial in before:
            state = optuna.trial.TrialState.FAIL if trial.score is None else optuna.trial.TrialState.COMPLETE
            study.add_trial(
                optuna.trial.create_trial(state=state, params=trial.settings, distributions=laws, value=trial.score)
            )
        asked = study.ask()
        return {name: hyper.draw(asked, name) for name, hyper in self.space.items()}

    def defaults(self) -> dict[str, Value]:
        """What the recipe runs with, brought inside the search's range."""
        shared = {name: getattr(self.recipe, name) for name in COMMON}
        own = {
            name: dict(self.recipe.hyper).get(name, h.default)
            for name, h in method_spec(self.method).make.hyper.items()
        }
        return {name: self.space[name].clip(value) for name, value in (shared | own).items()}

    def read(self, path: Path) -> list[Trial]:
        if not path.exists():
            return []
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            trials = [Trial(**trial) for trial in stored["trials"]]
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
            raise InputError(f"{path} is not a record of a search: {error!r}") from error
        for name, wanted in self.describe().items():
            if stored.get(name) != wanted:
                raise InputError(f"{path} holds another search: its {name} is {stored.get(name)!r}, here {wanted!r}")
        return trials

    def write(self, path: Path, trials: list[Trial]) -> None:
        with replacing(path, text=True) as sink:
            json.dump(self.describe() | {"trials": [vars(t) for t in trials]}, sink, ensure_ascii=False, indent=1)


def best(trials: list[Trial]) -> Trial:
    """The trial of the highest score, the first of equals."""
    done = [t for t in trials if t.score is not None]
    if not done:
        raise InputError(f"all {len(trials)} trials failed: {trials[0].failed}" if trials else "no trial was run")
    return max(done, key=lambda t: t.score or 0.0)


def source_score(
    method: str, recipe: Recipe, training: Training, *, seed: int, device: torch.device, cache: Cache | None = None
) -> float:
    """Score a recipe with the labels of the sources only, in the protocol's first metric.

    With several sources, each is left out in turn, and the score is the mean at the best propagation strength. With
    one source, a fifth of its labels is withheld.
    """
    rule = rule_of_sources(training.sources)
    recipe = recipe.replace(select=rule.name, patience=recipe.patience if rule.scores_epochs else 0)
    fit = Fit(
        method_spec(method).make,
        recipe,
        training.sources,
        metric=training.metrics[0],
        seed=seed,
        device=device,
        cache=cache,
    )
    scores = fit.run()[1].scores if rule.scores_epochs else mean_scores(fit.run_held_out())
    return max(scores.values())


def distribution(optuna: Any, hyper: HyperParameter) -> Any:
    laws = optuna.distributions
    if hyper.law == "choice":
        return laws.CategoricalDistribution(list(hyper.choices))
    low, high = hyper.search_range
    if hyper.law == "int":
        return laws.IntDistribution(int(low), int(high))
    return laws.FloatDistribution(low, high, log=hyper.law == "log")


def import_optuna() -> Any:
    """Optuna, its own progress lines switched off."""
    try:
        import optuna
    except ImportError as error:
        raise InputError("`edgemask tune` needs Optuna: pip install 'edgemask[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
