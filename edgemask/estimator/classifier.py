"""`EdgeMaskClassifier`: a scikit-learn style estimator that is fitted on source graphs and predicts unseen graphs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import exceptions as sklearn_exceptions
from sklearn.base import ClassifierMixin

from edgemask import explain
from edgemask.enrich import Cache
from edgemask.errors import EdgemaskError, GraphError, InputTypeError
from edgemask.estimator.fitting import check_recipe, fit_auto, fit_one
from edgemask.estimator.inputs import labelled_graphs, rows_of, training_graphs
from edgemask.estimator.parameters import AUTO, PARAMETERS, Parameters
from edgemask.explain import EdgeMask
from edgemask.graph import Graph, is_sequence
from edgemask.inference import masked
from edgemask.methods.edgemask import Game
from edgemask.metrics import score
from edgemask.model import Model
from edgemask.nn.tensors import GraphTensors
from edgemask.runtime import checkpoint
from edgemask.runtime.device import resolve_device
from edgemask.runtime.distributed import started
from edgemask.runtime.progress import progress
from edgemask.theory.report import TheoryReport, report
from edgemask.training.trainer import Trainer


class NotFittedError(EdgemaskError, sklearn_exceptions.NotFittedError):  # type: ignore[misc]
    """An estimator was used before it was fitted. Also an instance of scikit-learn's `NotFittedError`."""


class EdgeMaskClassifier(ClassifierMixin, Parameters):  # type: ignore[misc]
    """Node classifier for graphs that were not seen in training.

    The classifier is trained on one or more labelled source graphs and predicts other graphs, which may have any number
    of nodes but need the same features. The graphs to train, validate and score on also need the same classes.

    By default several candidate models compete: networks that use the features only, several graph networks, training
    on an enriched graph, and the adversarial edge masks of EdgeMask-DG*. Each is scored on graphs that it is not
    trained on (the validation graphs, else each source when it is left out), and those that cannot be told from the
    best one are averaged. No label of the target is used. With a method's name, that method alone is trained.

    The estimator follows scikit-learn: parameters are stored unchanged and their values are checked by `fit`, fitted
    attributes end in an underscore, and `clone`, `GridSearchCV`, `cross_val_score` and `Pipeline` work. X is a list of
    graphs, which hold features, edges and labels together. A graph may be an `edgemask.Graph`, a path, or an object of
    PyTorch Geometric, pandas, networkx, SciPy or DGL (docs/own_graphs.md).

    Args:
        method: `auto`, a method's name (`edgemask methods` lists them), or a stock recipe of `edgemask-dg-star`:
            `robust`, `paper` (the settings of the paper) or `released` (the behaviour of the authors' released code).
        recipe: A stock recipe that replaces the method's own settings.
        candidates: With `auto`, the names of the candidates, such as `erm-gcn` or `edgemask-dg:backbone=mix:rho=0.7`.
            If every name starts with `+` or `-`, candidates are added to the default ones or removed from them.
        budget: With `auto`, the time that `fit` may take, in seconds or as a text such as `10m`. The best model so far
            is used when the time is over.
        max_members: With `auto`, the largest number of candidates that are averaged.
        jobs: With `auto`, the number of processes that train candidates side by side.
        seed: All randomness is derived from this integer.
        device: `cpu`, `cuda`, `cuda:N`, or `auto` (`cuda` if there is a GPU, else `cpu`).
        metric: Metric that selection maximises and `score` returns, for example `micro_f1`, `macro_f1`, `accuracy` or
            `roc_auc` (`edgemask.metrics`).
        read: Options with which paths and objects of other libraries are converted to graphs, in `fit` and in all
            other methods, for example `{"label": "grade", "undirected": True}`. The model file holds them.
        scale: Standardise numeric feature columns that have names, with the mean and deviation of the sources.
        verbose: 1 shows the progress of `fit` on standard error.
        k, clusters, …, patience: Every field of `edgemask.Recipe`, for example `epochs=100`. None is the value of the
            method. With `auto` they apply to every candidate, except settings that define a candidate, such as its
            backbone. If a graph does not fit into memory, use `batch_size=1024, fan_out=10` to train on sampled
            neighbourhoods and `inference_batch=10_000` to predict in blocks of nodes.
        **hyper: Hyper-parameters of the method by name (`edgemask methods NAME` lists them).

    Raises:
        InputTypeError: There is no parameter or hyper-parameter of a name. The message has the nearest one.

    Attributes:
        classes_: Array of the classes: integers if all class names are integers, else text. `predict` returns these.
        contract_: Columns and classes of all graphs of the model (`edgemask.graph.Contract`).
        leaderboard_: DataFrame with a row per candidate, best first: its score on graphs it was not trained on, the
            standard error, the chosen epoch and propagation, and its weight in the average. With `auto` it includes the
            majority class. For a single method it has a row per propagation strength.
        expected_: The score to expect on an unseen graph, with an interval (`edgemask.model.Expected`). None for a
            single method and if nothing could be scored.
        rule_: Name of the selection rule.
        members_: The trained models whose probabilities are averaged (`edgemask.inference.Member`).
        history_: List with one record (a dictionary of losses, mask statistics and scores) per epoch of the final
            training, by the name of the member.
        notes_: What a user should know about the fit, for example candidates that failed.
        sources_: Content hash of each source graph by name.

    Examples:
        >>> from edgemask import EdgeMaskClassifier, benchmark
        >>> graphs = benchmark("synthetic").load(nodes=100)
        >>> model = EdgeMaskClassifier(candidates=["erm-mlp", "erm-gcn"], epochs=20, device="cpu")
        >>> model = model.fit([graphs["alpha"], graphs["beta"]])
        >>> model.rule_
        'auto, leave-one-source-out'
        >>> sorted(model.leaderboard_["candidate"])
        ['erm-gcn', 'erm-mlp', 'majority class']
        >>> model.predict(graphs["gamma"]).shape
        (100,)
        >>> model.predict_proba(graphs["gamma"]).shape
        (100, 5)
        >>> 0 <= model.score(graphs["gamma"]) <= 1
        True
    """

    def fit(
        self,
        X: Any,
        y: Sequence[Any] | None = None,
        *,
        validation: Any = None,
        checkpoint_path: str | Path | None = None,
        checkpoint_every: int = 10,
        cache: Cache | None = None,
        on_epoch: Callable[[Trainer, str], None] | None = None,
        on_heat: Callable[[str, int], None] | None = None,
        executor: Executor | None = None,
    ) -> EdgeMaskClassifier:
        """Train on labelled source graphs. The result depends neither on their names nor on their order.

        Args:
            X: Labelled graphs to train on. A single graph may be given without a list. If a graph has a mask `train`,
                only the labels inside it are used.
            y: One array of labels per graph, which replaces the graph's labels and classes. None uses the graphs' own.
            validation: Labelled graphs used only for model selection. If there are none, selection uses the sources.
                If a graph has a mask `val`, only the labels inside it are used.
            checkpoint_path: Where the state is saved: a folder with `auto`, a file with a single method. If it already
                holds the state of the same fit, training continues from it.
            checkpoint_every: Epochs between two checkpoints of a single method. With `auto`, the state is saved every
                20 seconds and after each round.
            cache: Where enriched edges are cached. By default they are not cached.
            on_epoch: Called after every epoch with the trainer (`edgemask.training.trainer.Trainer`) and the name of
                the stage, if training runs in this process. In `trainer.history`, the sources are called `source-0`,
                `source-1`, …, because results must not depend on their names; `history_` has your names.
            on_heat: With `auto`, called when a candidate has finished a round, with its name and the number of the
                round from 1.
            executor: With `auto`, runs candidates side by side instead of new processes. `jobs` says how many.

        Returns:
            The fitted estimator.

        Raises:
            InputError: A parameter or setting is not legal, or every candidate failed.
            InputTypeError: An object is not a graph.
            MetricError: The metric is unknown, or is not defined for the labels.
            GraphError: The graphs do not fit together or have no labels.
            CheckpointError: The checkpoint is damaged, or belongs to another fit.
            DivergenceError: The loss of a single method became NaN or infinite.

        Examples:
            >>> from edgemask import EdgeMaskClassifier, benchmark
            >>> graphs = list(benchmark("synthetic").load(nodes=100).values())
            >>> def show(trainer, stage):
            ...     print(stage, trainer.epoch, sorted(trainer.history[-1]))
            >>> model = EdgeMaskClassifier("erm-mlp", epochs=1, device="cpu").fit(graphs[:2], on_epoch=show)
            all sources 1 ['epoch', 'loss source-0', 'loss source-1']
            >>> race = EdgeMaskClassifier(candidates=["erm-mlp"], epochs=1, device="cpu")
            >>> race = race.fit(graphs[:2], on_heat=lambda name, number: print(f"round {number}: {name}"))
            round 1: erm-mlp
            round 2: erm-mlp
            round 3: erm-mlp
        """
        self.check_values()
        check_recipe(self)
        for name, callback in (("on_epoch", on_epoch), ("on_heat", on_heat)):
            if not (callback is None or callable(callback)):
                raise InputTypeError(f"{name} must be a function or None, got {callback!r}")
        auto, read = self.method == AUTO, dict(self.read or {})
        contract, sources, scored = training_graphs(X, y, validation, read, self.scale)
        with ExitStack() as stack:
            if self.verbose and started().first:
                shown = stack.enter_context(progress("fit", race=auto, jobs=self.jobs))
                on_epoch, on_heat = _both(shown.on_epoch, on_epoch), _both(shown.on_heat, on_heat)
            if auto:
                model = fit_auto(self, sources, scored, checkpoint_path, cache, on_epoch, on_heat, executor)
            else:
                model = fit_one(self, sources, scored, checkpoint_path, checkpoint_every, cache, on_epoch)
        self._take(dataclasses.replace(model, contract=contract, read=read))
        return self

    def _take(self, model: Model) -> None:
        """Set the fitted attributes."""
        self.model_ = model
        self.members_, self.rule_, self.expected_ = model.members, model.rule, model.expected
        self.classes_, self.history_, self.notes_ = model.classes_, model.histories, model.notes
        self.contract_ = model.contract
        self.sources_ = model.sources
        self.leaderboard_ = pd.DataFrame([asdict(s) for s in model.leaderboard]).rename(columns={"name": "candidate"})

    def predict_proba(self, X: Any) -> Any:
        """Return the N × C class probabilities of a graph's nodes.

        A `CoverageWarning` says if the graph lies outside what the sources cover; `compare` has the details.

        Args:
            X: A graph in any accepted form, or a path. Its labels, if it has any, are not used. A list of graphs gives
                a list of results.

        Raises:
            NotFittedError: The estimator is not fitted.
            InputTypeError: An object is not a graph.
            GraphError: The graph does not have the columns of the sources, or a probability is not finite.
        """
        return self._fitted().predict_proba(X)

    def predict(self, X: Any) -> Any:
        """Return the most probable class of every node, as a value of `classes_`.

        Args:
            X: A graph, a path or a list, as for `predict_proba`, which also describes the errors.
        """
        return self._fitted().predict(X)

    def compare(self, graph: Any) -> pd.DataFrame:
        """Compare a graph with the sources: features, degrees, predicted homophily and confidence. No label is used.

        Returns:
            A row per aspect: the value of the graph, the range of the sources, and whether the graph is outside.

        Raises:
            NotFittedError: The estimator is not fitted.
            GraphError: The graph does not have the columns of the sources.
        """
        model = self._fitted()
        graph = model.graph(graph)
        return pd.DataFrame([asdict(f) for f in model.findings(graph, model.probabilities(graph))])

    def score(self, X: Any, y: Any = None) -> float:
        """Return the estimator's metric on labelled graphs.

        Args:
            X: A graph, a path or a list of them. The score of a list is the mean over its graphs. If a graph has a mask
                `eval` or `test`, only these nodes are scored.
            y: One array of labels per graph, which replaces the graph's labels. None uses the graphs' own.

        Raises:
            NotFittedError: The estimator is not fitted.
            GraphError: A graph has no labels, other columns than the sources, or a class that the model does not know.
            MetricError: The metric is not defined for the labels.
        """
        model = self._fitted()

        def convert(values: Any) -> list[Graph]:
            several = values if is_sequence(values) else [values]
            return [model.read_graph(one, labels=True, name=f"graph-{i}") for i, one in enumerate(several)]

        graphs = labelled_graphs(X, y, convert)
        if not graphs:
            raise GraphError("no graphs to score were given")
        return float(np.mean([self.scores(g, (self.metric,))[self.metric] for g in graphs]))

    def scores(self, graph: Any, metrics: Sequence[str]) -> dict[str, float]:
        """Return several metrics on a labelled graph by name. See `score` for the errors."""
        labelled = self._labelled(graph)
        return score(metrics, labelled, self.model_.covered_probabilities(labelled.without_labels()))

    def explain(self, graph: Any, nodes: Sequence[Any] | None = None) -> pd.DataFrame:
        """Explain predictions by the edges that they depend on.

        Args:
            graph: The graph, in any accepted form. Its labels are not used.
            nodes: Nodes whose prediction is explained: ids if the graph has ids, else rows. By default a random sample
                of at most 20 nodes.

        Returns:
            A row per edge that ends in one of the nodes; see `edgemask.explain.explain_prediction`. Nodes are shown
            by their ids if the graph has ids, and classes as values of `classes_`.

        Raises:
            NotFittedError: The estimator is not fitted.
            GraphError: The graph does not have the columns of the sources.
            InputError: A node is not in the graph.
        """
        model = self._fitted()
        graph = model.graph(graph)
        frame = explain.explain_prediction(model.members, graph, rows_of(graph, nodes), seed=model.seed)
        named = {"class": model.classes_[frame["class"]]}
        if graph.node_ids is not None:
            named |= {end: graph.node_ids[frame[end]] for end in ("node", "neighbour")}
        return frame.assign(**named)

    def adversary(self, graph: Any) -> EdgeMask:
        """Return the mask that the trained adversary gives to every edge of a graph, with the origin of the edge.

        The mask is a worst case that was used in training. Predictions do not use it, unless `test_mask` is `masknet`.
        If the recipe enriches graphs, the result includes a seeded sample of enriched edges. Labels are not used.

        Raises:
            NotFittedError: The estimator is not fitted.
            GraphError: The graph does not have the columns of the sources.
            InputError: The model was trained without a MaskNet.
        """
        model = self._fitted()
        return explain.edge_mask(self._game(), model.graph(graph), seed=model.seed)

    def theory(self, graph: Any, *, steps: int = 50, seed: int = 0) -> TheoryReport:
        """Check the paper's theory on this model and a labelled graph, on the same edges as `adversary`.

        With several members, the first one with a MaskNet is checked.

        Args:
            graph: A labelled graph.
            steps: Steps of every gradient ascent.
            seed: Seed of the random masks that the learned mask is compared with.

        Raises:
            NotFittedError: The estimator is not fitted.
            GraphError: The graph has no labels, or other columns or classes than the sources.
            InputError: The model was trained without a MaskNet, or the graph has no edges.
        """
        model, labelled, game = self._fitted(), self._labelled(graph), self._game()
        domain = GraphTensors.of(labelled, game.device)
        edges = explain.mask_edges(game, domain, model.seed)
        return report(game, domain, edges, steps=steps, seed=seed)

    def save(self, path: str | Path) -> None:
        """Write the fitted model with all its members to one safetensors file.

        If `torchrun` started several processes, only the first one writes.

        Raises:
            NotFittedError: The estimator is not fitted.
        """
        model = self._fitted()
        if started().first:
            params = {name: getattr(self, name) for name in PARAMETERS} | self.settings
            params |= {} if self.scale else {"scale": False}
            plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in params.items()}
            model.save(path, plain | {"seed": self.integer("seed")})

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
        model, params = Model.load(path, resolve_device(device))
        with checkpoint.unusable(path, "model"):
            estimator = cls(**params | {"device": device, "read": model.read or None})
            estimator.check_values()
        if inference_batch is not None:
            model = model.with_inference_batch(inference_batch)
            estimator.set_params(inference_batch=inference_batch)
        estimator._take(model)
        return estimator

    def _game(self) -> Game:
        """Return the first member with a MaskNet.

        Raises:
            InputError: No member has one.
        """
        games = [m.method for m in self.members_ if isinstance(m.method, Game) and m.method.recipe.mask]
        return masked(games[0] if games else self.members_[0].method)

    def _fitted(self) -> Model:
        """Return the fitted model."""
        if not hasattr(self, "model_"):
            raise NotFittedError("this EdgeMaskClassifier is not fitted yet: call fit first")
        return self.model_

    def _labelled(self, graph: Any) -> Graph:
        """Return a graph with labels in the model's form."""
        labelled = self._fitted().graph(graph, labels=True)
        if not labelled.labelled.any():
            raise GraphError(f"graph {labelled.name!r} has no labels")
        return labelled


def _both(first: Callable[..., None], second: Callable[..., None] | None) -> Callable[..., None]:
    """Return a function that calls two functions, or one if there is no second one."""

    def call(*args: Any) -> None:
        first(*args)
        if second is not None:
            second(*args)

    return call
