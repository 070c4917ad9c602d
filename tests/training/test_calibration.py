"""Calibration: the temperature that generated the labels is found, and the error that is left is measured."""

from __future__ import annotations

import numpy as np
import pytest

from edgemask.graph import Graph
from edgemask.inference import tempered
from edgemask.training.calibration import calibration_error, fit_temperature

NONE = np.empty((2, 0), dtype=int)


def drawn(n: int = 4000, seed: int = 0) -> tuple[Graph, np.ndarray]:
    """Return a graph whose labels are drawn from probabilities, and the logarithms of these probabilities."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    y = (p.cumsum(1) < rng.random((n, 1))).sum(1)
    return Graph("g", np.ones((n, 1)), NONE, y, classes=tuple("abc")), z


def softmax(z: np.ndarray) -> np.ndarray:
    return np.exp(z) / np.exp(z).sum(1, keepdims=True)


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 3.0])
def test_the_temperature_undoes_a_wrong_sharpness(sharpness):
    graph, z = drawn()
    p = softmax(sharpness * z)
    temperature = fit_temperature({"g": graph}, {"g": p})
    assert temperature == pytest.approx(sharpness, rel=0.15)
    assert calibration_error(graph, tempered(p, temperature)) < 0.03
    if sharpness == 3:
        assert calibration_error(graph, p) > 0.1


def test_a_temperature_divides_the_logits_and_keeps_the_order():
    z = np.random.default_rng(0).normal(size=(50, 4))
    np.testing.assert_allclose(tempered(softmax(z), 2.0), softmax(z / 2))
    p = np.array([[1.0, 0.0, 0.0]])
    assert np.array_equal(tempered(p, 3.0), p)


def test_the_calibration_error_is_the_gap_between_confidence_and_accuracy():
    graph = Graph("g", np.ones((10, 1)), NONE, [0] * 8 + [1] * 2, classes=("a", "b"))
    p = np.tile([0.7, 0.3], (10, 1))
    assert calibration_error(graph, p) == pytest.approx(0.1)
