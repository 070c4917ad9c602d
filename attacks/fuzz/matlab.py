"""Mutations of MATLAB files of level 5, which keep the file readable so that the checks behind it are reached."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from attacks.fuzz.archives import BOMB, mutate_array
from attacks.fuzz.mutate import INTEGERS, TEXTS, mutate_bytes
from edgemask.data import mat5

Files = dict[str, bytes]
HEADER = 128
MATRIX, COMPRESSED = 14, 15
SHAPES = [(0, 0), (1, 1), (3,), (2**31 - 1, 1), (1, 2**31 - 1), (2**16, 2**16), (-1, 5), (5, -1), (1,) * 40, (5, 5, 5)]


@dataclass(frozen=True)
class Element:
    """An element: its type, its data, and the size that its tag claims (None: the real one)."""

    kind: int
    data: bytes
    size: int | None = None

    def packed(self) -> bytes:
        """Return the element as it is in a file."""
        size = len(self.data) if self.size is None else self.size
        return struct.pack("<II", self.kind % 2**32, size % 2**32) + self.data + bytes(-len(self.data) % 8)


def elements(data: bytes) -> list[Element]:
    """Return the elements in a block of bytes that is not damaged, and raise a `struct.error` for another one."""
    found, at = [], 0
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind >> 16:
            found.append(Element(kind & 0xFFFF, data[at + 4 : at + 4 + (kind >> 16)]))
            at += 8
        else:
            found.append(Element(kind, data[at + 8 : at + 8 + size]))
            at += 8 + size + (-size % 8 if kind not in (MATRIX, COMPRESSED) else 0)
    return found


def variables(file: bytes) -> list[bytes]:
    """Return the content of the variables of a file, without their first tags and not compressed."""
    found = []
    for element in elements(file[HEADER:]):
        data = zlib.decompress(element.data) if element.kind == COMPRESSED else b"\0" * 8 + element.data
        found.append(data[8:])
    return found


def matfile(contents: Sequence[bytes], head: bytes, compressed: bool) -> bytes:
    """Return a file of variables."""
    parts = []
    for content in contents:
        part = struct.pack("<II", MATRIX, len(content)) + content
        if compressed:
            data = zlib.compress(part)
            part = struct.pack("<II", COMPRESSED, len(data)) + data
        parts.append(part)
    return head + b"".join(parts)


def mutate_variable(rng: random.Random, file: bytes) -> bytes:
    """Change an element of a variable: its tag, the flags, the dimensions, the name, or the numbers."""
    contents = variables(file)
    if not contents:
        return file
    place = rng.randrange(len(contents))
    parts = elements(contents[place])
    i, action, compressed = rng.randrange(len(parts)), rng.randrange(13), rng.random() < 0.7
    part = parts[i]
    if action == 0:
        parts[i] = replace(part, kind=rng.choice([*range(20), 0x40001, 0x80005, *INTEGERS]))
    elif action == 1:
        parts[i] = replace(part, size=rng.choice([len(part.data) + 1, len(part.data) - 1, *INTEGERS]))
    elif action == 2:
        flags = rng.choice([*range(20), 0x206, 0x805, 0x205, 0x204, 0x406, 2**32 - 1])
        parts[0] = Element(6, struct.pack("<II", flags, rng.choice((0, 1, 2**31))))
    elif action == 3:
        shape = rng.choice(SHAPES)
        parts[1] = Element(5, struct.pack(f"<{len(shape)}i", *shape))
    elif action == 4:
        name = rng.choice([*TEXTS, "network", "attrb", "group", "A", "local_info", "name", "classes", "node_ids"])
        parts[2] = Element(1, name.encode("utf-8"))
    elif action == 5:
        del parts[i]
    elif action == 6:
        parts.insert(rng.randrange(len(parts) + 1), part)
    elif action == 7 and len(part.data) >= 4:
        at = rng.randrange(len(part.data) // 4) * 4
        number = struct.pack("<I", rng.choice(INTEGERS) % 2**32)
        parts[i] = replace(part, data=part.data[:at] + number + part.data[at + 4 :])
    elif action == 8:
        parts[i] = replace(part, data=mutate_bytes(rng, {"": part.data})[""])
    elif action == 9:
        parts[i] = replace(part, data=rng.choice((b"", part.data * 2, part.data * 100, bytes(len(part.data)))))
    elif action == 10:
        contents.insert(rng.randrange(len(contents) + 1), contents[place])
        return matfile(contents, file[:HEADER], compressed)
    elif action == 11:
        del contents[place]
        return matfile(contents, file[:HEADER], compressed)
    elif i > 2:  # much data from few bytes
        parts[i] = Element(rng.choice((1, 2, 9)), bytes(rng.choice((2**20, BOMB if rng.random() < 0.05 else 8))))
        compressed = True
    contents[place] = b"".join(p.packed() for p in parts)
    return matfile(contents, file[:HEADER], compressed)


def mutate_values(rng: random.Random, file: bytes) -> bytes:
    """Change a variable and write the file again."""
    content = io.BytesIO(file)  # SciPy's own reader can die on a damaged file
    names = mat5.variable_names(content)
    content.seek(0)
    fields = mat5.read_variables(content, names)
    name = rng.choice(sorted(fields))
    fields[name] = mutate_value(rng, fields[name])
    if rng.random() < 0.1:
        fields[
            rng.choice(["multilabel", "weighted", "classes", "feature_names", "text_columns", "node_ids", "name"])
        ] = rng.choice([1, 0, "x", np.array(["a", "b"], object), np.eye(2), {"a": 1}, np.array(TEXTS[:9], object), 1j])
    return saved(fields, compressed=rng.random() < 0.5)


def mutate_value(rng: random.Random, value: Any) -> Any:
    """Return the value of a variable with another entry, shape or type."""
    action = rng.randrange(10)
    if action == 0:
        return rng.choice([{"a": 1}, "text", np.array([[1, "x"]], object), np.ones((2, 2)) * 1j, np.zeros((0, 0))])
    if sp.issparse(value) and action < 7:
        coo = sp.coo_array(value)
        data, rows, columns = coo.data, coo.row.copy(), coo.col.copy()
        if action < 4 and len(data):
            data = mutate_array(rng, data)[: len(data)] if rng.random() < 0.7 else data * 0
        data = np.resize(np.ravel(data), len(rows)) if np.size(data) else np.zeros(len(rows))
        grown = rng.choice((0, 0, 1, 1000))
        shape = value.shape[0] + grown, value.shape[1] + rng.choice((0, grown))
        try:
            return sp.csc_array((data.astype(np.float64), (rows, columns)), shape=shape)
        except (TypeError, ValueError):
            return value
    if sp.issparse(value):
        return value.toarray() if action < 9 else value.T
    array = mutate_array(rng, value)
    return array.astype(object) if array.dtype.kind not in "fiubUO" else array


def saved(fields: dict[str, Any], *, compressed: bool) -> bytes:
    """Return variables as a file."""
    file = io.BytesIO()
    scipy.io.savemat(file, fields, do_compression=compressed)
    return file.getvalue()


def mat_mutation(rng: random.Random, files: Files) -> Files:
    """Change a MATLAB file."""
    name = rng.choice(sorted(name for name in files if name.endswith(".mat")))
    try:
        changed = (mutate_variable if rng.random() < 0.7 else mutate_values)(rng, files[name])
    except Exception:  # an earlier mutation has damaged the file, or SciPy cannot write the value
        return mutate_bytes(rng, files)
    return files | {name: changed}
