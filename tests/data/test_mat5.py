"""Tests of the reader of MATLAB files: the same values as SciPy, and errors instead of harm on damaged files."""

from __future__ import annotations

import io
import random
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from edgemask.data import files, mat5
from edgemask.errors import EdgemaskError, GraphError, LimitError
from edgemask.graph import Graph

DTYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "?")


# ---- files, written by hand ------------------------------------------------------------------------------


def element(kind: int, data: bytes, order: str = "<") -> bytes:
    return struct.pack(f"{order}II", kind, len(data)) + data + b"\0" * (-len(data) % 8)


def variable(name: str, kind: int, shape: tuple[int, ...], *parts: bytes, order: str = "<", flags: int = 0) -> bytes:
    head = (
        element(6, struct.pack(f"{order}II", kind | flags, 0), order),
        element(5, struct.pack(f"{order}{len(shape)}i", *shape), order),
        element(1, name.encode(), order),
    )
    return element(14, b"".join((*head, *parts)), order)


def matfile(*variables: bytes, order: str = "<") -> io.BytesIO:
    return io.BytesIO(
        b"MATLAB 5.0 MAT-file".ljust(124)
        + struct.pack(f"{order}H", 0x0100)
        + (b"IM" if order == "<" else b"MI")
        + b"".join(variables)
    )


def compressed(content: bytes) -> bytes:
    data = zlib.compress(content)
    return struct.pack("<II", 15, len(data)) + data


def ints(*values: int) -> bytes:
    return element(5, np.array(values, "<i4").tobytes())


def read(file: io.BytesIO, *names: str) -> dict[str, Any]:
    return mat5.read_variables(file, names or ("a",))


def saved(**fields: Any) -> io.BytesIO:
    file = io.BytesIO()
    scipy.io.savemat(file, fields, do_compression=bool(len(fields) % 2))
    file.seek(0)
    return file


# ---- right files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_same_values_as_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fields: dict[str, Any] = {}
    for i, dtype in enumerate(DTYPES):
        shape = tuple(rng.integers(0 if seed % 5 == 0 else 1, 5, rng.integers(2, 4)))
        fields[f"full{i}"] = (100 * rng.standard_normal(shape)).astype(np.int64).astype(dtype)
        matrix = sp.random(*rng.integers(1, 9, 2), 0.3, random_state=rng, format="csc")
        fields[f"sparse{i}"] = matrix.astype("?" if dtype == "?" else "f8")
    fields |= {"text": "héllo 漢"[: seed % 8], "rows": np.array(["ab ", "cde"]), "number": 3.5}
    fields["cells"] = np.array([["a", "bc"], ["", "漢"]], dtype=object)[: 1 + seed % 2]
    file = saved(**fields)
    expected = scipy.io.loadmat(file)
    file.seek(0)
    values = mat5.read_variables(file, fields)
    assert values.keys() == fields.keys()
    for name, value in values.items():
        wanted = expected[name]
        if name == "cells":
            texts = [str(np.ravel(cell)[0]) if np.size(cell) else "" for cell in wanted.ravel()]
            assert [str(np.ravel(cell)[0]) if np.size(cell) else "" for cell in value.ravel()] == texts
            assert value.shape == wanted.shape
            continue
        assert value.shape == wanted.shape, name
        if sp.issparse(wanted):
            value, wanted = value.toarray(), wanted.toarray()
        assert np.array_equal(value, wanted), name
        assert value.dtype == (bool if "?" in DTYPES and name.endswith("10") else wanted.dtype), name
    file.seek(0)
    assert set(mat5.variable_names(file)) == fields.keys()


def test_only_the_wanted_variables_are_decoded() -> None:
    file = matfile(variable("s", 2, (1, 1)), variable("a", 6, (1, 1), element(9, struct.pack("<d", 2))))
    assert read(file)["a"].tolist() == [[2.0]]


def test_big_endian_and_small_elements() -> None:
    numbers = element(3, np.array([1, -2, 3], ">i2").tobytes(), ">")
    small = struct.pack(">IHH", 4 << 16 | 3, 5, 6)  # a small element: 4 bytes of type int16
    file = matfile(variable("a", 6, (3, 1), numbers, order=">"), variable("b", 10, (1, 2), small, order=">"), order=">")
    values = read(file, "a", "b")
    assert values["a"].tolist() == [[1], [-2], [3]]
    assert values["b"].tolist() == [[5, 6]]
    assert values["a"].dtype.isnative


def test_text_in_utf_16_counts_code_units() -> None:
    text = "a😀"
    file = matfile(variable("a", 4, (1, 3), element(4, text.encode("utf-16-le"))))
    assert read(file)["a"].tolist() == [text]


# ---- files that cannot be read ---------------------------------------------------------------------------

SPARSE = 5
ONE = element(9, struct.pack("<d", 1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file ends within its header, after 0 bytes"),
        (b"\x89HDF\r\n", r"MATLAB 7\.3 \(HDF5\).*save\(…, '-v7'\)"),
        (b"MATLAB 7.3 MAT-file".ljust(128), r"MATLAB 7\.3 \(HDF5\)"),
        (struct.pack("<5i", 0, 3, 3, 0, 2).ljust(200), r"MATLAB 4, which cannot be read.*'-v7'"),
        (b"words" * 100, "does not have the header of a MATLAB file of level 5"),
        (matfile(variable("a", 2, (1, 1))).getvalue(), "the variable 'a': it is a struct, which cannot be read"),
        (matfile(variable("a", 3, (1, 1))).getvalue(), "it is an object"),
        (matfile(variable("a", 17, (1, 1))).getvalue(), "it is an object of a MATLAB class"),
        (matfile(variable("a", 6, (1, 1), ONE, flags=0x800)).getvalue(), "complex numbers cannot be read"),
        (matfile(variable("a", 6, (2, 1), ONE)).getvalue(), r"1 numbers for an array of shape \(2, 1\)"),
        (matfile(variable("a", 6, (-1, -1), ONE)).getvalue(), r"the dimensions of 'a' are \(-1, -1\)"),
        (matfile(variable("a", 6, (2**31 - 1,) * 30, ONE)).getvalue(), "1 numbers for an array of shape"),
        (matfile(variable("a", 1, (2**30, 4))).getvalue(), "cells of shape"),
        (matfile(variable("a", 1, (1, 1), variable("", 1, (0, 0)))).getvalue(), "a cell that holds cells"),
        (matfile(variable("a", 6, (1, 1), ONE)).getvalue()[:-8], r"truncated \(8 bytes are missing\)"),
        (matfile(variable("a", 6, (1, 1), ONE), variable("a", 6, (1, 1), ONE)).getvalue(), "'a' occurs twice"),
        (matfile(variable("a", SPARSE, (2, 1), ints(2), ints(0, 1), ONE)).getvalue(), "outside its 2 rows"),
        (matfile(variable("a", SPARSE, (2, 1), ints(0), ints(0, 2), ONE)).getvalue(), "2 entries .*, but 1 rows"),
        (matfile(variable("a", SPARSE, (2, 1), ints(0), ints(0), ONE)).getvalue(), "do not begin where they should"),
        (matfile(variable("a", SPARSE, (2, 2), ints(0), ints(0, 1, 0), ONE)).getvalue(), "do not begin where"),
        (matfile(variable("a", SPARSE, (2, 1), ints(1, 0), ints(0, 2), ONE + ONE)).getvalue(), "but 2 rows and 1 val"),
        (
            matfile(variable("a", SPARSE, (2, 1), ints(1, 0), ints(0, 2), element(9, bytes(16)))).getvalue(),
            "not in the order of their rows",
        ),
        (
            matfile(compressed(variable("a", 6, (1, 1), ONE))[:-1] + b"\0").getvalue(),
            "the variable at byte 128 is damaged",
        ),
        (
            matfile(compressed(variable("b", 6, (1, 1), ONE))[:-1] + b"\0").getvalue(),
            "the variable at byte 128 is damaged",
        ),
    ],
)
def test_errors_say_what_is_wrong(content: bytes, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        read(io.BytesIO(content))


def test_a_compressed_variable_cannot_expand_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = matfile(compressed(variable("a", 9, (10**6, 4), element(2, bytes(4 * 10**6)))))
    assert read(bomb)["a"].shape == (10**6, 4)
    monkeypatch.setenv("EDGEMASK_MAX_BYTES", "1M")
    bomb.seek(0)
    with pytest.raises(LimitError, match=r"the variable 'a' would take 3\.8 MiB"):
        read(bomb)


def test_a_variable_cannot_swallow_the_next_one() -> None:
    first, second = (compressed(variable(name, 6, (1, 1), ONE)) for name in "ab")
    swallowing = struct.pack("<II", 15, len(first) - 8 + len(second)) + first[8:]
    with pytest.raises(GraphError, match="the variable 'a' is damaged"):
        read(matfile(swallowing, second))


def test_a_size_that_zlib_cannot_reach_is_refused() -> None:
    lie = struct.pack("<II", 14, 2**32 - 8) + variable("a", 6, (1, 1), ONE)[8:]
    with pytest.raises(GraphError, match="is no matrix of 4,294,967,288 bytes"):
        read(matfile(compressed(lie)))


def test_damaged_graph_files_raise_errors_only(tmp_path: Path) -> None:
    graph = Graph("g", np.eye(6), [[0, 1, 2], [1, 2, 3]], [0, 1, 2, 0, 1, -1], ("a", "bc", "d"), node_ids=[*"uvwxyz"])
    path = tmp_path / "g.mat"
    files.write_mat(graph, path)
    packed = path.read_bytes()
    fields = {k: v for k, v in scipy.io.loadmat(path).items() if not k.startswith("__")}
    scipy.io.savemat(path, fields)
    messages = []
    for seed in range(200):
        rng = random.Random(seed)
        content = bytearray(packed if seed % 2 else path.read_bytes())
        at = rng.randrange(124, len(content))
        content[at : at + rng.choice((1, 4))] = rng.choice((b"\xff" * 4, b"\0" * 4, rng.randbytes(1), b""))
        damaged = tmp_path / "damaged.mat"
        damaged.write_bytes(content)
        try:
            back = files.read_graph(damaged)
        except EdgemaskError as error:
            messages.append(str(error))
        else:
            assert not seed % 2 or back == graph  # the checksums of compressed variables find all damage
    assert all("damaged.mat" in message and "\n" not in message for message in messages)


# ---- graphs ----------------------------------------------------------------------------------------------


def test_sparse_labels_are_not_densified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 4000
    group = sp.csc_array((np.ones(n), (np.arange(n), np.arange(n) % 4000)), shape=(n, 400_000))
    scipy.io.savemat(
        tmp_path / "g.mat",
        {"network": sp.eye_array(n, k=1, format="csc"), "attrb": np.ones((n, 1)), "group": group},
        do_compression=True,
    )
    monkeypatch.setenv("EDGEMASK_MAX_BYTES", "200M")
    graph = files.read_graph(tmp_path / "g.mat")
    assert graph.num_classes == 400_000
    assert graph.y.tolist() == list(range(n))
    with pytest.raises(LimitError, match=r"g\.mat: group would take 1\.5 GiB"):
        files.read_graph(tmp_path / "g.mat", labels="all")


def test_struct_labels_name_the_field_and_the_conversion(tmp_path: Path) -> None:
    fields = {"network": np.eye(3, k=1), "attrb": np.eye(3), "group": {"a": 1}}
    scipy.io.savemat(tmp_path / "g.mat", fields)
    with pytest.raises(GraphError, match=r"g\.mat: not a readable \.mat file: the variable 'group': it is a struct"):
        files.read_graph(tmp_path / "g.mat")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["citation/acmv9.mat", "facebook100/Berkeley13.mat"])
def test_benchmark_files_as_scipy_reads_them(data_root: Path, name: str) -> None:
    path = data_root / name
    start = time.perf_counter()
    expected = {key: value for key, value in scipy.io.loadmat(path).items() if not key.startswith("__")}
    middle = time.perf_counter()
    with path.open("rb") as file:
        values = mat5.read_variables(file, expected.keys(), path)
    assert time.perf_counter() - middle < 10 * (middle - start) + 1  # usually equal
    assert values.keys() == expected.keys()
    for key, value in values.items():
        assert value.dtype == expected[key].dtype
        assert (value != expected[key]).sum() == 0
