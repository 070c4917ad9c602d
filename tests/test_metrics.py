"""Tests of metrics: comparison with scikit-learn, and inputs for which a metric is not defined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

from edgemask.errors import MetricError
from edgemask.graph import Graph
from edgemask.metrics import METRICS, hits, parse, roc_auc, score

SEEDS = range(5)


def task(seed: int, classes: int, n: int = 60, *, absent: bool = False) -> tuple[np.ndarray[Any, Any], ...]:
    """Return correlated labels and probabilities. With `absent`, class 0 has no nodes and is never predicted."""
    rng = np.random.default_rng(seed)
    y = rng.integers(int(absent), classes, n)
    p = rng.random((n, classes)) + 0.3 * np.eye(classes)[y]
    if absent:
        p[:, 0] = 0
    return y, p / p.sum(1, keepdims=True)


def graph(y: Any, classes: int, **fields: Any) -> Graph:
    names, no_edges = tuple(str(c) for c in range(classes)), np.empty((2, 0), dtype=int)
    return Graph("g", np.ones((len(y), 1)), no_edges, y, names, **fields)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("absent", [False, True])
def test_one_label_metrics_equal_scikit_learn(seed: int, absent: bool) -> None:
    y, p = task(seed, 4, absent=absent)
    predicted = p.argmax(1)
    assert score(["accuracy", "micro_f1", "macro_f1", "f1:2"], graph(y, 4), p) == pytest.approx(
        {
            "accuracy": accuracy_score(y, predicted),
            "micro_f1": f1_score(y, predicted, average="micro"),
            "macro_f1": f1_score(y, predicted, average="macro"),
            "f1:2": f1_score(y, predicted, average=None, labels=range(4), zero_division=0)[2],
        }
    )


def test_macro_f1_counts_a_class_that_is_only_predicted() -> None:
    p = np.eye(3)[[0, 1, 2, 2]]
    y = np.array([0, 1, 0, 1])
    expected = f1_score(y, p.argmax(1), average="macro", zero_division=0)
    assert score(["macro_f1"], graph(y, 3), p)["macro_f1"] == pytest.approx(expected)


def test_f1_of_a_class_without_nodes_and_predictions_is_0() -> None:
    y, p = task(0, 3, absent=True)
    assert score(["f1:0"], graph(y, 3), p) == {"f1:0": 0.0}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("digits", [8, 1, 0])
def test_roc_auc_equals_scikit_learn_with_and_without_ties(seed: int, digits: int) -> None:
    y, p = task(seed, 2)
    p = p.round(digits)
    assert score(["roc_auc"], graph(y, 2), p)["roc_auc"] == pytest.approx(roc_auc_score(y, p[:, 1]))


def test_roc_auc_distinguishes_tiny_probabilities() -> None:
    """In float32, 1e-9 - 1 and 1e-12 - 1 are equal; the probabilities themselves are not."""
    positive = np.array([1e-9, 1e-12], dtype=np.float32)
    assert roc_auc(np.array([1, 0]), np.stack([1 - positive, positive], axis=1)) == 1.0


def test_roc_auc_can_be_below_one_half() -> None:
    y = np.array([0, 0, 1, 1])
    p = np.array([[0.1, 0.9], [0.2, 0.8], [0.7, 0.3], [0.1, 0.9]])
    assert roc_auc(y, p) == pytest.approx(roc_auc_score(y, p[:, 1])) == pytest.approx(0.375)


@pytest.mark.parametrize("y", [[0, 0, 0], [1, 1, 1]])
def test_roc_auc_needs_both_classes(y: list[int]) -> None:
    with pytest.raises(MetricError, match=rf"both classes, got {sum(y)} positives and {3 - sum(y)} negatives"):
        score(["roc_auc"], graph(y, 2), np.full((3, 2), 0.5))


def test_roc_auc_needs_two_classes() -> None:
    with pytest.raises(MetricError, match="roc_auc needs 2 classes, got 3"):
        score(["roc_auc"], graph([0, 1, 2], 3), np.eye(3))


@pytest.mark.parametrize("seed", SEEDS)
def test_hits_is_the_precision_of_the_top_class(seed: int) -> None:
    _, p = task(seed, 4)
    y = (np.random.default_rng(seed).random(p.shape) < 0.4).astype(int)
    top = np.eye(4, dtype=int)[p.argmax(1)]
    expected = (top & y).any(1).mean()
    assert hits(y, p) == pytest.approx(expected)
    assert score(["hits"], graph(y, 4), p)["hits"] == pytest.approx(expected)


def test_hits_of_one_label_is_accuracy() -> None:
    y, p = task(0, 4)
    result = score(["hits", "accuracy"], graph(y, 4), p)
    assert result["hits"] == pytest.approx(result["accuracy"])


def test_one_label_metrics_use_the_first_of_several_labels() -> None:
    several = graph([[0, 1, 1], [1, 0, 0]], 3)
    assert score(["accuracy", "hits"], several, np.eye(3)[[2, 0]]) == {"accuracy": 0.5, "hits": 1.0}


def test_a_node_with_none_of_the_classes_has_no_first_label() -> None:
    bare = graph([[0, 1], [0, 0]], 2)
    assert score(["hits"], bare, np.eye(2)) == {"hits": 0.0}
    with pytest.raises(MetricError, match="'accuracy': node 1 of graph 'g' has none of the classes"):
        score(["accuracy"], bare, np.eye(2))


@pytest.mark.parametrize("several", [False, True])
def test_only_labelled_nodes_of_the_eval_mask_count(several: bool) -> None:
    y, p = task(0, 3)
    mask = np.arange(len(y)) % 2 == 0
    hidden = np.where(np.arange(len(y)) < 20, -1, y)
    labels = np.where(hidden[:, None] < 0, -1, np.eye(3)[hidden]) if several else hidden
    kept = mask & (hidden >= 0)
    result = score(["accuracy"], graph(labels, 3, masks={"eval": mask}), p)
    assert result["accuracy"] == pytest.approx(accuracy_score(y[kept], p[kept].argmax(1)))


def test_no_labelled_node_to_score() -> None:
    for fields in ({"y": [-1, -1]}, {"y": [0, 1], "masks": {"eval": np.zeros(2, dtype=bool)}}):
        with pytest.raises(MetricError, match="'g': there are no labelled nodes"):
            score(["accuracy"], graph(classes=2, **fields), np.eye(2))


@pytest.mark.parametrize("seed", SEEDS)
def test_thresholded_metrics_equal_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = (rng.random((60, 4)) < 0.4).astype(int)
    y[:, 0] |= ~y.any(1)
    p = 0.7 * rng.random((60, 4)) + 0.3 * y
    expected = {f"label_{how}_f1": f1_score(y, p > 0.5, average=how, zero_division=0) for how in ("micro", "macro")}
    assert score(list(expected), graph(y, 4), p, of_labels=True) == pytest.approx(expected)


def test_a_class_that_is_neither_a_label_nor_predicted_counts_as_0() -> None:
    y, p = np.array([[1, 0, 0], [0, 1, 0]]), np.array([[0.9, 0.1, 0.1], [0.9, 0.6, 0.1]])
    values = score(["label_micro_f1", "label_macro_f1"], graph(y, 3), p, of_labels=True)
    assert values == pytest.approx({"label_micro_f1": 4 / 5, "label_macro_f1": (2 / 3 + 1 + 0) / 3})


def test_thresholded_metrics_need_the_probabilities_of_labels() -> None:
    with pytest.raises(MetricError, match="'label_micro_f1' needs a probability of each label"):
        score(["label_micro_f1"], graph([0, 1], 2), np.eye(2))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_predictions_must_be_finite(value: float) -> None:
    p = np.eye(2)
    p[1, 0] = value
    with pytest.raises(MetricError, match=f"'g': prediction of node 1 must be finite, got .*{value}"):
        score(["accuracy"], graph([0, 1], 2), p)


def test_predictions_must_have_the_shape_of_the_labels() -> None:
    with pytest.raises(MetricError, match=r"'g': predictions have shape \(2, 3\), expected \(2, 2\)"):
        score(["accuracy"], graph([0, 1], 2), np.eye(2, 3))


def test_tensors_are_accepted() -> None:
    y, p = task(0, 2)
    expected = score(list(NAMES), graph(y, 2), p, of_labels=True)
    assert score(list(NAMES), graph(y, 2), torch.tensor(p), of_labels=True) == expected  # type: ignore[arg-type]


NAMES = {"f1:1" if name == "f1" else name for name in METRICS}


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("auc", "no metric 'auc' .*accuracy, .*roc_auc"),
        ("f1", "'f1': f1 needs the index of a class"),
        ("f1:x", "'f1:x': f1 needs the index of a class"),
        ("f1:-1", "'f1:-1': f1 needs the index of a class"),
        ("accuracy:1", "'accuracy:1': accuracy does not take an argument"),
    ],
)
def test_invalid_metric_names_are_rejected(metric: str, message: str) -> None:
    with pytest.raises(MetricError, match=message):
        parse(metric)


def test_f1_of_a_class_the_graph_does_not_have() -> None:
    with pytest.raises(MetricError, match="'f1:2': graph 'g' has only 2 classes"):
        score(["f1:2"], graph([0, 1], 2), np.eye(2))
