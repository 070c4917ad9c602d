"""Training of a single method, and of several candidates in a race, with the parameters of `EdgeMaskClassifier`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from pathlib import Path

from edgemask.config import RECIPES, Recipe
from edgemask.coverage import GraphSummary
from edgemask.enrich import Cache
from edgemask.estimator.parameters import AUTO, Parameters
from edgemask.graph import Graph
from edgemask.inference import Member, Propagation
from edgemask.legal import parse_duration
from edgemask.methods.registry import method_spec
from edgemask.model import Model, Standing
from edgemask.runtime.device import resolve_device
from edgemask.runtime.processes import process_pool
from edgemask.training.candidates import choose_candidates
from edgemask.training.fit import Fit
from edgemask.training.naming import Canonical
from edgemask.training.race import Race
from edgemask.training.selection import check_sources
from edgemask.training.trainer import Trainer

STAR = "edgemask-dg-star"  # the method of the stock recipes


def check_recipe(given: Parameters) -> None:
    """Check the method, or the candidates, and their settings before a graph is read.

    Raises:
        InputError: A name or value is not legal.
    """
    if given.method == AUTO:
        choose_candidates(given.candidates, [], **given.settings)
    else:
        recipe_of(given)


def recipe_of(given: Parameters) -> tuple[str, Recipe]:
    """Return the name and all settings of a single method."""
    stock = given.method in RECIPES
    name, recipe = (STAR, given.recipe or given.method) if stock else (given.method, given.recipe)
    return name, method_spec(name).under(recipe, **given.settings)


def fit_one(
    given: Parameters,
    sources: Sequence[Graph],
    validation: Sequence[Graph],
    checkpoint_path: str | Path | None,
    checkpoint_every: int,
    cache: Cache | None,
    on_epoch: Callable[[Trainer, str], None] | None,
) -> Model:
    """Train a single method on graphs in a common form; see `EdgeMaskClassifier.fit` for the arguments."""
    name, settings = recipe_of(given)
    check_sources(sources, validation)
    graphs, start = Canonical(sources, validation), time.monotonic()
    fit = Fit(
        method_spec(name).make,
        settings,
        graphs.sources,
        graphs.validation,
        metric=given.metric,
        seed=given.integer("seed"),
        device=resolve_device(given.device),
        cache=cache,
        checkpoint_path=checkpoint_path,
        checkpoint_every=checkpoint_every,
        on_epoch=on_epoch and (lambda trainer, stage: on_epoch(trainer, graphs.text(stage))),
    )
    with graphs.shown():
        trainer, choice = fit.run()
    seconds = time.monotonic() - start
    scores: Mapping[float, float | None] = choice.scores or {choice.alpha: None}
    rows = [
        Standing(name, value, None, choice.epoch, f"{a:g}", 1, float(a == choice.alpha), seconds)
        for a, value in scores.items()
    ]
    return Model(
        members=[Member(name, trainer.method, Propagation(choice.alpha))],
        classes=sources[0].classes,
        rule=choice.rule,
        leaderboard=sorted(rows, key=lambda row: -row.weight),
        metric=given.metric,
        seed=given.integer("seed"),
        histories={name: graphs.history(trainer.history)},
        sources={g.name: g.hash for g in sources},
        summaries=[GraphSummary.of(g) for g in sources],
    )


def fit_auto(
    given: Parameters,
    sources: Sequence[Graph],
    validation: Sequence[Graph],
    folder: str | Path | None,
    cache: Cache | None,
    on_epoch: Callable[[Trainer, str], None] | None,
    on_heat: Callable[[str, int], None] | None,
    executor: Executor | None,
) -> Model:
    """Run a race between the candidates; see `EdgeMaskClassifier.fit` for the arguments."""
    device = resolve_device(given.device)
    candidates = choose_candidates(given.candidates, sources, **given.settings)
    pool = process_pool(given.jobs) if executor is None and given.jobs != 1 else nullcontext(executor)
    with pool as workers:
        race = Race(
            candidates,
            sources,
            validation,
            metric=given.metric,
            seed=given.integer("seed"),
            device=device,
            cache=cache,
            budget=parse_duration(given.budget),
            max_members=given.max_members,
            folder=folder,
            on_epoch=on_epoch,
            on_heat=on_heat,
            executor=workers,
            jobs=given.jobs,
            shared_disk=executor is None,
        )
        with race.graphs.shown():
            return race.run()
