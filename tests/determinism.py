"""Train every method and the race on tiny graphs: `python -m tests.determinism FILE [reversed] [threads]`.

`reversed` gives the sources other names and the opposite order. `threads` trains on as many threads as torch has, where
edgemask by itself would use one because the graphs are small.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import edgemask.model
import edgemask.training.fit
import edgemask.training.race
from edgemask import EdgeMaskClassifier
from edgemask.data.synthetic import demo_family
from edgemask.graph import Array, Graph
from edgemask.methods.registry import METHODS, method_spec

EPOCHS, HIDDEN = 2, 8
SMALL = {"k": 3, "clusters": 4, "spectral_budget": 2.0}  # of methods that enrich their graphs
NAMES = (*METHODS, "auto")


def graphs(reverse: bool = False) -> tuple[list[Graph], Graph]:
    """Return two sources and an unseen graph."""
    *sources, unseen = demo_family(80).values()
    if reverse:
        sources = [g.replace(name=f"{g.name[::-1]} renamed") for g in reversed(sources)]
    return sources, unseen.without_labels()


def fitted(name: str, sources: list[Graph]) -> EdgeMaskClassifier:
    """Train a method, or the race with its usual candidates, for two epochs."""
    settings: dict[str, Any] = {"epochs": EPOCHS, "hidden": HIDDEN}
    if name != "auto" and (recipe := method_spec(name).recipe).enriched:
        settings |= {key: value for key, value in SMALL.items() if getattr(recipe, key) != 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # graphs this small warn about their clusters and scores
        return EdgeMaskClassifier(name, device="cpu", **settings).fit(sources)


def weights(estimator: EdgeMaskClassifier) -> Array:
    """Return the digest of the weights of all members, as bytes."""
    digest = hashlib.sha256()
    for member in estimator.model_.members:
        digest.update(repr((member.name, member.propagation, member.temperature)).encode())
        for name, tensor in sorted(member.method.networks.state_dict().items()):
            digest.update(name.encode() + tensor.numpy().tobytes())
    return np.frombuffer(digest.digest(), np.uint8)


def results(reverse: bool = False) -> Iterator[tuple[str, EdgeMaskClassifier, Array]]:
    """Yield each method's name, fitted estimator, and class probabilities of the unseen graph."""
    sources, unseen = graphs(reverse)
    for name in NAMES:
        estimator = fitted(name, sources)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield name, estimator, estimator.predict_proba(unseen)


def main(path: Path, *options: str) -> None:
    """Write the weights' digest and the probabilities of every method to a file."""
    if "threads" in options:
        for module in (edgemask.model, edgemask.training.fit, edgemask.training.race):
            module.threads_for = lambda *_: contextlib.nullcontext()  # type: ignore[attr-defined]
    found: dict[str, Array] = {}
    for name, estimator, p in results("reversed" in options):
        found |= {f"{name}/weights": weights(estimator), f"{name}/p": p}
    np.savez(path, **found)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
