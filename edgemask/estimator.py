"""`EdgeMaskClassifier`: a scikit-learn style estimator that is fitted on source graphs and predicts unseen graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from pathlib import Path
from typing import Any, cast

import numpy as np
from sklearn import exceptions as sklearn_exceptions
from sklearn.base import BaseEstimator, ClassifierMixin

from edgemask import explain, inference
from edgemask._version import __version__
from edgemask.config import recipe as stock_recipe
from edgemask.enrich import Cache
from edgemask.errors import CheckpointError, EdgemaskError, GraphError, InputError
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


class NotFittedError(EdgemaskError, sklearn_exceptions.NotFittedError):  # type: ignore[misc]
    """An estimator was used before it was fitted. Also an instance of scikit-learn's `NotFittedError`."""


class EdgeMaskClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Node classifier for graphs that were not seen in training (EdgeMask-DG*).

    The classifier is trained on one or more labelled source graphs. Training is a game between two networks: the
    TaskNet classifies nodes, and the MaskNet weights the edges of the source graphs so that the TaskNet's loss rises.
    The trained TaskNet then predicts other graphs, which may have any number of nodes but need the same features. The
    graphs to train, validate and score on also need the same classes.

    The estimator follows scikit-learn: parameters are stored unchanged and checked by `fit`, `get_params`,
    `set_params` and `sklearn.base.clone` work, and fitted attributes end in an underscore. Unlike scikit-learn's
    estimators, its input is graphs (`edgemask.Graph`), which hold features, edges and labels together.

    Args:
        recipe: Name of a stock recipe, the defaults of all settings: `robust`, `paper` (the settings of the paper) or
            `released` (the behaviour of the authors' released code).
        seed: All randomness is derived from this integer.
        device: `cpu`, `cuda`, `cuda:N`, or `auto` (`cuda` if there is a GPU, else `cpu`).
        metric: Metric that selection maximises and `score` returns, for example `micro_f1`, `macro_f1`, `accuracy` or
            `roc_auc` (`edgemask.metrics`).
        **settings: Fields of `edgemask.Recipe` by name. They override those of the recipe, for example `epochs=100` or
            `backbone="gat"`. If a graph does not fit into memory, use `batch_size=1024, fan_out=10` to train on sampled
            neighbourhoods and `inference_batch=10_000` to predict in blocks of nodes.

    Attributes:
        classes_: Array of the class names. `predict` returns indices into it.
        choice_: The result of model selection (`edgemask.training.selection.Choice`): the rule, the chosen epoch and
            propagation strength, and the score of each candidate strength.
        history_: List with one record (a dictionary of losses, mask statistics and scores) per epoch of the final
            training.
        method_: The trained method (`edgemask.methods.edgemask.Game`), which holds both networks.
        sources_: Content hash of each source graph by name.

    Examples:
        >>> from edgemask import EdgeMaskClassifier, benchmark
        >>> graphs = benchmark("synthetic").load(nodes=100)
        >>> model = EdgeMaskClassifier(epochs=2, k=3, clusters=5, device="cpu")
        >>> model = model.fit([graphs["alpha"], graphs["beta"]])
        >>> model.choice_.rule
        'leave-one-source-out'
        >>> model.predict(graphs["gamma"]).shape
        (100,)
        >>> model.predict_proba(graphs["gamma"]).shape
        (100, 5)
        >>> 0 <= model.score(graphs["gamma"]) <= 1
        True
        >>> mask = model.explain(graphs["gamma"])
        >>> sorted(set(mask.origin.tolist()))
        ['knn', 'original', 'spectral']
    """

    def __init__(
        self, recipe: str = "robust", *, seed: int = 0, device: str = "auto", metric: str = "micro_f1", **settings: Any
    ):
        self.recipe, self.seed, self.device, self.metric = recipe, seed, device, metric
        self.settings = settings

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters and the given settings by name. `deep` has no effect."""
        named = {"recipe": self.recipe, "seed": self.seed, "device": self.device, "metric": self.metric}
        return named | self.settings

    def set_params(self, **params: Any) -> EdgeMaskClassifier:
        """Set parameters and settings by name, and return the estimator. `fit` checks the values."""
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
        """Train on labelled source graphs.

        Args:
            sources: Labelled graphs to train on. A single graph may be given without a list.
            validation: Labelled graphs used only for model selection. If there are none, selection uses the sources.
            checkpoint_path: File to write checkpoints to. If it already holds a checkpoint of the same fit, training
                continues from it.
            checkpoint_every: Epochs between two checkpoints.
            cache: Where enriched edges are cached. By default they are not cached.
            on_epoch: Called after every epoch with the trainer and the name of the stage.

        Returns:
            The fitted estimator.

        Raises:
            InputError: A parameter or setting is not legal.
            MetricError: The metric is unknown, or is not defined for the labels.
            GraphError: The graphs do not fit together or have no labels.
            CheckpointError: The checkpoint is damaged, or belongs to another fit.
            DivergenceError: The loss became NaN or infinite.
        """
        sources, validation = ([g] if isinstance(g, Graph) else g for g in (sources, validation))
        parse(self.metric)
        fit = Fit(
            Game,
            stock_recipe(self.recipe, **self.settings),
            sources,
            validation,
            metric=self.metric,
            seed=self._checked_seed(),
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
        """Return the N × C class probabilities of a graph's nodes.

        Args:
            graph: The graph to predict. Its labels, if it has any, are not used.

        Raises:
            NotFittedError: The estimator is not fitted.
            GraphError: The graph has another number of features than the sources.
        """
        self._check_features(graph)
        return inference.probabilities(self.method_, graph.without_labels(), self.choice_.alpha, seed=self.seed)

    def predict(self, graph: Graph) -> Array:
        """Return the most probable class of every node, as an index into `classes_`.

        Args:
            graph: The graph to predict. Its labels, if it has any, are not used.

        Raises:
            NotFittedError: The estimator is not fitted.
            GraphError: The graph has another number of features than the sources.
        """
        return np.asarray(self.predict_proba(graph).argmax(1))

    def score(self, graph: Graph, y: None = None, sample_weight: None = None) -> float:
        """Return the estimator's metric on a labelled graph.

        Args:
            graph: The graph to score. If it has an `eval` mask, only these nodes are scored.
            y: Ignored. It exists for compatibility with scikit-learn.
            sample_weight: Ignored. It exists for compatibility with scikit-learn.

        Raises:
            NotFittedError: The estimator is not fitted.
            GraphError: The graph has no labels, or other features or classes than the sources.
            MetricError: The metric is not defined for the graph's labels.
        """
        return self.scores(graph, (self.metric,))[self.metric]

    def scores(self, graph: Graph, metrics: Sequence[str]) -> dict[str, float]:
        """Return several metrics on a labelled graph by name. See `score` for the errors."""
        self._check_classes(graph)
        return score(metrics, graph, self.predict_proba(graph))

    def explain(self, graph: Graph) -> EdgeMask:
        """Return the MaskNet's value for every edge of a graph, with the origin of the edge.

        If the recipe enriches graphs, the result includes a seeded sample of enriched edges. Labels are not used.

        Raises:
            NotFittedError: The estimator is not fitted.
            GraphError: The graph has another number of features than the sources.
            InputError: The model was trained without a MaskNet.
        """
        self._check_features(graph)
        return explain.edge_mask(self.method_, graph, seed=self.seed)

    def theory(self, graph: Graph, *, steps: int = 50, seed: int = 0) -> TheoryReport:
        """Check the paper's theory on this model and a labelled graph, on the same edges as `explain`.

        Args:
            graph: A labelled graph.
            steps: Steps of every gradient ascent.
            seed: Seed of the random masks that the learned mask is compared with.

        Raises:
            NotFittedError: The estimator is not fitted.
            GraphError: The graph has no labels, or other features or classes than the sources.
            InputError: The model was trained without a MaskNet, or the graph has no edges.
        """
        self._check_features(graph)
        self._check_classes(graph)
        domain = GraphTensors.of(graph, self.method_.device)
        edges = explain.mask_edges(self.method_, domain, self.seed)
        return report(self.method_, domain, edges, steps=steps, seed=seed)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one safetensors file.

        If `torchrun` started several processes, only the first one writes.

        Raises:
            NotFittedError: The estimator is not fitted.
        """
        self._check_fitted()
        if not started().first:
            return
        choice = self.choice_
        meta = {
            "version": __version__,
            "params": self.get_params() | {"seed": self._checked_seed()},
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
        """Return the model that `save` wrote.

        Args:
            path: The model file.
            device: `cpu`, `cuda`, `cuda:N`, or `auto` (`cuda` if there is a GPU, else `cpu`).
            inference_batch: If given, predict in blocks of this many nodes, so that graphs of any size can be
                predicted. It replaces the setting of the recipe.

        Raises:
            CheckpointError: The file is damaged, or is not a model.
            InputError: The device or `inference_batch` cannot be used.
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

    def _checked_seed(self) -> int:
        try:
            return index(self.seed)
        except TypeError as error:
            raise InputError(f"seed must be an integer, got {self.seed!r}") from error

    def _check_fitted(self) -> None:
        if not hasattr(self, "method_"):
            raise NotFittedError("this EdgeMaskClassifier is not fitted yet: call fit first")

    def _check_features(self, graph: Graph) -> None:
        self._check_fitted()
        if graph.num_features != self.method_.num_features:
            raise GraphError(
                f"graph {graph.name!r}, x: {graph.num_features} features, "
                f"but the model was trained on {self.method_.num_features}"
            )

    def _check_classes(self, graph: Graph) -> None:
        """Check that a graph has labels of the model's classes. Only methods that use labels call this."""
        self._check_fitted()
        if not graph.labelled.any():
            raise GraphError(f"graph {graph.name!r} has no labels")
        if graph.classes != tuple(self.classes_):
            raise GraphError(
                f"graph {graph.name!r}, classes: {graph.classes}, "
                f"but the model was trained on {tuple(map(str, self.classes_))}; "
                "a file can also name classes that none of its nodes has (docs/data.md)"
            )
