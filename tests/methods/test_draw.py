"""Draws of fixed size: the same edges, origins and distribution as those of a sampler."""

import numpy as np
import pytest
import torch

from edgemask.enrich import Origin, Sampler, enrich
from edgemask.graph import Graph
from edgemask.methods.draw import LOOP, Draw, choose, padded_edges
from edgemask.nn.tensors import Edges
from edgemask.seeds import numpy_stream, torch_stream

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def sampler():
    stream = numpy_stream(0, "draw")
    edges = np.argwhere(stream.random((60, 60)) < 0.05).T
    graph = Graph(name="g", x=stream.random((60, 8)), edges=edges, duplicates="merge", self_loops="drop")
    return Sampler(enrich(graph, k=4, clusters=3))


def unpadded(edges: Edges) -> set[tuple[int, int, int]]:
    """Return the real edges without padding, with their origins."""
    count = int(edges.count)
    real = edges.real[:count]
    return set(zip(edges.src[real].tolist(), edges.dst[real].tolist(), edges.origin[:count].tolist(), strict=True))


RATIOS = {"knn_ratio": 1.0, "spectral_ratio": 0.1, "spectral_budget": None}


def test_with_all_pairs_it_is_the_sampler_s_sample(sampler):
    drawn = Draw(sampler, RATIOS | {"spectral_ratio": 1.0}, CPU).draw()
    plain = sampler.sample(torch_stream(0), knn_ratio=1, spectral_ratio=1)
    assert unpadded(drawn) == set(zip(plain.src.tolist(), plain.dst.tolist(), plain.origin.tolist(), strict=True))


def test_it_is_laid_out_as_padded_edges_are(sampler):
    torch.manual_seed(0)
    drawn = Draw(sampler, RATIOS, CPU).draw()
    n, count, m = drawn.num_nodes, int(drawn.count), int(drawn.indptr[-1])
    assert count + n == m < len(drawn.src)  # an original edge that is drawn again becomes padding
    assert (drawn.src == drawn.dst)[:m].sum() == n
    assert torch.equal(drawn.real[:count], torch.nonzero(drawn.src[:m] != drawn.dst[:m]).squeeze(1))
    assert (drawn.origin[count:] == 255).all()
    real = drawn.real[:count]
    built = Edges.build(drawn.src[real], drawn.dst[real], n, drawn.origin[:count])
    assert torch.equal(drawn.indptr, built.indptr)
    order, starts = drawn.by_source
    assert torch.equal(starts, built.by_source[1])
    assert torch.equal(drawn.src[order[:m]].sort().values, drawn.src[order[:m]])
    assert torch.equal(drawn.dst_by_source[:m], drawn.dst[order[:m]])
    for u in range(n):  # the same neighbours, in any order within a node
        rows = slice(drawn.indptr[u], drawn.indptr[u + 1])
        assert torch.equal(drawn.src[rows].sort().values, built.src[rows].sort().values)


def test_original_edges_keep_their_weights_and_others_have_weight_1(sampler):
    stream = numpy_stream(0, "draw")
    edges = np.argwhere(stream.random((60, 60)) < 0.05).T
    x, weights = stream.random((60, 8)), stream.random(edges.shape[1]) + 2
    graph = Graph(name="g", x=x, edges=edges, weights=weights, duplicates="merge", self_loops="drop")
    weighted = Sampler(enrich(graph, k=4, clusters=3))
    own = {(u, v): w for u, v, w in zip(*graph.edges.tolist(), graph.weights.tolist(), strict=True)}
    torch.manual_seed(0)
    drawn = Draw(weighted, RATIOS, CPU).draw()
    plain = weighted.sample(torch_stream(0), knn_ratio=0.5, spectral_ratio=0.1)
    count = int(drawn.count)
    assert len(drawn.weight) == len(drawn.real) > count
    for src, dst, origin, weight in (
        (*drawn.edge_index[:, :count], drawn.origin[:count], drawn.weight[:count]),
        (plain.src, plain.dst, plain.origin, plain.weight),
    ):
        assert (origin == Origin.ORIGINAL).sum() == graph.num_edges < len(origin)
        expected = [own.get((u, v), 1.0) for u, v in zip(src.tolist(), dst.tolist(), strict=True)]
        assert weight.tolist() == expected
    assert Draw(sampler, RATIOS, CPU).draw().weight is None


def test_of_equal_edges_the_smallest_origin_stays():
    n = 3
    keys = [(0, 1, Origin.SPECTRAL), (0, 1, Origin.ORIGINAL), (2, 1, Origin.KNN), *((v, v, LOOP) for v in range(n))]
    edges = padded_edges(torch.tensor([((dst * n + src) << 2) + origin for src, dst, origin in keys]), n)
    assert unpadded(edges) == {(0, 1, Origin.ORIGINAL), (2, 1, Origin.KNN)}
    assert edges.mean(torch.tensor([1.0, 3.0, 100.0])) == 2


@pytest.mark.parametrize(("total", "count"), [(40, 40), (40, 30), (40, 8), (40, 0)])
def test_chosen_numbers_are_distinct_and_every_one_equally_likely(total, count):
    torch.manual_seed(0)
    tally = torch.zeros(total)
    for _ in range(600):
        numbers = choose(total, count, CPU)
        assert len(numbers) == count
        tally[numbers] += 1
    assert tally.sum() == 600 * count
    if count:
        expected = 600 * count / total
        assert ((tally - expected).abs() < 5.5 * (expected + 1) ** 0.5).all()


def test_few_numbers_of_many_repeat_almost_never():
    torch.manual_seed(0)
    assert all(len(choose(10**6, 2000, CPU).unique()) == 2000 for _ in range(50))
