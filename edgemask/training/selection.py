"""Selection rules for the epoch and the propagation strength, one class per rule.

A rule says which trainings a fit runs (`stages`), what each of them trains on and is scored on (`split`), and what is
chosen from the scores (`choose`). `Fit`, `plan` and `tune` use the same objects. No rule sees a label of a target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgemask.config import Recipe
from edgemask.errors import GraphError, InputError
from edgemask.graph import Array, Graph, collect
from edgemask.methods.sources import check_magnitude
from edgemask.seeds import numpy_stream
from edgemask.training.trainer import Trainer

SOURCE_VAL = 0.2  # share of each source's labelled nodes that `source-val` withholds
INDIFFERENCE = 0.002  # strengths whose scores differ by less count as equally good

HeldOutScores = Mapping[str, Mapping[float, float]]  # held-out source → propagation strength → score


@dataclass(frozen=True)
class Choice:
    """The result of a selection.

    Attributes:
        rule: Name of the selection rule.
        alpha: Chosen propagation strength.
        epoch: Chosen epoch.
        scores: Score of each candidate strength on the selection data (empty for `last`).
    """

    rule: str
    alpha: float
    epoch: int
    scores: dict[float, float]


@dataclass(frozen=True)
class Split:
    """The data of one training.

    Attributes:
        train: Source graphs to train on.
        nodes: Indices of the nodes that the loss uses, for each graph of `train`.
        score_on: Graphs to score on; empty if the training is not scored.
    """

    train: tuple[Graph, ...]
    nodes: tuple[Array, ...]
    score_on: tuple[Graph, ...]


class SelectionRule(ABC):
    """A rule by which a fit chooses the epoch and the propagation strength."""

    name: ClassVar[str]
    scores_epochs: ClassVar[bool] = False  # whether the final training is scored every few epochs

    def check(self, sources: Sequence[Graph], validation: Sequence[Graph]) -> None:  # noqa: B027
        """Raise an `InputError` if the rule cannot be used with these graphs. By default it can."""

    def stages(self, sources: Sequence[Graph]) -> list[str | None]:
        """Return the trainings to run, in order: the name of the source that is left out, or None for all sources."""
        return [None]

    def split(self, sources: Sequence[Graph], validation: Sequence[Graph], stage: str | None, seed: int) -> Split:
        """Return the data of one stage.

        By default, a stage trains on all labels of the remaining sources and is scored on the source that is left out.

        Args:
            sources: All source graphs.
            validation: Graphs used only for selection.
            stage: Name of the source that is left out, or None for all sources.
            seed: Seed of a random split, for rules that withhold nodes.

        Raises:
            GraphError: A source has too few labels to withhold some of them.
        """
        train = tuple(g for g in sources if g.name != stage)
        return Split(train, tuple(labelled_nodes(g) for g in train), tuple(g for g in sources if g.name == stage))

    @abstractmethod
    def choose(self, trainer: Trainer, held_out: HeldOutScores) -> Choice:
        """Choose, and load the chosen weights into the trainer's networks.

        Args:
            trainer: The trainer of the last stage, after its last epoch.
            held_out: Scores of the earlier stages.
        """


class Last(SelectionRule):
    """Take the last epoch. Nothing is chosen."""

    name = "last"

    def choose(self, trainer: Trainer, held_out: HeldOutScores) -> Choice:
        """Take the last epoch and the recipe's first strength."""
        trainer.method.networks.load_state_dict(trainer.weights())
        return Choice(self.name, trainer.method.recipe.alpha[0], trainer.epoch, {})


class _BestEpoch(SelectionRule):
    """Choose the epoch and strength that score best while all sources are trained on."""

    scores_epochs = True

    def choose(self, trainer: Trainer, held_out: HeldOutScores) -> Choice:
        """Choose the smallest strength near the best score, and its best epoch."""
        scores = {alpha: best.score for alpha, best in trainer.best.items()}
        alpha = smallest_alpha_near_best(scores)
        best = trainer.best[alpha]
        trainer.method.networks.load_state_dict(best.weights)
        return Choice(self.name, alpha, best.epoch, scores)


class SourceVal(_BestEpoch):
    """Choose the epoch and strength on 20 % of each source's labels, which the loss does not use."""

    name = "source-val"

    def split(self, sources: Sequence[Graph], validation: Sequence[Graph], stage: str | None, seed: int) -> Split:
        """Train on 80 % of the labels of every source and score on the others."""
        nodes, score_on = zip(*(withhold(g, seed) for g in sources), strict=True)
        return Split(tuple(sources), nodes, score_on)


class Validation(_BestEpoch):
    """Choose the epoch and strength on the validation graphs."""

    name = "validation"

    def check(self, sources: Sequence[Graph], validation: Sequence[Graph]) -> None:
        """Raise an `InputError` if there are no validation graphs."""
        if not validation:
            raise InputError("select = 'validation' needs validation graphs, none were given")

    def split(self, sources: Sequence[Graph], validation: Sequence[Graph], stage: str | None, seed: int) -> Split:
        """Train on all labels of the sources and score on the validation graphs."""
        return Split(tuple(sources), tuple(labelled_nodes(g) for g in sources), tuple(validation))


class LeaveOneSourceOut(SelectionRule):
    """Choose the strength by leaving out each source in turn, then train on all sources to the last epoch."""

    name = "leave-one-source-out"

    def check(self, sources: Sequence[Graph], validation: Sequence[Graph]) -> None:
        """Raise an `InputError` if there are fewer than two sources."""
        if len(sources) < 2:
            raise InputError(f"select = 'leave-one-source-out' needs at least 2 sources, got {len(sources)}")

    def stages(self, sources: Sequence[Graph]) -> list[str | None]:
        """Return one stage per source that is left out, then one on all sources."""
        return [*(g.name for g in sources), None]

    def choose(self, trainer: Trainer, held_out: HeldOutScores) -> Choice:
        """Choose the strength by its mean score over the sources left out, and take the last epoch."""
        scores = mean_scores(held_out)
        trainer.method.networks.load_state_dict(trainer.weights())
        return Choice(self.name, smallest_alpha_near_best(scores), trainer.epoch, scores)


RULES: dict[str, SelectionRule] = {r.name: r for r in (Last(), SourceVal(), Validation(), LeaveOneSourceOut())}


def resolve_rule(recipe: Recipe, sources: Sequence[Graph], validation: Sequence[Graph] = ()) -> SelectionRule:
    """Return the rule that a recipe's `select` means for these graphs.

    `auto` is `validation` if there are validation graphs, else `leave-one-source-out` if there are several sources,
    else `source-val`.

    Args:
        recipe: Settings `select` and `patience`.
        sources: Graphs to train on.
        validation: Graphs used only for selection.

    Raises:
        InputError: The rule cannot be used with these graphs, or `patience` is set and the rule does not score epochs.
    """
    name: str = recipe.select
    if name == "auto":
        name = "validation" if validation else rule_of_sources(sources).name
    rule = RULES[name]
    if recipe.patience and not rule.scores_epochs:
        raise InputError(f"patience needs a rule that scores every few epochs, but the rule is {name!r}")
    rule.check(sources, validation)
    return rule


def rule_of_sources(sources: Sequence[Graph]) -> SelectionRule:
    """Return the rule for sources without validation graphs."""
    return RULES["leave-one-source-out" if len(sources) > 1 else "source-val"]


def check_sources(sources: Sequence[Graph], validation: Sequence[Graph] = (), *, one_class: bool = False) -> None:
    """Check that sources and validation graphs fit together and have labels, and sources more than one class.

    Their features must not be so large that computations overflow.

    Args:
        sources: Graphs to train on.
        validation: Graphs used only for selection.
        one_class: Accept a source with one class, as long as all sources together have several.

    Raises:
        GraphError: They do not. The message names the graph.
    """
    if not sources:
        raise GraphError("no source graphs were given")
    collect([*sources, *validation])
    for graph in (*sources, *validation):
        if graph.y is None or not graph.labelled.any():
            raise GraphError(f"graph {graph.name!r}, y: training needs labels, but it has none")
        check_magnitude(graph)
    if one_class and len(np.unique(np.concatenate([g.first_labels[g.first_labels >= 0] for g in sources]))) > 1:
        return
    for graph in sources:
        classes = np.unique(graph.first_labels[graph.first_labels >= 0])
        if len(classes) < 2:
            only = f"every label is {graph.classes[int(classes[0])]!r}" if len(classes) else "no node has a class"
            raise GraphError(f"graph {graph.name!r}, y: {only}; a source needs at least 2 classes")


def labelled_nodes(graph: Graph) -> Array:
    """Return the indices of the nodes that have a class."""
    return np.flatnonzero(graph.first_labels >= 0)


def withhold(graph: Graph, seed: int) -> tuple[Array, Graph]:
    """Withhold a fifth of the labelled nodes of every class of a source.

    Args:
        graph: The source.
        seed: Seed of the split.

    Returns:
        The nodes to train on, and the graph with an `eval` mask of the withheld nodes.

    Raises:
        GraphError: Every class has too few labels.
    """
    stream, withheld = numpy_stream(seed, "source-val", graph.name), np.zeros(graph.num_nodes, dtype=bool)
    for c in range(graph.num_classes):  # class by class, so that both parts have every class if possible
        nodes = stream.permutation(np.flatnonzero(graph.first_labels == c))
        withheld[nodes[: round(SOURCE_VAL * len(nodes))]] = True
    if not withheld.any():
        raise GraphError(f"graph {graph.name!r}, y: too few labels to withhold a fifth of any class for source-val")
    return np.flatnonzero((graph.first_labels >= 0) & ~withheld), graph.replace(masks={**graph.masks, "eval": withheld})


def mean_scores(held_out: HeldOutScores) -> dict[float, float]:
    """Return the mean score of each strength over the held-out sources."""
    strengths = next(iter(held_out.values()))
    return {alpha: float(np.mean([scores[alpha] for scores in held_out.values()])) for alpha in strengths}


def smallest_alpha_near_best(scores: Mapping[float, float]) -> float:
    """Return the smallest strength whose score is within 0.2 points of the best."""
    best = max(scores.values())
    return min(alpha for alpha, value in scores.items() if value >= best - INDIFFERENCE)
