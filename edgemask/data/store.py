"""The data store: finds files below a data root, verifies them, fetches what is missing."""

from __future__ import annotations

import hashlib
import http.client
import os
import secrets
import sys
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from edgemask.errors import DataError

ATTEMPTS = 3
PAUSE = 1.0  # seconds before the second attempt; doubled before each later one
BLOCK = 1 << 18  # bytes read at a time, so that a file of any size streams


class _TransientError(Exception):
    """A failed download that may well succeed the next time."""


@dataclass(frozen=True)
class File:
    """One file: where it lies below the data root, its public origin, and what its bytes must hash to
    (`sha256:…`, or `git:…`, the blob id of the repository it comes from). `alternatives` hold the same data in
    another form: one that is in the store serves, and only the file itself is ever fetched."""

    path: str
    url: str
    checksum: str
    size: int | None = None
    alternatives: tuple[File, ...] = ()


class Store:
    """The files below one data root.

    `root`     the folder; else $EDGEMASK_DATA; else `edgemask` in the user's cache folder.
    `offline`  True never goes to the network; None asks $EDGEMASK_OFFLINE (1 or true).
    `timeout`  seconds without a byte after which a connection counts as stalled.
    """

    def __init__(self, root: str | Path | None = None, *, offline: bool | None = None, timeout: float = 30.0) -> None:
        if root is None:
            cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
            root = os.environ.get("EDGEMASK_DATA") or cache / "edgemask"
        self.root = Path(root).expanduser().absolute()
        self.offline = _offline_by_environment() if offline is None else offline
        self.timeout = timeout

    def has(self, file: File) -> bool:
        """Whether something lies where the file, or one of its alternatives, belongs (presence only)."""
        return (self.root / self.serving(file).path).is_file()

    def serving(self, file: File) -> File:
        """The file or the alternative of it that the store holds; the file itself when it holds none."""
        return next((f for f in file.alternatives if self.has(f)), file)

    def status(self, file: File) -> Literal["present", "missing", "altered"]:
        """Whether the file is there with the right bytes, not there, or there with other bytes."""
        if not self.has(file):
            return "missing"
        file = self.serving(file)
        return "altered" if _mismatch(file, self.root / file.path) else "present"

    def get(self, file: File) -> Path:
        """The verified local path of a file, fetched first where it is missing.

        A file with other bytes is an error and stays where it is: it may be somebody's only copy.
        """
        file = self.serving(file)
        path = self.root / file.path
        if not self.has(file):
            return self.fetch(file)
        if wrong := _mismatch(file, path):
            raise DataError(f"{path} is altered or truncated: {wrong}; remove it to have it fetched anew")
        return path

    def fetch(self, file: File) -> Path:
        """Download a file, verify it, and only then put it in place (of whatever lay there)."""
        path = self.root / file.path
        by_hand = f"download {file.url} to {path} (checksum {file.checksum})"
        if self.offline:
            lack = "is to be replaced" if self.has(file) else "is missing"
            raise DataError(f"data file {file.path} {lack} and the store is offline: {by_hand}")
        if not file.url.startswith(("https://", "http://")):
            raise DataError(f"data file {file.path} has no http(s) address to be fetched from: {by_hand}")
        part = path.with_name(f".{path.name}.part-{secrets.token_hex(8)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._download(file, part)
                if wrong := _mismatch(file, part):
                    raise DataError(f"data file {file.path}: {file.url} sent the wrong bytes: {wrong}")
                os.replace(part, path)
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            raise DataError(f"data file {file.path} from {file.url} cannot be stored: {error}") from error
        return path

    def _download(self, file: File, part: Path) -> None:
        """The whole body of the file's address into `part`, on disk when this returns."""
        for attempt in range(ATTEMPTS):
            try:
                with part.open("wb") as sink, closing(_stream(file, self.timeout)) as blocks:
                    for block in blocks:
                        sink.write(block)
                    sink.flush()
                    os.fsync(sink.fileno())
                return
            except _TransientError as error:
                if attempt + 1 == ATTEMPTS:
                    raise DataError(
                        f"data file {file.path} could not be fetched from {file.url} in {ATTEMPTS} attempts: "
                        f"{error} (expected {_expected(file)})"
                    ) from error
                time.sleep(PAUSE * 2**attempt)


def _stream(file: File, timeout: float) -> Generator[bytes]:
    """The body of the file's address, block by block, with a progress bar where someone can see it.

    Everything the network can do wrong is told apart here; an error of the disk is the caller's.
    """
    received = 0
    request = Request(file.url, headers={"User-Agent": "edgemask"})
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
    )  # fmt: skip
    try:
        with urlopen(request, timeout=timeout) as response, bar:
            total: int | None = file.size if response.length is None else response.length
            task = bar.add_task(file.path, total=total)
            while block := response.read(BLOCK):
                received += len(block)
                if file.size is not None and max(received, total or 0) > file.size:
                    raise DataError(
                        f"data file {file.path}: {file.url} sent the wrong bytes: "
                        f"expected {_expected(file)}, got {max(received, total or 0):,} bytes"
                    )
                bar.update(task, completed=received)
                yield block
    except HTTPError as error:
        error.close()
        failure = f"HTTP status {error.code} ({error.reason})"
        if error.code >= 500:
            raise _TransientError(failure) from error
        raise DataError(
            f"data file {file.path} cannot be fetched from {file.url}: {failure} (expected {_expected(file)})"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            reason = f"stalled: nothing came for {timeout:g} s"
        raise _TransientError(f"{reason}, after {received:,} bytes") from error
    if total is not None and received < total:
        raise _TransientError(f"the connection closed after {received:,} of {total:,} bytes")


def _expected(file: File) -> str:
    return file.checksum + ("" if file.size is None else f", {file.size:,} bytes")


def _mismatch(file: File, path: Path) -> str | None:
    """None when the bytes at `path` are the file's; else what was expected and what is there."""
    kind = file.checksum.partition(":")[0]
    if kind not in ("sha256", "git"):
        raise DataError(f"data file {file.path}: its checksum must be sha256:… or git:…, got {file.checksum!r}")
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            # git's blob id; it is what the origin publishes, and guards against accidents only
            start = hashlib.sha1(b"blob %d\0" % size) if kind == "git" else hashlib.sha256()
            actual = f"{kind}:{hashlib.file_digest(stream, lambda: start).hexdigest()}"
    except OSError as error:
        raise DataError(f"data file {file.path} cannot be read: {error}") from error
    if actual == file.checksum and file.size in (None, size):
        return None
    return f"expected {_expected(file)}, got {actual}, {size:,} bytes"


def _offline_by_environment() -> bool:
    value = os.environ.get("EDGEMASK_OFFLINE", "").lower()
    if value not in ("", "0", "false", "1", "true"):
        raise DataError(f"EDGEMASK_OFFLINE must be 1, true, 0 or false, got {value!r}")
    return value in ("1", "true")
