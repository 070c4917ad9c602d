"""Tests of OGB-Arxiv: small files in OGB's layout, and the real labels and years with random edges and features."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from edgemask.data.arxiv import ARXIV, files, read_years
from edgemask.data.store import Store
from edgemask.errors import DataError
from edgemask.graph import Graph

YEARS = [2016, 2011, 1999, 2014, 2012, 2015]
NAMES = ("edge", "node-feat", "node-label", "node_year", "num-edge-list", "num-node-list", "categories")


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.csv.gz"
    path.write_bytes(gzip.compress(text.encode(), 1))
    return path


def small(folder: Path, domains: tuple[str, ...] = ("2011", "2014", "2016"), **changes: str) -> dict[str, Graph]:
    """Write the files of six papers. `changes` replaces the text of a file."""
    texts = {
        "edge": "0,1\n1,2\n2,1\n3,4\n4,2\n5,5\n0,5\n",
        "node-feat": "".join(f"{i}.5,-1\n" for i in range(6)),
        "node-label": "0\n1\n2\n1\n0\n2\n",
        "node_year": "".join(f"{year}\n" for year in YEARS),
        "num-edge-list": "7\n",
        "num-node-list": "6\n",
        "categories": "label idx,arxiv category\n0,arxiv cs ai\n1,arxiv cs lg\n2,arxiv cs db\n",
    } | changes
    return read_years({name: write(folder, name, texts[name]) for name in NAMES}, domains)


def test_graph_of_a_year_has_the_papers_up_to_it(tmp_path: Path) -> None:
    graphs = small(tmp_path)
    kept = {name: (graph.x[:, 0] - 0.5).tolist() for name, graph in graphs.items()}
    assert kept == {"2011": [1, 2], "2014": [1, 2, 3, 4], "2016": [0, 1, 2, 3, 4, 5]}


def test_edges_are_those_among_the_papers_in_both_directions(tmp_path: Path) -> None:
    graphs = small(tmp_path)
    assert graphs["2011"].edges.T.tolist() == [[1, 0], [0, 1]]
    assert graphs["2014"].edges.T.tolist() == [[1, 0], [0, 1], [3, 1], [3, 2], [1, 3], [2, 3]]
    assert graphs["2016"].num_edges == 2 * 5
    assert all(graph.is_undirected for graph in graphs.values())


def test_eval_mask_has_the_papers_of_the_window(tmp_path: Path) -> None:
    graphs = small(tmp_path)
    assert not graphs["2011"].masks
    assert graphs["2014"].masks["eval"].tolist() == [False, False, True, True]
    assert graphs["2016"].masks["eval"].tolist() == [True, False, False, False, False, True]


def test_labels_and_class_names(tmp_path: Path) -> None:
    graph = small(tmp_path)["2011"]
    assert graph.y is not None
    assert graph.y.tolist() == [1, 2]
    assert graph.classes == ("arxiv cs ai", "arxiv cs lg", "arxiv cs db")


def test_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"edge\.csv\.gz: expected 7 rows, got 1"):
        small(tmp_path, edge="0,1\n")


def test_edge_to_an_unknown_node_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"edge\.csv\.gz: nodes must be 0 … 5, got 0 … 6"):
        small(tmp_path, **{"edge": "0,6\n", "num-edge-list": "1\n"})


def test_the_real_labels_and_years(store: Store, tmp_path: Path) -> None:
    """Real labels, years and categories; 5,000 random edges and two random features."""
    rng, n = np.random.default_rng(0), 169_343
    paths = {name: store.root / file.path for name, file in zip(NAMES, files("2011"), strict=True)}
    pairs = rng.integers(0, n, (5_000, 2))
    paths["edge"] = write(tmp_path, "edge", "".join(f"{a},{b}\n" for a, b in pairs))
    paths["node-feat"] = write(tmp_path, "node-feat", "".join(f"{a},{b}\n" for a, b in rng.integers(0, 9, (n, 2))))
    paths["num-edge-list"] = write(tmp_path, "num-edge-list", "5000\n")
    graphs = read_years(paths, ARXIV.domains)
    nodes = {name: graph.num_nodes for name, graph in graphs.items()}
    assert nodes == {"2011": 17_401, "2014": 41_125, "2016": 69_499, "2018": 120_740, "2020": 169_343}
    window = {name: int(graph.masks["eval"].sum()) for name, graph in graphs.items() if graph.masks}
    assert window == {"2014": 23_724, "2016": 28_374, "2018": 51_241, "2020": 48_603}
    assert all(graph.num_classes == 40 and graph.labelled.all() for graph in graphs.values())
    assert graphs["2020"].num_edges == 2 * len({(min(p), max(p)) for p in pairs.tolist() if p[0] != p[1]})
    ARXIV.protocols[0].open(graphs)


def test_missing_files_are_named(store: Store) -> None:
    if ARXIV.available(store):
        pytest.skip("the edges and features are here")
    with pytest.raises(DataError, match=r"ogbn_arxiv/raw/(edge|node-feat)\.csv\.gz"):
        ARXIV.load(["2011"], store=store)


def test_protocol_is_that_of_eerm() -> None:
    (protocol,) = ARXIV.protocols
    assert protocol.name == "2011→2016,2018,2020"
    assert (protocol.sources, protocol.validation, protocol.metrics) == (("2011",), ("2014",), ("accuracy",))
    assert protocol.targets == ("2016", "2018", "2020")
