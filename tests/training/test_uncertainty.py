"""Standard errors by jackknife: compared with formulas and with the bootstrap."""

from __future__ import annotations

import numpy as np
import pytest

from edgemask.errors import MetricError
from edgemask.graph import Graph
from edgemask.metrics import score
from edgemask.training.uncertainty import GROUPS, replicates, standard_error

NONE = np.empty((2, 0), dtype=int)


def graph(n: int, classes: int = 3, seed: int = 0) -> Graph:
    y = np.random.default_rng(seed).integers(0, classes, n)
    return Graph(f"g{seed}", np.ones((n, 1)), NONE, y, classes=tuple("abc"[:classes]))


def noisy(g: Graph, skill: float, seed: int) -> np.ndarray:
    """Return probabilities that point to the right class with more or less skill."""
    p = np.random.default_rng(seed).random((g.num_nodes, g.num_classes)) + skill * np.eye(g.num_classes)[g.first_labels]
    return p / p.sum(1, keepdims=True)


def test_the_error_of_an_accuracy_is_that_of_a_proportion():
    g = graph(2000)
    p = noisy(g, 0.3, 1)
    accuracy = score(("accuracy",), g, p)["accuracy"]
    error = standard_error({"g": replicates("accuracy", g, p)})
    assert error == pytest.approx(np.sqrt(accuracy * (1 - accuracy) / 2000), rel=0.3)


@pytest.mark.parametrize("metric", ["macro_f1", "roc_auc"])
def test_the_error_of_other_metrics_is_that_of_the_bootstrap(metric):
    g = graph(1000, classes=2)
    p, rng = noisy(g, 0.2, 2), np.random.default_rng(3)
    drawn = []
    for _ in range(300):
        rows = rng.integers(0, 1000, 1000)
        sample = Graph("s", np.ones((1000, 1)), NONE, g.first_labels[rows], classes=g.classes)
        drawn.append(score((metric,), sample, p[rows])[metric])
    assert standard_error({"g": replicates(metric, g, p)}) == pytest.approx(np.std(drawn), rel=0.35)


def test_the_difference_of_similar_predictions_has_a_small_error():
    g = graph(1000)
    p = noisy(g, 0.3, 1)
    q = p.copy()
    q[:20] = q[:20, ::-1]
    one, other = ({"g": replicates("accuracy", g, values)} for values in (p, q))
    assert standard_error(one, one) == 0
    assert 0 < standard_error(one, other) < 0.5 * standard_error(one)


def test_the_error_of_a_mean_over_graphs_combines_their_errors():
    own = {f"g{i}": replicates("accuracy", graph(400, seed=i), noisy(graph(400, seed=i), 0.3, i)) for i in range(2)}
    single = [standard_error({name: values}) for name, values in own.items()]
    assert standard_error(own) == pytest.approx(np.hypot(*single) / 2)


def test_small_graphs_have_one_group_per_node_and_masks_are_respected():
    g = graph(30).replace(masks={"eval": np.arange(30) < 12})
    assert len(replicates("accuracy", g, noisy(g, 1, 0))) == 12
    assert len(replicates("accuracy", graph(500), noisy(graph(500), 1, 0))) == GROUPS


def test_a_metric_that_is_undefined_without_a_group_is_an_error():
    g = graph(40, classes=2).replace(y=np.eye(1, 40, dtype=int)[0])  # a single node of class 1
    with pytest.raises(MetricError, match="needs both classes"):
        replicates("roc_auc", g, noisy(g, 1, 0))
