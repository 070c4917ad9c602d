"""Batches: exact if no neighbour is dropped, one sample per node, and a size that is independent of the graph."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from edgemask.config import BACKBONES, Recipe
from edgemask.graph import Graph
from edgemask.methods.batches import Batches, Neighbours, scramble
from edgemask.methods.edgemask import Game
from edgemask.methods.sources import Source
from edgemask.nn.tasknet import tasknet
from edgemask.nn.tensors import Edges, GraphTensors, features, skeleton

CPU = torch.device("cpu")
N, INPUTS, CLASSES = 80, 5, 3
SMALL = Recipe(heads=2, hidden=4, batch_size=10)


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def graph(n=N, degree=3, seed=0, name="g", sparse=False) -> Graph:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, INPUTS)) * (rng.random((n, INPUTS)) < 0.8)
    edges = rng.integers(0, n, (2, degree * n))
    y = rng.integers(0, CLASSES, n)
    x = sp.csr_array(x) if sparse else x
    return Graph(name, x, edges, y, duplicates="merge", self_loops="drop", classes=tuple("abc"))


def source(g: Graph, nodes=None) -> Source:
    return Source(skeleton(g, CPU), torch.arange(g.num_nodes) if nodes is None else nodes, None)


def batches(recipe=SMALL, *sources: Source, seed=0, epoch=0) -> Batches:
    sources = sources or (source(graph()),)
    return Batches(recipe, sources, [s.domain.edges for s in sources], seed, epoch)


def pairs(edges: Edges, nodes: torch.Tensor | None = None) -> list[tuple[int, int]]:
    """Return the real edges, with the nodes replaced by the given numbers."""
    nodes = torch.arange(edges.num_nodes) if nodes is None else nodes
    return list(zip(nodes[edges.src[edges.real]].tolist(), nodes[edges.dst[edges.real]].tolist(), strict=True))


def thinned(whole: Edges, neighbours: Neighbours, fan_out: int) -> Edges:
    """Return the graph in which each node keeps its own sample, computed node by node."""
    kept = [neighbours.around(torch.tensor([v]), (fan_out,))[1] for v in range(whole.num_nodes)]
    return neighbours.among(torch.arange(whole.num_nodes), torch.cat(kept))


def network(recipe: Recipe) -> torch.nn.Module:
    torch.manual_seed(0)
    net = tasknet(recipe, INPUTS, CLASSES).double().eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter)
    return net


# ---- what a batch computes -------------------------------------------------------------------------------


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("fan_out", [None, 2])
def test_a_batchs_logits_are_those_of_the_whole_graph(backbone, layers, fan_out):
    """The reference is the whole graph if no neighbour is dropped, and otherwise the graph thinned node by node."""
    recipe = SMALL.replace(backbone=backbone, layers=layers, fan_out=fan_out)
    net, g, seeds = network(recipe), graph(500, degree=2), torch.tensor([3, 470, 12, 241])
    domain = GraphTensors.of(g)
    neighbours = Neighbours(domain.edges, 7)
    edges = domain.edges if fan_out is None else thinned(domain.edges, neighbours, fan_out)
    s = torch.rand(edges.num_real)
    expected = net(domain.x.double(), edges, mask=s)[seeds]

    nodes, chosen = neighbours.around(seeds, (fan_out or -1,) * recipe.hops)
    part = neighbours.among(nodes, chosen)
    values = dict(zip(pairs(edges), s.tolist(), strict=True))
    mine = torch.tensor([values[pair] for pair in pairs(part, nodes)])
    out = net(features(g, nodes).double(), part, mask=mine)[torch.searchsorted(nodes, seeds)]
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)
    assert len(nodes) < g.num_nodes


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("backbone", [name for name, spec in BACKBONES.items() if spec.uses_edges])
@pytest.mark.parametrize("fan_out", [None, 2])
def test_a_batch_of_a_weighted_graph_has_the_weights_of_its_edges(backbone, fan_out):
    recipe = SMALL.replace(backbone=backbone, fan_out=fan_out)
    g = graph(500, degree=2)
    g = g.replace(weights=np.random.default_rng(0).random(g.num_edges))
    net, whole = network(recipe), GraphTensors.of(g)
    made = batches(recipe, source(g))
    edges = whole.edges if fan_out is None else thinned(whole.edges, made.neighbours[0], fan_out)
    part, drawn = made.part(0, 0, 0)
    nodes, _ = made.neighbours[0].around(made.batches[0][0], made.fan_outs)
    own = dict(zip(pairs(whole.edges), g.weights.tolist(), strict=True))
    assert drawn.weight.tolist() == [own[pair] for pair in pairs(drawn, nodes)]
    out = net(part.domain.x.double(), drawn)[part.train]
    torch.testing.assert_close(out, net(whole.x.double(), edges)[nodes[part.train]], rtol=0, atol=1e-6)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("backbone", [name for name, spec in BACKBONES.items() if spec.uses_edges])
def test_no_hop_of_a_batch_is_more_than_its_logits_need(backbone):
    recipe = SMALL.replace(backbone=backbone)
    net, g, seeds = network(recipe), graph(500, degree=2), torch.tensor([3, 470, 12, 241])
    neighbours = Neighbours(GraphTensors.of(g).edges, 7)
    nodes, chosen = neighbours.around(seeds, (-1,) * (recipe.hops - 1))
    out = net(features(g, nodes).double(), neighbours.among(nodes, chosen))[torch.searchsorted(nodes, seeds)]
    whole = net(GraphTensors.of(g).x.double(), GraphTensors.of(g).edges)[seeds]
    assert (out - whole).abs().max() > 1e-8  # far above rounding in float64


@pytest.mark.parametrize("sparse", [False, True])
def test_a_part_is_a_source_of_its_own(sparse):
    g = graph(sparse=sparse)
    whole = source(g, torch.arange(0, N, 2))
    part, edges = batches(SMALL.replace(fan_out=2), whole).part(0, 1, 0)
    assert (part.batch, part.sampler, part.domain.name) == (True, None, "g")
    assert part.domain.num_nodes == edges.num_nodes < N
    x = (part.domain.x.forward.to_dense() if sparse else part.domain.x).numpy()
    known = {tuple(row): v for v, row in enumerate(g.x.toarray() if sparse else g.x)}
    nodes = [known[tuple(row)] for row in x]
    assert part.domain.y.tolist() == [g.y[v] for v in nodes]
    assert nodes == sorted(set(nodes))
    assert len(part.train) == 10
    assert {nodes[i] for i in part.train} <= set(range(0, N, 2))
    assert set(pairs(edges, torch.tensor(nodes))) <= set(map(tuple, g.edges.T.tolist()))


def test_edges_keep_their_origins():
    whole = graph()
    src, dst = torch.tensor(whole.edges)
    origin = ((src * 31 + dst) % 3).to(torch.uint8)
    neighbours = Neighbours(Edges.build(src, dst, N, origin), 0)
    nodes, chosen = neighbours.around(torch.tensor([5, 9]), (2, 2))
    edges = neighbours.among(nodes, chosen)
    assert edges.origin.tolist() == [(u * 31 + v) % 3 for u, v in pairs(edges, nodes)]
    assert len(set(edges.origin.tolist())) == 3


# ---- which neighbours ------------------------------------------------------------------------------------


def sample(neighbours: Neighbours, seeds: list[int], node: int, fan_outs) -> set[int]:
    """Return the in-neighbours of `node` in the batch of `seeds`."""
    nodes, chosen = neighbours.around(torch.tensor(seeds), fan_outs)
    return {u for u, v in pairs(neighbours.among(nodes, chosen), nodes) if v == node}


def test_a_nodes_sample_does_not_depend_on_its_batch_or_hop():
    neighbours = Neighbours(GraphTensors.of(graph(degree=8)).edges, 3)
    (other,) = sample(neighbours, [4], 4, (1,))
    alone = sample(neighbours, [other], other, (3,))
    assert len(alone) == 3
    for seeds in ([other, 4], [1, 2, 3, other], list(range(N))):
        assert sample(neighbours, seeds, other, (3, 3)) == alone
    assert sample(neighbours, [4], other, (1, 3)) == alone  # reached at the second hop


def test_a_smaller_fan_out_takes_a_part_of_a_larger_ones_sample():
    neighbours, all_of = (
        Neighbours(GraphTensors.of(graph(degree=8)).edges, 3),
        GraphTensors.of(graph(degree=8)).graph.edges,
    )
    samples = [sample(neighbours, [4], 4, (f,)) for f in (1, 2, 4, -1)]
    assert samples[0] < samples[1] < samples[2] < samples[3] == set(all_of[0][all_of[1] == 4].tolist())


def test_every_neighbour_is_equally_likely():
    star = Edges.build(torch.arange(1, 11), torch.zeros(10, dtype=torch.int64), 11)
    seen = np.zeros(11)
    for salt in range(800):
        for u in sample(Neighbours(star, scramble(torch.tensor(salt)).item() >> 1), [0], 0, (3,)):
            seen[u] += 1
    expected = 800 * 3 / 10  # standard deviation about 13
    assert np.abs(seen[1:] - expected).max() < 65


def test_no_more_than_the_fan_out_is_taken_at_each_hop():
    neighbours = Neighbours(GraphTensors.of(graph(degree=8)).edges, 0)
    nodes, chosen = neighbours.around(torch.tensor([0]), (2, 3))
    edges = neighbours.among(nodes, chosen)
    degree = torch.bincount(edges.dst[edges.real], minlength=len(nodes))
    assert degree[nodes == 0] == 2
    assert sorted(degree.tolist())[-2:] == [3, 3]
    assert (degree == 0).sum() == len(nodes) - 3


def test_the_hash_is_splitmix64():
    def reference(x: int) -> int:
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        return x ^ (x >> 31)

    values = [0, 1, 2, 12345, 2**31, 2**62 + 17, -1, -(2**63), -987654321]
    assert [v % 2**64 for v in scramble(torch.tensor(values)).tolist()] == [reference(v % 2**64) for v in values]


# ---- which nodes -----------------------------------------------------------------------------------------


def batches_by_round(b: Batches, i: int) -> list[list[int]]:
    return [b.batches[i][r % len(b.batches[i])].tolist() for r in range(b.rounds)]


def test_every_training_node_is_in_one_batch_and_batches_are_of_equal_size():
    nodes = torch.arange(0, N, 3)  # 27 of them: three batches of 9
    result = batches_by_round(batches(SMALL, source(graph(), nodes)), 0)
    assert [len(b) for b in result] == [9, 9, 9]
    assert sorted(chain(*result)) == nodes.tolist()


def test_a_smaller_source_goes_round_again():
    small, large = source(graph(name="small"), torch.arange(15)), source(graph(name="large"), torch.arange(50))
    b = batches(SMALL, small, large)
    first, second = batches_by_round(b, 0)[:2]
    assert batches_by_round(b, 0) == [first, second, first, second, first]
    assert sorted(first + second) == list(range(15))
    assert sorted(chain(*batches_by_round(b, 1))) == list(range(50))


def test_an_epoch_decides_the_order_and_the_samples():
    recipe = SMALL.replace(fan_out=1, backbone="gat")
    one, again, later, other = (
        batches(recipe, seed=seed, epoch=epoch) for seed, epoch in ((0, 0), (0, 0), (0, 1), (1, 0))
    )
    orders = [batches_by_round(b, 0) for b in (one, again, later, other)]
    samples = [b.neighbours[0].src.tolist() for b in (one, again, later, other)]
    for result in (orders, samples):
        assert result[0] == result[1]
        assert result[0] != result[2]
        assert result[0] != result[3]


def test_shards_are_equal_parts_of_a_batch():
    one, cut = batches(SMALL), batches(SMALL.replace(shards=3))
    assert batches_by_round(one, 0) == batches_by_round(cut, 0)
    sizes = [len(cut.part(0, 2, shard)[0].train) for shard in range(3)]
    assert sizes == [4, 3, 3]
    whole, _ = one.part(0, 2, 0)
    labels = torch.cat([p.domain.y[p.train] for p, _ in (cut.part(0, 2, shard) for shard in range(3))])
    assert torch.equal(labels, whole.domain.y[whole.train])


@pytest.mark.parametrize(("nodes", "size"), [(3, 3), (11, 5)])
def test_too_few_nodes_for_the_shards_are_refused(nodes, size):
    with pytest.raises(
        ValueError, match=f"graph 'g': {nodes} training nodes in batches of {size} cannot be cut into shards = 8"
    ):
        batches(SMALL.replace(shards=8), source(graph(), torch.arange(nodes)))


# ---- how large -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_a_batch_does_not_grow_with_the_graph(backbone):
    fan_outs = (4, 3, 2)[: SMALL.replace(backbone=backbone).hops]
    bound, width = SMALL.batch_size, SMALL.batch_size
    for fan_out in fan_outs:
        width *= fan_out
        bound += width
    sizes = []
    for n in (1000, 30_000):
        g = graph(n, degree=10)
        part, edges = batches(SMALL.replace(backbone=backbone, fan_out=fan_outs), source(g)).part(0, 0, 0)
        assert len(part.domain.x) == part.domain.num_nodes <= bound
        assert edges.num_real <= bound - SMALL.batch_size
        sizes.append(part.domain.num_nodes)
    assert sizes[1] > 0.9 * bound  # in the larger graph neighbourhoods rarely overlap
    assert sizes[0] < sizes[1]


needs_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@needs_a_gpu
def test_a_gpu_draws_the_batches_a_cpu_draws():
    g = graph(300, degree=8)
    parts = []
    for device in (CPU, torch.device("cuda")):
        whole = Source(skeleton(g, device), torch.arange(g.num_nodes, device=device), None)
        parts.append(batches(SMALL.replace(fan_out=3, shards=2), whole).part(0, 1, 1))
    (one, edges), (other, others) = parts
    assert torch.equal(one.train, other.train.cpu())
    assert torch.equal(one.domain.x, other.domain.x.cpu())
    for name in ("src", "dst", "real", "origin"):
        assert torch.equal(getattr(edges, name), getattr(others, name).cpu())


@needs_a_gpu
def test_the_gpu_memory_of_a_step_does_not_grow_with_the_graph():
    device, recipe = torch.device("cuda"), SMALL.replace(backbone="gcn", fan_out=2, mask_projection=8, mask_hidden=8)
    peaks = []
    for n in (3000, 300_000):
        whole = Source(skeleton(graph(n), device), torch.arange(n, device=device), None)
        game, drawn = Game(recipe, INPUTS, CLASSES, 0, device), batches(recipe, whole)
        game.train_on_batch({0: drawn.part(0, 0, 0)}, 0, 0)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        game.train_on_batch({0: drawn.part(0, 1, 0)}, 0, 1)
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[1] < 1.5 * peaks[0]


def test_a_graph_waiting_for_its_batches_has_no_features_on_the_device():
    domain = skeleton(graph(), CPU)
    assert domain.x.shape == (0, INPUTS)
    whole = GraphTensors.of(graph())
    for name in ("src", "dst", "real", "origin"):
        assert torch.equal(getattr(domain.edges, name), getattr(whole.edges, name))
    assert torch.equal(domain.y, whole.y)
