"""Atomic writes: a reader sees either the old or the new file, even if the writer dies."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgemask.errors import FileError


def writable(path: Path) -> None:
    """Check that `replacing` can write to a path, so that long work does not fail when it is saved.

    Raises:
        FileError: The path is a folder or cannot be written.
    """
    if path.is_dir():
        raise FileError(f"{path} is a folder, not a file to write")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part-{secrets.token_hex(8)}")
        part.touch()
        part.unlink()
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def replacing(path: Path, *, text: bool = False, once: bool = False) -> Iterator[Any]:
    """Yield a file that replaces `path` once everything is written and on disk. Missing folders are created.

    Args:
        path: The file to write.
        text: Write UTF-8 text instead of bytes.
        once: Never replace a file. If `path` exists by then, raise a `FileExistsError`.

    Raises:
        FileError: The file cannot be written, for example because the disk is full.
    """
    part = path.with_name(f".{path.name}.part-{secrets.token_hex(8)}")
    mode, encoding, newline = ("x", "utf-8", "") if text else ("xb", None, None)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open(mode, encoding=encoding, newline=newline) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if once:
            os.link(part, path)
        else:
            os.replace(part, path)
    except FileExistsError:
        raise
    except OSError as error:
        if isinstance(error, FileError) or error.errno is None:
            raise
        raise FileError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)
