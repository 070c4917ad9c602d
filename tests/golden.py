"""Everything that edgemask writes to disk or derives randomness from, as one JSON snapshot.

`tests/test_golden.py` compares the snapshot with `tests/golden.json`. A change there breaks old records, models or
checkpoints, or changes results at a fixed seed. After a deliberate change, run `python -m tests.golden` to rewrite it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import edgemask
from edgemask import BENCHMARKS, RECIPES, EdgeMaskClassifier, Graph, Recipe
from edgemask.config import BACKBONES
from edgemask.experiments.records import ResultStore, identity
from edgemask.experiments.run import Run
from edgemask.methods.registry import METHODS
from edgemask.nn.tasknet import tasknet
from edgemask.runtime import checkpoint as trained_files
from edgemask.training.fit import Fit
from paper.suites import SUITES

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "golden.json"
RESULTS = HERE.parent / "results"


def snapshot() -> dict[str, Any]:
    """Compute all sections of the snapshot from the code and the committed records."""
    sections = {
        "records": records(),
        "suites": suites(),
        "seed_purposes": seed_purposes(),
        "methods": methods(),
        "protocols": protocols(),
        "recipes": {name: recipe.to_json() for name, recipe in RECIPES.items()},
        "networks": networks(),
        "histories": histories(),
        "files": files(),
    }
    return json.loads(json.dumps(sections))


def digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def records() -> dict[str, Any]:
    """Number and digest of the committed records' keys, by benchmark."""
    keys: dict[str, list[str]] = {}
    for record in ResultStore(RESULTS):
        keys.setdefault(record["benchmark"], []).append(record["key"] + record["digest"])
    return {name: [len(own), digest(own)] for name, own in sorted(keys.items())}


def suites() -> dict[str, Any]:
    """Number and digest of the identities of each suite's tasks."""
    tasks = {name: [identity(task.describe()) for task in suite.tasks()] for name, suite in SUITES.items()}
    return {name: [len(own), digest(own)] for name, own in tasks.items()}


def seed_purposes() -> list[str]:
    """Every call that derives a seed, with its literal arguments, found in the source code."""
    found = set()
    for path in Path(edgemask.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if name in ("derive", "torch_stream", "numpy_stream"):
                words = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                found.add(f"{name}({len(node.args)}): {', '.join(words)}")
    return sorted(found)


def methods() -> dict[str, Any]:
    """Each method's class, default recipe and hyper-parameters."""
    return {
        name: {
            "class": entry.make.__name__,
            "recipe": entry.recipe.changes(),
            "hyper": {
                key: [h.default, h.low, h.high, h.law, h.search, h.choices] for key, h in entry.make.hyper.items()
            },
        }
        for name, entry in METHODS.items()
    }


def protocols() -> dict[str, Any]:
    return {
        name: {"options": benchmark.every_option, "protocols": [p.describe() for p in benchmark.protocols]}
        | ({"sets": {n: [vars(p) for p in own] for n, own in benchmark.sets.items()}} if benchmark.sets else {})
        for name, benchmark in BENCHMARKS.items()
    }


def small(name: str, seed: int) -> Graph:
    stream = np.random.default_rng(seed)
    y = np.arange(60) % 3
    x = stream.random((60, 8)) + np.eye(3, 8)[y]
    edges = np.array([(i, j) for i in range(60) for j in {int(k) for k in stream.integers(60, size=3)} if i != j]).T
    return Graph(name, x.astype(np.float32), edges, y, classes=("a", "b", "c"))


def networks() -> dict[str, Any]:
    """Names and shapes of every method's parameters and buffers, and of every backbone's."""
    cpu, found = torch.device("cpu"), {}
    for name, entry in METHODS.items():
        method = entry.make(entry.recipe.replace(k=0, clusters=0), 8, 3, 0, cpu)
        found[name] = {key: list(t.shape) for key, t in method.networks.state_dict().items()}
    for name in BACKBONES:
        found[f"backbone {name}"] = {
            key: list(t.shape) for key, t in tasknet(Recipe(backbone=name), 8, 3).state_dict().items()
        }
    return found


def histories() -> dict[str, Any]:
    """The names of what every method records in an epoch."""
    graphs, found = [small("one", 1), small("two", 2)], {}
    for name, entry in METHODS.items():
        recipe = entry.recipe.replace(k=3, clusters=4, epochs=2, select="last", alpha=(0.0,))
        trainer, _ = Fit(entry.make, recipe, graphs).run()
        found[name] = sorted({key for record in trainer.history for key in record})
    return found


def files() -> dict[str, Any]:
    """The tensors and metadata of a model and of a checkpoint, and the description of a run."""
    graphs, found = [small("one", 1), small("two", 2)], {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, state = Path(folder) / "model.safetensors", Path(folder) / "state.ckpt"
        EdgeMaskClassifier("robust", epochs=2, k=3, clusters=4).fit(graphs, checkpoint_path=state).save(model)
        for kind, path in (("model", model), ("checkpoint", state)):
            tensors, meta = trained_files.read(path, kind)
            found[kind] = {"tensors": sorted(tensors), "meta": names(meta)}
    protocol = BENCHMARKS["synthetic"].protocols[0]
    found["run"] = Run("synthetic", {}, protocol, "erm-gcn", Recipe(), 0, ("oracle",)).describe()
    return found


def names(value: Any) -> Any:
    """The keys of nested dictionaries, without their values."""
    return {key: names(inner) for key, inner in value.items()} if isinstance(value, dict) else type(value).__name__


def main() -> None:
    GOLDEN.write_text(json.dumps(snapshot(), indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
