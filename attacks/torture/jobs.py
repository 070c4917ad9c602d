"""The jobs that are killed: commands and functions that write files, on tiny graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from attacks.torture.children import Action, command
from edgemask.data import write_graph
from edgemask.data.synthetic import demo_family

NODES = 80
SMALL = ("hidden=8", "epochs=20")
GAME = ("epochs=20", "clusters=5", "k=3", "hidden=8", "mask_projection=8", "mask_hidden=8", "alpha=0,0.5")
BENCH = (
    *("bench", "synthetic", "--option", f"nodes={NODES}", "--protocol", "alpha+beta→gamma", "--device", "cpu"),
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
        real: The command line of a job whose processes are not forked but started, with all imports.
        weight: Share of the kills.
    """

    name: str
    actions: tuple[Action, ...] = ()
    prepare: Callable[[], None] = lambda: None
    store: str = ""
    real: tuple[str, ...] = ()
    weight: float = 1.0

    @property
    def count(self) -> int:
        """Number of processes that run side by side."""
        return max(1, len(self.actions))


def graphs(nodes: int = NODES) -> None:
    """Write three graphs."""
    for name, graph in demo_family(nodes).items():
        write_graph(graph, f"{name}.npz")


def settings(*values: str) -> tuple[str, ...]:
    """Return settings as options of a command."""
    return tuple(part for value in values for part in ("--set", value))


SOURCES = ("alpha.npz", "beta.npz")
FIT = ("fit", *SOURCES, "--model", "model.safetensors", "--device", "cpu")
ONE = (*FIT, "--method", "robust", *settings(*GAME), "--checkpoint", "fit.ckpt", "--checkpoint-every", "2")
RACE = (*FIT, "--candidates", "erm-mlp,erm-gcn,erm-sage", *settings(*SMALL), "--checkpoint", "race")

JOBS = {
    job.name: job
    for job in (
        Job("fit", (command(*ONE),), graphs, weight=3),
        Job("bench", (command(*BENCH, "--seeds", "4", "--jobs", "2"),), store="store", weight=3),
    )
}
