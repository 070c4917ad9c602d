"""Captured steps compared with the same steps without a capture; padded edges on the CPU."""

import pytest
import torch

from edgemask.config import recipe
from edgemask.data.synthetic import demo_family
from edgemask.methods.base import Method
from edgemask.methods.edgemask import Game
from edgemask.methods.erm import ERM
from edgemask.methods.execution import seeded
from edgemask.methods.sources import Source, make_sampler
from edgemask.nn.tensors import Edges, GraphTensors

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def small_edges() -> Edges:
    return Edges.build(torch.tensor([1, 2, 0]), torch.tensor([0, 0, 2]), 3, torch.tensor([0, 1, 2], dtype=torch.uint8))


def test_padded_edges_hold_the_same_graph():
    edges = small_edges()
    padded = edges.padded(9)
    assert len(padded.src) == len(padded.dst) == 9
    assert padded.num_real == 9 - 3
    assert torch.equal(padded.indptr, edges.indptr)
    assert torch.equal(padded.by_source[1], edges.by_source[1])
    assert int(padded.count) == 3
    assert padded.mean(torch.tensor([1.0, 2.0, 6.0, 50.0, 50.0, 50.0])) == edges.mean(torch.tensor([1.0, 2.0, 6.0]))
    with pytest.raises(ValueError, match="at least 6 entries needed, got 5"):
        edges.padded(5)
    with pytest.raises(ValueError, match="edges without padding"):
        padded.padded(20)


def test_padded_edges_take_over_others_in_place():
    held, other = small_edges().padded(9), Edges.build(torch.tensor([1]), torch.tensor([2]), 3).padded(9)
    before = held.src
    held.copy_(other)
    assert held.src is before
    for mine, theirs in zip(held._arrays(), other._arrays(), strict=True):
        assert torch.equal(mine, theirs)
    with pytest.raises(ValueError, match="only padded edges"):
        held.copy_(small_edges())


def trained(make: type[Method], settings: dict, *, replay: bool) -> tuple[list[dict[str, float]], dict]:
    device = torch.device("cuda")
    config = recipe("robust", k=3, clusters=4, epochs=9, alpha=(0.0,), select="last", **settings)
    graphs = [demo_family(150)[name] for name in ("alpha", "beta")]
    method = make(config, graphs[0].num_features, graphs[0].num_classes, 0, device)
    if not replay:
        method.replays_on = lambda pairs: False
    sources = []
    for graph in graphs:
        domain = GraphTensors.of(graph, device)
        sources.append(Source(domain, domain.labelled, make_sampler(config, graph, device, None)))
    history = []
    for epoch in range(9):
        with seeded(epoch, device):
            history.append(method.update(sources, epoch))
    assert bool(method.replays) == replay
    return history, method.networks.state_dict()


@needs_gpu
@pytest.mark.parametrize("make", [Game, ERM])
@pytest.mark.parametrize(
    "settings",
    [{}, {"backbone": "gat", "heads": 2, "hidden": 8}, {"bound": "dual"}, {"backbone": "gin"}],
)
def test_replayed_steps_learn_what_plain_steps_learn(make, settings):
    """Dropout and masks come from the same generator, so that both runs are equal up to rounding."""
    if make is ERM:
        settings = settings | {"mask": False}
    (curves, weights), (plain, expected) = (trained(make, settings, replay=r) for r in (True, False))
    for ours, theirs in zip(curves, plain, strict=True):
        assert ours == pytest.approx(theirs, rel=2e-3, abs=2e-4)
    for name, value in weights.items():
        torch.testing.assert_close(value, expected[name], rtol=2e-2, atol=2e-3)
