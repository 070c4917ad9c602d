"""The commands `fit`, `predict`, `evaluate`, `explain` and `theory`, for a user's own graphs."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from rich.markup import escape
from rich.table import Table

from edgemask.cli.common import (
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
    err,
    grid,
    out,
    parse_duration,
    progress,
    reading,
    split_names,
    wide,
)
from edgemask.config import parse_settings
from edgemask.data import read_graph
from edgemask.enrich import default_cache
from edgemask.errors import InputError, RaceWarning
from edgemask.estimator import AUTO, PARAMETERS, EdgeMaskClassifier
from edgemask.experiments.on_ray import ray_executor
from edgemask.experiments.plan.race import shortened
from edgemask.graph import Array, Graph
from edgemask.metrics import score
from edgemask.model import Model
from edgemask.runtime.atomic import replacing, writable
from edgemask.runtime.distributed import started
from edgemask.training.candidates import choose_candidates
from edgemask.training.race import MAX_MEMBERS

EDGES_SHOWN = 20

app = typer.Typer()
InferenceBatch = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Process the graph in blocks of this many nodes, to save memory (default: as when the model was trained).",
    ),
]


@app.command()
def fit(
    sources: Annotated[
        list[Path], typer.Argument(help="Labelled graphs to train on: .npz files, .mat files or folders of CSV files.")
    ],
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
    metric: Annotated[str, typer.Option(help="The metric that model selection maximises.")] = "micro_f1",
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
) -> None:
    """Train a model on labelled source graphs.

    By default several models compete. Each is scored on graphs that it is not trained on, and the best are averaged.

    To train a single method in several processes: `torchrun --nproc-per-node 2 -m edgemask fit … --method robust
    --set batch_size=1024 --set shards=2`.
    """
    first, auto = started().first, method == AUTO
    for path in (model, checkpoint and (checkpoint / "race.ckpt" if auto else checkpoint)):
        if path is not None and first:
            writable(path)
    options = parse_settings(settings)
    for name in PARAMETERS:
        if name in options:
            raise InputError(f"no setting {name!r}: use the option --{name.replace('_', '-')}")
    if ray is not None and not auto:
        raise InputError(f"--ray needs method auto, got method {method!r}")
    with ExitStack() as stack:
        executor = None
        if ray is not None:
            executor, jobs = stack.enter_context(ray_executor(ray, device))
        estimator = EdgeMaskClassifier(
            method,
            recipe=recipe,
            candidates=split_names(candidates),
            budget=parse_duration(budget),
            max_members=max_members,
            jobs=jobs,
            seed=seed,
            device=device,
            metric=metric,
            **options,
        )
        if auto:  # names and settings are checked before any graph is read
            choose_candidates(estimator.candidates, [], **options)
        graphs = [read_graph(p, **reading(read)) for p in sources]
        scored = [read_graph(p, **reading(read)) for p in validation]
        notes = leave_out_large(estimator, graphs, scored) if auto else []
        on_epoch = stack.enter_context(progress("fit", one_line=auto) if first else nullcontext())
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", RaceWarning)  # `print_fit` prints it as a note
        estimator.fit(
            graphs,
            scored,
            checkpoint_path=checkpoint,
            checkpoint_every=checkpoint_every,
            cache=default_cache(),
            on_epoch=on_epoch,
            on_heat=print_heat if jobs > 1 and err.is_terminal else None,
            executor=executor,
        )
    if not first:
        return
    estimator.notes_[:0] = notes
    estimator.save(model)
    print_fit(estimator.model_)
    out.print(f"model: {model}", markup=False, highlight=False, soft_wrap=True)


def print_heat(name: str, number: int) -> None:
    """Say on stderr that a candidate has finished a round."""
    err.print(escape(f"round {number}: {name} has finished"), highlight=False)


def leave_out_large(estimator: EdgeMaskClassifier, sources: Sequence[Graph], validation: Sequence[Graph]) -> list[str]:
    """Remove the candidates that do not fit into memory from an estimator, and return a note for each.

    Small graphs are not measured. The time that it takes is subtracted from the budget.
    """
    start = time.monotonic()
    candidates = choose_candidates(estimator.candidates, sources, **estimator.settings)
    kept, notes = shortened(candidates, sources, validation, estimator.device, estimator.budget)
    if notes:
        left_out = {c.name for c in candidates} - {c.name for c in kept}
        named = [c.name for c in choose_candidates(estimator.candidates, [], **estimator.settings)]
        estimator.set_params(candidates=[name for name in named if name not in left_out])
    if estimator.budget is not None and (spent := time.monotonic() - start) > 1:
        estimator.set_params(budget=max(1.0, estimator.budget - spent))
    return notes


def print_fit(model: Model) -> None:
    """Print the leaderboard of a fitted model, what was chosen, and the score to expect."""
    table = Table(title=f"leaderboard: {model.metric} on graphs not trained on, percent", title_justify="left")
    for column in ("candidate", "score", "epoch", "propagation α", "rounds", "weight", "time", "note"):
        table.add_column(column, justify="left" if column in ("candidate", "note") else "right", overflow="fold")
    for row in model.leaderboard:
        value = "–" if row.score is None else f"{100 * row.score:.1f}"
        table.add_row(
            row.name,
            value if row.error is None else f"{value} ± {100 * row.error:.1f}",
            str(row.epoch or ""),
            row.propagation,
            str(row.rounds or ""),
            f"{row.weight:.2f}" if row.weight else "",
            f"{row.seconds:.0f} s" if row.seconds else "",
            escape(row.note),
            style="bold" if row.weight else None,
        )
    wide().print(table)
    out.print(f"selection rule: {model.rule}", highlight=False, soft_wrap=True)
    if len(model.members) > 1:
        out.print(f"the model averages the {len(model.members)} candidates with a weight", highlight=False)
    if expected := model.expected:
        out.print(
            f"expect a {model.metric} of about {100 * expected.score:.1f} on an unseen graph like these "
            f"({100 * expected.low:.1f} to {100 * expected.high:.1f}, the range over the scored graphs)",
            highlight=False,
            soft_wrap=True,
        )
    for note in model.notes:
        out.print(escape(f"note: {note}"), highlight=False, soft_wrap=True)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A model file that `edgemask fit` wrote.")],
    graph: Annotated[
        Path, typer.Argument(help="A graph with the same features as the training graphs. Labels are ignored.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="CSV file to write (default: print to standard output).")
    ] = None,
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
    inference_batch: InferenceBatch = None,
) -> None:
    """Predict the class of every node of a graph.

    The result is a CSV table with the class and the class probabilities. In a folder of CSV files a node is named by
    its id, otherwise by its row.
    """
    estimator = EdgeMaskClassifier.load(model, device=device, inference_batch=inference_batch)
    target = read_graph(graph, **reading(read))
    p = estimator.predict_proba(target)
    frame = pd.DataFrame(p, columns=[f"p:{c}" for c in estimator.classes_])
    frame.insert(0, "class", estimator.classes_[p.argmax(1)])
    if target.node_ids is not None:
        frame.index = pd.Index(target.node_ids)
    frame = frame.rename_axis("node")
    if output is None:
        frame.to_csv(sys.stdout)
        return
    with replacing(output, text=True) as sink:
        frame.to_csv(sink)


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="A model file that `edgemask fit` wrote.")],
    graph: Annotated[Path, typer.Argument(help="A labelled graph.")],
    metric: Annotated[list[str], typer.Option(help="A metric to compute. Can be repeated.")] = ["micro_f1", "macro_f1"],  # noqa: B006
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
    inference_batch: InferenceBatch = None,
) -> None:
    """Score a trained model on a labelled graph.

    Beside each score stands the one of a model that predicts the most frequent class of this graph for every node.
    """
    estimator = EdgeMaskClassifier.load(model, device=device, inference_batch=inference_batch)
    target = read_graph(graph, **reading(read))
    scores = estimator.scores(target, metric)
    guess = score(metric, target, np.tile(class_shares(target), (target.num_nodes, 1)))
    for name, value in scores.items():
        out.print(f"{name} {100 * value:.2f} (most frequent class: {100 * guess[name]:.2f})", highlight=False)
    expected = estimator.expected_
    if expected and estimator.model_.metric in scores:
        score_text = f"{100 * expected.score:.1f} ({100 * expected.low:.1f} to {100 * expected.high:.1f})"
        out.print(f"expected {estimator.model_.metric} on an unseen graph: {score_text}", highlight=False)
    out.print(f"(selection rule {estimator.rule_})", highlight=False)


def class_shares(graph: Graph) -> Array:
    """Return the share of each class among the labelled nodes."""
    labels = graph.first_labels[graph.first_labels >= 0]
    return np.bincount(labels, minlength=graph.num_classes) / max(1, len(labels))


@app.command()
def explain(
    model: Annotated[Path, typer.Argument(help="A model file that `edgemask fit` wrote.")],
    graph: Annotated[Path, typer.Argument(help="A graph with the same features as the training graphs.")],
    node: Annotated[
        list[str],
        typer.Option(
            help="Explain the prediction of this node: its id in a folder of CSV files, else its row. Can be repeated "
            "(default: a random sample of 20 nodes)."
        ),
    ] = [],  # noqa: B006
    adversary: Annotated[
        bool,
        typer.Option(
            "--adversary",
            help="Show the mask of the adversary instead: a worst case of training, not the reason of a prediction.",
        ),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="CSV file to write, with a row per edge.")
    ] = None,
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
    inference_batch: InferenceBatch = None,
) -> None:
    """Show the edges that predictions depend on.

    For every edge that ends in an explained node: the derivative of the predicted probability by the weight of the
    edge, and, for the most important edges, the change of that probability if the edge is removed.
    """
    if output:
        writable(output)
    estimator = EdgeMaskClassifier.load(model, device=device, inference_batch=inference_batch)
    target = read_graph(graph, **reading(read))
    names = np.arange(target.num_nodes) if target.node_ids is None else target.node_ids
    if adversary:
        frame, table = adversary_table(estimator, target)
        ends = ("source", "destination")
    else:
        frame, table = explanation_table(estimator, target, [row_of(n, names) for n in node] or None, names)
        ends = ("node", "neighbour")
    if output:
        frame = frame.assign(**{end: names[frame[end]] for end in ends})
        with replacing(output, text=True) as sink:
            frame.to_csv(sink, index=False)
    wide().print(table)


def row_of(node: str, names: Array) -> int:
    """Return the row of a node that a user names.

    Raises:
        InputError: There is no such node.
    """
    rows = np.flatnonzero(names.astype(str) == node)
    if not len(rows):
        raise InputError(f"no node {node!r} in the graph")
    return int(rows[0])


def explanation_table(
    estimator: EdgeMaskClassifier, target: Graph, nodes: list[int] | None, names: Array
) -> tuple[pd.DataFrame, Table]:
    """Return the explanation of predictions, and a table of the most important edge of each node."""
    frame = estimator.explain(target, nodes)
    shown = frame if nodes else frame.dropna(subset="change").sort_values("change", key=abs, ascending=False)
    title = "edges that predictions depend on" + ("" if len(shown) <= EDGES_SHOWN else f", the {EDGES_SHOWN} strongest")
    table = Table(title=title, title_justify="left")
    for column in ("node", "neighbour", "predicted class", "probability", "derivative", "change if removed"):
        table.add_column(column, justify="left" if column in ("node", "neighbour") else "right")
    for row in shown.head(EDGES_SHOWN).itertuples(index=False):
        node, neighbour, label, p, derivative, change = row[:6]
        table.add_row(
            escape(str(names[node])),
            escape(str(names[neighbour])),
            escape(str(estimator.classes_[label])),
            f"{p:.3f}",
            f"{derivative:+.3f}",
            "" if np.isnan(change) else f"{change:+.3f}",
        )
    return frame.assign(**{"class": estimator.classes_[frame["class"]]}), table


def adversary_table(estimator: EdgeMaskClassifier, target: Graph) -> tuple[pd.DataFrame, Table]:
    """Return the adversary's mask of every edge, and a table of its mean by origin of the edges."""
    mask = estimator.adversary(target)
    frame = pd.DataFrame({"source": mask.edges[0], "destination": mask.edges[1], "origin": mask.origin, "mask": mask.s})
    table = Table(title="mask of the adversary by origin (pruned: below 0.5)", title_justify="left")
    for column in ("origin", "edges", "mean mask", "pruned"):
        table.add_column(column, justify="left" if column == "origin" else "right")
    for origin, part in frame.groupby("origin", sort=False):
        table.add_row(
            str(origin), f"{len(part):,}", f"{part['mask'].mean():.3f}", f"{100 * (part['mask'] < 0.5).mean():.1f} %"
        )
    return frame, table


@app.command()
def theory(
    model: Annotated[Path, typer.Argument(help="A model file that `edgemask fit` wrote.")],
    graph: Annotated[Path, typer.Argument(help="A labelled graph with the same features as the training graphs.")],
    steps: Annotated[int, typer.Option(min=1, help="Number of steps of each gradient ascent.")] = 50,
    seed: Seed = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="JSON file to write with the full report.")
    ] = None,
    read: Reading = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Check the paper's theory on a trained model.

    The checks are KKT residuals, the surrogate mask, the duality bound and the gradient formulas.
    """
    report = EdgeMaskClassifier.load(model, device=device).theory(
        read_graph(graph, **reading(read)), steps=steps, seed=seed
    )
    for title, rows in report.tables().items():
        wide().print(grid(title, rows))
    out.print(escape(report.verdict()), highlight=False, soft_wrap=True)
    if output:
        with replacing(output, text=True) as sink:
            sink.write(json.dumps(report.to_json(), indent=1) + "\n")
