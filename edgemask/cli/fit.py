"""The command `fit`."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from edgemask.cli.common import (
    GRAPH_FORMS,
    Budget,
    Candidates,
    Device,
    MaxMembers,
    Method,
    Ray,
    Reading,
    RecipeName,
    Seed,
    Settings,
    check_inputs,
    err,
    out,
    reading,
    split_names,
    wide,
)
from edgemask.cli.completion import METRIC_NAMES
from edgemask.cli.json_output import Json, output
from edgemask.config import RECIPES, Recipe, parse_settings
from edgemask.data import read_graph
from edgemask.enrich import default_cache
from edgemask.errors import InputError, RaceWarning
from edgemask.estimator import AUTO, PARAMETERS, STAR, EdgeMaskClassifier
from edgemask.experiments.on_ray import ray_executor
from edgemask.experiments.plan.race import shortened
from edgemask.graph import Graph
from edgemask.legal import parse_duration
from edgemask.methods.registry import method_spec
from edgemask.metrics import parse
from edgemask.model import Model
from edgemask.runtime.atomic import writable
from edgemask.runtime.device import resolve_device
from edgemask.runtime.distributed import started
from edgemask.training.candidates import choose_candidates
from edgemask.training.race import MAX_MEMBERS

app = typer.Typer()


@app.command()
def fit(
    sources: Annotated[list[Path], typer.Argument(help=f"Labelled graphs to train on. Each is {GRAPH_FORMS}.")],
    model: Annotated[Path, typer.Option("--model", "-m", help="Where to write the trained model.")],
    validation: Annotated[
        list[Path], typer.Option(help="Labelled graph used only for model selection. Can be repeated.")
    ] = [],  # noqa: B006
    method: Method = AUTO,
    candidates: Candidates = None,
    budget: Budget = None,
    max_members: MaxMembers = MAX_MEMBERS,
    jobs: Annotated[
        int, typer.Option(min=1, help="With method auto: the number of processes that train models side by side.")
    ] = 1,
    ray: Ray = None,
    recipe: RecipeName = None,
    settings: Settings = [],  # noqa: B006
    metric: Annotated[
        str, typer.Option(help="The metric that model selection maximises.", autocompletion=METRIC_NAMES)
    ] = "micro_f1",
    seed: Seed = 0,
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Save the state here, and continue from it if it exists: a folder with method auto, else a file."
        ),
    ] = None,
    checkpoint_every: Annotated[
        int, typer.Option(min=1, help="With a single method: save the state after this many epochs.")
    ] = 10,
    json: Json = False,
) -> None:
    """Train a model on labelled source graphs.

    By default several models compete. Each is scored on graphs that it is not trained on, and the best are averaged.

    To train a single method in several processes: `torchrun --nproc-per-node 2 -m edgemask fit … --method robust
    --set batch_size=1024 --set shards=2`.
    """
    first, auto, options = started().first, method == AUTO, reading(read)
    for path in (model, checkpoint and (checkpoint / "race.ckpt" if auto else checkpoint)):
        if path is not None and first:
            writable(path)
    own = check_method(method, recipe, settings, candidates, budget)
    parse(metric)
    if ray is not None and not auto:
        raise InputError(f"--ray needs method auto, got method {method!r}")
    if ray is None:
        resolve_device(device)
    check_inputs([*sources, *validation])
    with output("fit", json) as result:
        with ExitStack() as stack:
            executor = None
            if ray is not None:
                executor, jobs = stack.enter_context(ray_executor(ray, device))
            estimator = EdgeMaskClassifier(
                method,
                recipe=recipe,
                candidates=split_names(candidates),
                budget=budget,
                max_members=max_members,
                jobs=jobs,
                seed=seed,
                device=device,
                metric=metric,
                read=options,
                verbose=int(err.is_terminal),
                **own,
            )
            graphs = [read_graph(p, **options) for p in sources]
            scored = [read_graph(p, **options) for p in validation]
            notes = leave_out_large(estimator, graphs, scored) if auto else []
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore", RaceWarning)  # it is one of the notes
            try:
                estimator.fit(
                    graphs,
                    validation=scored,
                    checkpoint_path=checkpoint,
                    checkpoint_every=checkpoint_every,
                    cache=default_cache(),
                    executor=executor,
                )
            except KeyboardInterrupt as error:
                raise KeyboardInterrupt(how_to_continue(checkpoint)) from error
        if not first:
            return
        estimator.notes_[:0] = notes
        estimator.save(model)
        fields = {"model": model, "method": method, **described(estimator.model_)}
        result.show(fields, lambda: print_fit(fields))


def check_method(
    method: str, recipe: str | None, settings: Sequence[str], candidates: str | None, budget: str | None
) -> dict[str, Any]:
    """Check the names and settings of a fit before any graph is read.

    Returns:
        The settings by name.

    Raises:
        InputError: A name or value is not legal, or two options do not go together.
    """
    values = parse_settings(settings)
    for name in (*PARAMETERS, "read"):
        if name in values:
            raise InputError(f"no setting {name!r}: use the option --{name.replace('_', '-')}")
    parse_duration(budget)
    if method == AUTO:
        if recipe is not None:
            raise InputError(f"--recipe needs a single method, got method {AUTO!r}")
        choose_candidates(split_names(candidates), [], **values)
        return values
    for option, value in (("--candidates", candidates), ("--budget", budget)):
        if value is not None:
            raise InputError(f"{option} needs method {AUTO!r}, got method {method!r}")
    full_recipe(method, recipe, values)
    return values


def full_recipe(method: str, recipe: str | None, values: Mapping[str, Any]) -> tuple[str, Recipe]:
    """Return the name and all settings of a single method, or of a stock recipe of `edgemask-dg-star`.

    Args:
        method: A method or a stock recipe.
        recipe: A stock recipe that replaces the method's own.
        values: Settings by name.

    Raises:
        InputError: A name or value is not legal.
    """
    name, stock = (STAR, recipe or method) if method in RECIPES else (method, recipe)
    return name, method_spec(name).under(stock, **values)


def how_to_continue(checkpoint: Path | None) -> str:
    """Return what a user reads after stopping a fit."""
    if checkpoint is None:
        return "interrupted: nothing was saved; with --checkpoint PATH a fit saves its state and can be continued"
    return f"interrupted: the same command with --checkpoint {checkpoint} continues from the last saved state"


def leave_out_large(estimator: EdgeMaskClassifier, sources: Sequence[Graph], validation: Sequence[Graph]) -> list[str]:
    """Remove the candidates that do not fit into memory from an estimator, and return a note for each.

    Small graphs are not measured. The time that it takes is subtracted from the budget.
    """
    start, budget = time.monotonic(), parse_duration(estimator.budget)
    candidates = choose_candidates(estimator.candidates, sources, **estimator.settings)
    kept, notes = shortened(candidates, sources, validation, estimator.device, budget)
    if notes:
        left_out = {c.name for c in candidates} - {c.name for c in kept}
        named = [c.name for c in choose_candidates(estimator.candidates, [], **estimator.settings)]
        estimator.set_params(candidates=[name for name in named if name not in left_out])
    if budget is not None and (spent := time.monotonic() - start) > 1:
        estimator.set_params(budget=max(1.0, budget - spent))
    return notes


def described(model: Model) -> dict[str, Any]:
    """Return what a user learns about a fitted model, as JSON values."""
    return {
        "metric": model.metric,
        "seed": model.seed,
        "classes": list(model.classes),
        "rule": model.rule,
        "leaderboard": [asdict(row) for row in model.leaderboard],
        "members": [member.name for member in model.members],
        "expected": None if model.expected is None else asdict(model.expected),
        "notes": list(model.notes),
    }


def print_fit(fields: Mapping[str, Any]) -> None:
    """Print what a user learns about a fitted model, and its file."""
    print_model(fields)
    out.print(f"model: {fields['model']}", soft_wrap=True)
    for note in fields["notes"]:
        err.print(f"note: {note}", soft_wrap=True)


def print_model(fields: Mapping[str, Any]) -> None:
    """Print the leaderboard of a fitted model, what was chosen, and the score to expect."""
    metric = fields["metric"]
    table = Table(title=f"leaderboard: {metric} on graphs not trained on, percent", title_justify="left")
    for column in ("candidate", "score", "epoch", "propagation α", "rounds", "weight", "time", "note"):
        table.add_column(column, justify="left" if column in ("candidate", "note") else "right", overflow="fold")
    for row in fields["leaderboard"]:
        value = "–" if row["score"] is None else f"{100 * row['score']:.1f}"
        table.add_row(
            row["name"],
            value if row["error"] is None else f"{value} ± {100 * row['error']:.1f}",
            str(row["epoch"] or ""),
            row["propagation"],
            str(row["rounds"] or ""),
            f"{row['weight']:.2f}" if row["weight"] else "",
            f"{row['seconds']:.0f} s" if row["seconds"] else "",
            row["note"],
            style="bold" if row["weight"] else None,
        )
    wide().print(table)
    out.print(f"selection rule: {fields['rule']}", soft_wrap=True)
    if len(fields["members"]) > 1:
        out.print(f"the model averages the {len(fields['members'])} candidates with a weight")
    if expected := fields["expected"]:
        score, low, high = (100 * expected[name] for name in ("score", "low", "high"))
        out.print(
            f"expect a {metric} of about {score:.1f} on an unseen graph like these "
            f"({low:.1f} to {high:.1f}, the range over the scored graphs)",
            soft_wrap=True,
        )
