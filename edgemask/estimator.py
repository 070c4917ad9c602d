"""`EdgeMaskClassifier`: a scikit-learn style estimator that is fitted on source graphs and predicts unseen graphs."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import asdict
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import exceptions as sklearn_exceptions
from sklearn.base import BaseEstimator, ClassifierMixin

from edgemask import explain
from edgemask.config import RECIPES
from edgemask.coverage import Finding, GraphSummary, compare
from edgemask.enrich import Cache
from edgemask.errors import CoverageWarning, EdgemaskError, GraphError, InputError
from edgemask.explain import EdgeMask
from edgemask.graph import Array, Graph
from edgemask.inference import Member, Propagation, masked
from edgemask.methods.edgemask import Game
from edgemask.methods.registry import method_spec
from edgemask.metrics import parse, score
from edgemask.model import Model, Standing
from edgemask.nn.tensors import GraphTensors
from edgemask.runtime.device import resolve_device
from edgemask.runtime.distributed import started
from edgemask.runtime.processes import process_pool
from edgemask.theory.report import TheoryReport, report
from edgemask.training.candidates import choose_candidates
from edgemask.training.fit import Fit
from edgemask.training.naming import Canonical
from edgemask.training.race import MAX_MEMBERS, Race
from edgemask.training.selection import check_sources
from edgemask.training.trainer import Trainer

AUTO = "auto"
STAR = "edgemask-dg-star"  # the method of the stock recipes
PARAMETERS = ("method", "recipe", "candidates", "budget", "max_members", "jobs", "seed", "device", "metric")


class NotFittedError(EdgemaskError, sklearn_exceptions.NotFittedError):  # type: ignore[misc]
    """An estimator was used before it was fitted. Also an instance of scikit-learn's `NotFittedError`."""


class EdgeMaskClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Node classifier for graphs that were not seen in training.

    The classifier is trained on one or more labelled source graphs and predicts other graphs, which may have any number
    of nodes but need the same features. The graphs to train, validate and score on also need the same classes.

    By default several candidate models compete: networks that use the features only, several graph networks, training
    on an enriched graph, and the adversarial edge masks of EdgeMask-DG*. Each is scored on graphs that it is not
    trained on (the validation graphs, else each source when it is left out), and those that cannot be told from the
    best one are averaged. No label of the target is used. With a method's name, that method alone is trained.

    The estimator follows scikit-learn: parameters are stored unchanged and checked by `fit`, `get_params`,
    `set_params` and `sklearn.base.clone` work, and fitted attributes end in an underscore. Unlike scikit-learn's
    estimators, its input is graphs (`edgemask.Graph`), which hold features, edges and labels together.

    Args:
        method: `auto`, a method's name (`edgemask methods` lists them), or a stock recipe of `edgemask-dg-star`:
            `robust`, `paper` (the settings of the paper) or `released` (the behaviour of the authors' released code).
        recipe: A stock recipe that replaces the method's own settings.
        candidates: With `auto`, the names of the candidates, such as `erm-gcn` or `edgemask-dg:backbone=mix:rho=0.7`.
            If every name starts with `+` or `-`, candidates are added to the default ones or removed from them.
        budget: With `auto`, seconds that `fit` may take. The best model so far is used when the time is over.
        max_members: With `auto`, the largest number of candidates that are averaged.
        jobs: With `auto`, the number of processes that train candidates side by side.
        seed: All randomness is derived from this integer.
        device: `cpu`, `cuda`, `cuda:N`, or `auto` (`cuda` if there is a GPU, else `cpu`).
        metric: Metric that selection maximises and `score` returns, for example `micro_f1`, `macro_f1`, `accuracy` or
            `roc_auc` (`edgemask.metrics`).
        **settings: Fields of `edgemask.Recipe` and hyper-parameters of the method by name, for example `epochs=100`.
            With `auto` they apply to every candidate, except settings that define a candidate, such as its backbone.
            If a graph does not fit into memory, use `batch_size=1024, fan_out=10` to train on sampled neighbourhoods
            and `inference_batch=10_000` to predict in blocks of nodes.

    Attributes:
        classes_: Array of the class names. `predict` returns indices into it.
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

    def __init__(
        self,
        method: str = AUTO,
        *,
        recipe: str | None = None,
        candidates: Sequence[str] | None = None,
        budget: float | None = None,
        max_members: int = MAX_MEMBERS,
        jobs: int = 1,
        seed: int = 0,
        device: str = "auto",
        metric: str = "micro_f1",
        **settings: Any,
    ):
        self.method, self.recipe, self.candidates = method, recipe, candidates
        self.budget, self.max_members, self.jobs = budget, max_members, jobs
        self.seed, self.device, self.metric = seed, device, metric
        self.settings = settings

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters and the given settings by name. `deep` has no effect."""
        return {name: getattr(self, name) for name in PARAMETERS} | self.settings

    def set_params(self, **params: Any) -> EdgeMaskClassifier:
        """Set parameters and settings by name, and return the estimator. `fit` checks the values."""
        for name, value in params.items():
            if name in PARAMETERS:
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
        on_heat: Callable[[str, int], None] | None = None,
        executor: Executor | None = None,
    ) -> EdgeMaskClassifier:
        """Train on labelled source graphs. The result depends neither on their names nor on their order.

        Args:
            sources: Labelled graphs to train on. A single graph may be given without a list.
            validation: Labelled graphs used only for model selection. If there are none, selection uses the sources.
            checkpoint_path: Where the state is saved: a folder with `auto`, a file with a single method. If it already
                holds the state of the same fit, training continues from it.
            checkpoint_every: Epochs between two checkpoints of a single method. With `auto`, the state is saved every
                20 seconds and after each round.
            cache: Where enriched edges are cached. By default they are not cached.
            on_epoch: Called after every epoch with the trainer and the name of the stage, if training runs in this
                process.
            on_heat: With `auto`, called when a candidate has finished a round, with its name and the number of the
                round from 1.
            executor: With `auto`, runs candidates side by side instead of new processes. `jobs` says how many.

        Returns:
            The fitted estimator.

        Raises:
            InputError: A parameter or setting is not legal, or every candidate failed.
            MetricError: The metric is unknown, or is not defined for the labels.
            GraphError: The graphs do not fit together or have no labels.
            CheckpointError: The checkpoint is damaged, or belongs to another fit.
            DivergenceError: The loss of a single method became NaN or infinite.
        """
        sources, validation = ([g] if isinstance(g, Graph) else list(g) for g in (sources, validation))
        parse(self.metric)
        if self.method == AUTO:
            self._take(self._fit_auto(sources, validation, checkpoint_path, cache, on_epoch, on_heat, executor))
            return self
        for name in ("candidates", "budget"):
            if getattr(self, name) is not None:
                raise InputError(f"{name} needs method = 'auto', got method = {self.method!r}")
        stock = self.method in RECIPES
        name, recipe = (STAR, self.recipe or self.method) if stock else (self.method, self.recipe)
        settings = method_spec(name).under(recipe, **self.settings)
        check_sources(sources, validation)
        graphs, start = Canonical(sources, validation), time.monotonic()
        fit = Fit(
            method_spec(name).make,
            settings,
            graphs.sources,
            graphs.validation,
            metric=self.metric,
            seed=self._checked_seed(),
            device=resolve_device(self.device),
            cache=cache,
            checkpoint_path=checkpoint_path,
            checkpoint_every=checkpoint_every,
            on_epoch=on_epoch and (lambda trainer, stage: on_epoch(trainer, graphs.text(stage))),
        )
        trainer, choice = fit.run()
        seconds = time.monotonic() - start
        scores: Mapping[float, float | None] = choice.scores or {choice.alpha: None}
        rows = [
            Standing(name, value, None, choice.epoch, f"{a:g}", 1, float(a == choice.alpha), seconds)
            for a, value in scores.items()
        ]
        self._take(
            Model(
                members=[Member(name, trainer.method, Propagation(choice.alpha))],
                classes=sources[0].classes,
                rule=choice.rule,
                leaderboard=sorted(rows, key=lambda row: -row.weight),
                metric=self.metric,
                seed=self._checked_seed(),
                histories={name: graphs.history(trainer.history)},
                sources={g.name: g.hash for g in sources},
                summaries=[GraphSummary.of(g) for g in sources],
            )
        )
        return self

    def _fit_auto(
        self,
        sources: Sequence[Graph],
        validation: Sequence[Graph],
        folder: str | Path | None,
        cache: Cache | None,
        on_epoch: Callable[[Trainer, str], None] | None,
        on_heat: Callable[[str, int], None] | None,
        executor: Executor | None,
    ) -> Model:
        """Run a race between the candidates."""
        if self.recipe is not None:
            raise InputError(f"recipe needs a single method, got recipe = {self.recipe!r} with method = 'auto'")
        device = resolve_device(self.device)
        candidates = choose_candidates(self.candidates, sources, **self.settings)
        pool = process_pool(self.jobs) if executor is None and self.jobs != 1 else nullcontext(executor)
        with pool as workers:
            race = Race(
                candidates,
                sources,
                validation,
                metric=self.metric,
                seed=self._checked_seed(),
                device=device,
                cache=cache,
                budget=self.budget,
                max_members=self.max_members,
                folder=folder,
                on_epoch=on_epoch,
                on_heat=on_heat,
                executor=workers,
                jobs=self.jobs,
                shared_disk=executor is None,
            )
            return race.run()

    def _take(self, model: Model) -> None:
        """Set the fitted attributes."""
        self.model_ = model
        self.members_, self.rule_, self.expected_ = model.members, model.rule, model.expected
        self.classes_, self.history_, self.notes_ = np.array(model.classes), model.histories, model.notes
        self.sources_ = model.sources
        self.leaderboard_ = pd.DataFrame([asdict(s) for s in model.leaderboard]).rename(columns={"name": "candidate"})

    def predict_proba(self, graph: Graph) -> Array:
        """Return the N × C class probabilities of a graph's nodes.

        A `CoverageWarning` says if the graph lies outside what the sources cover; `compare` has the details.

        Args:
            graph: The graph to predict. Its labels, if it has any, are not used.

        Raises:
            NotFittedError: The estimator is not fitted.
            GraphError: The graph has another number of features than the sources, or a probability is not finite.
        """
        self._check_features(graph)
        p = self.model_.probabilities(graph.without_labels())
        if outside := [f.message for f in self._findings(graph, p) if f.outside]:
            message = f"graph {graph.name!r} differs from the sources: {'; '.join(outside)}"
            warnings.warn(message, CoverageWarning, stacklevel=2)
        return p

    def predict(self, graph: Graph) -> Array:
        """Return the most probable class of every node, as an index into `classes_`.

        Args:
            graph: The graph to predict. Its labels, if it has any, are not used.

        Raises:
            NotFittedError: The estimator is not fitted.
            GraphError: The graph has another number of features than the sources, or a probability is not finite.
        """
        return np.asarray(self.predict_proba(graph).argmax(1))

    def compare(self, graph: Graph) -> pd.DataFrame:
        """Compare a graph with the sources: features, degrees, predicted homophily and confidence. No label is used.

        Returns:
            A row per aspect: the value of the graph, the range of the sources, and whether the graph is outside.

        Raises:
            NotFittedError: The estimator is not fitted.
            GraphError: The graph has another number of features than the sources.
        """
        self._check_features(graph)
        unlabelled = graph.without_labels()
        return pd.DataFrame([asdict(f) for f in self._findings(unlabelled, self.model_.probabilities(unlabelled))])

    def _findings(self, graph: Graph, p: Array) -> list[Finding]:
        return compare(self.model_.summaries, GraphSummary.of(graph, p)) if self.model_.summaries else []

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

    def explain(self, graph: Graph, nodes: Sequence[int] | None = None) -> pd.DataFrame:
        """Explain predictions by the edges that they depend on.

        Args:
            graph: The graph. Its labels are not used.
            nodes: Nodes whose prediction is explained. By default a random sample of at most 20 nodes.

        Returns:
            A row per edge that ends in one of the nodes; see `edgemask.explain.explain_prediction`.

        Raises:
            NotFittedError: The estimator is not fitted.
            GraphError: The graph has another number of features than the sources.
            InputError: A node is not in the graph.
        """
        self._check_features(graph)
        return explain.explain_prediction(self.members_, graph.without_labels(), nodes, seed=self.model_.seed)

    def adversary(self, graph: Graph) -> EdgeMask:
        """Return the mask that the trained adversary gives to every edge of a graph, with the origin of the edge.

        The mask is a worst case that was used in training. Predictions do not use it, unless `test_mask` is `masknet`.
        If the recipe enriches graphs, the result includes a seeded sample of enriched edges. Labels are not used.

        Raises:
            NotFittedError: The estimator is not fitted.
            GraphError: The graph has another number of features than the sources.
            InputError: The model was trained without a MaskNet.
        """
        self._check_features(graph)
        return explain.edge_mask(self._game(), graph, seed=self.model_.seed)

    def theory(self, graph: Graph, *, steps: int = 50, seed: int = 0) -> TheoryReport:
        """Check the paper's theory on this model and a labelled graph, on the same edges as `adversary`.

        With several members, the first one with a MaskNet is checked.

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
        game = self._game()
        domain = GraphTensors.of(graph, game.device)
        edges = explain.mask_edges(game, domain, self.model_.seed)
        return report(game, domain, edges, steps=steps, seed=seed)

    def save(self, path: str | Path) -> None:
        """Write the fitted model with all its members to one safetensors file.

        If `torchrun` started several processes, only the first one writes.

        Raises:
            NotFittedError: The estimator is not fitted.
        """
        self._check_fitted()
        if started().first:
            self.model_.save(path, self.get_params() | {"seed": self._checked_seed()})

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
        estimator = cls(**params | {"device": device})
        if inference_batch is not None:
            model = model.with_inference_batch(inference_batch)
            estimator.settings["inference_batch"] = inference_batch
        estimator._take(model)
        return estimator

    def _game(self) -> Game:
        """Return the first member with a MaskNet.

        Raises:
            InputError: No member has one.
        """
        games = [m.method for m in self.members_ if isinstance(m.method, Game) and m.method.recipe.mask]
        return masked(games[0] if games else self.members_[0].method)

    def _checked_seed(self) -> int:
        try:
            return index(self.seed)
        except TypeError as error:
            raise InputError(f"seed must be an integer, got {self.seed!r}") from error

    def _check_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise NotFittedError("this EdgeMaskClassifier is not fitted yet: call fit first")

    def _check_features(self, graph: Graph) -> None:
        self._check_fitted()
        if graph.num_features != self.model_.num_features:
            raise GraphError(
                f"graph {graph.name!r}, x: {graph.num_features} features, "
                f"but the model was trained on {self.model_.num_features}"
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
