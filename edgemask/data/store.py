"""The data store: find files below a data root, verify them, and download missing ones."""

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
from edgemask.runtime.folders import user_cache

ATTEMPTS = 3
PAUSE = 1.0  # seconds before the second attempt; doubled before each later one
BLOCK = 1 << 18  # bytes read at a time, so that large files are streamed


class _TransientError(Exception):
    """A download failed for a reason that may be temporary."""


@dataclass(frozen=True)
class File:
    """A data file.

    Args:
        path: Path below the data root.
        url: Address from which the file is downloaded.
        checksum: `sha256:…`, or `git:…` for the blob id in the repository that publishes the file.
        size: Size in bytes, if known.
        alternatives: Files with the same data in another format. The store uses one of them if it is present, but
            downloads only the file itself.
    """

    path: str
    url: str
    checksum: str
    size: int | None = None
    alternatives: tuple[File, ...] = ()


class Store:
    """The data files below one data root.

    Args:
        root: The folder. By default $EDGEMASK_DATA or, if it is not set, `edgemask` in the user's cache folder.
        offline: Whether to avoid the network. By default true if $EDGEMASK_OFFLINE is 1 or true.
        timeout: Seconds without received data after which a connection counts as stalled.

    Raises:
        DataError: $EDGEMASK_OFFLINE has another value than 1, true, 0 or false.
        MissingFileError: There is no `root`, no $EDGEMASK_DATA, and the user has no home.
    """

    def __init__(self, root: str | Path | None = None, *, offline: bool | None = None, timeout: float = 30.0) -> None:
        if root is None:
            root = os.environ.get("EDGEMASK_DATA") or user_cache("EDGEMASK_DATA") / "edgemask"
        self.root = Path(root).expanduser().absolute()
        self.offline = _offline_by_environment() if offline is None else offline
        self.timeout = timeout

    def has(self, file: File) -> bool:
        """Return whether the file or one of its alternatives exists. Its content is not verified.

        Args:
            file: The file, as a benchmark declares it.

        Returns:
            True if there is such a file below the data root.
        """
        return (self.root / self.present_alternative(file).path).is_file()

    def present_alternative(self, file: File) -> File:
        """Return the alternative of a file that exists in the store, or the file itself if there is none.

        Args:
            file: The file, as a benchmark declares it.

        Returns:
            One of `file.alternatives`, or `file`.
        """
        return next((f for f in file.alternatives if self.has(f)), file)

    def status(self, file: File) -> Literal["present", "missing", "altered"]:
        """Return whether a file is present with the right content, missing, or altered.

        Args:
            file: The file, as a benchmark declares it.

        Returns:
            `"present"`, `"missing"` or `"altered"`.

        Raises:
            DataError: The file cannot be read.
        """
        if not self.has(file):
            return "missing"
        file = self.present_alternative(file)
        return "altered" if _mismatch(file, self.root / file.path) else "present"

    def get(self, file: File) -> Path:
        """Return the local path of a file after verifying it. A missing file is downloaded first.

        An altered file is not replaced, because it may be the user's only copy.

        Args:
            file: The file, as a benchmark declares it.

        Returns:
            The path of the file, or of the alternative that is present.

        Raises:
            DataError: The file is altered, cannot be read, or is missing and cannot be downloaded.
        """
        file = self.present_alternative(file)
        path = self.root / file.path
        if not self.has(file):
            return self.fetch(file)
        if mismatch := _mismatch(file, path):
            raise DataError(f"{path} is altered or truncated: {mismatch}; remove the file to download it again")
        return path

    def fetch(self, file: File) -> Path:
        """Download a file, verify it, and then move it into place. An existing file is replaced.

        Args:
            file: The file, as a benchmark declares it.

        Returns:
            The local path of the file.

        Raises:
            DataError: The store is offline, or the file cannot be downloaded, verified or stored.
        """
        path = self.root / file.path
        by_hand = f"download {file.url} to {path} (checksum {file.checksum})"
        if self.offline:
            state = "must be replaced" if self.has(file) else "is missing"
            raise DataError(f"data file {file.path} {state} and the store is offline: {by_hand}")
        if not file.url.startswith(("https://", "http://")):
            raise DataError(
                f"data file {file.path} cannot be downloaded, because its URL is not an http(s) address: {by_hand}"
            )
        part = path.with_name(f".{path.name}.part-{secrets.token_hex(8)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._download(file, part)
                if mismatch := _mismatch(file, part):
                    raise DataError(f"data file {file.path}: {file.url} sent the wrong bytes: {mismatch}")
                os.replace(part, path)
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            raise DataError(f"data file {file.path} from {file.url} cannot be stored: {error}") from error
        return path

    def _download(self, file: File, part: Path) -> None:
        """Download the file to the path `part` and flush it to disk. Temporary failures are retried."""
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
                        f"data file {file.path} could not be downloaded from {file.url} in {ATTEMPTS} attempts: "
                        f"{error} (expected {_expected(file)})"
                    ) from error
                time.sleep(PAUSE * 2**attempt)


def _stream(file: File, timeout: float) -> Generator[bytes]:
    """Yield the content of the file's URL in blocks, with a progress bar if stderr is a terminal.

    Network errors are classified here. Errors of the disk are handled by the caller.
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
            f"data file {file.path} cannot be downloaded from {file.url}: {failure} (expected {_expected(file)})"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            reason = f"the connection stalled: no data for {timeout:g} s"
        raise _TransientError(f"{reason}, after {received:,} bytes") from error
    if total is not None and received < total:
        raise _TransientError(f"the connection closed after {received:,} of {total:,} bytes")


def _expected(file: File) -> str:
    """Return the checksum and, if known, the size of a file for messages."""
    return file.checksum + ("" if file.size is None else f", {file.size:,} bytes")


def _mismatch(file: File, path: Path) -> str | None:
    """Return None if the file at `path` has the right content, else the expected and the actual checksum as text."""
    kind = file.checksum.partition(":")[0]
    if kind not in ("sha256", "git"):
        raise DataError(f"data file {file.path}: the checksum must be sha256:… or git:…, got {file.checksum!r}")
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            # git's blob id is what the origin publishes. SHA-1 protects against accidental changes only.
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
