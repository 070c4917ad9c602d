"""Read the variables of MATLAB files, level 5 (those of MATLAB's `-v6` and `-v7`, and of `scipy.io.savemat`).

Every size that a file states is compared with the bytes that are there before memory is allocated, so a damaged or
crafted file raises an error and never harms the process.

A file is a header of 128 bytes and a sequence of elements. An element is a tag (its type and its number of bytes) and
data. A variable is an element of type MATRIX, or a COMPRESSED one that contains it. A MATRIX consists of elements
itself: flags with the class, dimensions, the name, and the parts that the class has.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp

from edgemask.errors import GraphError
from edgemask.limits import check_size

HEADER, TAG = 128, 8
HEAD = 512  # bytes of a variable in which its name ends
MAX_RATIO = 1032  # zlib expands one byte to at most this many
MAX_DIMENSIONS = 32
INT8, INT32, UINT32, MATRIX, COMPRESSED = 1, 5, 6, 14, 15  # types of elements
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CODECS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
CELL, CHAR, SPARSE, NUMERIC = 1, 4, 5, range(6, 16)  # classes of variables
OTHERS = {2: "a struct", 3: "an object", 16: "a function", 17: "an object of a MATLAB class"}
LOGICAL, COMPLEX = 0x200, 0x800  # flags
CONVERT = "in MATLAB, load it and write it with save(…, '-v7'); in Python, write it with scipy.io.savemat"


@dataclass
class _Elements:
    """The elements in a block of bytes, in order.

    Args:
        data: The bytes.
        order: The byte order, "<" or ">".
        at: Position of the next element.
    """

    data: memoryview
    order: str
    at: int = 0

    def next(self) -> tuple[int, memoryview]:
        """Return the type and the data of the next element."""
        kind, size = struct.unpack(f"{self.order}II", self._take(TAG))
        if kind >> 16:  # a small element: type, size and data together take 8 bytes
            kind, size = kind & 0xFFFF, kind >> 16
            if size > 4:
                raise GraphError(f"a small element of {size} bytes (at most 4)")
            return kind, self.data[self.at - 4 : self.at - 4 + size]
        data = self._take(size)
        if kind != MATRIX:
            self.at += -size % 8
        return kind, data

    def numbers(self, kinds: Collection[int] = NUMBERS) -> Any:
        """Return the next element, which holds numbers of one of the given types, as an array in native byte order."""
        kind, data = self.next()
        if kind not in kinds:
            raise GraphError(f"an element of type {kind} where numbers are expected")
        dtype = np.dtype(self.order + NUMBERS[kind])
        if len(data) % dtype.itemsize:
            raise GraphError(f"{len(data)} bytes are no sequence of numbers of {dtype.itemsize} bytes")
        return np.frombuffer(data, dtype).astype(dtype.newbyteorder("="), copy=False)

    def _take(self, size: int) -> memoryview:
        if size > len(self.data) - self.at:
            raise GraphError(f"an element of {size:,} bytes where only {max(len(self.data) - self.at, 0):,} are left")
        self.at += size
        return self.data[self.at - size : self.at]


@dataclass
class _Head:
    """The first three elements of a variable: class and flags, dimensions, and name."""

    kind: int
    flags: int
    shape: tuple[int, ...]
    name: str
    size: int = field(init=False)  # number of entries

    def __post_init__(self) -> None:
        if not 2 <= len(self.shape) <= MAX_DIMENSIONS or min(self.shape) < 0:
            raise GraphError(f"the dimensions of {self.name or 'a cell'!r} are {self.shape[:5]}")
        self.size = math.prod(self.shape)


@dataclass
class _Variable:
    """A variable in a file: its name, and where its element begins and ends."""

    name: str
    kind: int
    start: int
    size: int


def variable_names(file: BinaryIO) -> list[str]:
    """Return the names of the variables in a file.

    Raises:
        GraphError: The file is damaged, or of another version.
    """
    return [variable.name for variable in _variables(file, _byte_order(file))]


def read_variables(file: BinaryIO, names: Collection[str], path: str | Path | None = None) -> dict[str, Any]:
    """Return variables of a file by name. Those that the file does not have are left out.

    Args:
        file: The file, opened for reading bytes.
        names: Names of the variables to read. The others are not decoded.
        path: Path of the file, whose size can raise the limit of `edgemask.limits`.

    Returns:
        Numbers are arrays of the type in which the file stores them, logical values are booleans, sparse matrices are
        in CSC format, and cells are arrays of objects. Text is an array of strings, one per row.

    Raises:
        GraphError: The file is damaged, or a variable is of a class that cannot be read.
        LimitError: The variables would take too much memory.
    """
    order = _byte_order(file)
    values: dict[str, Any] = {}
    total = 0
    for variable in list(_variables(file, order)):
        if variable.name in values:
            raise GraphError(f"the variable {variable.name!r} occurs twice")
        if variable.kind == COMPRESSED:  # its checksum is verified even if it is not wanted: its name may be damaged
            data = _expanded(file, variable, order, total, path)
        elif variable.name in names:
            data = memoryview(_content(file, variable))
        if variable.name not in names:
            continue
        total += len(data)
        try:
            values[variable.name] = _value(data, order, path)
        except GraphError as error:
            raise GraphError(f"the variable {variable.name!r}: {error}") from None
    return values


# ---- the file --------------------------------------------------------------------------------------------


def _byte_order(file: BinaryIO) -> str:
    """Return the byte order of a file after checking that it is of level 5."""
    header = file.read(HEADER)
    if header.startswith((b"\x89HDF", b"MATLAB 7.3")) or header[124:128] in (b"\x00\x02IM", b"\x02\x00MI"):
        raise GraphError(f"a file of MATLAB 7.3 (HDF5) cannot be read: {CONVERT}")
    if len(header) < HEADER:
        raise GraphError(f"the file ends within its header, after {len(header)} bytes")
    order = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}.get(header[124:128])
    if order is None and 0 in header[:4]:
        raise GraphError(f"it may be a file of MATLAB 4, which cannot be read: {CONVERT}")
    if order is None:
        raise GraphError("it does not have the header of a MATLAB file of level 5")
    return order


def _variables(file: BinaryIO, order: str) -> Iterator[_Variable]:
    """Yield the variables of a file. Only the beginning of each is read."""
    end, at = file.seek(0, 2), HEADER
    while at < end:
        file.seek(at)
        tag = file.read(TAG)
        if len(tag) < TAG:
            raise GraphError("the file ends within a variable: it is truncated")
        kind, size = struct.unpack(f"{order}II", tag)
        start, at = at + TAG, at + TAG + size
        if kind not in (MATRIX, COMPRESSED):
            raise GraphError(f"an element of type {kind} at byte {start - TAG:,} where a variable is expected")
        if at > end:
            raise GraphError(f"the file ends within a variable: it is truncated ({at - end:,} bytes are missing)")
        head = file.read(min(size, HEAD))
        if kind == COMPRESSED:
            try:
                head = zlib.decompressobj().decompress(head, HEAD)
            except zlib.error as error:
                raise GraphError(f"the variable at byte {start - TAG:,} is damaged ({error})") from error
            head = head[TAG:]
        yield _Variable(_head(_Elements(memoryview(head), order)).name, kind, start, size)


def _content(file: BinaryIO, variable: _Variable) -> bytes:
    file.seek(variable.start)
    return file.read(variable.size)


def _expanded(file: BinaryIO, variable: _Variable, order: str, total: int, path: str | Path | None) -> memoryview:
    """Return the content of a compressed variable, after others that have `total` bytes."""
    stream, data, damaged = zlib.decompressobj(), _content(file, variable), f"the variable {variable.name!r} is damaged"
    try:
        kind, size = struct.unpack(f"{order}II", stream.decompress(data, TAG))
        if kind != MATRIX or size > MAX_RATIO * len(data):
            raise GraphError(f"{damaged}: its compressed part is no matrix of {size:,} bytes")
        check_size(total + size, f"the variable {variable.name!r}", path)
        content = stream.decompress(stream.unconsumed_tail, size) if size else b""
        rest = stream.decompress(stream.unconsumed_tail, 1)
    except (zlib.error, struct.error) as error:
        raise GraphError(f"{damaged} ({error})") from error
    if rest or stream.unused_data or not stream.eof or len(content) != size:
        raise GraphError(f"{damaged}: its compressed part does not have {size:,} bytes")
    return memoryview(content)


# ---- one variable ----------------------------------------------------------------------------------------


def _head(elements: _Elements) -> _Head:
    """Read the first three elements of a variable."""
    flags = elements.numbers((UINT32,))
    if len(flags) != 2:
        raise GraphError(f"the flags of a variable have {4 * len(flags)} bytes, not 8")
    shape = tuple(elements.numbers((INT32,)).tolist())
    kind, name = elements.next()
    if kind != INT8:
        raise GraphError(f"the name of a variable is an element of type {kind}")
    return _Head(int(flags[0]) & 0xFF, int(flags[0]), shape, bytes(name).decode("latin-1"))


def _value(data: memoryview, order: str, path: str | Path | None, in_cell: bool = False) -> Any:
    """Return the value of a variable or of a cell."""
    elements = _Elements(data, order)
    head = _head(elements)
    if head.flags & COMPLEX:
        raise GraphError("complex numbers cannot be read")
    if head.kind in NUMERIC:
        return _array(elements, head)
    if head.kind == CHAR:
        return _text(elements, head, path)
    if head.kind == SPARSE and not in_cell:
        return _sparse(elements, head)
    if head.kind == CELL and not in_cell:
        return _cells(elements, head, path)
    if head.kind in (CELL, SPARSE):
        raise GraphError("a cell that holds cells or a sparse matrix cannot be read; expected text or numbers")
    other = OTHERS.get(head.kind, f"of the unknown class {head.kind}")
    raise GraphError(f"it is {other}, which cannot be read; expected numbers, text, a sparse matrix or cells of text")


def _array(elements: _Elements, head: _Head) -> Any:
    values = elements.numbers()
    if len(values) != head.size:
        raise GraphError(f"{len(values):,} numbers for an array of shape {head.shape}")
    if head.flags & LOGICAL:
        values = values != 0
    return values.reshape(head.shape, order="F")


def _text(elements: _Elements, head: _Head, path: str | Path | None) -> Any:
    """Return the rows of an array of characters as strings."""
    kind, data = elements.next()
    if kind not in CODECS:
        raise GraphError(f"an element of type {kind} where text is expected")
    check_size(8 * len(data), "text", path)
    codec = CODECS[kind]
    if codec in ("utf-16", "utf-32"):
        codec += "-le" if elements.order == "<" else "-be"
    try:
        text = bytes(data).decode(codec)
    except UnicodeDecodeError as error:
        raise GraphError(f"text that is not valid: {error}") from None
    rows, length = head.shape[0], head.size // max(head.shape[0], 1)
    if rows == 1 and length == len(text.encode("utf-16-le")) // 2:  # MATLAB counts 2 for a character such as 😀
        length = len(text)
    if rows * length != len(text):
        raise GraphError(f"{len(text):,} characters for text of shape {head.shape}")
    return np.array([text[i::rows] for i in range(rows)] if length else [], dtype=str)


def _sparse(elements: _Elements, head: _Head) -> Any:
    """Return a sparse matrix: the rows of all entries, where each column begins, and the values."""
    if len(head.shape) != 2:
        raise GraphError(f"a sparse matrix of shape {head.shape}")
    rows, starts, values = elements.numbers((INT32, UINT32)), elements.numbers((INT32, UINT32)), elements.numbers()
    count = int(starts[-1]) if len(starts) else -1
    if len(starts) != head.shape[1] + 1 or starts[0] != 0 or (starts[1:] < starts[:-1]).any():
        raise GraphError(f"the columns of a sparse matrix of shape {head.shape} do not begin where they should")
    if count > min(len(rows), len(values)):
        raise GraphError(f"{count:,} entries of a sparse matrix, but {len(rows):,} rows and {len(values):,} values")
    rows, values = rows[:count], values[:count]
    if count and not 0 <= int(rows.min()) <= int(rows.max()) < head.shape[0]:
        raise GraphError(f"an entry of a sparse matrix lies outside its {head.shape[0]:,} rows")
    follows = np.ones(max(count - 1, 0), dtype=bool)  # whether an entry is in the same column as the one before
    inner = starts[1:-1]
    follows[inner[(inner > 0) & (inner < count)] - 1] = False
    if (follows & (rows[1:] <= rows[:-1])).any():
        raise GraphError("the entries of a column of a sparse matrix are not in the order of their rows")
    if head.flags & LOGICAL:
        values = values != 0
    return sp.csc_array((values, rows.astype(np.int32, copy=False), starts.astype(np.int32, copy=False)), head.shape)


def _cells(elements: _Elements, head: _Head, path: str | Path | None) -> Any:
    """Return cells of text or numbers as an array of objects."""
    if head.size > len(elements.data) // TAG:
        raise GraphError(f"cells of shape {head.shape} in {len(elements.data):,} bytes")
    check_size(200 * head.size, "cells", path)
    cells = np.empty(head.size, dtype=object)
    for i in range(head.size):
        kind, data = elements.next()
        if kind != MATRIX:
            raise GraphError(f"an element of type {kind} where a cell is expected")
        cells[i] = _value(data, elements.order, path, in_cell=True) if len(data) else np.empty((0, 0))
    return cells.reshape(head.shape, order="F")
