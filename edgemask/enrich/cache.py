"""An on-disk cache of neighbour lists and clusters. The keys are hashes of the features and parameters."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from edgemask.enrich.knn import is_sparse
from edgemask.errors import CheckpointError, EnrichWarning, warn
from edgemask.runtime import checkpoint
from edgemask.runtime.folders import user_cache
from edgemask.schema import TEXT, Fields

Array = npt.NDArray[Any]
FORMAT = "edgemask-enrich-2"  # increase when the file layout or a cached algorithm changes


@dataclass(frozen=True)
class Declared:
    """What a cached array must be.

    Args:
        shape: Its shape.
        low: Smallest legal value.
        high: Largest legal value.
        dtype: Its type.
    """

    shape: tuple[int, ...]
    low: float
    high: float
    dtype: torch.dtype = torch.int64

    def check(self, array: torch.Tensor) -> None:
        """Check an array.

        Raises:
            CheckpointError: The array has another shape or type, or a value is out of range.
        """
        checkpoint.check_tensor("array", array, self.shape, self.dtype)
        if not ((array >= self.low) & (array <= self.high)).all():
            raise CheckpointError(f"a value is not in [{self.low:g}, {self.high:g}]")


class Cache:
    """A folder of files with one array each.

    Args:
        folder: The folder. It is created on the first write.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    def get(
        self, kind: str, x: Any, parameters: Mapping[str, Any], declared: Declared, compute: Callable[[], Array]
    ) -> Array:
        """Return the cached array for features `x` and `parameters`, or compute and store it.

        If the stored file is damaged, belongs to another key or holds an array that is not as declared, an
        `EnrichWarning` is issued, and the array is computed again and the file is replaced. If the file cannot be
        written, an `EnrichWarning` is issued.

        Args:
            kind: What the array holds, such as `knn`. It is part of the key and of the file name.
            x: Feature matrix, CSR or dense.
            parameters: Settings of the computation, as JSON values.
            declared: Shape, type and range of the array.
            compute: Computes the array when it is not stored.
        """
        question = json.dumps([FORMAT, kind, feature_hash(x), dict(parameters)], sort_keys=True)
        path = self.folder / f"{kind}-{hashlib.sha256(question.encode()).hexdigest()}.safetensors"
        try:
            if path.exists():
                return _read(path, question, declared)
        except (CheckpointError, OSError) as error:
            warn(f"cache file {path} cannot be used, so its content is computed again: {error}", EnrichWarning)
        array = compute()
        try:
            checkpoint.write(path, "enrichment", {"array": torch.from_numpy(array)}, {"question": question})
        except OSError as error:
            warn(f"the result of enrichment is not cached: {error}", EnrichWarning)
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


def _read(path: Path, question: str, declared: Declared) -> Array:
    tensors, meta = checkpoint.read(path, "enrichment", Fields({"question": TEXT}))
    if meta["question"] != question:
        raise CheckpointError(f"it stores the result for another question than {question}")
    if "array" not in tensors:
        raise CheckpointError("it holds no array")
    declared.check(tensors["array"])
    return tensors["array"].numpy()
