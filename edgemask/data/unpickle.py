"""Old data files that are pickles, read without trusting them.

`pickle` runs whatever callable a file names. Here a file may name only the few below, and none of them is
the original: each builds its object from checked parts, because NumPy and SciPy believe a pickle's word
(an array whose dtype denies holding objects passes raw bytes off as pointers; a sparse matrix may index
outside its arrays). Verifying the file's checksum first is the caller's job.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import scipy.sparse as sp
from numpy.lib import format as npy

from edgemask.errors import DataError, InputError


class _Dtype:
    """`numpy.dtype` of a pickle: its type string and byte order. The flags it claims are left out."""

    def __init__(self, text: str, *_: object) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a dtype must be given by its name, got {text!r}")
        self.dtype: np.dtype[Any] = np.dtype(text)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array(np.ndarray[Any, Any]):
    """An array whose state is checked before NumPy takes it (and that is pickled as a plain one)."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        version, shape, kind, fortran, values = state
        if kind.dtype.hasobject and len(values) != math.prod(shape):  # NumPy reads past the list's end
            raise InputError(f"{len(values)} objects for an array of shape {shape}")
        super().__setstate__((version, shape, kind.dtype, fortran, values))

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return np.asarray(self).__reduce_ex__(protocol)


class _Csr(sp.csr_matrix):  # type: ignore[misc, unused-ignore]
    """A sparse matrix whose indices are checked; a plain `csr_matrix` once its state is set."""

    def __init__(self) -> None:
        raise TypeError("a csr_matrix is built from its state, not from arguments")

    def __setstate__(self, state: dict[str, Any]) -> None:
        data, indices, indptr = (np.asarray(state[key]) for key in ("data", "indices", "indptr"))
        if (indptr[1:] < indptr[:-1]).any():  # SciPy looks only where the last entry is positive
            raise ValueError("the row pointers of a csr_matrix decrease")
        super().__init__((data, indices, indptr), shape=state["_shape"])
        self.check_format(full_check=True)
        self.__class__ = sp.csr_matrix  # type: ignore[assignment, unused-ignore]


def _reconstruct(*_: object) -> _Array:
    """An empty array for `_Array.__setstate__` to fill, whatever class and shape the pickle asks for."""
    return _Array(0)


def _scalar(kind: _Dtype, value: bytes) -> Any:
    return np.frombuffer(value, kind.dtype, count=1)[0]


# every global that the Planetoid files and object arrays of sparse matrices need, by its name in the file
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy._core.multiarray", "scalar"): _scalar,
    ("numpy", "ndarray"): "ndarray",  # only ever an argument of _reconstruct
    ("numpy", "dtype"): _Dtype,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,
    ("scipy.sparse._csr", "csr_matrix"): _Csr,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")  # Python 2 wrote array bytes as text
        self._name = name

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise DataError(f"{self._name}: the pickle asks for {module}.{name}, which is refused")
        return _ALLOWED[module, name]


def load_bytes(data: bytes, name: str) -> Any:
    """The object of a pickle; `name` is what error messages call it.

    Arrays inside other objects are of a subclass of `ndarray`; an array by itself is a plain one.
    """
    try:
        result = _Unpickler(data, name).load()
    except DataError:
        raise
    except Exception as error:  # a broken pickle may raise anything at all
        raise DataError(f"{name}: not a readable pickle: {type(error).__name__}: {error}") from error
    return np.asarray(result) if isinstance(result, _Array) else result


def load(path: Path) -> Any:
    """The object of a pickle file."""
    return load_bytes(path.read_bytes(), str(path))


def load_npz_objects(path: Path) -> dict[str, Any]:
    """The members of an .npz by name: plain arrays as arrays, object arrays through the restricted
    unpickler, and of an object array without dimensions the object itself."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {
                name.removesuffix(".npy"): _member(archive.read(name), f"{path}, member {name}")
                for name in archive.namelist()
            }
    except DataError:
        raise
    except Exception as error:  # zipfile and zlib raise a dozen kinds for a broken archive
        raise DataError(f"{path}: not a readable npz file: {type(error).__name__}: {error}") from error


_HEADERS: dict[tuple[int, int], Callable[[Any], tuple[tuple[int, ...], bool, np.dtype[Any]]]] = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
}


def _member(data: bytes, name: str) -> Any:
    stream = io.BytesIO(data)
    version = npy.read_magic(stream)
    if version not in _HEADERS:
        raise DataError(f"{name}: .npy format must be {' or '.join(map(str, _HEADERS))}, got {version}")
    shape, _, dtype = _HEADERS[version](stream)
    if not dtype.hasobject:
        return npy.read_array(io.BytesIO(data), allow_pickle=False)
    array = load_bytes(stream.read(), name)
    if not isinstance(array, np.ndarray) or array.shape != shape:
        raise DataError(
            f"{name}: expected an object array of shape {shape}, "
            f"got {type(array).__name__} of shape {getattr(array, 'shape', None)}"
        )
    return array if shape else array.item()
