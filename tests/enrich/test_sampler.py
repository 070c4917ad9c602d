"""Samples of an enriched graph: draws, merging, origins."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from edgemask.enrich import EnrichedGraph, Origin, Sampler, enrich
from edgemask.enrich.sampler import draw_distinct, in_order, merge, unrank
from edgemask.graph import Graph


@pytest.fixture
def graph():
    """30 nodes on a directed cycle, random features."""
    nodes = np.arange(30)
    x = np.random.default_rng(0).random((30, 6))
    return Graph("ring", x, np.stack([nodes, np.roll(nodes, -1)]))


@pytest.fixture
def enriched(graph):
    return enrich(graph, k=4, clusters=3)


def by_hand(edges, knn_pairs, clusters):
    n = len(clusters)
    graph = Graph("small", np.ones((n, 1)), np.array(edges, dtype=np.int64).reshape(-1, 2).T)
    return EnrichedGraph(graph, np.array(knn_pairs, dtype=np.int64).reshape(-1, 2).T, np.array(clusters))


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


def triples(sample):
    return set(zip(sample.src.tolist(), sample.dst.tolist(), sample.origin.tolist(), strict=True))


def draw(enriched, seed=0, knn_ratio=0.0, spectral_ratio=0.0, **budgets):
    return Sampler(enriched).sample(stream(seed), knn_ratio=knn_ratio, spectral_ratio=spectral_ratio, **budgets)


# ---- numbering pairs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 7, 40])
def test_unrank_lists_every_pair_once(n):
    a, b = unrank(torch.arange(n * (n - 1) // 2))
    expected = sorted(itertools.combinations(range(n), 2), key=lambda pair: (pair[1], pair[0]))
    assert list(zip(a.tolist(), b.tolist(), strict=True)) == expected


@pytest.mark.parametrize("n", [3_000_000, 2**31, 3_000_000_000])
def test_unrank_is_exact_in_huge_clusters(n):
    b = torch.cat([torch.arange(n - 2000, n), torch.randint(1, n, (2000,), generator=stream())])
    first, last = b * (b - 1) // 2, b * (b + 1) // 2 - 1  # where the root could round wrongly
    for rank in (first, last, (first + last) // 2):
        low, high = unrank(rank)
        assert torch.equal(high, b)
        assert torch.equal(high * (high - 1) // 2 + low, rank)
        assert bool(((low >= 0) & (low < high)).all())


# ---- drawing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("total", [1, 10, 1000, 10**15])
@pytest.mark.parametrize("share", [0, 0.01, 0.3, 0.5, 0.51, 0.99, 1])
def test_draws_are_distinct_in_range_and_exactly_as_many(total, share):
    count = min(round(share * total), 5000) if total > 1000 else round(share * total)
    drawn = draw_distinct(total, count, stream())
    assert len(drawn) == len(drawn.unique()) == count
    assert count == 0 or (drawn.min() >= 0 and drawn.max() < total)


def test_draws_go_on_when_luck_is_short(monkeypatch):
    short = iter([torch.zeros(9, dtype=torch.int64), torch.arange(9)])
    monkeypatch.setattr(torch, "randint", lambda *_, **__: next(short))
    assert len(draw_distinct(100, 5, stream())) == 5


@pytest.mark.parametrize("count", [5, 15])
def test_every_number_is_drawn_equally_often(count):
    generator, times = stream(), torch.zeros(20)
    for _ in range(2000):
        times[draw_distinct(20, count, generator)] += 1
    expected, p = 2000 * count / 20, count / 20
    chi_square = ((times - expected) ** 2 / (expected * (1 - p))).sum() * 19 / 20
    assert chi_square < 43.8  # 19 degrees of freedom: exceeded once in a thousand seeds


def test_spectral_pairs_are_drawn_evenly_over_clusters_of_any_size():
    enriched = by_hand([], [], [0] * 5 + [1] + [2] * 3 + [-1])
    sampler, generator, times = Sampler(enriched), stream(), {}
    for _ in range(1000):
        sample = sampler.sample(generator, knn_ratio=0, spectral_ratio=3 / 13)
        for src, dst, _ in triples(sample):
            times[src, dst] = times.get((src, dst), 0) + 1
    pairs = [p for group in (range(5), range(6, 9)) for p in itertools.permutations(group, 2)]
    assert set(times) == set(pairs)
    expected = 1000 * 3 / 13
    assert max(abs(t - expected) for t in times.values()) < 5 * np.sqrt(expected)


# ---- samples -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("knn_ratio", "spectral_ratio"), [(0, 0), (0.5, 0.1), (0.37, 0.9), (1, 1)])
def test_counts_are_exact(graph, knn_ratio, spectral_ratio):
    one = enrich(graph.replace(edges=[]), k=4, clusters=0)
    assert draw(one, knn_ratio=knn_ratio).counts[Origin.KNN] == 2 * round(knn_ratio * one.num_knn_pairs)
    other = enrich(graph.replace(edges=[]), k=0, clusters=3)
    expected = 2 * round(spectral_ratio * other.num_spectral_pairs)
    assert draw(other, spectral_ratio=spectral_ratio).counts[Origin.SPECTRAL] == expected


def test_spectral_edges_stay_inside_clusters_and_off_the_diagonal(enriched):
    sample = draw(enriched, spectral_ratio=0.5)
    spectral = sample.origin == Origin.SPECTRAL
    src, dst = sample.src[spectral].numpy(), sample.dst[spectral].numpy()
    assert len(src) > 50
    assert (enriched.clusters[src] == enriched.clusters[dst]).all()
    assert (src != dst).all()


def test_ratio_one_is_the_whole_union(enriched):
    original = set(map(tuple, enriched.graph.edges.T.tolist()))
    both = [tuple(p) for p in enriched.knn_pairs.T.tolist()]
    near = {*both, *((j, i) for i, j in both)} - original
    c = enriched.clusters
    inside = {p for p in itertools.permutations(range(30), 2) if c[p[0]] == c[p[1]]} - original - near
    expected = {(*e, 0) for e in original} | {(*e, 1) for e in near} | {(*e, 2) for e in inside}
    assert triples(draw(enriched, knn_ratio=1, spectral_ratio=1)) == expected


def test_an_edge_of_several_origins_keeps_the_first_and_directions_stay_apart():
    enriched = by_hand([(0, 1)], [(0, 1), (1, 2)], [0, 0, 0])
    assert triples(draw(enriched, knn_ratio=1, spectral_ratio=1)) == {
        (0, 1, 0), (1, 0, 1), (1, 2, 1), (2, 1, 1), (0, 2, 2), (2, 0, 2),
    }  # fmt: skip


def test_edges_are_sorted_by_destination_then_source_each_once(enriched):
    sample = draw(enriched, knn_ratio=0.8, spectral_ratio=0.8)
    key = sample.dst * sample.num_nodes + sample.src
    assert bool((key[1:] > key[:-1]).all())
    assert (sample.src.dtype, sample.origin.dtype, sample.num_nodes) == (torch.int64, torch.uint8, 30)


def test_counts_add_up(enriched):
    sample = draw(enriched, knn_ratio=0.5, spectral_ratio=0.5)
    assert sample.counts[Origin.ORIGINAL] == 30
    assert sum(sample.counts.values()) == len(sample.src)


def test_a_budget_caps_pairs_per_node(graph):
    other = enrich(graph.replace(edges=[]), k=0, clusters=3)
    assert draw(other, spectral_ratio=1, spectral_budget=0.5).counts[Origin.SPECTRAL] == 2 * 15
    assert draw(other, spectral_ratio=0, spectral_budget=0.5).counts[Origin.SPECTRAL] == 0


def test_a_graph_without_any_edge_gives_none():
    sample = draw(by_hand([], [], [-1, -1]), knn_ratio=1, spectral_ratio=1)
    assert len(sample.src) == len(sample.dst) == len(sample.origin) == 0


def test_the_generator_decides_the_draw(enriched):
    first, again, other = (draw(enriched, seed, 0.5, 0.5) for seed in (0, 0, 1))
    assert triples(first) == triples(again)
    assert triples(first) != triples(other)


def test_one_generator_gives_a_fresh_draw_each_time(enriched):
    sampler, generator = Sampler(enriched), stream()
    first, second = (sampler.sample(generator, knn_ratio=0.5, spectral_ratio=0.5) for _ in range(2))
    assert triples(first) != triples(second)


@pytest.mark.parametrize(
    ("settings", "digest"),
    [
        ({"knn_ratio": 1, "spectral_ratio": 0.1}, "b01fb4ca9f504f90"),
        ({"knn_ratio": 0.5, "spectral_ratio": 0.06}, "56e560189fb79f95"),
        ({"knn_ratio": 0.8, "spectral_ratio": 1, "spectral_budget": 2}, "32ee2603c305a8cb"),
    ],
)
def test_samples_of_a_seed_do_not_change(settings, digest):
    """Stored results were trained on such samples, so the use of the random stream must not change."""
    ring, near = [(i, (i + 1) % 60) for i in range(60)], [(i, i + s) for s in (2, 7, 11) for i in range(60 - s)]
    sample = draw(by_hand(ring, sorted(near), [i * 7 % 5 for i in range(60)]), seed=7, **settings)
    content = torch.stack([sample.src, sample.dst, sample.origin.long()]).numpy().tobytes()
    assert hashlib.sha256(content).hexdigest()[:16] == digest


@pytest.mark.parametrize("ratio", [0.6, 1])
def test_a_sampler_can_be_used_with_other_ratios(enriched, ratio):
    sampler = Sampler(enriched)
    sampler.sample(stream(), knn_ratio=1.6 - ratio, spectral_ratio=0.5)
    again = sampler.sample(stream(3), knn_ratio=ratio, spectral_ratio=0.5)
    assert triples(again) == triples(draw(enriched, 3, ratio, 0.5))


@pytest.mark.parametrize("seed", range(20))
def test_merging_keeps_every_edge_once_by_its_first_origin(seed):
    n, rng = 7, np.random.default_rng(seed)
    lists = [np.unique(rng.integers(4 * n * n, size=size)) for size in rng.integers(0, 60, size=2)]
    src, dst, origin = merge(*(torch.from_numpy(keys) for keys in lists), n)
    expected = {}
    for key in sorted(int(k) for keys in lists for k in keys):
        expected.setdefault(key // 4, key % 4)
    assert (dst * n + src).tolist() == list(expected)
    assert origin.tolist() == list(expected.values())


def test_in_order_is_sorted():
    numbers = torch.randint(100, (1000,), generator=stream())
    assert torch.equal(in_order(numbers), numbers.sort().values)


def test_without_a_budget_more_than_a_hundred_pairs_per_node_are_refused():
    graph = Graph("large", sp.csr_array((2000, 1)), [])
    one_cluster = EnrichedGraph(graph, np.empty((2, 0), dtype=np.int64), np.zeros(2000, dtype=np.int64))
    with pytest.raises(
        ValueError, match=r"spectral_ratio = 0.2 of 1,999,000 .* is 200 pairs per node.*spectral_budget"
    ):
        draw(one_cluster, spectral_ratio=0.2)
    assert draw(one_cluster, spectral_ratio=0.1).counts[Origin.SPECTRAL] == 2 * 199_900
    assert draw(one_cluster, spectral_ratio=0.2, spectral_budget=1).counts[Origin.SPECTRAL] == 2 * 2000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"knn_ratio": 1.1}, r"knn_ratio must be a number in \[0, 1\], got 1.1"),
        ({"spectral_ratio": -0.1}, r"spectral_ratio must be a number in \[0, 1\], got -0.1"),
        ({"spectral_ratio": float("nan")}, r"spectral_ratio must be a number in \[0, 1\], got nan"),
        ({"spectral_budget": -1}, r"spectral_budget must be a number in \[0, inf\) or None, got -1"),
        ({"spectral_budget": float("inf")}, "spectral_budget must be .* got inf"),
    ],
)
def test_bad_ratios_and_budgets_are_named(enriched, arguments, message):
    with pytest.raises(ValueError, match=message):
        draw(enriched, **arguments)


def test_a_cluster_of_millions_is_never_listed():
    n = 3_000_000
    graph = Graph("large", sp.csr_array((n, 1)), [])
    enriched = EnrichedGraph(graph, np.empty((2, 0), dtype=np.int64), np.zeros(n, dtype=np.int64))
    assert enriched.num_spectral_pairs == n * (n - 1) // 2
    assert draw(enriched, spectral_ratio=1, spectral_budget=0.01).counts[Origin.SPECTRAL] == 2 * 30_000


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_draws_the_same_whole_union(enriched):
    generator = torch.Generator("cuda").manual_seed(0)
    sampler = Sampler(enriched, "cuda")
    whole = sampler.sample(generator, knn_ratio=1, spectral_ratio=1)
    assert whole.src.is_cuda
    assert triples(whole) == triples(draw(enriched, knn_ratio=1, spectral_ratio=1))
    part = sampler.sample(generator, knn_ratio=0.5, spectral_ratio=0.3)
    assert {edge[:2] for edge in triples(part)} < {edge[:2] for edge in triples(whole)}
