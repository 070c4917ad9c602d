"""The data store: find files below a data root, verify them, and download missing ones.

An origin is not trusted. A download ends when more bytes arrive than the file has, when no data arrives for a while,
and when it takes too long as a whole. Only https addresses are followed after a redirect. A file is written below the
data root only, and it gets its name after its checksum has been verified.
"""

from __future__ import annotations

import hashlib
import io
import os
import socket
import sys
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import IO, Any, Literal
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from edgemask.errors import DataError
from edgemask.runtime.atomic import part_of
from edgemask.runtime.folders import user_cache
from edgemask.runtime.safe_text import SafeConsole

ATTEMPTS = 3
PAUSE = 1.0  # seconds before the second attempt; doubled before each later one
BLOCK = 1 << 18  # bytes read at a time, so that large files are streamed
LARGEST = 100 * 2**20  # bytes of the largest file that GitHub accepts in a repository
SLOWEST = 2**15  # bytes per second that a download must reach on average, after a period of grace
REDIRECTS = ("https",)  # schemes of the addresses that an origin may redirect to


class _TransientError(Exception):
    """A download failed for a reason that may be temporary."""


class _OutOfTimeError(Exception):
    """A download has taken all the time that it may take."""


@dataclass(frozen=True)
class File:
    """A data file.

    Args:
        path: Path below the data root.
        url: Address from which the file is downloaded.
        checksum: `sha256:…`, or `git:…` for the blob id in the repository that publishes the file.
        size: Size in bytes. None if it is not published: then the file has at most 100 MiB.
        alternatives: Files with the same data in another format. The store uses one of them if it is present, but
            downloads only the file itself.
    """

    path: str
    url: str
    checksum: str
    size: int | None = None
    alternatives: tuple[File, ...] = ()

    @property
    def max_size(self) -> int:
        """The largest number of bytes that the file can have."""
        return LARGEST if self.size is None else self.size


class Store:
    """The data files below one data root.

    Args:
        root: The folder. By default $EDGEMASK_DATA or, if it is not set, `edgemask` in the user's cache folder.
        offline: Whether to avoid the network. By default true if $EDGEMASK_OFFLINE is 1 or true.
        timeout: Seconds without received data after which a connection counts as stalled.
        grace: Seconds that the download of a file may take, besides one second for every 32 KiB of the file.

    Raises:
        DataError: $EDGEMASK_OFFLINE has another value than 1, true, 0 or false.
        MissingFileError: There is no `root`, no $EDGEMASK_DATA, and the user has no home.
    """

    def __init__(
        self,
        root: str | Path | None = None,
        *,
        offline: bool | None = None,
        timeout: float = 30.0,
        grace: float = 60.0,
    ) -> None:
        if root is None:
            root = os.environ.get("EDGEMASK_DATA") or user_cache("EDGEMASK_DATA") / "edgemask"
        self.root = Path(root).expanduser().absolute()
        self.offline = _offline_by_environment() if offline is None else offline
        self.timeout = timeout
        self.grace = grace

    def has(self, file: File) -> bool:
        """Return whether the file or one of its alternatives exists. Its content is not verified.

        Args:
            file: The file, as a benchmark declares it.

        Returns:
            True if there is such a file below the data root.
        """
        return self._place(self.present_alternative(file)).is_file()

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
        return "altered" if _mismatch(file, self._place(file)) else "present"

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
        path = self._place(file)
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
        path = self._place(file)
        by_hand = f"download {file.url} to {path} (checksum {file.checksum})"
        if self.offline:
            state = "must be replaced" if self.has(file) else "is missing"
            raise DataError(f"data file {file.path} {state} and the store is offline: {by_hand}")
        if urlsplit(file.url).scheme not in ("https", "http"):
            raise DataError(
                f"data file {file.path} cannot be downloaded, because its URL is not an http(s) address: {by_hand}"
            )
        try:
            if not path.parent.resolve().is_relative_to(self.root.resolve()):
                raise DataError(
                    f"data file {file.path} is not downloaded, because the link {path.parent} leads out of the data "
                    f"root {self.root}: {by_hand}"
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            with part_of(path) as part:
                self._download(file, part)
                if mismatch := _mismatch(file, part):
                    raise DataError(f"data file {file.path}: {file.url} sent the wrong bytes: {mismatch}")
                os.replace(part, path)
        except OSError as error:
            raise DataError(f"data file {file.path} from {file.url} cannot be stored: {error}") from error
        return path

    def _place(self, file: File) -> Path:
        """Return the local path of a file.

        Raises:
            DataError: It is not below the data root.
        """
        if Path(file.path).is_absolute() or ".." in Path(file.path).parts or not Path(file.path).name:
            raise DataError(f"the path of a data file must lead to a file below the data root, got {file.path!r}")
        return self.root / file.path

    def _download(self, file: File, part: Path) -> None:
        """Download the file to the path `part` and flush it to disk. Temporary failures are retried."""
        allowed = self.grace + file.max_size / SLOWEST
        deadline = time.monotonic() + allowed
        for attempt in range(ATTEMPTS):
            try:
                with part.open("wb") as sink, closing(_stream(file, self.timeout, deadline)) as blocks:
                    for block in blocks:
                        sink.write(block)
                    sink.flush()
                    os.fsync(sink.fileno())
                return
            except _OutOfTimeError as error:
                raise DataError(
                    f"data file {file.path} could not be downloaded from {file.url} within {allowed:,.0f} s: "
                    f"{error} (expected {_expected(file)})"
                ) from error
            except _TransientError as error:
                if attempt + 1 == ATTEMPTS:
                    raise DataError(
                        f"data file {file.path} could not be downloaded from {file.url} in {ATTEMPTS} attempts: "
                        f"{error} (expected {_expected(file)})"
                    ) from error
                time.sleep(PAUSE * 2**attempt)


def _stream(file: File, timeout: float, deadline: float) -> Generator[bytes]:
    """Yield the content of the file's URL in blocks, with a progress bar if stderr is a terminal.

    Network errors are classified here. Errors of the disk are handled by the caller.
    """
    received = 0
    request = Request(file.url, headers={"User-Agent": "edgemask", "Accept-Encoding": "identity"})
    bar = Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        console=SafeConsole(stderr=True), transient=True, disable=not sys.stderr.isatty(),
    )  # fmt: skip
    try:
        opener = build_opener(_Handler(deadline), _Redirects(file))
        with opener.open(request, timeout=timeout) as response, bar:
            total: int | None = file.size if response.length is None else response.length
            task = bar.add_task(file.path, total=total)
            while block := response.read1(BLOCK):
                received += len(block)
                if max(received, total or 0) > file.max_size:
                    raise DataError(
                        f"data file {file.path}: {file.url} sent the wrong bytes: "
                        f"expected {_expected(file)}, got {max(received, total or 0):,} bytes"
                    )
                bar.update(task, completed=received)
                yield block
    except HTTPError as error:
        error.close()
        failure = f"HTTP status {error.code} ({' '.join(str(error.reason).split())[:200]})"
        if error.code >= 500:
            raise _TransientError(failure) from error
        raise DataError(
            f"data file {file.path} cannot be downloaded from {file.url}: {failure} (expected {_expected(file)})"
        ) from error
    except (OSError, HTTPException, ValueError, OverflowError) as error:  # the last two: an unusable redirect
        if time.monotonic() >= deadline:
            raise _OutOfTimeError(f"{received:,} bytes arrived") from error
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            reason = f"the connection stalled: no data for {timeout:g} s"
        raise _TransientError(f"{reason}, after {received:,} bytes") from error
    if total is not None and received < total:
        raise _TransientError(f"the connection closed after {received:,} of {total:,} bytes")


class _Handler(HTTPHandler, HTTPSHandler):
    """Opens addresses with connections whose answers end at a deadline."""

    def __init__(self, deadline: float) -> None:
        super().__init__()
        self.deadline = deadline

    def http_open(self, req: Request) -> HTTPResponse:
        """Open an http address."""
        return self.do_open(partial(self._connection, HTTPConnection), req)

    def https_open(self, req: Request) -> HTTPResponse:
        """Open an https address."""
        return self.do_open(partial(self._connection, HTTPSConnection), req)

    def _connection(self, kind: type[HTTPConnection], host: str, timeout: float, **options: Any) -> Any:
        connection: Any = kind(host, timeout=_time_left(timeout, self.deadline), **options)
        connection.response_class = partial(_Answer, self.deadline)
        return connection


class _Answer(HTTPResponse):
    """An answer, headers included, that ends at a deadline."""

    def __init__(self, deadline: float, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_Bytes(sock, deadline))


class _Bytes(io.RawIOBase):
    """The bytes that arrive at a socket until a deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self.sock, self.source = sock, sock.makefile("rb", buffering=0)
        self.timeout, self.deadline = sock.gettimeout() or 0.0, deadline

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read bytes as soon as some have arrived."""
        self.sock.settimeout(_time_left(self.timeout, self.deadline))
        return self.source.readinto(buffer)

    def close(self) -> None:
        """Close the socket."""
        self.source.close()
        super().close()


class _Redirects(HTTPRedirectHandler):
    """Follows redirects to https addresses only."""

    def __init__(self, file: File) -> None:
        self.file = file

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        """Return the request to the address `newurl`."""
        fp.close()  # the base class would read the answer to its end
        if urlsplit(newurl).scheme not in REDIRECTS:
            raise DataError(
                f"data file {self.file.path} cannot be downloaded from {req.full_url}: it redirects to {newurl[:200]}, "
                f"which is not an https address (expected {_expected(self.file)})"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _time_left(timeout: float, deadline: float) -> float:
    """Return the seconds to wait for data: `timeout`, or less if the deadline comes first.

    Raises:
        TimeoutError: The deadline has passed.
    """
    if (left := deadline - time.monotonic()) <= 0:
        raise TimeoutError("the time is over")
    return min(timeout, left)


def _expected(file: File) -> str:
    """Return the checksum and the size of a file for messages."""
    return f"{file.checksum}, {'at most ' * (file.size is None)}{file.max_size:,} bytes"


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
