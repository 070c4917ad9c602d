"""The command `plan`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from edgemask.cli.common import (
    GRAPH_FORMS,
    Budget,
    Candidates,
    Device,
    MaxMembers,
    Method,
    Reading,
    RecipeName,
    Settings,
    check_inputs,
    err,
    out,
    reading,
    split_names,
    wide,
)
from edgemask.cli.fit import check_method, full_recipe
from edgemask.cli.json_output import Json, output
from edgemask.data import read_graph
from edgemask.estimator import AUTO
from edgemask.experiments.plan import Plan, Prediction
from edgemask.experiments.plan import plan as predict
from edgemask.experiments.plan.race import RacePlan, fitting, plan_race
from edgemask.legal import parse_duration
from edgemask.runtime.device import resolve_device
from edgemask.training.candidates import choose_candidates
from edgemask.training.race import MAX_MEMBERS

app = typer.Typer()


@app.command()
def plan(
    sources: Annotated[list[Path], typer.Argument(help=f"Graphs to train on. Each is {GRAPH_FORMS}.")],
    validation: Annotated[
        list[Path], typer.Option(help="Labelled graph used only for model selection. Can be repeated.")
    ] = [],  # noqa: B006
    method: Method = AUTO,
    candidates: Candidates = None,
    budget: Budget = None,
    max_members: MaxMembers = MAX_MEMBERS,
    recipe: RecipeName = None,
    settings: Settings = [],  # noqa: B006
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Predict the time and memory of a fit before it runs.

    The prediction is for `edgemask fit` with the same options on this machine. A few epochs on small parts of the
    graphs are measured.
    """
    options, values = reading(read), check_method(method, recipe, settings, candidates, budget)
    resolve_device(device)
    check_inputs([*sources, *validation])
    with output("plan", json) as result:
        graphs, scored = ([read_graph(path, **options) for path in paths] for paths in (sources, validation))
        if method == AUTO:
            own = choose_candidates(split_names(candidates), graphs, **values)
            race = plan_race(
                graphs, own, device, validation=scored, budget=parse_duration(budget), max_members=max_members
            )
            result.show(described(race), lambda: print_race(race))
        else:
            name, full = full_recipe(method, recipe, values)
            single = predict(graphs, full, device, method=name, validation=scored)
            result.show(described(single), lambda: print_plan(single))


def described(prediction: Plan | RacePlan) -> dict[str, Any]:
    """Return a prediction as JSON values."""

    def values(names: str) -> dict[str, Any]:
        return {name: getattr(prediction, name) for name in names.split()}

    fields = values(
        "rule nodes edges machine start_seconds enrich_seconds peak_mib free_mib host_mib host_free_mib basis"
    )
    fields["device"] = str(prediction.device)
    if isinstance(prediction, Plan):
        fields |= {"kind": "fit", "stages": [asdict(stage) for stage in prediction.stages]}
        fields |= values("epoch_edges epoch_seconds total_seconds fits")
        return fields | {"suggestions": [] if prediction.fits else prediction.suggestions()}
    fits, notes = fitting(prediction)
    columns = ("name", "first_seconds", "rounds_seconds", "final_seconds", "peak_mib", "host_mib", "failed")
    rows = [{c: getattr(row, c) for c in columns} | {"fits": row.name in fits} for row in prediction.candidates]
    beyond = {} if prediction.budget is None else prediction.beyond_budget()
    fields |= {"kind": "race", "candidates": rows, "beyond_budget": beyond, "notes": notes}
    return fields | values("least_seconds most_seconds budget max_members")


def print_plan(prediction: Plan) -> None:
    """Print the prediction for a single method."""
    table = Table(title=f"{prediction.nodes:,} nodes, {prediction.epoch_edges:,} edges per epoch", title_justify="left")
    for column in ("stage", "epochs", "time"):
        table.add_column(column, justify="left" if column == "stage" else "right")
    table.add_row("start", "", shown(prediction.start_seconds))
    table.add_row("enrichment, if it is not cached", "", shown(prediction.enrich_seconds))
    for stage in prediction.stages:
        table.add_row(f"train, {stage.name}", f"{stage.epochs}", shown(stage.seconds))
    table.add_row("total", "", shown(prediction.total_seconds), style="bold")
    wide().print(table)
    _say(f"one epoch on all sources {shown(prediction.epoch_seconds)}, selection rule {prediction.rule}")
    _say_memory(prediction, prediction.peak_mib, prediction.host_mib)
    if prediction.fits:
        _say("it fits")
    else:
        refusal = Text.assemble(("it does not fit", "bold red"), ". These settings (`--set`) need less memory:")
        out.print(refusal, soft_wrap=True)
    for suggestion in [] if prediction.fits else prediction.suggestions():
        _say(f"  {suggestion}")
    _say(f"estimate: {prediction.basis}")


def print_race(prediction: RacePlan) -> None:
    """Print the prediction for a race between candidates."""
    title = f"{prediction.nodes:,} nodes, {prediction.edges:,} edges, {len(prediction.candidates)} candidates"
    table = Table(title=title, title_justify="left")
    for column in ("candidate", "first round", "all rounds", "final training", "peak memory", "fits"):
        table.add_column(column, justify="left" if column == "candidate" else "right", no_wrap=column == "candidate")
    fits, notes = fitting(prediction)
    for row in prediction.candidates:
        times = [shown(t) if t else "–" for t in (row.first_seconds, row.rounds_seconds, row.final_seconds)]
        cells = ["–"] * 4 if row.failed else [*times, f"{row.peak_mib / 1024:.2f} GiB"]
        table.add_row(row.name, *cells, "yes" if row.name in fits else "no", style=None if row.name in fits else "red")
    wide().print(table)
    _say(f"enrichment {shown(prediction.enrich_seconds)}, once for all candidates, if it is not cached")
    finals = f" and the final training of {min(prediction.max_members, len(prediction.running))} members"
    _say(
        f"total between {shown(prediction.least_seconds)} (only the first round of all candidates) and "
        f"{shown(prediction.most_seconds)} (all rounds of all candidates"
        f"{finals if any(c.final_seconds for c in prediction.running) else ', with no final training'})"
    )
    _say_memory(prediction, prediction.peak_mib, prediction.host_mib)
    _say(f"selection rule: {prediction.rule}")
    if prediction.budget is not None:
        _say_budget(prediction, prediction.budget)
    for note in notes:
        err.print(f"note: {note}", soft_wrap=True)
    _say(f"estimate: {prediction.basis}")


def _say_budget(prediction: RacePlan, budget: float) -> None:
    """Print what a budget changes."""
    left_out = prediction.beyond_budget()
    for name, seconds in left_out.items():
        _say(f"the budget of {shown(budget)} leaves out {name}: its first score would take about {shown(seconds)}")
    if len(left_out) == len(prediction.running):
        _say(f"the budget of {shown(budget)} is too small for any candidate")
    elif not left_out:
        _say(f"the budget of {shown(budget)} leaves out no candidate")
    if len(left_out) < len(prediction.running) and budget < prediction.most_seconds:
        _say("the budget may end the race before all candidates have trained for all epochs")


def _say_memory(prediction: Prediction, peak_mib: float, host_mib: float) -> None:
    """Print the peak memory beside the free memory."""
    _say(f"peak memory {peak_mib / 1024:.2f} GiB of {prediction.free_mib / 1024:.1f} GiB free ({prediction.machine})")
    if prediction.device.type == "cuda":
        _say(f"host memory {host_mib / 1024:.2f} GiB of {prediction.host_free_mib / 1024:.1f} GiB free")


def _say(text: str) -> None:
    out.print(text, soft_wrap=True)


def shown(seconds: float) -> str:
    """Return a duration as text.

    >>> shown(3.2), shown(250), shown(7500)
    ('3.2 s', '4 min 10 s', '2 h 5 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return (
        f"{int(seconds // 60)} min {int(seconds % 60)} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
    )
