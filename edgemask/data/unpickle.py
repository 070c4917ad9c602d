"""A restricted unpickler for old data files.

`pickle` calls any callable that a file names. The unpickler here accepts only the few names in `_ALLOWED` and replaces
each with a version that checks its input, because NumPy and SciPy do not validate the content of a pickle. For example,
an array whose dtype falsely declares that it contains no objects can present raw bytes as pointers, and a sparse matrix
can contain indices outside its arrays. The caller must verify the file's checksum first.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import zipfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import scipy.sparse as sp
from numpy.lib import format as npy

from edgemask.data.archive import is_unicode
from edgemask.errors import DataError, InputError, LimitError
from edgemask.graph.checks import check_compressed
from edgemask.limits import check_size


class _Dtype:
    """Replacement of `numpy.dtype`. It uses the type string and byte order of the pickle and ignores its flags."""

    def __init__(self, text: str, *_: object) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a dtype must be given by name, got {text!r}")
        self.dtype: np.dtype[Any] = np.dtype(text)
        if self.dtype.names:
            raise TypeError(f"the dtype {text!r} has several fields")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array(np.ndarray[Any, Any]):
    """An array that checks its state before NumPy sets it. It is pickled as a plain array."""

    filled = False

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if self.filled:  # NumPy would free the memory that other arrays may use
            raise InputError("an array of a pickle is filled twice")
        self.filled = True
        version, shape, kind, fortran, values = state
        size, unit = (1, "objects") if kind.dtype.hasobject else (kind.dtype.itemsize, "bytes")
        if len(values) != math.prod(shape) * size:  # NumPy would read past the end of a list, or allocate any shape
            raise InputError(
                f"expected {math.prod(shape) * size} {unit} for an array of shape {shape}, got {len(values)}"
            )
        super().__setstate__((version, shape, kind.dtype, fortran, values))
        if not is_unicode(np.asarray(self)):
            raise InputError("text that is not valid Unicode")

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return np.asarray(self).__reduce_ex__(protocol)


class _Csr(sp.csr_matrix):  # type: ignore[misc, unused-ignore]
    """A sparse matrix that checks its indices whenever its state is set."""

    def __init__(self) -> None:
        raise TypeError("a csr_matrix must be built from its state, not from arguments")

    def __setstate__(self, state: dict[str, Any]) -> None:
        data, indices, indptr = (np.asarray(state[key]) for key in ("data", "indices", "indptr"))
        super().__init__((data, indices, indptr), shape=state["_shape"])
        check_compressed(self)

    @property
    def plain(self) -> sp.csr_matrix:
        """The matrix as a plain one. A pickle could replace the arrays of a plain one without a check."""
        return sp.csr_matrix((self.data, self.indices, self.indptr), shape=self.shape)


def _reconstruct(*_: object) -> _Array:
    """Return an empty array, which `_Array.__setstate__` fills. The class and shape in the pickle are ignored."""
    return _Array(0)


def _scalar(kind: _Dtype, value: bytes) -> Any:
    """Return a NumPy scalar from its bytes."""
    array = np.frombuffer(value, kind.dtype, count=1)
    if not is_unicode(array):
        raise InputError("text that is not valid Unicode")
    return array[0]


# All globals that the Planetoid files and object arrays of sparse matrices need, by module and name in the file.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy._core.multiarray", "scalar"): _scalar,
    ("numpy", "ndarray"): "ndarray",  # used only as an argument of _reconstruct, which ignores it
    ("numpy", "dtype"): _Dtype,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,
    ("scipy.sparse._csr", "csr_matrix"): _Csr,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
}


class _Unpickler(pickle.Unpickler):
    """An unpickler that accepts the names in `_ALLOWED` only."""

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")  # Python 2 wrote the bytes of arrays as text
        self._name = name

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise DataError(f"{self._name}: the pickle requires {module}.{name}, which is not allowed")
        return _ALLOWED[module, name]


def load_bytes(data: bytes, name: str) -> Any:
    """Return the object of a pickle.

    Arrays and sparse matrices within other objects are instances of subclasses. A single one is plain.

    Args:
        data: The content of the pickle.
        name: Name of the pickle in error messages.

    Raises:
        DataError: The pickle is not readable, or requires a name that is not allowed.
    """
    try:
        _check_memo(data)
        result = _Unpickler(data, name).load()
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can raise any exception
        raise DataError(f"{name}: not a readable pickle: {type(error).__name__}: {error}") from error
    return _plain(result)


def _plain(value: Any) -> Any:
    """Return an array or a sparse matrix as a plain one, and any other value as it is."""
    if isinstance(value, _Csr):
        return value.plain
    return np.asarray(value) if isinstance(value, _Array) else value


def _check_memo(data: bytes) -> None:
    """Check that a pickle numbers the objects that it refers to from 0.

    Python allocates a table up to the largest number, so that five bytes could take 16 GiB.

    Raises:
        ValueError: A number is larger than the number of instructions, or the instructions are damaged.
    """
    instructions = [(code.name, argument) for code, argument, _ in pickletools.genops(data)]
    largest = max((int(n or 0) for name, n in instructions if name in ("PUT", "BINPUT", "LONG_BINPUT")), default=0)
    if largest > len(instructions):
        raise ValueError(f"object {largest:,} in a pickle of {len(instructions):,} instructions")


def load(path: Path) -> Any:
    """Return the object of a pickle file.

    Raises:
        DataError: The pickle is not readable, or requires a name that is not allowed.
    """
    return load_bytes(path.read_bytes(), str(path))


def load_npz_objects(path: Path) -> dict[str, Any]:
    """Return the members of an .npz file by name.

    Object arrays are loaded by the restricted unpickler. An object array without dimensions is returned as its object.

    Raises:
        DataError: The file is not readable, or a pickle requires a name that is not allowed.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            check_size(sum(member.file_size for member in archive.infolist()), "the arrays", path)
            members = {}
            for member in archive.infolist():
                with archive.open(member) as file:  # read not more than it claims, which is within the limit
                    content = file.read(member.file_size)
                members[member.filename.removesuffix(".npy")] = _member(content, f"{path}, member {member.filename}")
            return members
    except (DataError, LimitError):
        raise
    except Exception as error:  # a damaged archive can raise many kinds of exceptions
        raise DataError(f"{path}: not a readable npz file: {type(error).__name__}: {error}") from error


_HEADERS: dict[tuple[int, int], Callable[[Any], tuple[tuple[int, ...], bool, np.dtype[Any]]]] = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
}


def _member(data: bytes, name: str) -> Any:
    """Return one member of an .npz file."""
    stream = io.BytesIO(data)
    version = npy.read_magic(stream)
    if version not in _HEADERS:
        raise DataError(f"{name}: .npy format must be {' or '.join(map(str, _HEADERS))}, got {version}")
    shape, _, dtype = _HEADERS[version](stream)
    if not dtype.hasobject:
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
            raise DataError(f"{name}: {dtype} of shape {shape} does not have {len(data) - stream.tell():,} bytes")
        return npy.read_array(io.BytesIO(data), allow_pickle=False)
    array = load_bytes(stream.read(), name)
    if not isinstance(array, np.ndarray) or array.shape != shape:
        raise DataError(
            f"{name}: expected an object array of shape {shape}, "
            f"got {type(array).__name__} of shape {getattr(array, 'shape', None)}"
        )
    return array if shape else _plain(array.item())
