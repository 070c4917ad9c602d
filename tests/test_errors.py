"""Messages are one line, and warnings name the user's line, not one of the package."""

from __future__ import annotations

import warnings

import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

from edgemask import EdgeMaskClassifier, Graph
from edgemask.errors import LONGEST, FileError, GraphError, GraphWarning, warn

EDGES, Y = [(0, 0), (0, 1), (1, 2), (2, 3)], [0, 1, 0, 1]


def test_a_warning_of_a_fit_and_of_a_conversion_points_to_the_caller():
    data = Data(x=torch.eye(4), edge_index=torch.tensor(EDGES).T, y=torch.tensor(Y))
    for call in (lambda: Graph.from_pyg(data), lambda: EdgeMaskClassifier("erm-mlp", epochs=1).fit([data])):
        with pytest.warns(GraphWarning, match="self-loops removed: 1") as caught:
            call()
        assert [w.filename for w in caught] == [__file__]


def test_a_warning_of_a_prediction_points_to_the_caller():
    nodes, edges = pd.DataFrame({"a": [1.0, 2.0], "label": [0, 1]}), pd.DataFrame({"u": [0], "v": [1]})
    model = EdgeMaskClassifier("erm-mlp", epochs=1).fit([(nodes, edges)])
    with pytest.warns(GraphWarning, match="ignored columns that the model was not trained on: 'b'") as caught:
        model.predict((nodes.assign(b=1), edges))
    assert {w.filename for w in caught} == {__file__}


def test_a_warning_without_edgemask_on_the_stack_points_to_its_line():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn("careful")
    assert [(w.filename, w.category) for w in caught] == [(__file__, UserWarning)]


def test_a_message_is_one_line_without_control_characters():
    assert str(GraphError("a.csv: 'a\nb\x1b[2J\u202e' é 😀")) == r"a.csv: 'a\nb\x1b[2J\u202e' é 😀"
    assert len(str(GraphError("x" * 5000))) == LONGEST
    assert str(FileError("no\x00file")) == r"no\x00file"
