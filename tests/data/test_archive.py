"""Tests of `.npz` archives as an attacker writes them: nothing is expanded before it is declared and fits the limit."""

from __future__ import annotations

import io
import random
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from edgemask.data import files
from edgemask.errors import EdgemaskError, GraphError, LimitError
from edgemask.graph import Graph


def small(**changes: object) -> Graph:
    return Graph(**{"name": "g", "x": np.eye(4), "edges": [[0, 1], [1, 2]], "y": [0, 1, 1, -1], **changes})  # type: ignore[arg-type]


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def rewrite(path: Path, members: dict[str, bytes], graph: Graph | None = None) -> Path:
    """Write a graph's archive with some members replaced or added."""
    files.write_npz(graph or small(), path)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()} | members
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (b"", r"not an array in the format \.npy"),
        (b"no magic", r"not an array in the format \.npy"),
        (header("{'descr': '<i8', 'fortran_order': False, 'shape': (2, -1), }\n"), "of shape .2, -1. does not have"),
        (header("{'descr': '<i8', 'fortran_order': False, 'shape': (2, 10**15), }\n"), "not an array in the format"),
        (
            header("{'descr': '<i8', 'fortran_order': False, 'shape': (2, 1000000000000000), }\n"),
            r"int64 of shape \(2, 1000000000000000\) does not have 85 bytes",
        ),
        (header("{'descr': '|O', 'fortran_order': False, 'shape': (2, 1), }\n"), "got object"),
        (header("(" * 5000), "not an array in the format"),
        (header("{'descr': '<U0', 'fortran_order': False, 'shape': (2, 9), }\n"), "got <U0"),
    ],
)
def test_a_member_that_is_no_legal_array(tmp_path: Path, member: bytes, message: str) -> None:
    with pytest.raises(GraphError, match=rf"g\.npz: .*field 'edges'.*{message}"):
        files.read_npz(rewrite(tmp_path / "g.npz", {"edges.npy": member}))


def test_a_bomb_is_refused_before_it_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEMASK_MAX_BYTES", "10M")
    zeros = bytes(30 * 2**20)
    head = header("{'descr': '<f4', 'fortran_order': False, 'shape': (7864320, 1), }\n")
    for name, error, message in (
        ("x.npy", LimitError, r"g\.npz: the graph would take 30\.0 MiB"),
        ("colours.npy", GraphError, "unknown field 'colours'"),
        ("edge.npy", GraphError, r"unknown field 'edge'; did you mean 'edges'\?"),
    ):
        path = rewrite(tmp_path / "g.npz", {name: head + zeros})
        tracemalloc.start()
        with pytest.raises(error, match=message):
            files.read_npz(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 5 * 2**20


def test_a_member_that_is_larger_than_it_says(tmp_path: Path) -> None:
    path = rewrite(tmp_path / "g.npz", {"edges.npy": bytes(10**6)})
    content = path.read_bytes()
    path.write_bytes(content.replace((10**6).to_bytes(4, "little"), (1000).to_bytes(4, "little")))
    with pytest.raises(GraphError, match=r"g\.npz: not a readable \.npz archive"):
        files.read_npz(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_occurs_twice(tmp_path: Path) -> None:
    files.write_npz(small(), tmp_path / "g.npz")
    with zipfile.ZipFile(tmp_path / "g.npz", "a") as archive:
        archive.writestr("edges.npy", npy(np.zeros((2, 0), dtype=int)))
    with pytest.raises(GraphError, match="field 'edges' occurs twice"):
        files.read_npz(tmp_path / "g.npz")


@pytest.mark.parametrize("dtype", [">f8", "<f2", ">f2", ">i4", "?"])
@pytest.mark.parametrize("sparse", [False, True])
def test_other_types_of_numbers_are_converted(tmp_path: Path, dtype: str, sparse: bool) -> None:
    x = np.eye(4).astype(dtype)
    if sparse:
        members = {"x_data.npy": npy(np.ones(4, dtype)), "x_indices.npy": npy(np.arange(4, dtype=">i8"))}
        graph = files.read_npz(rewrite(tmp_path / "g.npz", members, small(x=sp.eye_array(4))))
        assert graph == small(x=sp.eye_array(4))
    else:
        assert files.read_npz(rewrite(tmp_path / "g.npz", {"x.npy": npy(x)})) == small()


def test_a_directory_that_hides_a_field(tmp_path: Path) -> None:
    files.write_npz(small(weights=[1, 2]), tmp_path / "g.npz")
    content = bytearray((tmp_path / "g.npz").read_bytes())
    last = content.rindex(b"PK\x01\x02")
    before = content.rindex(b"PK\x01\x02", 0, last)
    content[before + 32] = len(content) - 22 - last  # the comment of the member before, which now ends at the end
    (tmp_path / "g.npz").write_bytes(content)
    with pytest.raises(GraphError, match="the directory of the archive is damaged"):
        files.read_npz(tmp_path / "g.npz")


def test_damage_is_always_an_error(tmp_path: Path) -> None:
    graph = small(x=sp.eye_array(4), weights=[1.5, 2], node_ids=[*"abcd"])
    path, messages = tmp_path / "g.npz", []
    files.write_npz(graph, path)
    whole = path.read_bytes()
    for seed in range(200):
        rng = random.Random(seed)
        content, at = bytearray(whole), rng.randrange(len(whole))
        content[at : at + rng.choice((1, 4))] = rng.choice((b"\xff" * 4, b"\0" * 4, rng.randbytes(1), b""))
        path.write_bytes(content)
        try:
            back = files.read_graph(path)
        except EdgemaskError as error:
            messages.append(str(error))
        else:
            assert back == graph
    assert messages
    assert all("g.npz" in message and "\n" not in message for message in messages)
