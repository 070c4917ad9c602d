"""Files of trained state: tensors as safetensors with a JSON header. They are written atomically, without pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from edgemask.errors import CheckpointError
from edgemask.runtime.atomic import replacing

FORMAT = 1


def write(path: str | Path, kind: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write tensors and JSON values to one file.

    A temporary file is written, synced to disk and renamed to `path`. A reader sees either the old or the new file,
    even if the writer dies.

    Args:
        path: The file.
        kind: What the file holds, for example `model` or `checkpoint`. `read` expects the same kind.
        tensors: Tensors by name.
        meta: JSON values.

    Raises:
        FileError: The file cannot be written.
    """
    arrays = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    header = json.dumps({"format": FORMAT, "kind": kind, "meta": meta})
    blob = save(arrays, metadata={"edgemask": header, "sha256": _digest(header, arrays)})
    with replacing(Path(path)) as sink:
        sink.write(blob)


def read(path: str | Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read and verify a file that was written by `write`.

    Args:
        path: The file.
        kind: The expected kind.

    Returns:
        The tensors by name, and the JSON values.

    Raises:
        CheckpointError: The file is missing or damaged, or is not a file of this kind and format.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path} is a folder, not a file" if path.is_dir() else f"{path}: no such file")
    blob = path.read_bytes()  # read once: safe_open opens a path twice, and a writer can replace the file in between
    try:
        tensors = load(blob)
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged or not a safetensors file: {error}") from error
    metadata = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")]).get("__metadata__") or {}
    if "edgemask" not in metadata:
        raise CheckpointError(f"{path} was not written by edgemask: it has no edgemask header")
    try:
        header = json.loads(metadata["edgemask"])
        (file_format, file_kind), meta = (header["format"], header["kind"]), header["meta"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} has a damaged edgemask header: {error!r}") from error
    if (file_format, file_kind) != (FORMAT, kind):
        raise CheckpointError(
            f"{path} holds a {file_kind} of format {file_format}, expected a {kind} of format {FORMAT}"
        )
    expected = metadata.get("sha256")
    if (actual := _digest(metadata["edgemask"], tensors)) != expected:
        raise CheckpointError(f"{path} is damaged: its content has the SHA-256 {actual}, expected {expected}")
    return tensors, meta


def _digest(header: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        t = tensors[name]
        digest.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        digest.update(t.reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def pack_module(prefix: str, module: nn.Module) -> dict[str, Tensor]:
    """Return the state of a module as tensors named `prefix/…`."""
    return {f"{prefix}/{name}": t for name, t in module.state_dict().items()}


def unpack(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors named `prefix/…`, with the prefix removed from their names."""
    return {name.removeprefix(f"{prefix}/"): t for name, t in tensors.items() if name.startswith(f"{prefix}/")}


def pack_optimiser(prefix: str, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the per-parameter tensors of an optimiser (Adam: step and both moments) as tensors named `prefix/…`.

    Its settings are not included: they come from the recipe.
    """
    state = optimiser.state_dict()["state"]
    return {f"{prefix}/{i}/{key}": torch.as_tensor(value) for i, slot in state.items() for key, value in slot.items()}


def unpack_optimiser(prefix: str, tensors: Mapping[str, Tensor], optimiser: torch.optim.Optimizer) -> None:
    """Load the tensors written by `pack_optimiser` into an optimiser.

    Args:
        prefix: The prefix that `pack_optimiser` was given.
        tensors: All tensors of the checkpoint by name.
        optimiser: The optimiser. Its parameters must have the same order.
    """
    slots: dict[int, dict[str, Tensor]] = {}
    for name, value in unpack(prefix, tensors).items():
        index, _, key = name.partition("/")
        slots.setdefault(int(index), {})[key] = value
    optimiser.load_state_dict(optimiser.state_dict() | {"state": slots})
