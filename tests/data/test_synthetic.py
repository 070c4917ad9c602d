"""Tests of the synthetic families: the effect of every option is measured on generated graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp

from edgemask.data import synthetic
from edgemask.data.store import Store
from edgemask.data.synthetic import SYNTHETIC, Family, Wiring, demo_family, domain, hidden, make
from edgemask.errors import InputTypeError
from edgemask.graph import Graph
from edgemask.seeds import numpy_stream

FAMILY = Family(nodes=4000, features=32, classes=4, signal=2.0)


def undirected_edges(graph: Graph) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return every undirected edge once."""
    u, v = graph.edges
    return u[u < v], v[u < v]


def share_of_equal_ends(graph: Graph, of: npt.NDArray[Any]) -> float:
    """Return the share of edges whose two endpoints have the same value in `of`."""
    u, v = undirected_edges(graph)
    return float((of[u] == of[v]).mean())


def homophily(graph: Graph) -> float:
    assert graph.y is not None
    return share_of_equal_ends(graph, graph.y)


# ---- streams -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dense", "words"])
def test_the_same_arguments_give_the_same_graph(kind: Any) -> None:
    family = replace(FAMILY, kind=kind, nodes=500)
    wiring = Wiring(degree_law="power", communities=3, spurious=0.3, spurious_label=0.5)
    assert domain(family, wiring, "a") == domain(family, wiring, "a")


def test_seed_and_name_change_the_graph() -> None:
    small = replace(FAMILY, nodes=200)
    hashes = {domain(f, Wiring(), n).hash for f in (small, replace(small, seed=1)) for n in ("a", "b")}
    assert len(hashes) == 4


def test_adding_a_domain_does_not_change_the_others() -> None:
    small = replace(FAMILY, nodes=200)
    alone = make(small, {"b": Wiring()})
    both = make(small, {"a": Wiring(nodes=300), "b": Wiring()})
    assert both["b"] == alone["b"]
    assert both["a"].num_nodes == 300


def test_domains_share_only_the_random_stream_of_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    streams: dict[str, set[tuple[str | int, ...]]] = {"a": set(), "b": set()}
    for name, seen in streams.items():

        def recorded(seed: int, *purpose: str | int, seen: Any = seen) -> np.random.Generator:
            seen.add(purpose)
            return numpy_stream(seed, *purpose)

        monkeypatch.setattr(synthetic, "numpy_stream", recorded)
        domain(replace(FAMILY, nodes=100), Wiring(degree=4, degree_law="power"), name)
    assert streams["a"] & streams["b"] == {("law",)}


def test_wiring_does_not_change_features_and_labels() -> None:
    one = domain(FAMILY, Wiring(), "a")
    other = domain(FAMILY, Wiring(degree=3, homophily=0.1, degree_law="power", communities=5, spurious=0.5), "a")
    assert np.array_equal(one.x, other.x)
    assert np.array_equal(one.y, other.y)
    assert not np.array_equal(one.edges, other.edges)


# ---- the shared distribution ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dense", "words"])
def test_domains_share_the_distribution_of_features_given_the_class(kind: Any) -> None:
    a, b = (domain(replace(FAMILY, kind=kind), Wiring(), name) for name in "ab")
    z = []
    for c in range(FAMILY.classes):
        (m, s, n), (m_, s_, n_) = (
            (x.mean(0), x.var(0), len(x)) for x in ((g.x.toarray() if g.is_sparse else g.x)[g.y == c] for g in (a, b))
        )
        z.append((m - m_) / np.sqrt(s / n + s_ / n_))
    assert np.abs(z).max() < 4.5  # 128 standard normal differences of means
    assert 0.8 < np.std(z) < 1.2


def test_class_frequencies_match_the_prior() -> None:
    prior = (0.5, 0.25, 0.15, 0.1)
    y = domain(replace(FAMILY, prior=prior, nodes=20_000), Wiring(), "a").y
    assert np.bincount(y) / 20_000 == pytest.approx(prior, abs=0.015)


def test_dense_class_means_have_the_distance_signal_and_unit_noise() -> None:
    family = Family(nodes=20_000, features=32, classes=3, signal=3.0)
    g = domain(family, Wiring(degree=1), "a")
    means = np.stack([g.x[g.y == c].mean(0) for c in range(3)])
    for i, j in ((0, 1), (0, 2), (1, 2)):
        gap = means[i] - means[j]
        assert np.linalg.norm(gap) == pytest.approx(3.0, abs=0.08)
        along = (g.x[g.y == i] @ gap) / np.linalg.norm(gap)
        assert along.std() == pytest.approx(np.hypot(1, synthetic.AMBIENT), abs=0.03)


def test_word_rows_are_integer_counts_with_the_given_mean() -> None:
    g = domain(replace(FAMILY, kind="words", features=2000, words=25), Wiring(), "a")
    totals = g.x.sum(1)
    assert g.is_sparse
    assert np.array_equal(g.x.data, np.round(g.x.data))
    assert totals.min() >= 1
    assert totals.mean() == pytest.approx(25, abs=0.5)
    assert 20 < g.x.nnz / g.num_nodes <= 25.5


def test_word_classes_are_as_far_apart_as_gaussians_of_the_same_signal() -> None:
    family = Family(nodes=30_000, features=60, classes=3, signal=3.0, kind="words", words=30)
    g = domain(family, Wiring(degree=1), "a")
    p = np.stack([g.x.toarray()[g.y == c].sum(0) for c in range(3)])
    p /= p.sum(1, keepdims=True)
    squared = [family.words * ((p[i] - p[j]) * np.log(p[i] / p[j])).sum() for i, j in ((0, 1), (0, 2), (1, 2))]
    assert np.sqrt(np.mean(squared)) == pytest.approx(3.0, rel=0.2)  # wide tolerance: 60 words are a small sample


@pytest.mark.parametrize(("kind", "signal", "floor"), [("dense", 1.6, 0.31), ("words", 3.0, 0.32)])
def test_near_nodes_share_their_class(kind: Any, signal: float, floor: float) -> None:
    """With 5 equally likely classes the chance level is 0.2; kNN enrichment needs clearly more."""
    family = Family(nodes=1000, kind=kind, signal=signal, features=64 if kind == "dense" else 1000)
    g = domain(family, Wiring(), "a")
    x = g.x.toarray() if g.is_sparse else np.array(g.x)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    cosine = x @ x.T
    np.fill_diagonal(cosine, -1)
    near = np.argsort(-cosine, axis=1)[:, :5]
    assert g.y is not None
    assert (g.y[near] == g.y[:, None]).mean() > floor


# ---- the wiring ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", ["poisson", "power"])
@pytest.mark.parametrize("degree", [2, 7.5, 40])
def test_edges_have_the_given_number_and_are_symmetric_and_distinct_without_self_loops(law: Any, degree: float) -> None:
    g = domain(FAMILY, Wiring(degree=degree, degree_law=law, communities=3, spurious=0.2), "a")
    u, v = g.edges
    assert g.num_edges == pytest.approx(4000 * degree, rel=0.01)
    assert g.is_undirected
    assert (u != v).all()
    assert len(np.unique(u * 4000 + v)) == g.num_edges


@pytest.mark.parametrize("law", ["poisson", "power"])
@pytest.mark.parametrize("wanted", [0, 0.3, 0.8, 1])
def test_homophily_is_the_share_of_edges_inside_a_class(law: Any, wanted: float) -> None:
    family = replace(FAMILY, prior=(0.4, 0.3, 0.2, 0.1))
    g = domain(family, Wiring(homophily=wanted, degree_law=law), "a")
    assert homophily(g) == pytest.approx(wanted, abs=0.005)


def test_poisson_degrees_have_the_variance_of_a_poisson_law() -> None:
    degrees = domain(FAMILY, Wiring(degree=10), "a").degrees
    assert degrees.var() == pytest.approx(10, rel=0.1)


def test_power_degrees_have_the_tail_of_the_exponent() -> None:
    family = Family(nodes=50_000, features=4, classes=2)
    poisson = domain(family, Wiring(degree=10), "a").degrees
    power = domain(family, Wiring(degree=10, degree_law="power", exponent=2.5), "a").degrees
    assert poisson.max() < 40 < 300 < power.max()
    tail = power[power >= 30]  # above the Poisson blur, below the cut at √(50,000 × 10) = 707
    hill = 1 + 1 / np.log(tail[tail < 600] / 29.5).mean()
    assert hill == pytest.approx(2.5, abs=0.3)


def test_community_strength_is_the_share_of_class_edges_that_stay_in_a_community() -> None:
    wiring = Wiring(homophily=0.6, communities=5, community_strength=0.7)
    g, variables = domain(FAMILY, wiring, "a"), hidden(FAMILY, wiring, "a")
    assert np.array_equal(g.y, variables.y)
    assert sorted(set(variables.community)) == [0, 1, 2, 3, 4]
    assert share_of_equal_ends(g, variables.y * 5 + variables.community) == pytest.approx(0.6 * 0.7, abs=0.005)
    assert homophily(g) == pytest.approx(0.6, abs=0.005)


def test_spurious_edges_join_hidden_groups_independently_of_the_label() -> None:
    wiring = Wiring(degree=20, homophily=0.9, spurious=0.5, groups=20)
    g, variables = domain(FAMILY, wiring, "a"), hidden(FAMILY, wiring, "a")
    chance = np.square(np.bincount(variables.y) / 4000).sum()
    assert share_of_equal_ends(g, variables.group) == pytest.approx(0.5 + 0.5 / 20, abs=0.01)
    assert homophily(g) == pytest.approx(0.5 * 0.9 + 0.5 * chance, abs=0.01)


def test_spurious_label_joins_neighbours_on_the_ring_of_classes() -> None:
    wiring = Wiring(homophily=1, spurious=0.5, spurious_label=0.6, groups=4)
    g, variables = domain(FAMILY, wiring, "a"), hidden(FAMILY, wiring, "a")
    u, v = (variables.y[end] for end in undirected_edges(g))
    ringed = ((variables.successor[u] == v) | (variables.successor[v] == u)).mean()
    # Two of the four classes are neighbours on the ring, so half of the edges within hidden groups join neighbours too.
    assert ringed == pytest.approx(0.5 * 0.6 + 0.5 * 0.4 / 2, abs=0.015)


def test_ring_contains_every_class_and_differs_between_domains() -> None:
    family, rings = replace(FAMILY, classes=7, nodes=100), set()
    for name in "abcd":
        successor, ring = hidden(family, Wiring(), name).successor, [0]
        for _ in range(6):
            ring.append(int(successor[ring[-1]]))
        assert sorted(ring) == list(range(7))
        assert successor[ring[-1]] == 0
        rings.add(tuple(ring))
    assert len(rings) == 4


def test_number_of_draws_is_linear_in_the_number_of_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, pairs = [0], synthetic._Lottery.pairs

    def counted(self: Any, rng: Any, count: int, *blocks: Any) -> Any:
        drawn[0] += count
        return pairs(self, rng, count, *blocks)

    monkeypatch.setattr(synthetic._Lottery, "pairs", counted)
    for nodes in (4_000, 40_000):
        drawn[0] = 0
        g = domain(replace(FAMILY, nodes=nodes), Wiring(degree_law="power", spurious=0.2), "a")
        assert drawn[0] < 1.1 * g.num_edges / 2


# ---- errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "legal"),
    [
        ("nodes", 1, r"in \[2, "),
        ("nodes", 10.5, "an integer"),
        ("features", 3, r"in \[5, "),
        ("classes", 1, r"in \[2, "),
        ("signal", -1, r"in \[0, 100\]"),
        ("signal", float("nan"), r"in \[0, 100\]"),
        ("kind", "image", "dense, words"),
        ("words", 0, r"in \[1, "),
        ("seed", -1, r"in \[0, "),
        ("seed", True, "an integer"),
    ],
)
def test_illegal_option_is_named_with_its_range_and_value(option: str, value: Any, legal: str) -> None:
    with pytest.raises(ValueError, match=f"{option} must be .*{legal}.*got {value!r}"):
        SYNTHETIC.load(**{option: value})


@pytest.mark.parametrize(
    ("option", "value", "legal"),
    [
        ("degree", -1, r"in \[0, "),
        ("homophily", 1.1, r"in \[0, 1\]"),
        ("degree_law", "flat", "poisson, power"),
        ("exponent", 2, r"in \[2.05, 10\]"),
        ("communities", 0, r"in \[1, "),
        ("community_strength", -0.1, r"in \[0, 1\]"),
        ("spurious", 2, r"in \[0, 1\]"),
        ("groups", 0, r"in \[1, "),
        ("spurious_label", "high", r"in \[0, 1\]"),
        ("nodes", 0, r"in \[2, "),
    ],
)
def test_illegal_wiring_is_named_with_its_range_and_value(option: str, value: Any, legal: str) -> None:
    with pytest.raises(ValueError, match=f"wiring: {option} must be .*{legal}.*got {value!r}"):
        Wiring(**{option: value})


def test_a_prior_that_is_no_tuple_is_an_error() -> None:
    with pytest.raises(InputTypeError, match="family: prior must be a tuple of probabilities, got 5"):
        replace(FAMILY, prior=5)


@pytest.mark.parametrize("prior", [(0.5, 0.5), (0.5, 0.2, 0.2, 0.2)])
def test_prior_must_be_a_distribution_over_the_classes(prior: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="prior must be 4 probabilities that sum to 1, got"):
        replace(FAMILY, prior=prior)


def test_degree_must_be_smaller_than_the_number_of_nodes() -> None:
    with pytest.raises(ValueError, match="domain 'a': degree must be at most nodes - 1 = 19, got 20"):
        domain(replace(FAMILY, nodes=20), Wiring(degree=20), "a")


def test_edges_must_fit_into_the_classes() -> None:
    with pytest.raises(ValueError, match=r"domain 'a': 300 edges inside a community are needed, but only .* fit"):
        domain(replace(FAMILY, nodes=40), Wiring(degree=15, homophily=1), "a")


# ---- the benchmark -------------------------------------------------------------------------------------


def test_the_benchmark_needs_no_files(tmp_path: Path) -> None:
    assert SYNTHETIC.available(Store(tmp_path)) == ("alpha", "beta", "gamma")


def test_benchmark_generates_the_requested_domains_with_the_given_options() -> None:
    graphs = SYNTHETIC.load(["gamma", "alpha"], nodes=300, classes=3, kind="words", features=200)
    assert list(graphs) == ["gamma", "alpha"]
    assert all((g.num_nodes, g.num_classes, g.num_features) == (300, 3, 200) for g in graphs.values())
    assert graphs["alpha"].is_sparse


def test_benchmark_is_the_demo_family_by_default() -> None:
    assert SYNTHETIC.load() == demo_family()


def test_each_domain_is_the_target_of_one_protocol() -> None:
    assert [p.targets for p in SYNTHETIC.protocols] == [("alpha",), ("beta",), ("gamma",)]
    assert all(p.metrics == ("micro_f1", "macro_f1") for p in SYNTHETIC.protocols)


def test_demo_family_has_the_given_number_of_nodes() -> None:
    assert {g.num_nodes for g in demo_family(nodes=100, seed=3).values()} == {100}


def smooth(graph: Graph) -> npt.NDArray[Any]:
    """Average features twice over the neighbours and the node itself, as a linear GCN does."""
    n = graph.num_nodes
    adjacency = sp.csr_array((np.ones(graph.num_edges), graph.edges[::-1]), shape=(n, n)) + sp.eye_array(n)
    mean = adjacency.multiply(1 / adjacency.sum(1)[:, None]).tocsr()
    return np.asarray(mean @ (mean @ graph.x))


def test_demo_structure_helps_within_a_domain_and_misleads_across_domains() -> None:
    features, across, within = [], [], []
    for seed in range(3):
        graphs = demo_family(seed=seed)
        train = {name: np.random.default_rng(0).random(g.num_nodes) < 0.6 for name, g in graphs.items()}
        plain = {name: g.x for name, g in graphs.items()}
        smoothed = {name: smooth(g) for name, g in graphs.items()}

        def accuracy(x: Any, sources: set[str], target: str, graphs: Any = graphs, train: Any = train) -> float:
            """Return the accuracy on the target's other nodes of ridge regression on the sources' training nodes."""
            a = np.concatenate([x[s][train[s]] for s in sources])
            y = np.eye(5)[np.concatenate([graphs[s].y[train[s]] for s in sources])]
            weights = np.linalg.solve(a.T @ a + np.eye(a.shape[1]), a.T @ y)
            return float(((x[target] @ weights).argmax(1) == graphs[target].y)[~train[target]].mean())

        for target in graphs:
            sources = set(graphs) - {target}
            features.append(accuracy(plain, sources, target))
            across.append(accuracy(smoothed, sources, target))
            within.append(accuracy(smoothed, {target}, target))
    assert 0.45 < np.mean(features) < 0.57
    assert np.mean(across) > np.mean(features) + 0.06
    assert np.mean(within) > np.mean(across) + 0.02
