"""Whole writes: a reader sees the old file or the new one, whenever the writer dies."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def writable(path: Path) -> None:
    """Refuse a path that `replacing` could not write, before the work whose result is to go there."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a file to write")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part-{secrets.token_hex(8)}")
        part.touch()
        part.unlink()
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def replacing(path: Path, *, text: bool = False, once: bool = False) -> Iterator[Any]:
    """A file that takes the place of `path` once all is written and on disk, and not before; its folder is made.

    With `once`, a `path` that is there by then, whoever made it, is left as it is: a `FileExistsError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part-{secrets.token_hex(8)}")
    mode, encoding, newline = ("x", "utf-8", "") if text else ("xb", None, None)
    try:
        with part.open(mode, encoding=encoding, newline=newline) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if once:
            os.link(part, path)
        else:
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
