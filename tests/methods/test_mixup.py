"""Mixup: a node between two others, among the neighbours of both."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from edgemask.config import Recipe
from edgemask.data.synthetic import demo_family
from edgemask.methods.mixup import Mixup, loop_weights, partners, pooled
from edgemask.methods.sources import Source
from edgemask.nn.aggregate import gcn_weights
from edgemask.nn.tensors import GraphTensors

CPU = torch.device("cpu")
TINY = Recipe(backbone="gcn", hidden=8, dropout=0.0, mask=False, k=0, clusters=0, lr=0.01)
A, B, C = demo_family(80).values()
PAIR = [Source(GraphTensors.of(g), nodes, None) for g, nodes in ((A, torch.arange(80)), (B, torch.arange(10, 70)))]


def mixup(**changes) -> Mixup:
    return Mixup(TINY.replace(**changes), 64, 5, 0, CPU)


def traced(method) -> tuple:
    return pooled([method.trace(s, s.domain.edges) for s in PAIR]), partners([80, 60], CPU)


def plain(method) -> torch.Tensor:
    """Return the logits of the training nodes without mixing."""
    task = method.networks["task"]
    return torch.cat([task(s.domain.x, s.domain.edges)[s.train] for s in PAIR])


@pytest.mark.parametrize("backbone", ["gcn", "gin", "sgc"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_all_of_one_is_that_node_and_none_of_it_is_its_partner(backbone, layers):
    method = mixup(backbone=backbone, layers=layers)
    nodes, partner = traced(method)
    expected = plain(method)
    torch.testing.assert_close(method.mixed(nodes, partner, torch.ones(140, 1)), expected)
    torch.testing.assert_close(method.mixed(nodes, partner, torch.zeros(140, 1)), expected[partner])


def test_a_mixed_node_is_computed_among_both_neighbourhoods_as_the_paper_has_it():
    method, share, at = mixup(layers=2), 0.3, 7
    nodes, partner = traced(method)
    other = partner[at].item() - 80 + 10  # node 7 of the first source, mixed with this one of the second
    task, (one, two) = method.networks["task"], (s.domain for s in PAIR)
    first, second = (linear.weight for linear in task.linears)

    def neighbours(domain, node):
        """Return the incoming edges of a node and their weights, and separately its self-loop."""
        e, w = domain.edges, gcn_weights(domain.edges)
        into = [(s, w[i]) for i, (s, d) in enumerate(zip(e.src.tolist(), e.dst.tolist(), strict=True)) if d == node]
        return [(s, x) for s, x in into if s != node], next(x for s, x in into if s == node)

    def layer(domain, node, state, messages, bias):
        """Return the result for a state in a node's place, with unchanged neighbours."""
        others, own = neighbours(domain, node)
        return own * state + sum(weight * messages[source] for source, weight in others) + bias

    hidden = [task.embed(d.x, d.edges) for d in (one, two)]
    state = (share * one.x[at] + (1 - share) * two.x[other]) @ first
    in_first = layer(one, at, state, one.x @ first, task.biases[0]).relu()
    in_second = layer(two, other, state, two.x @ first, task.biases[0]).relu()
    state = (share * in_first + (1 - share) * in_second) @ second
    in_first = layer(one, at, state, hidden[0] @ second, task.biases[1])
    in_second = layer(two, other, state, hidden[1] @ second, task.biases[1])
    mixed = method.mixed(nodes, partner, torch.full((140, 1), share))
    torch.testing.assert_close(mixed[at], share * in_first + (1 - share) * in_second)


def test_the_loss_is_the_mixed_labels():
    method, by_hand = mixup(), mixup()
    torch.manual_seed(3)
    record = method.update(PAIR, 0)
    torch.manual_seed(3)
    nodes, partner = traced(by_hand)
    share = by_hand.shares(140)
    log_p = by_hand.mixed(nodes, partner, share[:, None]).log_softmax(1)
    targets = F.one_hot(nodes.labels, 5)
    mixed = share[:, None] * targets + (1 - share[:, None]) * targets[partner]
    losses = -(mixed * log_p).sum(1)
    assert record["loss alpha"] == pytest.approx(losses[:80].mean().item())
    assert record["loss beta"] == pytest.approx(losses[80:].mean().item())
    ((losses[:80].mean() + losses[80:].mean()) / 2).backward()
    by_hand.optimisers["task"].step()
    for mine, theirs in zip(method.networks.parameters(), by_hand.networks.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_partners_are_of_all_other_sources_and_of_none_but_them():
    sizes = [3, 1, 5]
    seen = torch.stack([partners(sizes, CPU) for _ in range(300)], 1)
    start = 0
    for size in sizes:
        mine = set(range(start, start + size))
        for row in seen[start : start + size]:
            assert set(row.tolist()) == set(range(9)) - mine
        start += size
    assert set(partners([4], CPU).tolist()) <= set(range(4))


def test_shares_are_of_the_beta_distribution():
    share = mixup(hyper=(("concentration", 2.0),)).shares(20000)
    assert share.mean().item() == pytest.approx(0.5, abs=0.01)
    assert share.var().item() == pytest.approx(1 / 20, abs=0.003)  # 1 / (4 (2α + 1))


def test_loop_weights_are_those_of_the_self_loops_filling_left_out():
    edges = PAIR[0].domain.edges
    loops = edges.src == edges.dst
    expected = torch.empty(80)
    expected[edges.dst[loops]] = gcn_weights(edges)[loops]
    torch.testing.assert_close(loop_weights(edges, gcn_weights(edges)).squeeze(1), expected)
    longer = edges.padded(len(edges.src) + 9)
    weight = torch.cat([gcn_weights(edges), torch.ones(9)])
    torch.testing.assert_close(loop_weights(longer, weight).squeeze(1), expected)


@pytest.mark.parametrize("backbone", ["gat", "mlp"])
def test_backbones_whose_rounds_are_no_plain_sums_are_refused(backbone):
    with pytest.raises(ValueError, match=rf"plain sums \(gcn, gin, sgc\), got '{backbone}'"):
        mixup(backbone=backbone)
