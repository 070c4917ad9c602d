"""The two losses: cross-entropy on the first label, and binary cross-entropy on all labels of a node."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgemask.config import Recipe
from edgemask.errors import InputError
from edgemask.graph import Graph
from edgemask.inference import to_probabilities
from edgemask.methods.edgemask import Game
from edgemask.methods.erm import ERM
from edgemask.methods.registry import METHODS
from edgemask.methods.sources import make_source
from edgemask.training.fit import Fit

CPU = torch.device("cpu")
BINARY = Recipe(backbone="gcn", hidden=8, mask=False, k=0, clusters=0, epochs=3, loss="binary", dropout=0.0)


def graph(labels: np.ndarray, name: str = "g") -> Graph:
    rng = np.random.default_rng(len(name))
    edges = rng.integers(0, len(labels), (2, 90))
    x = rng.normal(size=(len(labels), 4))
    return Graph(name, x, edges, labels, classes=tuple("abc"), duplicates="merge", self_loops="drop")


ONE = np.arange(30) % 3
SEVERAL = np.eye(3, dtype=int)[ONE]
SEVERAL[::4, 2] = 1
SEVERAL[5] = -1


@pytest.mark.parametrize("labels", [ONE, SEVERAL], ids=["one label", "several labels"])
def test_the_binary_loss_is_over_all_labels_of_the_training_nodes(labels):
    g, method = graph(labels), ERM(BINARY, 4, 3, 0, CPU)
    nodes = np.flatnonzero(g.labelled)[:20]
    source = make_source(BINARY, g, nodes, CPU, None)
    logits = method.networks["task"](source.domain.x, source.domain.edges)
    truth = SEVERAL if labels.ndim == 2 else np.eye(3)[ONE]
    p, truth = logits[nodes].double().sigmoid(), torch.tensor(truth[nodes], dtype=torch.float64)
    expected = -(truth * p.log() + (1 - truth) * (1 - p).log()).sum(1).mean().float()
    torch.testing.assert_close(method.risk(source, source.domain.edges), expected)


def test_a_batch_has_all_labels_of_its_nodes():
    recipe = BINARY.replace(batch_size=7)
    method, g = ERM(recipe, 4, 3, 0, CPU), graph(SEVERAL)
    source = make_source(recipe, g, np.flatnonzero(g.labelled), CPU, None)
    batches = method.batches([source], 0)
    seen = []
    for number in range(batches.rounds):
        part, _ = batches.part(0, number, 0)
        seen.append(part.domain.indicators[part.train])
    assert g.y is not None
    assert torch.equal(torch.cat(seen).sum(0), torch.tensor(g.y[g.labelled].sum(0), dtype=torch.float32))


def test_the_adversary_ascends_the_same_loss():
    recipe = BINARY.replace(mask=True, bound="budget", n_descent=1)
    trainer, _ = Fit(Game, recipe, [graph(SEVERAL), graph(SEVERAL, "other")]).run()
    record = trainer.history[-1]
    assert record["adversary g"] > 1.5  # a sum over three classes, about 3 log 2; a cross-entropy is about log 3
    assert record["adversary g"] == pytest.approx(record["loss g"], abs=0.3)


def test_probabilities_of_a_binary_network_are_normalised_sigmoids():
    logits = torch.tensor([[0.0, 2.0, -1.0], [-900.0, -900.0, -900.0]])
    p = to_probabilities(BINARY, logits)
    sigmoid = logits[0].double().sigmoid().numpy()
    np.testing.assert_allclose(p[0], sigmoid / sigmoid.sum())
    assert np.isfinite(p).all()


@pytest.mark.parametrize("name", ["irm", "mixup", "mat", "ada", "traci"])
def test_methods_with_losses_of_their_own_refuse_the_binary_loss(name):
    with pytest.raises(InputError, match="supports only loss = 'cross-entropy', got 'binary'"):
        METHODS[name].make(METHODS[name].recipe.replace(loss="binary"), 4, 3, 0, CPU)
