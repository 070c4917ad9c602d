"""An on-disk cache of neighbour lists and clusters. The keys are hashes of the features and parameters."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgemask.enrich.knn import is_sparse
from edgemask.errors import EnrichWarning, InputError, warn
from edgemask.runtime.atomic import replacing
from edgemask.runtime.folders import user_cache

Array = npt.NDArray[Any]
FORMAT = "edgemask-enrich-1"  # increase when the file layout or a cached algorithm changes


class Cache:
    """A folder of `.npz` files with one array each.

    Args:
        folder: The folder. It is created on the first write.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    def get(self, kind: str, x: Any, parameters: Mapping[str, Any], compute: Callable[[], Array]) -> Array:
        """Return the cached array for features `x` and `parameters`, or compute and store it.

        If the stored file is damaged or belongs to another key, an `EnrichWarning` is issued, and the array is computed
        again and the file is replaced.

        Args:
            kind: What the array holds, such as `knn`. It is part of the key and of the file name.
            x: Feature matrix, CSR or dense.
            parameters: Settings of the computation, as JSON values.
            compute: Computes the array when it is not stored.

        Raises:
            FileError: The file cannot be written.
        """
        question = json.dumps([FORMAT, kind, feature_hash(x), dict(parameters)], sort_keys=True)
        path = self.folder / f"{kind}-{hashlib.sha256(question.encode()).hexdigest()}.npz"
        if path.exists():
            try:
                return _read(path, question)
            except Exception as error:  # a damaged file can fail in any way; warn and compute again
                warn(
                    f"cache file {path} cannot be used and is computed again: {type(error).__name__}: {error}",
                    EnrichWarning,
                )
        array = compute()
        _write(path, question, array)
        return array


def default_cache() -> Cache:
    """Return the cache in `$EDGEMASK_CACHE`, or in `edgemask/enrich` in the user's cache folder if that is not set.

    Raises:
        MissingFileError: There is no `$EDGEMASK_CACHE`, and the user has no home.
    """
    return Cache(os.environ.get("EDGEMASK_CACHE") or user_cache("EDGEMASK_CACHE") / "edgemask" / "enrich")


def feature_hash(x: Any) -> str:
    """Return the SHA-256 of the content of a feature matrix, CSR or dense."""
    parts = (x.data, x.indices, x.indptr) if is_sparse(x) else (x,)
    return _digest(repr(x.shape), *parts)


def _digest(text: str, *arrays: Array) -> str:
    digest = hashlib.sha256(text.encode())
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _read(path: Path, question: str) -> Array:
    with np.load(path, allow_pickle=False) as stored:
        stored_question, checksum, array = str(stored["question"]), str(stored["checksum"]), stored["array"]
    if stored_question != question:
        raise InputError(f"it stores the result for {stored_question}, expected {question}")
    if checksum != (actual := _digest(question, array)):
        raise InputError(f"its content has checksum {actual}, expected {checksum}")
    return np.asarray(array)


def _write(path: Path, question: str, array: Array) -> None:
    with replacing(path) as file:
        np.savez(file, question=question, checksum=_digest(question, array), array=array)
