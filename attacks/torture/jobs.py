"""The jobs that are killed: commands and functions that write files, on tiny graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from attacks.torture.children import Action, command, succeed
from attacks.torture.cluster import on_cluster
from edgemask.data import write_graph
from edgemask.data.synthetic import demo_family
from edgemask.methods.registry import method_spec
from edgemask.report.suite import CellSpec, RunSet, Suite, TableSpec
from paper import cells, suites

NODES = 80
SMALL = ("hidden=8", "epochs=20")
GAME = ("epochs=20", "clusters=5", "k=3", "hidden=8", "mask_projection=8", "mask_hidden=8", "alpha=0,0.5")
TRANSFER = "alpha+beta→gamma"
BENCH = (
    *("bench", "synthetic", "--option", f"nodes={NODES}", "--protocol", TRANSFER, "--device", "cpu"),
    *("--method", "erm-mlp", "--method", "erm-gcn", "--set", "hidden=8", "--set", "epochs=5", "--results", "store"),
)


@dataclass(frozen=True)
class Job:
    """Something that is killed and run again.

    Args:
        name: Name of the job.
        actions: What runs, side by side, in the folder `work` of a case.
        prepare: Writes the files that are there before the first run.
        store: Name of the folder with records, if there is one.
        nodes: Whether the job runs on a Ray cluster. Half of the kills then hit a node, which the job must survive.
        weight: Share of the kills.
    """

    name: str
    actions: tuple[Action, ...]
    prepare: Callable[[], None] = lambda: None
    store: str = ""
    nodes: bool = False
    weight: float = 1.0


def graphs(nodes: int = NODES) -> None:
    """Write three graphs."""
    for name, graph in demo_family(nodes).items():
        write_graph(graph, f"{name}.npz")


def settings(*values: str) -> tuple[str, ...]:
    """Return settings as options of a command."""
    return tuple(part for value in values for part in ("--set", value))


def repeated(*arguments: str) -> Callable[[], None]:
    """Return a function that writes the graphs and runs a command, whose files a job then works with."""

    def prepare() -> None:
        graphs()
        succeed(*arguments)

    return prepare


def tiny_suite() -> None:
    """Declare a suite on tiny graphs, because the runs of the paper's suites take too long."""
    shown = []
    for name in ("erm-mlp", "erm-gcn"):
        settings = method_spec(name).under(None, hidden=8, epochs=5)
        runs = RunSet("synthetic", name, settings, (TRANSFER,), 2, options=(("nodes", NODES),))
        shown += [CellSpec(name, metric, runs, cells.Score((metric,))) for metric in ("micro_f1", "macro_f1")]
    suites.SUITES["tiny"] = Suite("tiny", "Tiny graphs", (TableSpec("Tiny graphs", "", tuple(shown)),))


def reproduce(*arguments: str) -> Action:
    """Return an action that runs a command which knows the suite on tiny graphs."""

    def run() -> object:
        tiny_suite()
        return command(*arguments)()

    return run


PLACES = ("--results", "store", "--output", "out")
SOURCES = ("alpha.npz", "beta.npz")
OWN = (*SOURCES, *settings("hidden=8", "epochs=5"), "--device", "cpu")
FIT = ("fit", *SOURCES, "--model", "model.safetensors", "--device", "cpu")
ONE = (*FIT, "--method", "robust", *settings(*GAME), "--checkpoint", "fit.ckpt", "--checkpoint-every", "2")
RACE = (*FIT, "--candidates", "erm-mlp,erm-gcn,erm-sage", *settings(*SMALL))
COMPARE = ("compare", *OWN, "--method", "erm-gcn", "--seeds", "2", "--results", "store", "--report", "own.html")
TUNE = ("tune", *OWN, "--method", "erm-mlp", "--trials", "4")
STORED = (*BENCH, "--seeds", "3")

JOBS = {
    job.name: job
    for job in (
        Job("fit", (command(*ONE),), graphs, weight=3),
        Job("race", (command(*RACE, "--checkpoint", "race"),), graphs, weight=3),
        Job("race in processes", (command(*RACE, "--checkpoint", "race", "--jobs", "2"),), graphs, weight=3),
        Job("race without checkpoint", (command(*RACE),), graphs, weight=2),
        Job("bench", (command(*BENCH, "--seeds", "4", "--jobs", "2"),), store="store", weight=3),
        Job("two writers", (command(*STORED), command(*STORED)), store="store", weight=3),
        Job("reproduce", (reproduce("reproduce", "tiny", *PLACES, "--device", "cpu"),), store="store", weight=2),
        Job("compare", (command(*COMPARE),), graphs, store="store", weight=2),
        Job("tune", (command(*TUNE),), graphs, weight=2),
        Job("report", (command("report", *PLACES),), repeated(*STORED), store="store"),
        Job("pack", (command("results", "pack", "store"),), repeated(*STORED), store="store", weight=2),
        Job("cluster", (on_cluster(*STORED),), store="store", nodes=True),
    )
}
