"""The benchmarks: clocks, processes, and implementations that compute the same function."""

from __future__ import annotations

import time
from unittest.mock import patch

import numpy as np
import pytest
import torch

from benchmarks.common import Setup, isolated, machine, peaks, plain_operators, repeated
from benchmarks.enrichment import purity
from benchmarks.kernels import cases, passes, random_edges, traffic
from benchmarks.stock import StockGame, StockMaskNet, StockTaskNet
from edgemask.config import recipe
from edgemask.data.synthetic import demo_family
from edgemask.nn.gat import MaskedGATLayer
from edgemask.nn.kernels import cpu, reference
from edgemask.nn.masknet import MaskNet
from edgemask.nn.tensors import GraphTensors

CPU = torch.device("cpu")
RECIPE = recipe("paper", heads=2, hidden=4, mask_projection=6, mask_hidden=5)


def test_repeats_take_turns_and_leave_the_warm_up_out():
    order: list[str] = []
    calls = {name: (lambda name=name: order.append(name)) for name in "ab"}
    taken = repeated(calls, CPU, warm_up=1, least=3, most=3)
    assert order == ["a", "b"] * 4
    assert {t["repeats"] for t in taken.values()} == {3}


def test_repeats_stop_when_time_is_over_but_not_before_the_least():
    taken = repeated({"nap": lambda: time.sleep(0.02)}, CPU, warm_up=0, least=2, most=50, within=0.0)
    assert taken["nap"]["repeats"] == 2
    assert taken["nap"]["seconds"] >= 0.02


def test_peaks_are_measured_during_the_block():
    with peaks(CPU) as peak:
        block = np.ones(2**23)  # 64 MiB
    del block
    assert 60 < peak["block"]["host"] - peak["inputs"]["host"] < 80
    assert peak["process"]["host"] >= peak["block"]["host"]


@pytest.mark.slow
def test_a_fresh_process_does_the_job_with_the_threads_of_the_setup(tmp_path):
    setup = Setup("cpu", 1, str(tmp_path))
    assert isolated(setup, machine) == machine(setup)


def test_plain_operators_replace_those_of_the_device_for_a_while(source):
    domain, edges, _ = source
    layer, s = MaskedGATLayer(64, 2, 4, "message", 0.0), torch.rand(edges.num_real)
    called = []
    with patch.object(reference, "attend", wraps=reference.attend) as plain:
        for wanted in (False, True, False):
            with plain_operators(wanted):
                layer(domain.x, edges, s)
            called.append(plain.call_count)
    assert called == [0, 1, 1]


@pytest.fixture
def source():
    torch.manual_seed(0)
    domain = GraphTensors.of(demo_family(200)["alpha"])
    edges = domain.edges
    return domain, edges, torch.stack([edges.src[edges.real], edges.dst[edges.real]])


def test_the_stock_masknet_is_the_same_function_as_ours(source):
    domain, edges, pairs = source
    ours, stock = MaskNet(64, 6, 5), StockMaskNet(RECIPE, 64)
    with torch.no_grad():
        stock.project.weight.copy_(ours.project.weight.T)
        stock.project.bias.copy_(ours.project.bias)
        stock.score[0].weight.copy_(torch.cat([ours.from_src.weight, ours.from_dst.weight], dim=1))
        stock.score[0].bias.copy_(ours.from_src.bias)
        stock.score[2].load_state_dict(ours.score.state_dict())
    assert torch.allclose(stock(domain.x, pairs).squeeze(1), ours(domain.x, edges).sigmoid(), atol=1e-5)


def test_a_stock_layer_is_the_same_function_as_ours(source):
    domain, edges, pairs = source
    s = torch.rand(edges.num_real)
    ours = MaskedGATLayer(64, 2, 4, "attention", 0.6).eval()
    stock = StockTaskNet(RECIPE, 64, 5).eval().first
    with torch.no_grad():
        stock.lin.weight.copy_(ours.linear.weight.T)
        stock.att_src.copy_(ours.a_src[None])
        stock.att_dst.copy_(ours.a_dst[None])
        stock.att_edge.copy_(torch.eye(1, 4).repeat(2, 1)[None])  # c = a_s · w, and a_s is 1 here
        stock.lin_edge.weight.zero_()[::4] = ours.c[:, None]
        stock.bias.zero_()
    assert torch.allclose(stock(domain.x, pairs, s[:, None]), ours(domain.x, edges, s).flatten(1), atol=1e-5)


def test_the_stock_game_learns_in_both_steps(source):
    domain, _, pairs = source
    game = StockGame(RECIPE, domain.x, pairs, domain.labels(), domain.labelled, 5)
    before = {
        name: [p.detach().clone() for p in net.parameters()]
        for name, net in vars(game).items()
        if name in ("task", "mask")
    }
    game.ascent()
    assert all(torch.equal(a, b) for a, b in zip(before["task"], game.task.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(before["mask"], game.mask.parameters(), strict=True))
    moved = [p.detach().clone() for p in game.mask.parameters()]
    game.descent()
    assert all(torch.equal(a, b) for a, b in zip(moved, game.mask.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(before["task"], game.task.parameters(), strict=True))


def test_purity_counts_the_most_frequent_class_of_each_cluster():
    labels, clusters = np.array([0, 0, 1, 1, 1, 0]), np.array([0, 0, 0, 1, 1, -1])
    assert purity(labels, clusters) == pytest.approx(4 / 5)


@pytest.mark.parametrize("name", ["attend", "aggregate", "gcn_weights", "edge_mlp"])
def test_every_operator_is_timed_forward_and_backward(name):
    torch.manual_seed(0)
    edges = random_edges(50, 200, CPU)
    inputs, call = cases(edges, CPU)[name]
    taken = passes({"edgemask": cpu, "plain torch": reference}, inputs, call, CPU, within=0.0)
    assert {way: set(rivals) for way, rivals in taken.items()} == {
        way: {"edgemask", "plain torch"} for way in ("forward", "backward")
    }
    moved = traffic(name, edges)
    assert 0 < moved["forward"] < moved["backward"]
