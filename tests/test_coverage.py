"""Tests of graph summaries and of the comparison of a graph with the sources."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from edgemask.coverage import BLOCK, SIZE, Finding, GraphSummary, compare
from edgemask.data import Store, benchmark
from edgemask.errors import InputError, SchemaError
from edgemask.graph import Array, Graph

NAN, INF = float("nan"), float("inf")
NODES, WORDS = 600, 500


def random_edges(rng: np.random.Generator, nodes: int, degree: float) -> Array:
    """Random edges with about the given mean degree after both directions are added."""
    return rng.integers(0, nodes, (2, int(nodes * degree / 2)))


def words(seed: int, nodes: int = NODES, degree: float = 6.0, name: str = "words", topic: int = 0) -> Graph:
    """A graph whose features are sparse word counts. Some frequent words depend on the topic."""
    rng = np.random.default_rng(seed)
    frequencies = 1 / np.arange(1, WORDS + 1)
    frequencies[topic : topic + 5] *= 2
    chosen = rng.choice(WORDS, (nodes, 12), p=frequencies / frequencies.sum())
    rows = np.repeat(np.arange(nodes), 12)
    x = sp.coo_array((np.ones(rows.size), (rows, chosen.ravel())), shape=(nodes, WORDS))
    edges = random_edges(rng, nodes, degree)
    return Graph(name, x, edges, undirected=True, duplicates="merge", self_loops="drop")


def table(seed: int, nodes: int = NODES, degree: float = 6.0, width: int = 10, name: str = "table") -> Graph:
    """A graph with dense, signed features of very different scales."""
    rng = np.random.default_rng(seed)
    scales = 10.0 ** np.linspace(-2, 2, width)
    x = rng.normal(np.linspace(-1, 1, width), 1, (nodes, width)) * scales
    edges = random_edges(rng, nodes, degree)
    return Graph(name, x, edges, undirected=True, duplicates="merge", self_loops="drop")


def predictions(graph: Graph, confidence: float = 0.8, seed: int = 0, classes: int = 3) -> Array:
    """Probabilities of equal confidence for random classes."""
    predicted = np.random.default_rng(seed).integers(0, classes, graph.num_nodes)
    p = np.full((graph.num_nodes, classes), (1 - confidence) / (classes - 1))
    p[np.arange(graph.num_nodes), predicted] = confidence
    return p


def half(graph: Graph, seed: int = 0) -> Graph:
    """The graph of a random half of the nodes."""
    kept = np.random.default_rng(seed).permutation(graph.num_nodes)[: graph.num_nodes // 2]
    new = np.full(graph.num_nodes, -1)
    new[kept] = np.arange(len(kept))
    edges = new[graph.edges]
    return Graph("half", graph.x[kept], edges[:, (edges >= 0).all(0)])


def outside(sources: list[Graph], graph: Graph) -> set[str]:
    """The aspects in which a graph is outside."""
    return {f.aspect for f in compare([GraphSummary.of(s) for s in sources], GraphSummary.of(graph)) if f.outside}


def flat(summary: GraphSummary) -> list[float]:
    """All numbers of a summary."""
    values = (v for k, v in summary.to_json().items() if k != "name" and v is not None)
    return [number for v in values for number in (v if isinstance(v, list) else [v])]


# ---- summaries -------------------------------------------------------------------------------------------------------


def test_a_summary_by_hand() -> None:
    x = [[3.0, 0.0, -4.0], [0.0, 0.0, 0.0], [3.0, 0.0, 4.0], [0.0, 2.0, 0.0]]
    graph = Graph("four", x, [[0, 1, 2], [1, 0, 0]])
    p = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.7, 0.3]])
    summary = GraphSummary.of(graph, p)
    assert (summary.name, summary.nodes, summary.width) == ("four", 4, 3)
    assert (summary.degree, summary.isolated) == (0.75, 0.5)
    assert summary.log_degree == pytest.approx((np.log(3) + np.log(2)) / 4, rel=1e-5)
    assert summary.typical_degree == pytest.approx(6**0.25 - 1, rel=1e-5)
    assert (summary.nonzeros, summary.norm) == (1.25, 3.0)
    assert summary.means == (1.5, 0.5, 0.0)
    assert summary.deviations == pytest.approx(np.std(x, axis=0), rel=1e-5)
    assert summary.confidence == 0.75
    assert summary.homophily == pytest.approx(2 / 3, rel=1e-5)
    assert summary.class_shares == (0.75, 0.25)


def test_predictions_are_optional() -> None:
    summary = GraphSummary.of(words(0))
    assert summary.confidence is summary.homophily is summary.class_shares is None


@pytest.mark.parametrize("make", [words, table])
def test_the_order_of_nodes_and_edges_and_labels_and_the_name_do_not_matter(make: Any) -> None:
    graph, rng = make(0), np.random.default_rng(1)
    p, order = predictions(graph), rng.permutation(graph.num_nodes)
    expected = GraphSummary.of(graph, p)
    shuffled = GraphSummary.of(graph.reordered(order), p[order])
    assert flat(shuffled) == pytest.approx(flat(expected), rel=1e-4, abs=1e-6)
    edges = graph.edges[:, rng.permutation(graph.num_edges)]
    other = graph.replace(name="other", edges=edges, y=rng.integers(0, 3, graph.num_nodes))
    assert GraphSummary.of(other, p) == replace(expected, name="other")


@pytest.mark.parametrize("make", [words, table])
def test_sparse_and_dense_features_have_the_same_summary(make: Any) -> None:
    graph = make(0)
    dense = graph.x.toarray() if graph.is_sparse else graph.x
    one, other = (GraphSummary.of(graph.replace(x=x)) for x in (dense, sp.csr_array(dense)))
    assert flat(one) == pytest.approx(flat(other), rel=1e-4, abs=1e-6)


def test_dense_features_of_several_blocks() -> None:
    x = np.random.default_rng(0).normal(size=(BLOCK // 200 + 10, 200)).astype(np.float32)
    summary = GraphSummary.of(Graph("large", x, []))
    assert summary.norm == pytest.approx(np.linalg.norm(x, axis=1).mean(), rel=1e-5)
    assert summary.deviations == pytest.approx([np.sqrt(x.var(0).sum())], rel=1e-5)


def test_the_projection_nearly_keeps_distances() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        x = rng.random((50, 3000)) * (rng.random(3000) < 0.2)
        means = GraphSummary.of(Graph("wide", x, [])).means
        assert len(means) == SIZE
        assert np.linalg.norm(means) == pytest.approx(np.linalg.norm(x.mean(0)), rel=0.25)


def test_the_projection_is_fixed() -> None:
    """A saved summary must be comparable with one of a later version."""
    x = np.zeros((1, 1000))
    x[0, 7] = 2.0
    means = GraphSummary.of(Graph("one word", x, [])).means
    assert np.abs(means) == pytest.approx([2 / np.sqrt(SIZE)] * SIZE, rel=1e-5)
    hashed = hashlib.shake_128(b"edgemask-coverage-1").digest(8 * SIZE // 8)[7 * SIZE // 8 :]
    signs = "".join(f"{byte:08b}" for byte in hashed)
    assert "".join("01"[m > 0] for m in means) == signs
    assert signs.startswith("101111010101101011001111")


@pytest.mark.parametrize(
    ("p", "message"),
    [
        (np.ones(3), r"numbers of shape \(3, classes\), got float64 of shape \(3,\)"),
        (np.ones((2, 2)), r"numbers of shape \(3, classes\), got float64 of shape \(2, 2\)"),
        (np.ones((3, 0)), r"numbers of shape \(3, classes\), got float64 of shape \(3, 0\)"),
        (np.full((3, 2), "a"), r"numbers of shape \(3, classes\), got <U1"),
        (np.full((3, 2), NAN), "from 0 to 1"),
        (np.full((3, 2), 1.5), "from 0 to 1"),
        (np.full((3, 2), -0.5), "from 0 to 1"),
    ],
)
def test_bad_probabilities_are_rejected(p: Array, message: str) -> None:
    with pytest.raises(InputError, match=f"^probabilities must be {message}"):
        GraphSummary.of(Graph("three", np.ones((3, 1)), []), p)


# ---- JSON ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [words(0), table(0), Graph("one", [[0.0]], [])], ids=lambda g: g.name)
@pytest.mark.parametrize("predicted", [False, True])
def test_json_round_trip(graph: Graph, predicted: bool) -> None:
    summary = GraphSummary.of(graph, predictions(graph) if predicted else None)
    text = json.dumps(summary.to_json(), allow_nan=False)
    assert GraphSummary.from_json(json.loads(text)) == summary
    assert len(text) < 5000


BAD: list[tuple[str, Any, str]] = [
    ("name", None, "name: expected text, got None"),
    ("nodes", 0, r"nodes: expected an integer in \[1, 4.61169e\+18\], got 0"),
    ("nodes", 2.0, "nodes: expected an integer"),
    ("nodes", True, "nodes: expected an integer"),
    ("width", -1, "width: expected an integer"),
    ("width", 9, "means: expected 9 items, got 10"),
    ("degree", -1.0, r"degree: expected a number in \[0, 1e\+60\], got -1\.0"),
    ("degree", NAN, "degree: expected a number"),
    ("norm", INF, "norm: expected a number"),
    ("norm", 1e300, r"norm: expected a number in \[0, 1e\+60\], got 1e\+300"),
    ("nonzeros", 10**400, "nonzeros: expected a number .*, got an integer of more than 256 bits"),
    ("log_degree", "1", r"log_degree: expected a number in \[0, 100\], got '1'"),
    ("log_degree", 1e4, "log_degree: expected a number"),
    ("isolated", 1.5, r"isolated: expected a number in \[0, 1\], got 1\.5"),
    ("isolated", None, "isolated: expected a number"),
    ("means", [1.0], "means: expected 10 items, got 1"),
    ("means", None, "means: expected an array, got None"),
    ("means", [0.0] * 9 + [NAN], r"means\[9\]: expected a number in \[-1e\+60, 1e\+60\], got nan"),
    ("means", [[0.0]] * 10, r"means\[0\]: expected a number .*, got \[0\.0\]"),
    ("deviations", [-1.0] * 10, r"deviations\[0\]: expected a number in \[0, 1e\+60\], got -1\.0"),
    ("profile", [0.0] * 10, "profile: expected 20 items, got 10"),
    ("profile", {}, "profile: expected an array, got {}"),
    ("noise", -1, "noise: expected a number"),
    ("confidence", True, "confidence: expected a number"),
    ("homophily", [], r"homophily: expected a number .*, got \[\]"),
    ("class_shares", [], "class_shares: expected at least 1 items, got 0"),
    ("class_shares", [2], r"class_shares\[0\]: expected a number in \[0, 1\], got 2"),
]


@pytest.mark.parametrize(("field", "value", "message"), BAD)
def test_bad_json_is_rejected(field: str, value: Any, message: str) -> None:
    values = GraphSummary.of(table(0), predictions(table(0))).to_json() | {field: value}
    with pytest.raises(SchemaError, match=f"^graph summary, {message}"):
        GraphSummary.from_json(values)


def test_json_of_another_shape_is_rejected() -> None:
    values = GraphSummary.of(table(0)).to_json()
    for name in values:
        with pytest.raises(SchemaError, match=f"^graph summary: '{name}' is missing"):
            GraphSummary.from_json({k: v for k, v in values.items() if k != name})
    with pytest.raises(SchemaError, match=r"^graph summary: unknown key 'colour'"):
        GraphSummary.from_json(values | {"colour": 1})
    bad: Any = [values]
    with pytest.raises(SchemaError, match=r"^graph summary: expected an object, got \["):
        GraphSummary.from_json(bad)


# ---- comparison ------------------------------------------------------------------------------------------------------

ONE, SEVERAL = [words(1)], [words(1, topic=0), words(2, topic=10), words(3, topic=20)]


@pytest.mark.parametrize("sources", [ONE, SEVERAL], ids=["one", "several"])
def test_shifts_of_words_are_outside(sources: list[Graph]) -> None:
    graph, rng = words(9, topic=5), np.random.default_rng(0)
    assert outside(sources, graph) == set()
    for _ in range(5):
        assert outside(sources, graph.replace(x=graph.x[:, rng.permutation(WORDS)])) == {"features"}
    assert outside(sources, graph.replace(x=graph.x * 10)) == {"features"}
    assert outside(sources, graph.replace(x=graph.x / 10)) == {"features"}
    assert outside(sources, graph.replace(x=sp.csr_array(graph.x.shape))) == {"features"}
    assert outside(sources, graph.replace(x=np.ones(graph.x.shape))) == {"features"}
    assert outside(sources, graph.replace(edges=[])) == {"degrees"}
    assert outside(sources, words(9, degree=60.0, topic=5)) == {"degrees"}


@pytest.mark.parametrize("sources", [[table(1)], [table(1), table(2)]], ids=["one", "several"])
def test_shifts_of_dense_features_are_outside(sources: list[Graph]) -> None:
    graph = table(9)
    assert outside(sources, graph) == set()
    deviations = graph.x.std(0)
    assert outside(sources, graph.replace(x=graph.x + 2 * deviations)) == {"features"}
    column = np.zeros(graph.num_features)
    column[0] = 10 * deviations[0]  # the column with the smallest scale
    assert outside(sources, graph.replace(x=graph.x + column)) == {"features"}
    assert outside(sources, graph.replace(x=graph.x[:, ::-1])) == {"features"}
    assert outside(sources, graph.replace(x=-graph.x)) == {"features"}


def test_a_shift_of_a_constant_feature_is_outside() -> None:
    source = table(0).replace(x=np.full((NODES, 1), 2000.0))
    assert outside([source], source.replace(x=np.full((NODES, 1), 2000.0))) == set()
    assert outside([source], source.replace(x=np.full((NODES, 1), 2010.0))) == {"features"}


def test_isolated_nodes_are_outside() -> None:
    """The mean degree is that of the source, but four of five nodes have no neighbours."""
    source, few = words(0), words(1, nodes=NODES // 5, degree=30.0)
    graph = source.replace(edges=few.edges)
    (finding,) = (f for f in compare([GraphSummary.of(source)], GraphSummary.of(graph)) if f.outside)
    assert finding.aspect == "degrees"
    assert finding.message == "80.0% of its nodes have no neighbours, compared with 0.3% in the source"


@pytest.mark.parametrize("make", [words, table])
@pytest.mark.parametrize("seed", range(10))
def test_half_of_a_source_is_inside(make: Any, seed: int) -> None:
    graphs = [make(seed), make(100 + seed), make(200 + seed)]
    for sources in (graphs[:1], graphs[:2], graphs):
        assert outside(sources, half(graphs[0], seed)) == set()


def test_the_sources_are_inside() -> None:
    summaries = [GraphSummary.of(g, predictions(g)) for g in SEVERAL]
    for summary in summaries:
        findings = compare(summaries, summary)
        assert [f.aspect for f in findings] == ["features", "degrees", "homophily", "confidence"]
        assert not any(f.outside for f in findings)


def test_sources_that_differ_allow_more() -> None:
    graph = words(0, degree=40.0)
    assert outside([words(1, degree=6.0), words(2, degree=7.0)], graph) == {"degrees"}
    assert outside([words(1, degree=1.0), words(2, degree=14.0)], graph) == set()


def test_predictions_are_compared() -> None:
    graph = words(0)
    same = np.tile([0.8, 0.1, 0.1], (NODES, 1))
    sources = [GraphSummary.of(words(i), predictions(words(i), 0.78 + i / 100, i)) for i in (1, 2)]

    def flagged(p: Array) -> list[str]:
        return [f.aspect for f in compare(sources, GraphSummary.of(graph, p)) if f.outside]

    assert flagged(predictions(graph)) == []
    assert flagged(predictions(graph, 0.5)) == ["confidence"]
    assert flagged(predictions(graph, 0.99)) == ["confidence"]
    assert flagged(same) == ["homophily"]


def test_unknown_aspects_are_left_out() -> None:
    plain, predicted = GraphSummary.of(words(0)), GraphSummary.of(words(1), predictions(words(1)))
    edgeless = words(1).replace(edges=[])

    def aspects(sources: list[GraphSummary], graph: GraphSummary) -> list[str]:
        return [f.aspect for f in compare(sources, graph)]

    assert aspects([plain], predicted) == ["features", "degrees"]
    assert aspects([predicted], plain) == ["features", "degrees"]
    assert aspects([plain, predicted], predicted) == ["features", "degrees", "homophily", "confidence"]
    without_edges = GraphSummary.of(edgeless, predictions(edgeless))
    assert aspects([predicted], without_edges) == ["features", "degrees", "confidence"]


def test_the_order_of_sources_and_names_do_not_matter() -> None:
    sources, graph = [GraphSummary.of(g, predictions(g)) for g in SEVERAL], GraphSummary.of(words(9))
    renamed = [replace(s, name=f"source {i}") for i, s in enumerate(sources)]
    assert compare(sources, graph) == compare(renamed[::-1], replace(graph, name="new"))


def test_messages() -> None:
    base = replace(GraphSummary.of(table(0)), isolated=0.0)
    sources = [
        replace(base, degree=2.9, log_degree=1.2, homophily=0.7, confidence=0.8),
        replace(base, degree=6.1, log_degree=1.8, homophily=0.75, confidence=0.8),
    ]
    graph = replace(base, degree=41.0, log_degree=1.5, homophily=0.3, confidence=0.812)
    features, *others = compare(sources, graph)
    assert others == [
        Finding(
            "degrees",
            41.0,
            2.9,
            6.1,
            True,
            "its nodes have 41.0 neighbours on average, those of the sources 2.9 to 6.1",
        ),
        Finding(
            "homophily",
            0.3,
            0.7,
            0.75,
            True,
            "30.0% of its edges join nodes of the same predicted class, compared with 70.0% to 75.0% in the sources",
        ),
        Finding(
            "confidence",
            0.812,
            0.8,
            0.8,
            False,
            "the mean confidence of its predictions is 81.2%, compared with 80.0% in the sources",
        ),
    ]
    message = "its features differ by 0.00 (on a scale from 0 to 1) from those of the nearest source"
    assert features == Finding("features", 0.0, 0.0, 0.0, False, f"{message}, and the sources by 0.00 from each other")
    scaled = replace(base, norm=10 * base.norm, nonzeros=base.nonzeros)
    message = f"the features of its nodes have a norm of {10 * base.norm:.3g} on average, those of the source "
    assert compare([base], scaled)[0].message == f"{message}{base.norm:.3g}"


def test_graphs_that_cannot_be_compared() -> None:
    summary = GraphSummary.of(table(0))
    with pytest.raises(InputError, match=r"^at least one source is needed, got none"):
        compare([], summary)
    with pytest.raises(InputError, match=r"^graph 'words' has 500 features, but source 'table' has 10"):
        compare([summary], GraphSummary.of(words(0)))


DEGENERATE = [
    Graph("one node", np.ones((1, 3)), []),
    Graph("zero", np.zeros((1, 3)), []),
    Graph("zeros", sp.csr_array((4, 3)), [[0], [1]]),
    Graph("constant", np.ones((50, 3)), []),
    Graph("pair", [[1.0, 0.0, -1.0], [0.0, 2.0, 0.0]], [[0], [1]], undirected=True),
    Graph("large values", np.full((5, 3), 3e38), []),
    Graph("small values", np.eye(3) * 1e-40, []),
]


@pytest.mark.parametrize("graph", DEGENERATE, ids=lambda g: g.name)
def test_degenerate_graphs(graph: Graph) -> None:
    own = GraphSummary.of(graph, predictions(graph))
    assert np.isfinite(flat(own)).all()
    assert GraphSummary.from_json(json.loads(json.dumps(own.to_json(), allow_nan=False))) == own
    assert not any(f.outside for f in compare([own], own))
    for other in DEGENERATE:
        summary = GraphSummary.of(other, predictions(other))
        for sources in ([summary], [summary, own], [summary, summary]):
            assert np.isfinite([(f.value, f.low, f.high) for f in compare(sources, own)]).all()


def test_a_few_nodes_of_a_source_are_inside() -> None:
    """With very few nodes, averages say little."""
    for make in (words, table):
        source = make(0)
        for nodes in (1, 2, 5, 20):
            for start in range(0, 100, 20):
                x = source.x[start : start + nodes]
                part = Graph("part", x, np.stack([np.arange(nodes), (np.arange(nodes) + 1) % nodes])[:, : nodes - 1])
                found = compare([GraphSummary.of(source)], GraphSummary.of(part))
                assert not next(f for f in found if f.aspect == "features").outside


# ---- the benchmarks --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def citation(store: Store) -> dict[str, Graph]:
    return benchmark("citation").load(store=store)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["acmv9", "citationv1", "dblpv7"])
def test_citation(citation: dict[str, Graph], target: str) -> None:
    graph, rng = citation[target], np.random.default_rng(0)
    several = [g for name, g in citation.items() if name != target]
    for sources in (several, several[:1]):
        assert outside(sources, graph) == set()
        assert outside(sources, half(several[0])) == set()
        assert outside(sources, graph.replace(x=graph.x[:, rng.permutation(graph.num_features)])) == {"features"}
        assert outside(sources, graph.replace(x=graph.x * 10)) == {"features"}
        assert outside(sources, graph.replace(edges=[])) == {"degrees"}
        edges = np.hstack([graph.edges, rng.integers(0, graph.num_nodes, (2, 9 * graph.num_edges))])
        dense = graph.replace(edges=edges, duplicates="merge", self_loops="drop")
        assert outside(sources, dense) == {"degrees"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["twitch", "airports"])
def test_a_domain_is_inside_the_others(store: Store, name: str) -> None:
    domains = benchmark(name).load(store=store)
    for target, graph in domains.items():
        assert outside([g for other, g in domains.items() if other != target], graph) == set()


@pytest.mark.slow
def test_a_graph_of_another_benchmark_is_outside(store: Store, citation: dict[str, Graph]) -> None:
    graph = benchmark("twitch").load(["DE"], store=store)["DE"]
    width = citation["acmv9"].num_features
    x = sp.hstack([graph.x, sp.csr_array((graph.num_nodes, width - graph.num_features))])
    assert outside(list(citation.values()), graph.replace(x=x)) == {"features", "degrees"}
