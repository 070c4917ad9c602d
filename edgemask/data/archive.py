"""Read the arrays of an `.npz` archive, all of which are declared.

The header of every array is read first. Its type, its shape and the size of the member in the archive are compared with
each other, with the declaration and with the limit on memory before the array is allocated.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp
from numpy.lib import format as npy

from edgemask.data.forms import take
from edgemask.errors import GraphError
from edgemask.graph.checks import check_compressed
from edgemask.legal import did_you_mean
from edgemask.limits import check_size

HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
MAX_RATIO = 1032  # deflate expands one byte to at most this many
END = 22  # bytes of the record at the end of an archive, which has the number of members at byte 10
MAX_HEADER = 16_384  # bytes before the numbers of an array
KINDS = {"b": "booleans", "i": "integers", "u": "integers", "f": "numbers", "U": "text"}


@dataclass(frozen=True)
class Field:
    """The declaration of an array.

    Args:
        kinds: Legal kinds of its type, as in `numpy.dtype.kind`.
        dimensions: Legal numbers of dimensions.
        size: Bytes that an entry takes in the graph, if that is more than in the file.
    """

    kinds: str
    dimensions: tuple[int, ...]
    size: int = 1


def read_arrays(file: BinaryIO, fields: Mapping[str, Field], path: str | Path) -> dict[str, Any]:
    """Return the arrays of an archive by name, in native byte order.

    Args:
        file: The opened archive.
        fields: The declared arrays by name. All of them are optional.
        path: Path of the archive, whose size can raise the limit of `edgemask.limits`.

    Raises:
        GraphError: The archive is damaged, or an array is not declared or of another type.
        LimitError: The arrays would take too much memory.
    """
    with zipfile.ZipFile(file) as archive:
        file.seek(-END + 10, io.SEEK_END)
        if len(archive.infolist()) != int.from_bytes(file.read(2), "little") or archive.comment:
            raise GraphError("the directory of the archive is damaged")  # it would hide optional fields
        members: dict[str, zipfile.ZipInfo] = {}
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name not in fields:
                raise GraphError(f"unknown field {name[:80]!r}{did_you_mean(name[:80], fields)}")
            if name in members:
                raise GraphError(f"field {name!r} occurs twice")
            members[name] = member
        total = 0
        headers = {}
        for name, member in members.items():
            headers[name] = _header(archive, member, name, fields[name])
            shape, _, dtype, _ = headers[name]
            total += math.prod(shape) * max(dtype.itemsize, fields[name].size)
        check_size(total, "the graph", path)
        return {name: _array(archive, member, name, *headers[name]) for name, member in members.items()}


def _header(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, field: Field
) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return the shape of an array, whether it is in Fortran order, its type, and the size of its header in bytes."""
    if member.compress_type not in METHODS:
        raise GraphError(f"field {name!r}: expected a member that is stored or deflated, as np.savez writes it")
    if member.file_size > MAX_RATIO * member.compress_size + 64:
        raise GraphError(f"field {name!r}: {member.compress_size:,} bytes cannot hold {member.file_size:,} bytes")
    with archive.open(member) as file:
        start = io.BytesIO(file.read(min(member.file_size, MAX_HEADER)))
    try:
        version = npy.read_magic(start)
        shape, fortran, dtype = HEADERS[version](start)
    except Exception as error:  # NumPy parses the header as Python, so a damaged one can raise many exceptions
        raise GraphError(f"field {name!r}: not an array in the format .npy 1.0 or 2.0") from error
    if dtype.kind not in field.kinds or len(shape) not in field.dimensions:
        kinds, dimensions = dict.fromkeys(KINDS[kind] for kind in field.kinds), " or ".join(map(str, field.dimensions))
        raise GraphError(
            f"field {name!r}: expected {' or '.join(kinds)} with {dimensions} dimensions, got {dtype} of shape {shape}"
        )
    if min(shape, default=0) < 0 or start.tell() + math.prod(shape) * dtype.itemsize != member.file_size:
        raise GraphError(f"field {name!r}: {dtype} of shape {shape} does not have {member.file_size:,} bytes")
    if math.prod(shape) and not dtype.itemsize:
        raise GraphError(f"field {name!r}: the texts have no characters")
    return shape, fortran, dtype, start.tell()


def _array(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    name: str,
    shape: tuple[int, ...],
    fortran: bool,
    dtype: np.dtype[Any],
    start: int,
) -> Any:
    """Return an array whose header has been checked."""
    with archive.open(member) as file:
        content = file.read(member.file_size)  # not more, even if the archive lies about the size
        if len(content) != member.file_size:
            raise GraphError(f"field {name!r}: the archive ends within the array")
    flat = np.frombuffer(content, dtype, offset=start) if dtype.itemsize else np.empty(0, dtype)
    flat = flat.astype(dtype.newbyteorder("="), copy=False)
    if not is_unicode(flat):
        raise GraphError(f"field {name!r}: the text is not valid Unicode")
    return flat.reshape(shape, order="F" if fortran else "C")


def is_unicode(array: Any) -> bool:
    """Return whether an array holds no text, or valid text. NumPy makes strings of other text that kill Python."""
    if array.dtype.kind != "U" or not array.nbytes:
        return True
    points = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(-1).view(np.uint32)
    return not ((points > 0x10FFFF) | ((points >= 0xD800) & (points < 0xE000))).any()


def csr_of(fields: dict[str, Any], name: str) -> Any:
    """Remove the four arrays of a sparse matrix, such as `x_data` for the name `x`, and return the float32 matrix.

    Raises:
        GraphError: An array is missing, or they do not fit each other.
    """
    data, indices, indptr, shape = (take(fields, f"{name}_{part}") for part in ("data", "indices", "indptr", "shape"))
    parts = f"{name}_data, {name}_indices, {name}_indptr and {name}_shape"
    rows, columns = shape.tolist() if len(shape) == 2 else (-1, -1)
    if rows < 0 or columns < 0 or len(indptr) != rows + 1 or len(indices) != len(data):
        raise GraphError(
            f"{parts} are not a valid CSR matrix: a matrix of shape {tuple(shape.tolist())} with {len(data)} entries, "
            f"{len(indices)} indices and {len(indptr)} row pointers"
        )
    with np.errstate(over="ignore"):  # `Graph` refuses infinite features
        data = data.astype(np.float32)
    try:
        matrix = sp.csr_array((data, indices, indptr), shape=(rows, columns))
        check_compressed(matrix)
    except (ValueError, TypeError, OverflowError) as error:
        raise GraphError(f"{parts} are not a valid CSR matrix: {error}") from error
    return matrix
