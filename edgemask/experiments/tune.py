"""A seeded search for a method's hyper-parameters on the sources, with the same number of trials for every method."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from edgemask.config import COMMON, HyperParameter, Recipe, Value
from edgemask.enrich import Cache
from edgemask.errors import DivergenceError, InputError, MissingDependencyError, SchemaError
from edgemask.legal import Legal
from edgemask.methods.registry import method_spec
from edgemask.protocol import Training
from edgemask.runtime.atomic import replacing
from edgemask.schema import ANYTHING, TEXT, Fields, Items, Maybe, check, parse, short
from edgemask.seeds import derive
from edgemask.training.fit import Fit
from edgemask.training.selection import mean_scores, rule_of_sources

FORMAT = "edgemask-tune-1"
STORED = Fields({"format": TEXT, "trials": Items(ANYTHING)}, others=True)


@dataclass(frozen=True)
class Trial:
    """One trial of a search.

    Attributes:
        settings: The hyper-parameters that were tried.
        score: The score of the trial, or None if it failed.
        failed: The error that stopped the trial; empty if it did not fail.
    """

    settings: dict[str, Value]
    score: float | None
    failed: str = ""


@dataclass(frozen=True)
class Search:
    """A search for hyper-parameters.

    The fields determine every trial: its settings depend only on them, on its number and on the trials before it.

    Attributes:
        benchmark: Name of the benchmark.
        protocol: Name of the protocol.
        method: Name of a registered method.
        recipe: The recipe that the search starts from.
        data: Content hash of each domain that the search may use, by name.
        seed: Seed of the search.
    """

    benchmark: str
    protocol: str
    method: str
    recipe: Recipe
    data: Mapping[str, str]
    seed: int = 0

    @property
    def space(self) -> dict[str, HyperParameter]:
        """The hyper-parameters to search: those that all methods share, and the method's own."""
        return {**COMMON, **method_spec(self.method).make.hyper}

    def describe(self) -> dict[str, Any]:
        """Return what identifies the search, as JSON values."""
        about = {"benchmark": self.benchmark, "protocol": self.protocol, "method": self.method, "seed": self.seed}
        return {"format": FORMAT, **about, "recipe": self.recipe.changes(), "data": dict(self.data)}

    def run(
        self,
        trials: int,
        value: Callable[[Recipe], float],
        path: Path,
        on_trial: Callable[[int, Trial], None] | None = None,
    ) -> list[Trial]:
        """Run the search, or continue it.

        The first trial uses the defaults. A trial that diverges or runs out of GPU memory is stored as failed; any
        other error ends the search.

        Args:
            trials: Number of trials, including those that are already stored.
            value: Returns the score of a recipe.
            path: File of the search. Trials it already holds are not run again. Each new trial is written when it ends.
            on_trial: Called after each new trial with its number and the trial.

        Returns:
            The first `trials` trials.

        Raises:
            InputError: The file is not a record of this search.
        """
        done = self.read(path)
        for number in range(len(done), trials):
            settings = self.settings(number, done)
            try:
                trial = Trial(settings, value(self.recipe_of(settings)))
            except (DivergenceError, torch.cuda.OutOfMemoryError) as error:
                trial = Trial(settings, None, f"{type(error).__name__}: {error}")
            done.append(trial)
            self.write(path, done)
            if on_trial:
                on_trial(number, trial)
        return done[:trials]

    def recipe_of(self, settings: Mapping[str, Value]) -> Recipe:
        """Return the search's recipe with the settings of a trial."""
        declared = method_spec(self.method).make.hyper
        own = {k: v for k, v in settings.items() if k in declared}
        hyper = dict(self.recipe.hyper) | own
        changed = {k: v for k, v in hyper.items() if v != declared[k].default}
        shared = {k: v for k, v in settings.items() if k not in own}
        return self.recipe.replace(**shared, hyper=tuple(sorted(changed.items())))

    def settings(self, number: int, before: list[Trial]) -> dict[str, Value]:
        """Return the settings of a trial, given the trials before it.

        They come from a tree-structured Parzen estimator. Each trial has its own seed, so that a search that was
        stopped continues exactly as if it had not been.

        Args:
            number: Number of the trial, from 0.
            before: All earlier trials.
        """
        if number == 0:
            return self.defaults()
        optuna = import_optuna()
        sampler = optuna.samplers.TPESampler(seed=derive(self.seed, "trial", number) % 2**32)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        distributions = {name: distribution(optuna, hyper) for name, hyper in self.space.items()}
        for trial in before:
            state = optuna.trial.TrialState.FAIL if trial.score is None else optuna.trial.TrialState.COMPLETE
            study.add_trial(
                optuna.trial.create_trial(
                    state=state, params=trial.settings, distributions=distributions, value=trial.score
                )
            )
        new = study.ask()
        return {name: hyper.draw(new, name) for name, hyper in self.space.items()}

    def defaults(self) -> dict[str, Value]:
        """Return the recipe's own values, moved into the ranges of the search."""
        shared = {name: getattr(self.recipe, name) for name in COMMON}
        own = {
            name: dict(self.recipe.hyper).get(name, h.default)
            for name, h in method_spec(self.method).make.hyper.items()
        }
        return {name: self.space[name].clip(value) for name, value in (shared | own).items()}

    def read(self, path: Path) -> list[Trial]:
        """Return the trials stored in a file; none if there is no file.

        Raises:
            InputError: The file is not a record of a search, or holds another search.
        """
        if not path.exists():
            return []
        try:
            stored = parse(path.read_bytes(), STORED, "record")
            for name, expected in self.describe().items():
                if (own := stored.get(name)) != expected:
                    raise InputError(f"{path} holds another search: its {name} is {short(own)}, here {short(expected)}")
            check(stored["trials"], Items(self._trial()), "trials")
        except (SchemaError, OSError) as error:
            raise InputError(f"{path} is not a record of a search: {error}") from error
        return [Trial(**trial) for trial in stored["trials"]]

    def _trial(self) -> Fields:
        """Return the schema of a trial: all hyper-parameters of the search have values in their ranges."""
        legal = {
            name: Legal(*h.search_range, whole=h.law == "int", choices=h.choices) for name, h in self.space.items()
        }
        return Fields({"settings": Fields(legal), "score": Maybe(Legal())}, {"failed": TEXT})

    def write(self, path: Path, trials: list[Trial]) -> None:
        """Replace a file by a record of the search and its trials."""
        with replacing(path, text=True) as sink:
            json.dump(self.describe() | {"trials": [vars(t) for t in trials]}, sink, ensure_ascii=False, indent=1)


def best(trials: list[Trial]) -> Trial:
    """Return the trial with the highest score; the earliest one if several are equal.

    Raises:
        InputError: All trials failed, or there are none.
    """
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

    Args:
        method: Name of a registered method.
        recipe: The recipe to score. Its `select` is replaced by the rule described above.
        training: The data. Only the sources are used.
        seed: Seed of the fit.
        device: The device to compute on.
        cache: Where enrichment is cached.

    Raises:
        DivergenceError: The loss became NaN or infinite.
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
    """Return the Optuna distribution of a hyper-parameter."""
    distributions = optuna.distributions
    if hyper.law == "choice":
        return distributions.CategoricalDistribution(list(hyper.choices))
    low, high = hyper.search_range
    if hyper.law == "int":
        return distributions.IntDistribution(int(low), int(high))
    return distributions.FloatDistribution(low, high, log=hyper.law == "log")


def import_optuna() -> Any:
    """Import Optuna and turn off its log messages below errors.

    Raises:
        MissingDependencyError: Optuna is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise MissingDependencyError("`edgemask tune` needs Optuna: install edgemask[tune]") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
