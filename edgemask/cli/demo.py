"""The demo: train on two synthetic graphs, test on a third, compare EdgeMask-DG* with an MLP and a GCN."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from edgemask.config import Recipe
from edgemask.data import benchmark
from edgemask.experiments.records import Record
from edgemask.experiments.run import Run, execute
from edgemask.methods.registry import method_spec
from edgemask.report.comparison import Comparison
from edgemask.report.tables import benchmark_table
from edgemask.runtime.atomic import replacing
from edgemask.runtime.safe_text import SafeConsole

TARGET = "gamma"
PICTURES = (".png", ".svg", ".pdf")  # suffixes of the picture's formats
METHODS = ("erm-mlp", "erm-gcn", "erm-gcn-enriched", "edgemask-dg-star")


def run_demo(
    console: SafeConsole, picture: Path, seed: int = 0, nodes: int = 1500
) -> tuple[dict[str, list[Record]], Comparison]:
    """Train every method on two domains, test it on the third, draw the picture.

    Args:
        console: Where to print what happens.
        picture: File of the picture.
        seed: Seed of the graphs and of training.
        nodes: Nodes of each graph.

    Returns:
        The records by method, and their table.
    """
    start, bench = time.perf_counter(), benchmark("synthetic")
    options: dict[str, Any] = {"nodes": nodes, "seed": seed}
    domains = bench.load(**options)
    protocol = next(p for p in bench.protocols if p.targets == (TARGET,))
    console.print(
        "Three synthetic graphs have features and labels of the same distribution, but their edges differ.\n"
        f"Train on {' and '.join(protocol.sources)}, test on {TARGET}, which is not used in training.\n",
        soft_wrap=True,
    )
    for graph in domains.values():
        console.print(f"  {graph}", soft_wrap=True)
    groups: dict[str, list[Record]] = {}
    for name in METHODS:
        run = Run(bench.name, {**bench.options, **options}, protocol, name, demo_recipe(name), seed)
        groups[name] = [execute(run, domains, device=torch.device("cpu"))]
        console.print(f"  trained {name} ({time.perf_counter() - start:.0f} s)")
    draw(groups, picture)
    return groups, benchmark_table(f"the unseen domain {TARGET}, percent", groups)


def demo_recipe(name: str) -> Recipe:
    """Return a method's own recipe with half the epochs, which are enough on graphs this small."""
    recipe = method_spec(name).recipe
    return recipe.replace(epochs=recipe.epochs // 2)


def draw(groups: dict[str, list[Record]], picture: Path) -> None:
    """Draw micro-F1 on the unseen domain as bars, and the mean mask by origin over the epochs of training."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    colours = ["#999999", "#56b4e9", "#0072b2", "#d55e00"]  # distinguishable with the common forms of colour blindness
    scores = {name: 100 * records[0]["metrics"][TARGET]["micro_f1"] for name, records in groups.items()}
    bars = left.barh(list(scores), list(scores.values()), color=colours)
    left.bar_label(bars, fmt="%.1f", padding=3)
    left.invert_yaxis()
    left.set(xlim=(0, 100), xlabel=f"micro-F1 on the unseen domain {TARGET}, %")
    record = groups["edgemask-dg-star"][-1]
    for key, values in record["curves"].items():
        if key.startswith("mask "):
            right.plot([v for v in values if v is not None], label=key.removeprefix("mask "), linewidth=1)
    right.set(xlabel="epoch", ylabel="mean mask", title=f"training on {record['protocol']['name']}")
    right.legend(fontsize=7)
    with replacing(picture) as sink:
        figure.savefig(sink, format=picture.suffix[1:], dpi=150)
