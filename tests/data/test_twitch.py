"""Tests of Twitch-explicit with the real files and with small files in their layout."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edgemask.data.store import Store
from edgemask.data.twitch import TWITCH, read_language
from edgemask.errors import DataError, InputError
from edgemask.graph import Graph

COUNTS = {  # nodes, undirected edges, mature
    "DE": (9_498, 153_138, 5_742),
    "ENGB": (7_126, 35_324, 3_888),
    "ES": (4_648, 59_382, 1_360),
    "FR": (6_549, 112_666, 2_414),
    "PTBR": (1_912, 31_299, 661),
    "RU": (4_385, 37_304, 1_075),
    "TW": (2_772, 63_462, 1_088),
}


@pytest.fixture(scope="module")
def graphs(store: Store) -> dict[str, Graph]:
    return TWITCH.load(store=store)


@pytest.mark.parametrize("name", COUNTS)
def test_counts(graphs: dict[str, Graph], name: str) -> None:
    graph = graphs[name]
    assert graph.y is not None
    assert (graph.num_nodes, graph.num_edges // 2, int(graph.y.sum())) == COUNTS[name]
    assert graph.num_features == 3_170
    assert graph.classes == ("not mature", "mature")
    assert graph.is_undirected


def test_features_are_multi_hot(graphs: dict[str, Graph]) -> None:
    assert all(graph.is_sparse and set(graph.x.data) == {1} for graph in graphs.values())


def test_protocol_is_that_of_eerm() -> None:
    (protocol,) = TWITCH.protocols
    assert protocol.name == "DE→ES,FR,PTBR,RU,TW"
    assert (protocol.sources, protocol.validation, protocol.metrics) == (("DE",), ("ENGB",), ("roc_auc",))
    assert protocol.targets == ("ES", "FR", "PTBR", "RU", "TW")


def small(
    folder: Path,
    *,
    edges: str = "0,1\n1,2\n2,1\n2,2\n",
    features: dict[str, list[int]] | None = None,
    target: str = "90,5,True,1,False,2\n91,5,False,1,False,0\n92,5,True,1,True,1\n",
    directed: bool = False,
) -> Graph:
    """Write a network of three people in the public layout, with unsorted rows."""
    words = {"1": [5], "0": [3169, 7, 7], "2": []} if features is None else features
    texts = {
        "edges.csv": "from,to\n" + edges,
        "features.json": json.dumps(words),
        "target.csv": "id,days,mature,views,partner,new_id\n" + target,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return read_language("XX", *(folder / name for name in texts), directed=directed)


def test_edges_are_undirected_and_distinct_without_self_loops(tmp_path: Path) -> None:
    assert small(tmp_path).edges.T.tolist() == [[1, 0], [0, 1], [2, 1], [1, 2]]


def test_directed_edges_have_only_the_directions_of_the_file(tmp_path: Path) -> None:
    graph = small(tmp_path, edges="0,1\n2,1\n2,2\n", directed=True)
    assert graph.edges.T.tolist() == [[0, 1], [2, 1]]


def test_the_directed_networks_have_each_friendship_once(store: Store) -> None:
    graph = TWITCH.load(["PTBR"], store=store, directed=True)["PTBR"]
    assert graph.num_edges == COUNTS["PTBR"][1]
    assert not graph.is_undirected
    with pytest.raises(InputError, match="twitch: directed must be True or False, got 'yes'"):
        TWITCH.load(["PTBR"], store=store, directed="yes")


def test_records_hold_the_option_only_if_edges_are_directed() -> None:
    protocol = TWITCH.protocols[0]
    assert TWITCH.options_under(protocol, {}) == TWITCH.options_under(protocol, {"directed": False}) == {}
    assert TWITCH.options_under(protocol, {"directed": True}) == {"directed": True}


def test_labels_are_ordered_by_new_id(tmp_path: Path) -> None:
    graph = small(tmp_path)
    assert graph.y is not None
    assert graph.y.tolist() == [0, 1, 1]


def test_repeated_feature_index_counts_once(tmp_path: Path) -> None:
    x = small(tmp_path).x.toarray()
    assert np.argwhere(x).tolist() == [[0, 7], [0, 3169], [1, 5]]
    assert x.max() == 1


def test_repeated_target_rows_with_equal_labels_are_accepted(tmp_path: Path) -> None:
    rows = "90,5,True,1,False,2\n91,5,False,1,False,0\n92,5,True,1,True,1\n92,5,True,7,True,1\n"
    assert small(tmp_path, target=rows).num_nodes == 3


def test_repeated_target_rows_with_different_labels_are_an_error(tmp_path: Path) -> None:
    rows = "90,5,True,1,False,2\n91,5,False,1,False,0\n92,5,True,1,True,1\n92,5,False,1,True,1\n"
    with pytest.raises(DataError, match=r"target\.csv: the rows of node 1 have different labels 'mature'"):
        small(tmp_path, target=rows)


def test_gap_in_the_ids_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"target\.csv: new_id must be 0 … 1, got 0 … 2"):
        small(tmp_path, target="90,5,True,1,False,2\n91,5,False,1,False,0\n")


def test_a_node_without_features_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"features\.json: node 2 must be in both this file and target\.csv"):
        small(tmp_path, features={"0": [1], "1": [2]})


def test_a_feature_out_of_range_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"features\.json: features must be 0 … 3169, got 1 … 3170"):
        small(tmp_path, features={"0": [1], "1": [2], "2": [3170]})
