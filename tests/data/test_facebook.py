"""Tests of Facebook-100 with the real files of the smallest schools."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from edgemask.data import facebook, read_graph
from edgemask.data.facebook import FACEBOOK100
from edgemask.data.store import File, Store
from edgemask.errors import DataError, GraphError, InputError
from edgemask.graph import MISSING, Graph

ABSENT = {"Penn94", "Texas80"}
COUNTS = {  # nodes, undirected edges, and numbers of missing labels, of gender 1 and of gender 2
    "Amherst41": (2_235, 90_954, 203, 1_015, 1_017),
    "Caltech36": (769, 16_656, 66, 228, 475),
    "Reed98": (962, 18_812, 97, 504, 361),
}


@pytest.fixture(scope="module")
def graphs(store: Store) -> dict[str, Graph]:
    return FACEBOOK100.load(tuple(COUNTS), store=store)


@pytest.mark.parametrize("name", COUNTS)
def test_counts(graphs: dict[str, Graph], name: str) -> None:
    graph = graphs[name]
    assert graph.y is not None
    labels = [int((graph.y == label).sum()) for label in (MISSING, 0, 1)]
    assert (graph.num_nodes, graph.num_edges // 2, *labels) == COUNTS[name]
    assert graph.is_undirected


def test_features_are_one_hot_of_the_known_attributes(graphs: dict[str, Graph], store: Store) -> None:
    graph = graphs["Caltech36"]
    info = scipy.io.loadmat(store.root / "facebook100" / "Caltech36.mat")["local_info"]
    assert set(graph.x.data) == {1}
    assert np.array_equal(np.diff(graph.x.indptr), (np.delete(info, 1, axis=1) != 0).sum(1))
    # Two people share as many columns as they share known attributes.
    a, b = info[:40, None], info[None, :40]
    agree = np.delete((a == b) & (a != 0), 1, axis=2).sum(2)
    first = graph.x[:40]
    assert np.array_equal((first @ first.T).toarray(), agree)


def test_a_value_has_one_column_in_every_school(graphs: dict[str, Graph], store: Store) -> None:
    """The column sums of two schools equal their numbers of students who graduate in 2007."""
    sums = []
    for name in ("Caltech36", "Reed98"):
        year = scipy.io.loadmat(store.root / "facebook100" / f"{name}.mat")["local_info"][:, 5]
        graph = graphs[name]
        sums.append(graph.x[year == 2007].sum(0) == (year == 2007).sum())
        sums.append(graph.x[year != 2007].sum(0) == 0)
    assert np.logical_and.reduce(sums).sum() == 1


def test_missing_labels_become_class_0_as_in_eerm(graphs: dict[str, Graph], store: Store) -> None:
    folded = FACEBOOK100.load(["Reed98"], store=store, missing="eerm")["Reed98"]
    assert folded.y is not None
    assert graphs["Reed98"].y is not None
    assert np.array_equal(folded.y, np.maximum(graphs["Reed98"].y, 0))
    assert folded.labelled.all()


def test_unknown_missing_option_is_rejected(store: Store) -> None:
    with pytest.raises(ValueError, match="missing must be 'skip' or 'eerm', got 'drop'"):
        FACEBOOK100.load(["Reed98"], store=store, missing="drop")


def test_absent_schools_are_named(store: Store) -> None:
    here = set(FACEBOOK100.available(store))
    assert set(FACEBOOK100.domains) - here <= ABSENT
    for name in ABSENT - here:
        with pytest.raises(DataError, match=rf"facebook100/{name}\.mat"):
            FACEBOOK100.load(["Reed98", name], store=store)


def test_the_available_protocols_need_no_absent_school() -> None:
    names = [p.name for p in FACEBOOK100.protocols]
    available = [f"triple{i}→available" for i in (1, 2, 3)]
    assert names == [*(f"triple{i}→Penn94,Brown11,Texas80" for i in (1, 2, 3)), *available]
    for protocol in map(FACEBOOK100.protocol, available):
        assert not ABSENT & set(protocol.domains)
        assert protocol.validation == ("Cornell5", "Yale4")
        assert len(protocol.targets) == 4


def school(folder: Path, name: str, info: list[list[int]], edges: list[list[int]]) -> None:
    n = len(info)
    ends = np.array(edges).T
    adjacency = sp.csc_matrix((np.ones(len(edges)), (ends[0], ends[1])), shape=(n, n))
    folder.mkdir(exist_ok=True)
    scipy.io.savemat(folder / f"{name}.mat", {"A": adjacency, "local_info": np.array(info, dtype=np.uint16)})


@pytest.fixture
def two_schools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with two artificial schools, whose checksums are not verified."""
    both = [[0, 1], [1, 0]]
    school(tmp_path / "facebook100", "Reed98", [[1, 0, 5, 0, 0, 0, 9], [2, 1, 0, 0, 0, 0, 9]], both)
    school(tmp_path / "facebook100", "Yale4", [[2, 2, 6, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]], both)
    monkeypatch.setattr(Store, "get", lambda self, file: self.root / file.path)
    return Store(tmp_path, offline=True)


def test_columns_come_from_all_schools_in_the_store(two_schools: Store) -> None:
    graph = FACEBOOK100.load(["Reed98"], store=two_schools)["Reed98"]
    # status 1, 2; major 5, 6; high school 9
    assert graph.x.toarray().tolist() == [[1, 0, 1, 0, 1], [0, 1, 0, 0, 1]]
    assert graph.y is not None
    assert graph.y.tolist() == [MISSING, 0]


def test_columns_of_a_school_that_is_removed_from_the_store_disappear(two_schools: Store) -> None:
    (two_schools.root / "facebook100" / "Yale4.mat").unlink()
    assert FACEBOOK100.load(["Reed98"], store=two_schools)["Reed98"].num_features == 4


def test_an_asymmetric_adjacency_is_an_error(two_schools: Store) -> None:
    school(two_schools.root / "facebook100", "Yale4", [[1] * 7, [1] * 7], [[0, 1]])
    with pytest.raises(DataError, match=r"Yale4\.mat: the adjacency matrix A is not symmetric"):
        FACEBOOK100.load(["Yale4"], store=two_schools)


def test_files_have_fixed_urls_and_checksums() -> None:
    files = [file for name in FACEBOOK100.domains for file in facebook.files(name)]
    assert len({file.checksum for file in files}) == 18
    assert all(isinstance(file, File) and file.url.endswith(file.path) for file in files)


INFO = [[1, 2, 5, 0, 0, 2006, 9], [2, 0, 0, 7, 31, 2005, 9], [1, 1, 5, 0, 30, 0, 0]]
FRIENDS = [[0, 1], [1, 0], [1, 2], [2, 1]]


def test_any_school_can_be_read(tmp_path: Path) -> None:
    school(tmp_path, "Simmons81", INFO, FRIENDS)
    graph = read_graph(tmp_path / "Simmons81.mat")
    assert (graph.name, graph.classes, graph.num_edges) == ("Simmons81", ("gender 1", "gender 2"), 4)
    assert graph.y.tolist() == [1, MISSING, 0]
    assert graph.text_columns == ("student_fac", "major", "second_major", "dorm", "year", "high_school")
    rows = [{graph.feature_names[i] for i in np.flatnonzero(row)} for row in graph.x]
    assert rows == [
        {"student_fac=1", "major=5", "year=2006", "high_school=9"},
        {"student_fac=2", "second_major=7", "dorm=31", "year=2005", "high_school=9"},
        {"student_fac=1", "major=5", "dorm=30"},
    ]


def test_label_of_a_school(tmp_path: Path) -> None:
    school(tmp_path, "Simmons81", INFO, FRIENDS)
    graph = read_graph(tmp_path / "Simmons81.mat", label="year", features=["gender", "dorm"])
    assert (graph.classes, graph.y.tolist()) == (("2005", "2006"), [1, 0, MISSING])
    assert graph.feature_names == ("gender=1", "gender=2", "dorm=30", "dorm=31")
    with pytest.raises(InputError, match=r"Simmons81\.mat: no label 'dorms' .*did you mean 'dorm'"):
        read_graph(tmp_path / "Simmons81.mat", label="dorms")
    with pytest.raises(InputError, match=r"Facebook-100 \.mat files have no option 'labels'"):
        read_graph(tmp_path / "Simmons81.mat", labels="all")


def test_a_damaged_school(tmp_path: Path) -> None:
    school(tmp_path, "a", [row[:6] for row in INFO], FRIENDS)
    with pytest.raises(GraphError, match=r"a\.mat: local_info: expected an N × 7 table .*got uint16 of shape \(3, 6\)"):
        read_graph(tmp_path / "a.mat")
    school(tmp_path, "b", INFO, FRIENDS[:1])
    with pytest.raises(GraphError, match=r"b\.mat: the adjacency matrix A is not symmetric"):
        read_graph(tmp_path / "b.mat")


def test_a_school_of_the_store_as_its_own_graph(graphs: dict[str, Graph], store: Store) -> None:
    own, shared = read_graph(store.root / "facebook100" / "Reed98.mat"), graphs["Reed98"]
    assert own.y.tolist() == shared.y.tolist()
    assert np.array_equal(own.edges, shared.edges)
    assert (own.x @ own.x.T - shared.x @ shared.x.T).count_nonzero() == 0


@pytest.mark.slow
def test_all_schools_are_compatible(store: Store) -> None:
    graphs = FACEBOOK100.load(FACEBOOK100.available(store), store=store)
    if len(graphs) == 16:
        assert sum(graph.num_nodes for graph in graphs.values()) == 145_801
        assert sum(int((~graph.labelled).sum()) for graph in graphs.values()) == 12_936
        assert {graph.num_features for graph in graphs.values()} == {11_965}
