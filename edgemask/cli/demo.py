"""The command `demo`: the default, an MLP and a GCN are trained on two synthetic graphs and scored on a third."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from edgemask.cli.common import Seed, err, out, wide
from edgemask.cli.evaluate import class_shares
from edgemask.cli.fit import described, print_model
from edgemask.cli.json_output import Json, output
from edgemask.data import benchmark
from edgemask.errors import InputError
from edgemask.estimator import AUTO, EdgeMaskClassifier
from edgemask.graph import Graph
from edgemask.metrics import score
from edgemask.report.comparison import MAJORITY
from edgemask.runtime.atomic import replacing, writable
from edgemask.runtime.device import cores
from edgemask.runtime.safe_text import SafeConsole

PICTURES = (".png", ".svg", ".pdf")  # suffixes of the picture's formats
SOURCES, TARGET = ("alpha", "beta"), "gamma"
REFERENCES = ("erm-mlp", "erm-gcn")
NODES = 400
BLUE, GREY = "#0072b2", "#8c8c8c"  # distinguishable with the common forms of colour blindness
INTRODUCTION = (
    "Three synthetic graphs have features and labels of the same distribution, but their edges differ. Models are "
    f"trained on {' and '.join(SOURCES)}, and scored on {TARGET}, which is not used in training.\n"
)
NEXT = "Next, with your own graphs: `edgemask fit GRAPH GRAPH --model MODEL`. docs/get_started.md explains every step."

app = typer.Typer()


@app.command()
def demo(
    picture: Annotated[Path, typer.Option(help="Where to write the picture.")] = Path("out/demo.png"),
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train on two synthetic graphs and test on a third.

    The graphs have the same classes but different edges. The default chooses among all its candidates. An MLP, a GCN
    and the most frequent class are scored beside it.
    """
    if picture.suffix not in PICTURES:
        raise InputError(f"{picture}: the file name of the picture must end in {', '.join(PICTURES)}")
    writable(picture)
    with output("demo", json) as result:
        fields = run_demo(err, seed) | {"picture": picture}
        draw(fields, picture)
        result.show(fields, lambda: print_demo(fields))


def run_demo(console: SafeConsole, seed: int = 0, nodes: int = NODES, **settings: Any) -> dict[str, Any]:
    """Train the default and its references on two graphs and score them on the third.

    Args:
        console: Where to print what happens.
        seed: Seed of the graphs and of training.
        nodes: Nodes of each graph.
        **settings: Settings of all models.

    Returns:
        The choice of the default as `fit` describes it, and the scores on the third graph, as JSON values.
    """
    graphs = benchmark("synthetic").load(nodes=nodes, seed=seed)
    sources, target = [graphs[name] for name in SOURCES], graphs[TARGET]
    console.print(INTRODUCTION, soft_wrap=True)
    for graph in graphs.values():
        console.print(f"  {graph}", soft_wrap=True)
    common = {"seed": seed, "device": "cpu", "verbose": int(console.is_terminal), **settings}
    model = EdgeMaskClassifier(jobs=min(2, cores()), **common).fit(sources)
    scores = {AUTO: model.score(target)}
    for name in REFERENCES:
        scores[name] = EdgeMaskClassifier(name, **common).fit(sources).score(target)
    scores[MAJORITY] = majority(sources, target)
    return {**described(model.model_), "target": TARGET, "scores": scores, "verdict": verdict(model, scores)}


def majority(sources: Sequence[Graph], target: Graph) -> float:
    """Return the score of the most frequent class of the sources on the target."""
    counts = sum(class_shares(graph) * len(graph.labelled) for graph in sources)
    return score(["micro_f1"], target, np.tile(counts, (target.num_nodes, 1)))["micro_f1"]


def verdict(model: EdgeMaskClassifier, scores: Mapping[str, float]) -> str:
    """Return what happened, in words."""
    own, expected = scores[AUTO], model.expected_
    assert expected is not None
    mlp, gcn, most = (f"{100 * scores[name]:.1f}" for name in (*REFERENCES, MAJORITY))
    held = "as expected" if expected.low <= own <= expected.high else "outside the interval it expected"
    return (
        f"The default classifies {100 * own:.1f} % of the nodes of {TARGET} correctly, {held}: "
        f"{100 * expected.score:.1f} ({100 * expected.low:.1f} to {100 * expected.high:.1f}). Trained on the same "
        f"graphs, an MLP has {mlp} and a GCN has {gcn}. The most frequent class has {most}."
    )


def print_demo(fields: Mapping[str, Any]) -> None:
    """Print the leaderboard, the scores on the target, and what happened."""
    print_model(fields)
    table = Table(title=f"{fields['metric']} on {fields['target']}, percent", title_justify="left")
    table.add_column("model")
    table.add_column("score", justify="right")
    for name, value in fields["scores"].items():
        table.add_row(name, f"{100 * value:.1f}", style="bold" if name == AUTO else None)
    wide().print(table)
    for line in (fields["verdict"], f"picture: {fields['picture']}", NEXT):
        out.print(line, soft_wrap=True)


def draw(fields: Mapping[str, Any], picture: Path) -> None:
    """Draw the scores of the candidates on held-out sources, and the scores of the models on the target."""
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    draw_leaderboard(left, fields["leaderboard"])
    draw_scores(right, fields)
    with replacing(picture) as file:
        figure.savefig(file, dpi=150, format=picture.suffix[1:])


def draw_leaderboard(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw the score of each candidate as a dot with its standard error; members of the model are filled."""
    shown = [row for row in rows if row["score"] is not None]
    for y, row in enumerate(shown):
        colour = BLUE if row["weight"] else GREY
        style: dict[str, Any] = {"color": colour, "markerfacecolor": colour if row["weight"] else "white"}
        axes.errorbar(100 * row["score"], y, xerr=100 * (row["error"] or 0), marker="o", linestyle="", **style)
    axes.set_yticks(range(len(shown)), [row["name"].replace("edgemask-dg:backbone=", "mask: ") for row in shown])
    axes.invert_yaxis()
    axes.set(
        xlabel="micro-F1 on the source that is left out, % ± standard error",
        title="What the default chose from\n(filled: in the model)",
    )
    tidy(axes)


def draw_scores(axes: Axes, fields: Mapping[str, Any]) -> None:
    """Draw the scores on the target as bars, and the score that the default expects as a band."""
    values, expected = {name: 100 * value for name, value in fields["scores"].items()}, fields["expected"]
    bars = axes.barh(list(values), list(values.values()), color=[BLUE if name == AUTO else GREY for name in values])
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.axvspan(100 * expected["low"], 100 * expected["high"], color=BLUE, alpha=0.15, label="expected by the default")
    axes.invert_yaxis()
    axes.set(
        xlim=(0, 100),
        xlabel=f"micro-F1 on {fields['target']}, %",
        title=f"How it does on {fields['target']},\nwhich was not used in training",
    )
    axes.legend(loc="lower right", fontsize=8, frameon=False)
    tidy(axes)


def tidy(axes: Axes) -> None:
    """Remove the frame and draw faint vertical lines."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
