"""`EdgeMaskClassifier`: fit on labelled source graphs, predict on a graph never seen; scikit-learn manners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from pathlib import Path
from typing import Any, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from edgemask import explain, inference
from edgemask._version import __version__
from edgemask.config import recipe as stock_recipe
from edgemask.enrich import Cache
from edgemask.errors import CheckpointError, GraphError, InputError
from edgemask.explain import EdgeMask
from edgemask.graph import Array, Graph
from edgemask.methods.edgemask import Game
from edgemask.metrics import parse, score
from edgemask.nn.tensors import GraphTensors
from edgemask.runtime import checkpoint
from edgemask.runtime.device import resolve_device
from edgemask.runtime.distributed import started
from edgemask.theory.report import TheoryReport, report
from edgemask.training.fit import Fit
from edgemask.training.selection import Choice
from edgemask.training.trainer import Trainer


class EdgeMaskClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """EdgeMask-DG* as an estimator.

    `recipe`   a stock recipe: `robust` (default), `paper`, `released`
    `seed`     all randomness derives from it
    `device`   `cpu`, `cuda`, or `auto` (cuda where there is one)
    `metric`   what selection maximises and `score` returns
    `settings` any field of `Recipe`, by name: `EdgeMaskClassifier(epochs=100, backbone="gat")`, or, for graphs that do
               not fit, `EdgeMaskClassifier(batch_size=1024, fan_out=10, inference_batch=10_000)`

    After `fit`: `classes_` (class names), `choice_` (what selection chose, by which rule, on what scores),
    `history_` (a record per epoch), `method_` (both networks).
    """

    def __init__(
        self, recipe: str = "robust", *, seed: int = 0, device: str = "auto", metric: str = "micro_f1", **settings: Any
    ):
        self.recipe, self.seed, self.device, self.metric = recipe, seed, device, metric
        self.settings = settings

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        named = {"recipe": self.recipe, "seed": self.seed, "device": self.device, "metric": self.metric}
        return named | self.settings

    def set_params(self, **params: Any) -> EdgeMaskClassifier:
        for name, value in params.items():
            if name in ("recipe", "seed", "device", "metric"):
                setattr(self, name, value)
            else:
                self.settings[name] = value
        return self

    def fit(
        self,
        sources: Sequence[Graph],
        validation: Sequence[Graph] = (),
        *,
        checkpoint_path: str | Path | None = None,
        checkpoint_every: int = 10,
        cache: Cache | None = None,
        on_epoch: Callable[[Trainer, str], None] | None = None,
    ) -> EdgeMaskClassifier:
        """Play the game on labelled source graphs; `validation` graphs, where given, only choose.

        With a checkpoint path, a fit that was stopped continues where it was.
        """
        sources, validation = ([g] if isinstance(g, Graph) else g for g in (sources, validation))
        parse(self.metric)
        fit = Fit(
            Game,
            stock_recipe(self.recipe, **self.settings),
            sources,
            validation,
            metric=self.metric,
            seed=self._seed(),
            device=resolve_device(self.device),
            cache=cache,
            checkpoint_path=checkpoint_path,
            checkpoint_every=checkpoint_every,
            on_epoch=on_epoch,
        )
        trainer, self.choice_ = fit.run()
        self.method_, self.history_ = cast(Game, trainer.method), trainer.history
        self.classes_ = np.array(sources[0].classes)
        self.sources_ = {g.name: g.hash for g in sources}
        return self

    def predict_proba(self, graph: Graph) -> Array:
        """N × C class probabilities of a graph; its labels, if any, are not looked at."""
        self._check(graph)
        return inference.probabilities(self.method_, graph.without_labels(), self.choice_.alpha, seed=self.seed)

    def predict(self, graph: Graph) -> Array:
        """The most probable class of every node, as an index into `classes_`."""
        return np.asarray(self.predict_proba(graph).argmax(1))

    def score(self, graph: Graph, y: None = None, sample_weight: None = None) -> float:
        """The estimator's metric on a labelled graph."""
        return self.scores(graph, (self.metric,))[self.metric]

    def scores(self, graph: Graph, metrics: Sequence[str]) -> dict[str, float]:
        """Several metrics on a labelled graph."""
        self._check_classes(graph)
        return score(metrics, graph, self.predict_proba(graph))

    def explain(self, graph: Graph) -> EdgeMask:
        """The MaskNet's value for every edge of the (enriched) graph, with the edge's origin."""
        self._check(graph)
        return explain.edge_mask(self.method_, graph, seed=self.seed)

    def theory(self, graph: Graph, *, steps: int = 50, seed: int = 0) -> TheoryReport:
        """The checks of `edgemask.theory` on this model and a labelled graph, on the edges `explain` shows."""
        self._check(graph)
        self._check_classes(graph)
        domain = GraphTensors.of(graph, self.method_.device)
        edges = explain.mask_edges(self.method_, domain, self.seed)
        return report(self.method_, domain, edges, steps=steps, seed=seed)

    def save(self, path: str | Path) -> None:
        """Write the fitted model as one safetensors file; of several processes, the first does."""
        self._check_fitted()
        if not started().first:
            return
        choice = self.choice_
        meta = {
            "version": __version__,
            "params": self.get_params() | {"seed": self._seed()},
            "recipe": self.method_.recipe.to_json(),
            "num_features": self.method_.num_features,
            "classes": self.classes_.tolist(),
            "choice": {
                "rule": choice.rule,
                "alpha": choice.alpha,
                "epoch": choice.epoch,
                "scores": [[a, v] for a, v in choice.scores.items()],
            },
            "history": self.history_,
            "sources": self.sources_,
            "lam": float(self.method_.lam),
        }
        checkpoint.write(path, "model", checkpoint.pack_module("networks", self.method_.networks), meta)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto", inference_batch: int | None = None) -> EdgeMaskClassifier:
        """A model `save` wrote; a damaged or foreign file is a `CheckpointError`.

        `inference_batch` replaces the recipe's: a graph of any size is then read in blocks of so many nodes.
        """
        tensors, meta = checkpoint.read(path, "model")
        target = resolve_device(device)
        try:
            params: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in meta["params"].items()}
            params["device"] = device
            model = cls(**params)
            recipe = stock_recipe(model.recipe).from_json(meta["recipe"])
            model.method_ = Game(recipe, meta["num_features"], len(meta["classes"]), model.seed, target)
            model.method_.networks.load_state_dict(checkpoint.unpack("networks", tensors))
            model.method_.lam.fill_(meta["lam"])
            scores = {float(a): float(v) for a, v in meta["choice"]["scores"]}
            model.choice_ = Choice(**meta["choice"] | {"scores": scores})
            model.history_, model.sources_ = meta["history"], meta["sources"]
            model.classes_ = np.array(meta["classes"])
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"{path} does not hold a usable model: {error}") from error
        if inference_batch is not None:
            model.method_.recipe = recipe.replace(inference_batch=inference_batch)
            model.settings["inference_batch"] = inference_batch
        return model

    def _seed(self) -> int:
        try:
            return index(self.seed)
        except TypeError as error:
            raise InputError(f"seed must be an integer, got {self.seed!r}") from error

    def _check_fitted(self) -> None:
        if not hasattr(self, "method_"):
            raise NotFittedError("this EdgeMaskClassifier is not fitted yet: call fit first")

    def _check(self, graph: Graph) -> None:
        self._check_fitted()
        if graph.num_features != self.method_.num_features:
            raise GraphError(
                f"graph {graph.name!r}, x: {graph.num_features} features, "
                f"but the model was trained on {self.method_.num_features}"
            )

    def _check_classes(self, graph: Graph) -> None:
        """Where a graph's labels are looked at, they must be the model's; where not, they may be anything."""
        self._check_fitted()
        if not graph.labelled.any():
            raise GraphError(f"graph {graph.name!r} has no labels")
        if graph.classes != tuple(self.classes_):
            raise GraphError(
                f"graph {graph.name!r}, classes: {graph.classes}, "
                f"but the model was trained on {tuple(map(str, self.classes_))}; "
                "a file can name classes of which it has no node (docs/data.md)"
            )
