"""Tests of the restricted unpickler: data that it must read, and attacks that it must stop."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from edgemask.data.unpickle import load, load_bytes, load_npz_objects
from edgemask.errors import DataError, LimitError


class Call:
    """An object that is pickled as the call `function(*arguments)`, which a plain unpickler executes."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def by_name(module: str, name: str, *arguments: Any) -> bytes:
    """Return a pickle of a call of `module.name`. The name may contain dots and need not be importable here."""
    head = b"\x80\x04" + b"".join(b"\x8c" + bytes([len(t)]) + t.encode() for t in (module, name)) + b"\x93"
    return head + pickle.dumps(arguments, 4)[2:-1] + b"R."


def matrix() -> sp.csr_matrix:
    return sp.csr_matrix(np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]]))


# ---- readable pickles ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "shape", "total"),
    [
        ("x", (140, 1433), 2647), ("tx", (1000, 1433), 17955), ("allx", (1708, 1433), 31261),
        ("y", (140, 7), 140), ("ty", (1000, 7), 1000), ("ally", (1708, 7), 1708),
    ],
)  # fmt: skip
def test_cora_matrices(data_root: Path, part: str, shape: tuple[int, int], total: int) -> None:
    value = load(data_root / "planetoid" / f"ind.cora.{part}")
    assert type(value) is (sp.csr_matrix if part.endswith("x") else np.ndarray)
    assert (value.shape, value.sum()) == (shape, total)


def test_cora_graph(data_root: Path) -> None:
    graph = load(data_root / "planetoid" / "ind.cora.graph")
    assert len(graph) == 2708
    assert graph[0] == [633, 1862, 2582]
    assert {min(edge) >= 0 and max(edge) < 2708 for edge in graph.values()} == {True}


@pytest.mark.parametrize("kind", ["<f8", ">f4", "|b1", "<i2", "<c16", "|S3", "<U3"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_array_keeps_its_values_type_and_shape(kind: str, order: Any) -> None:
    array = np.asarray(np.arange(6).reshape(2, 3).astype(kind), order=order)
    loaded = load_bytes(pickle.dumps(array, 4), "array")
    assert loaded.dtype == array.dtype.newbyteorder("=")  # NumPy converts the byte order on reading
    np.testing.assert_array_equal(loaded, array)


def test_nested_arrays_and_scalars_load_and_pickle_again() -> None:
    loaded = load_bytes(pickle.dumps({"a": [np.arange(3)], "b": np.float32(1.5)}, 4), "nested")
    assert loaded["b"] == np.float32(1.5)
    assert type(loaded["b"]) is np.float32
    assert load_bytes(pickle.dumps(loaded, 4), "again")["a"][0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("module", [b"scipy.sparse._csr", b"scipy.sparse.csr"])
def test_sparse_matrix_under_its_new_and_old_name(module: bytes) -> None:
    data = pickle.dumps(matrix(), 3)
    assert b"cscipy.sparse._csr\n" in data
    loaded = load_bytes(data.replace(b"cscipy.sparse._csr\n", b"c" + module + b"\n"), "matrix")
    assert type(loaded) is sp.csr_matrix
    assert (loaded != matrix()).nnz == 0


def test_npz_of_plain_and_object_arrays(tmp_path: Path) -> None:
    objects = np.empty(2, dtype=object)
    objects[:] = [[1], "two"]
    np.savez_compressed(
        tmp_path / "g.npz",
        adj_matrix=np.array(matrix(), dtype=object),
        node_label=np.arange(4),
        metadata=np.array({"names": ["a", "b"]}, dtype=object),
        several=objects,
    )  # fmt: skip
    with np.load(tmp_path / "g.npz", allow_pickle=False) as plain, pytest.raises(ValueError, match="pickle"):
        plain["adj_matrix"]  # the member is an object array
    members = load_npz_objects(tmp_path / "g.npz")
    assert list(members) == ["adj_matrix", "node_label", "metadata", "several"]
    assert (members["adj_matrix"] != matrix()).nnz == 0
    assert members["node_label"].tolist() == [0, 1, 2, 3]
    assert members["metadata"] == {"names": ["a", "b"]}
    assert members["several"].tolist() == [[1], "two"]


# ---- attacks ---------------------------------------------------------------------------------------------

ATTACKS: dict[str, Callable[[Path], bytes]] = {
    "os.system": lambda canary: pickle.dumps(Call(os.system, f"touch '{canary}'")),
    "old protocol": lambda canary: pickle.dumps(Call(os.system, f"touch '{canary}'"), 0),
    "eval": lambda canary: by_name("builtins", "eval", f"open({str(canary)!r}, 'w').close()"),
    "subprocess": lambda canary: pickle.dumps(Call(subprocess.check_call, ["touch", str(canary)])),
    "os.mkdir": lambda canary: pickle.dumps(Call(os.mkdir, str(canary))),
    "numpy's eval": lambda canary: by_name(
        "numpy.f2py.crackfortran", "myeval", f"[open({str(canary)!r}, 'w').close(), 1][1]", {}
    ),
    "method of an allowed class": lambda canary: by_name("numpy", "ndarray.tofile", np.ones(1), str(canary)),
    "scipy's writer": lambda canary: by_name("scipy.sparse", "save_npz", str(canary), matrix()),
    "numpy's writer": lambda canary: by_name("numpy", "savetxt", str(canary), [1]),
    "nested in a list": lambda canary: pickle.dumps([1, {"a": (Call(os.system, f"touch '{canary}'"),)}]),
    "nested in an object array": lambda canary: pickle.dumps(
        np.array([Call(os.system, f"touch '{canary}'")], dtype=object)
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_attack_is_stopped_before_it_runs(attack: str, tmp_path: Path) -> None:
    live = tmp_path / "live.npz"
    pickle.loads(ATTACKS[attack](live))  # created here: the attack works with a plain unpickler
    assert live.exists()
    canary = tmp_path / "canary.npz"
    (tmp_path / "bad.pickle").write_bytes(ATTACKS[attack](canary))
    with pytest.raises(DataError, match=r"bad\.pickle: the pickle requires .+, which is not allowed"):
        load(tmp_path / "bad.pickle")
    assert not canary.exists()


def test_error_names_the_global() -> None:
    for module, name in (
        ("numpy", "load"),
        ("subprocess", "Popen"),
        ("scipy._lib._ccallback", "LowLevelCallable"),
        ("builtins", "getattr"),
    ):
        with pytest.raises(DataError, match=rf"file: the pickle requires {module}\.{name}, which is not allowed"):
            load_bytes(by_name(module, name, "x"), "file")


def test_attack_inside_an_npz_is_stopped(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    np.savez(tmp_path / "bad.npz", a=np.array(Call(os.system, f"touch '{canary}'"), dtype=object))
    with pytest.raises(DataError, match=r"bad\.npz, member a\.npy: the pickle requires posix\.system"):
        load_npz_objects(tmp_path / "bad.npz")
    assert not canary.exists()


def test_dtype_that_hides_its_objects_cannot_forge_pointers() -> None:
    array = pickle.dumps(np.array([None], dtype=object), 4)
    flags, objects = b"J\xff\xff\xff\xffK?t", b"]\x94Na"
    assert flags in array
    assert objects in array
    forged = array.replace(flags, b"J\xff\xff\xff\xffK\x00t").replace(objects, b"C\x08AAAAAAAA\x94")
    assert pickle.loads(forged).dtype == object  # do not access the item: it is a pointer to the address 0x4141…
    with pytest.raises(DataError, match="forged: not a readable pickle"):
        load_bytes(forged, "forged")


def test_object_array_with_too_few_objects_is_rejected() -> None:
    array = pickle.dumps(np.array([None], dtype=object), 4)
    assert b"K\x01K\x01\x85" in array
    with pytest.raises(DataError, match=r"expected 9 objects for an array of shape \(9,\), got 1"):
        load_bytes(array.replace(b"K\x01K\x01\x85", b"K\x01K\x09\x85"), "short")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("indices", [1, 0, 7], "indices"),
        ("indptr", [0, 9, 0], "row pointers"),
        ("indptr", [0, 1, 9], "index pointer"),
    ],
)
def test_sparse_matrix_with_invalid_indices_is_rejected(field: str, value: list[int], message: str) -> None:
    bad = matrix()
    getattr(bad, field)[:] = value
    with pytest.raises(DataError, match=f"bad: not a readable pickle: ValueError: .*{message}"):
        load_bytes(pickle.dumps(bad, 4), "bad")


# ---- damaged files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x80\x04", b"\x80\xff.", bytes(range(256))])
def test_file_that_is_not_a_pickle_is_an_error(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(DataError, match="file: not a readable pickle"):
        load(tmp_path / "file")


def test_truncated_pickle_is_an_error() -> None:
    data = pickle.dumps({"x": matrix()}, 4)
    for end in range(0, len(data), 7):
        with pytest.raises(DataError, match="cut: not a readable pickle"):
            load_bytes(data[:end], "cut")


def test_truncated_or_missing_npz_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    with pytest.raises(DataError, match=r"g\.npz: not a readable npz file: FileNotFoundError"):
        load_npz_objects(path)
    np.savez(path, a=np.arange(100))
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(DataError, match=r"g\.npz: not a readable npz file: BadZipFile"):
        load_npz_objects(path)


def test_npz_member_with_another_shape_than_in_its_header_is_an_error(tmp_path: Path) -> None:
    member = io.BytesIO()
    header = {"descr": "|O", "fortran_order": False, "shape": (3,)}
    np.lib.format.write_array_header_1_0(member, header)
    with zipfile.ZipFile(tmp_path / "g.npz", "w") as archive:
        archive.writestr("a.npy", member.getvalue() + pickle.dumps(np.array([None], dtype=object), 4))
    with pytest.raises(DataError, match=r"a\.npy: expected an object array of shape \(3,\), got ndarray of"):
        load_npz_objects(tmp_path / "g.npz")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80\x02]r\xff\xff\xff\x7f.", "object 2,147,483,647 in a pickle of 4 instructions"),
        (pickle.dumps(np.zeros(3), 3).replace(b"K\x03\x85", b"J\xff\xff\xff\x7f\x85"), "bytes for an array of shape"),
    ],
    ids=["memo", "shape"],
)
def test_a_small_pickle_takes_little_memory(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"bad: not a readable pickle: .*{message}"):
        load_bytes(data, "bad")


def test_an_archive_expands_only_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEMASK_MAX_BYTES", "1M")
    np.savez_compressed(tmp_path / "g.npz", a=np.zeros(10**6))
    with pytest.raises(LimitError, match=r"the arrays would take 7\.6 MiB"):
        load_npz_objects(tmp_path / "g.npz")


def test_the_shape_of_a_plain_array_fits_its_bytes(tmp_path: Path) -> None:
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<f8", "fortran_order": False, "shape": (2**28,)})
    with zipfile.ZipFile(tmp_path / "g.npz", "w") as archive:
        archive.writestr("a.npy", content.getvalue() + bytes(8))
    with pytest.raises(DataError, match=r"a\.npy: float64 of shape \(268435456,\) does not have 8 bytes"):
        load_npz_objects(tmp_path / "g.npz")
