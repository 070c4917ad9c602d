"""Atomic writes: a reader sees either the old or the new file, even if the writer dies.

A writer fills a part file next to the file, named `.NAME.part-` and 16 hexadecimal digits, and renames it at the end.
It holds a lock on the part file, which the system releases when the process ends in any way. Part files without a lock
are therefore leftovers of processes that were killed, and the next writer in the folder removes them.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from edgemask.errors import EdgemaskError, FileError

PART = re.compile(r"\..*\.part-[0-9a-f]{16}", re.DOTALL)


def writable(path: Path) -> None:
    """Check that `replacing` can write to a path, so that long work does not fail when it is saved.

    Raises:
        FileError: The path is not a regular file or cannot be written.
    """
    with _naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with part_of(path):
            pass


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
    mode, encoding, newline = ("w", "utf-8", "") if text else ("wb", None, None)
    with _naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with part_of(path) as part:
            with part.open(mode, encoding=encoding, newline=newline) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if once:
                os.link(part, path)
            else:
                os.replace(part, path)


@contextmanager
def part_of(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield the path of a new part file, or part folder, of a file. What is left of it is removed after the block.

    The block writes to it and renames it to `path`. Leftovers of killed processes in the same folder are removed first.

    Args:
        path: The file or folder that the part will become. Its folder exists.
        folder: Make a folder, which only this user can enter, instead of an empty file.

    Raises:
        OSError: The part cannot be created.
    """
    remove_leftovers(path.parent)
    part, descriptor = _locked_part(path, folder)
    try:
        yield part
    finally:
        _remove(part)
        os.close(descriptor)  # releases the lock


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """Yield a new folder in the system's folder of temporary files, and remove it after the block.

    Unlike folders of `tempfile`, it is also removed after its process was killed, by the next one that uses `name`.

    Args:
        name: Name that describes the use, such as `edgemask-race`.

    Raises:
        OSError: The folder cannot be created.
    """
    with part_of(Path(tempfile.gettempdir()) / name, folder=True) as folder:
        yield folder


def remove_leftovers(folder: Path) -> None:
    """Remove the part files and part folders of processes of this user that no longer run.

    What cannot be opened, locked or removed is left alone: it belongs to a running process, or the file system has no
    locks.
    """
    try:
        with os.scandir(folder) as entries:
            parts = [Path(entry.path) for entry in entries if PART.fullmatch(entry.name)]
    except OSError:  # a missing folder has no leftovers
        return
    for part in parts:
        with suppress(OSError):
            flags = os.O_RDONLY | os.O_DIRECTORY if part.is_dir() else os.O_RDWR | os.O_NONBLOCK
            descriptor = os.open(part, flags | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_uid == os.geteuid():
                    _remove(part)
            finally:
                os.close(descriptor)


def _locked_part(path: Path, folder: bool) -> tuple[Path, int]:
    """Create a part of a file or folder, and return its path and the descriptor that holds its lock."""
    while True:
        part = path.with_name(f".{path.name[:50]}.part-{secrets.token_hex(8)}")
        if folder:
            part.mkdir(0o700)
            try:
                descriptor = os.open(part, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:  # another process took it for a leftover before it was opened
                continue
        else:
            descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        with suppress(OSError):  # without locks in the file system, `remove_leftovers` removes nothing
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if part.exists():
            return part, descriptor
        os.close(descriptor)  # another process took it for a leftover before it was locked


def _remove(part: Path) -> None:
    """Remove a part file or part folder if it is there."""
    if part.is_dir() and not part.is_symlink():
        shutil.rmtree(part, ignore_errors=True)
    else:
        part.unlink(missing_ok=True)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Check that a path is not anything but a file, and name it in the errors of the system inside the block.

    Raises:
        FileError: The path is a folder or a device, or the block raised an error of the system.
    """
    try:
        if path.is_dir():
            raise FileError(f"{path} is a folder, not a file to write")
        if path.exists() and not path.is_file():
            raise FileError(f"{path} is not a regular file: it cannot be replaced")
        yield
    except OSError as error:
        if isinstance(error, EdgemaskError) or error.errno is None:
            raise
        if isinstance(error, FileExistsError) and path.exists():  # `once`, not a folder that is a file
            raise
        raise FileError(f"{path} cannot be written: {error.strerror}") from error
