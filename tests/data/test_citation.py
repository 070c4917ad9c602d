"""Tests of the citation networks with the real files."""

from __future__ import annotations

import numpy as np
import pytest

from edgemask.data.citation import CITATION
from edgemask.data.store import Store
from edgemask.errors import InputError
from edgemask.graph import Graph
from edgemask.metrics import score

COUNTS = {  # nodes, undirected edges without self-loops, papers with two labels
    "acmv9": (9_360, 15_602 - 46, 581),
    "citationv1": (8_935, 15_113 - 15, 166),
    "dblpv7": (5_484, 8_130 - 13, 15),
}


@pytest.fixture(scope="module")
def graphs(store: Store) -> dict[str, Graph]:
    return CITATION.load(store=store)


@pytest.mark.parametrize("name", COUNTS)
def test_counts(graphs: dict[str, Graph], name: str) -> None:
    nodes, edges, _ = COUNTS[name]
    graph = graphs[name]
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (
        nodes,
        2 * edges,
        6_775,
        5,
    )
    assert graph.is_undirected
    assert graph.labelled.all()
    assert graph.degrees.min() > 0


def test_features_are_the_unchanged_word_counts(graphs: dict[str, Graph]) -> None:
    for graph in graphs.values():
        assert graph.is_sparse
        assert set(np.unique(graph.x.data)) == {1, 2, 3}
        assert np.diff(graph.x.indptr).min() > 0


@pytest.fixture(scope="module")
def multi(store: Store) -> Graph:
    return CITATION.load(["dblpv7"], store=store, labels="multi")["dblpv7"]


def test_first_label_is_the_first_of_the_multi_labels(graphs: dict[str, Graph], multi: Graph) -> None:
    first = graphs["dblpv7"].y
    assert first is not None
    assert multi.y is not None
    assert multi.y.shape == (5_484, 5)
    assert (multi.y.sum(1) == 2).sum() == COUNTS["dblpv7"][2]
    assert np.array_equal(first, multi.y.argmax(1))


def test_unknown_label_option_is_rejected(store: Store) -> None:
    with pytest.raises(ValueError, match="labels must be 'first' or 'multi', got 'last'"):
        CITATION.load(["dblpv7"], store=store, labels="last")


def test_protocols_leave_one_domain_out() -> None:
    roles = [(p.name, p.sources, p.targets) for p in CITATION.protocols]
    assert roles == [
        ("AC→D", ("acmv9", "citationv1"), ("dblpv7",)),
        ("AD→C", ("acmv9", "dblpv7"), ("citationv1",)),
        ("CD→A", ("citationv1", "dblpv7"), ("acmv9",)),
    ]
    assert {p.metrics for p in CITATION.protocols} == {("micro_f1", "macro_f1")}


def test_second_label_counts_for_hits_but_not_for_micro_f1(graphs: dict[str, Graph], multi: Graph) -> None:
    """Predict the last label of each paper, which differs from the first label only if there are two."""
    assert multi.y is not None
    last = np.eye(5)[4 - multi.y[:, ::-1].argmax(1)]
    two = COUNTS["dblpv7"][2] / multi.num_nodes
    for graph, hits in ((multi, 1.0), (graphs["dblpv7"], 1 - two)):
        assert score(("micro_f1", "hits"), graph, last) == pytest.approx({"micro_f1": 1 - two, "hits": hits})


def test_the_set_single_has_all_transfers_from_one_network() -> None:
    protocols = CITATION.select_protocols(["single"])
    assert [p.name for p in protocols] == ["A→D", "C→D", "A→C", "D→C", "C→A", "D→A"]
    assert CITATION.protocol("D→A") == protocols[-1]
    assert CITATION.select_protocols(()) == CITATION.protocols


def test_an_unknown_protocol_names_protocols_and_sets() -> None:
    with pytest.raises(InputError, match=r"no protocol 'X' .*AC→D.*the set single"):
        CITATION.select_protocols(["X"])
