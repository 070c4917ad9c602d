"""Files of trained state: tensors as safetensors with a JSON header. They are written atomically, without pickle.

What is read is compared with declarations before it is used: the JSON values with a schema (`read`), the tensors with
the names, types and shapes that follow from these values (`check_tensors`), and the tensors of a file with the
memory that its networks take (`BoundedBuild`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from edgemask.errors import CheckpointError, EdgemaskError
from edgemask.legal import Legal
from edgemask.runtime.atomic import replacing
from edgemask.schema import ANYTHING, COUNT, Fields, Schema, check, parse, short

FORMAT = 1
KINDS = ("model", "checkpoint", "contender", "race", "enrichment")
HEADER = Fields({"format": COUNT, "kind": Legal(choices=KINDS), "meta": ANYTHING})
BUILT = 2**24, 32  # a network may have this many elements, or so many times those of its file
ADAM = {"step": False, "exp_avg": True, "exp_avg_sq": True}  # state of a parameter, and whether it has its shape
FACTORIES = frozenset((torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randint))


def write(path: str | Path, kind: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write tensors and JSON values to one file.

    A temporary file is written, synced to disk and renamed to `path`. A reader sees either the old or the new file,
    even if the writer dies.

    Args:
        path: The file.
        kind: What the file holds, one of `KINDS`. `read` expects the same kind.
        tensors: Tensors by name.
        meta: JSON values.

    Raises:
        FileError: The file cannot be written.
    """
    arrays = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    header = json.dumps({"format": FORMAT, "kind": kind, "meta": meta})
    blob = save(arrays, metadata={"edgemask": header, "sha256": _digest(header, arrays)})
    with replacing(Path(path)) as sink:
        sink.writelines(_with_sorted_header(blob))


def read(path: str | Path, kind: str, schema: Schema = ANYTHING) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read and verify a file that was written by `write`.

    Args:
        path: The file.
        kind: The expected kind.
        schema: Schema of the JSON values.

    Returns:
        The tensors by name, and the JSON values.

    Raises:
        CheckpointError: The file is missing or damaged, is not a file of this kind and format, or its values do not fit
            the schema.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path} is a folder, not a file" if path.is_dir() else f"{path}: no such file")
    blob = path.read_bytes()  # read once: safe_open opens a path twice, and a writer can replace the file in between
    try:
        tensors = load(blob)
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged or not a safetensors file: {error}") from error
    except Exception as error:  # torch has no such type, or the shape of an empty tensor does not fit its integers
        raise CheckpointError(f"{path} is damaged or not a safetensors file: {short(str(error))}") from error
    metadata = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")]).get("__metadata__") or {}
    if "edgemask" not in metadata:
        raise CheckpointError(f"{path} was not written by edgemask: it has no edgemask header")
    with naming(f"{path} has a damaged edgemask header"):
        header = parse(metadata["edgemask"], HEADER, "header")
    (file_format, file_kind), meta = (header["format"], header["kind"]), header["meta"]
    if (file_format, file_kind) != (FORMAT, kind):
        raise CheckpointError(
            f"{path} holds a {file_kind} of format {file_format}, expected a {kind} of format {FORMAT}"
        )
    expected = metadata.get("sha256")
    if (actual := _digest(metadata["edgemask"], tensors)) != expected:
        raise CheckpointError(f"{path} is damaged: its content has the SHA-256 {actual}, expected {short(expected)}")
    with unusable(path, kind):
        check(meta, schema, "metadata")
    return tensors, meta


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Turn the errors of a block about a file's content into a `CheckpointError` that starts with `what`.

    Raises:
        CheckpointError: The block raised an `EdgemaskError`.
    """
    try:
        yield
    except EdgemaskError as error:
        raise CheckpointError(f"{what}: {error}") from error


def unusable(path: str | Path, kind: str) -> AbstractContextManager[None]:
    """Turn the errors of a block into a `CheckpointError`: the file does not hold a usable `kind`."""
    return naming(f"{path} does not hold a usable {kind}")


# ---- tensors ---------------------------------------------------------------------------------------------


def check_tensors(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Check that tensors have the names, types and shapes of others.

    Raises:
        CheckpointError: They do not. The message names the first one.
    """
    for name in (*expected, *found):
        if name not in found:
            raise CheckpointError(f"tensor {short(name)} is missing")
        if name not in expected:
            raise CheckpointError(f"tensor {short(name)} is unknown")
        check_tensor(name, found[name], expected[name].shape, expected[name].dtype)


def check_tensor(name: str, tensor: Tensor | None, shape: Sequence[int | None], dtype: torch.dtype) -> Tensor:
    """Return a tensor after checking that it is there, and its type and shape.

    Args:
        name: Name of the tensor in the message.
        tensor: The tensor. None if it is missing.
        shape: Its expected shape. A dimension of None may have any size.
        dtype: Its expected type.

    Raises:
        CheckpointError: The tensor is missing, or has another type or shape.
    """
    if tensor is None:
        raise CheckpointError(f"tensor {short(name)} is missing")
    fits = len(shape) == tensor.ndim and all(b in (None, a) for a, b in zip(tensor.shape, shape, strict=True))
    if not fits or tensor.dtype != dtype:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise CheckpointError(
            f"tensor {short(name)}: expected {dtype} of shape ({wanted}), "
            f"got {tensor.dtype} of shape ({', '.join(map(str, tensor.shape))})"
        )
    return tensor


class BoundedBuild(TorchFunctionMode):
    """Inside this context, refuse to build networks that are far larger than the tensors of their file.

    Args:
        tensors: The tensors of the file.

    Raises:
        CheckpointError: The block creates tensors of more elements than `BUILT` allows.
    """

    def __init__(self, tensors: Mapping[str, Tensor]):
        super().__init__()
        least, times = BUILT
        self.left = max(least, times * sum(t.numel() for t in tensors.values()))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count the elements of a new tensor before it is created."""
        kwargs = kwargs or {}
        if func in FACTORIES:
            size = kwargs.get("size") or next((a for a in args if isinstance(a, tuple | list)), args)
            self.left -= math.prod(size)
            if self.left < 0:
                raise CheckpointError("its metadata describe networks that are far larger than its tensors")
        return func(*args, **kwargs)


def _with_sorted_header(blob: bytes) -> tuple[bytes, memoryview]:
    """Return a safetensors file in two parts: the header with sorted keys, so that equal content has equal bytes."""
    end = 8 + int.from_bytes(blob[:8], "little")
    header = json.dumps(json.loads(blob[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # tensors are aligned to 8 bytes
    return len(header).to_bytes(8, "little") + header, memoryview(blob)[end:]


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


def load_module(prefix: str, tensors: Mapping[str, Tensor], module: nn.Module) -> None:
    """Load the tensors written by `pack_module` into a module.

    Raises:
        CheckpointError: They do not have the names, types and shapes of the module's state.
    """
    own = unpack(prefix, tensors)
    check_tensors(own, module.state_dict())
    module.load_state_dict(own)


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

    Raises:
        CheckpointError: The tensors do not fit the parameters.
    """
    params = [p for group in optimiser.param_groups for p in group["params"]]
    slots: dict[int, dict[str, Tensor]] = {}
    for name, value in unpack(prefix, tensors).items():
        index, _, key = name.partition("/")
        if not (index.isdecimal() and len(index) < 10 and int(index) < len(params) and key in ADAM):
            raise CheckpointError(f"tensor {short(f'{prefix}/{name}')} is unknown")
        slots.setdefault(int(index), {})[key] = value
    for i, slot in slots.items():
        for key, own in ADAM.items():
            shape = params[i].shape if own else ()
            check_tensor(f"{prefix}/{i}/{key}", slot.get(key), shape, params[i].dtype if own else torch.float32)
        if not 1 <= float(slot["step"]) < math.inf:
            raise CheckpointError(f"tensor {f'{prefix}/{i}/step'!r}: expected a number of steps, got {slot['step']}")
    optimiser.load_state_dict(optimiser.state_dict() | {"state": slots})
