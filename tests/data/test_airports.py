"""Tests of the airports with the real files and with small files in their layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgemask.data.airports import AIRPORTS, WIDTH, read_network
from edgemask.data.store import Store
from edgemask.errors import DataError, InputError
from edgemask.graph import Graph

COUNTS = {"usa": (1_190, 27_198), "brazil": (131, 2_006), "europe": (399, 11_986)}  # nodes, directed edges


@pytest.mark.parametrize("name", COUNTS)
def test_counts(store: Store, name: str) -> None:
    graph = AIRPORTS.load([name], store=store)[name]
    assert graph.y is not None
    assert (graph.num_nodes, graph.num_edges) == COUNTS[name]
    assert graph.is_undirected
    assert np.bincount(graph.y).max() - np.bincount(graph.y).min() <= 5
    assert (graph.degrees > 0).all()


def test_features_are_the_one_hot_degree(store: Store) -> None:
    graph = AIRPORTS.load(["europe"], store=store)["europe"]
    assert graph.x.shape == (399, WIDTH)
    assert np.array_equal(graph.x.toarray().argmax(1), graph.degrees)
    assert (graph.x.sum(1) == 1).all()


def test_protocols_leave_one_network_out() -> None:
    assert [(p.sources, p.targets) for p in AIRPORTS.protocols] == [
        (("brazil", "europe"), ("usa",)),
        (("usa", "europe"), ("brazil",)),
        (("usa", "brazil"), ("europe",)),
    ]


def small(folder: Path, edges: str = "30 10\n10 20\n20 10\n20 20\n", labels: str = "30 3\n10 0\n20 1\n") -> Graph:
    (folder / "edges").write_text(edges)
    (folder / "labels").write_text("node label\n" + labels)
    return read_network("small", folder / "edges", folder / "labels")


def test_nodes_are_in_the_order_of_their_ids(tmp_path: Path) -> None:
    graph = small(tmp_path)
    assert graph.y is not None
    assert graph.y.tolist() == [0, 1, 3]
    assert graph.edges.T.tolist() == [[1, 0], [2, 0], [0, 1], [0, 2]]


def test_degrees_beyond_the_last_column_share_it(tmp_path: Path) -> None:
    graph = small(tmp_path, "".join(f"0 {i}\n" for i in range(1, 300)), "".join(f"{i} 0\n" for i in range(300)))
    assert graph.x.toarray()[0].argmax() == WIDTH - 1


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"edges": "10 40\n"}, "edges: node 40 is not in labels"),
        ({"edges": "10\n"}, "edges: expected lines of two integers"),
        ({"edges": "10 x\n"}, r"edges: the file is damaged \(ValueError: could not convert string"),
        ({"labels": "10 0\n20 4\n30 1\n"}, "labels: classes must be 0 … 3, got 0 … 4"),
        ({"labels": "10 0\n20 1\n30 1\n10 2\n"}, "labels: node 10 has several rows"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        small(tmp_path, **files)


def test_other_features_are_refused(store: Store) -> None:
    with pytest.raises(InputError, match="features must be 'degree', got 'none'"):
        AIRPORTS.load(store=store, features="none")
