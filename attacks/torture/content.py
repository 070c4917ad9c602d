"""The content of files without times: what must be equal after a kill."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgemask.experiments.records import LazyJSON, ResultStore
from edgemask.runtime import checkpoint

# Fields whose values are times, memory, or digests over them.
TIMES = frozenset({"seconds", "spent", "digest", "peak_memory_mib", "time", "created"})
PART = ".part-"  # in the name of a file that is being written
Content = dict[str, str]  # by the path of a file, relative to the folder of its case


class Unreadable(Exception):
    """A file cannot be read or is not complete. The message says why."""


def content(roots: Iterable[Path], base: Path) -> Content:
    """Return a digest of every file in some folders.

    Raises:
        Unreadable: A file cannot be read or is not complete.
    """
    found = {}
    for root in roots:
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(base))
            if path.is_dir() and not path.is_symlink():
                if not any(path.iterdir()) and path.parent != base:
                    found[f"{name}/"] = "empty folder"
            elif PART in path.name:
                found[name] = "part"
            elif not path.is_file():
                found[name] = "not a regular file"
            else:
                try:
                    found[name] = digest(path)
                except Exception as error:  # whatever a reader raises, the file is damaged
                    raise Unreadable(f"{name}: {type(error).__name__}: {error}") from error
    return found


def digest(path: Path) -> str:
    """Return a hash of the content of a file without times. Every reader checks that the file is complete."""
    match path.suffix:
        case ".safetensors" | ".ckpt":
            value: Any = _tensors(path)
        case ".json" | ".jsonl":
            text = path.read_text("utf-8")
            value = [timeless(json.loads(line)) for line in ([text] if path.suffix == ".json" else text.splitlines())]
        case ".npz":
            with zipfile.ZipFile(path) as archive:
                value = archive.testzip() or {i.filename: i.CRC for i in archive.infolist()}
            with np.load(path, allow_pickle=False) as arrays:
                list(arrays.values())
        case ".csv":
            with path.open(newline="", encoding="utf-8") as file:
                lengths = {len(row) for row in csv.reader(file, strict=True)}
            text = path.read_text("utf-8")
            if len(lengths) != 1 or not text.endswith("\n"):
                raise ValueError("the table is not complete")
            value = text
        case ".html":
            if not path.read_text("utf-8").rstrip().endswith("</html>"):
                raise ValueError("the page is not complete")
            value = "page"
        case _:
            value = path.read_bytes().hex()
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _tensors(path: Path) -> Any:
    """Return the hashes of the tensors of a model or checkpoint, and its other values."""
    blob = path.read_bytes()
    header = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])["__metadata__"]
    tensors, meta = checkpoint.read(path, json.loads(header["edgemask"])["kind"])
    hashes = {name: hashlib.sha256(t.contiguous().numpy().tobytes()).hexdigest() for name, t in tensors.items()}
    return [hashes, timeless(meta)]


def timeless(value: Any) -> Any:
    """Return a JSON value without the fields that hold times."""
    if isinstance(value, LazyJSON):
        value = dict(value)
    if isinstance(value, Mapping):
        return {name: timeless(own) for name, own in value.items() if name not in TIMES}
    return [timeless(own) for own in value] if isinstance(value, list) else value


def records(folder: Path) -> tuple[dict[str, str], list[str]]:
    """Return the records of a store without times as digests by key, and what is wrong with the store.

    A file that repeats a record of a packed file is allowed: it is there between packing and deletion.
    """
    store = ResultStore(folder)
    wrong = [why for why in store.rejected.values() if not re.search(r"repeats the record in .*\.jsonl$", why)]
    found = {r["key"]: hashlib.sha256(json.dumps(timeless(r), sort_keys=True).encode()).hexdigest()[:16] for r in store}
    return found, wrong
