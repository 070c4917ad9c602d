"""Tests of the store with a local HTTP server that can simulate failures."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import edgemask
from edgemask.data import BENCHMARKS
from edgemask.data import store as store_module
from edgemask.data.store import File, Store
from edgemask.enrich import default_cache
from edgemask.errors import DataError, MissingFileError

BODY = bytes(range(256)) * 4
RIGHT = "sha256:" + hashlib.sha256(BODY).hexdigest()
OTHER = b"x" * len(BODY)
WRONG = "sha256:" + hashlib.sha256(OTHER).hexdigest()
ZEROS = "sha256:" + hashlib.sha256(bytes(64 << 20)).hexdigest()


@dataclass
class Reply:
    """The server's reply to one request.

    The server announces `length` bytes (by default the length of the body; -1 announces no length) and sends the body
    `times` times, in pieces of `piece` bytes with `pause` seconds between them. With `stall` it then keeps the
    connection open without sending anything. `raw` replaces the whole reply, status and headers included.
    """

    body: bytes = BODY
    status: int = 200
    length: int | None = None
    times: int = 1
    stall: bool = False
    barrier: threading.Barrier | None = None
    headers: dict[str, str] = field(default_factory=dict)
    piece: int = 1 << 30
    pause: float = 0.0
    raw: bytes = b""


@dataclass
class Origin:
    """The replies of the server by path (the last one is repeated), and the requested paths."""

    address: str = ""
    replies: dict[str, list[Reply]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    sent: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def file(self, *replies: Reply, checksum: str = RIGHT, size: int | None = None) -> File:
        self.replies["/file"] = list(replies)
        return File("sub/file.bin", f"{self.address}/file", checksum, size)


@pytest.fixture
def origin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Origin]:
    monkeypatch.setattr(store_module, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("EDGEMASK_OFFLINE", raising=False)
    origin = Origin()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            origin.asked.append(self.path)
            queue = origin.replies[self.path]
            reply = queue.pop(0) if len(queue) > 1 else queue[0]
            if reply.barrier:
                reply.barrier.wait(5)
            if not reply.raw:
                self.send_response(reply.status)
                if reply.length != -1:
                    length = len(reply.body) * reply.times if reply.length is None else reply.length
                    self.send_header("Content-Length", str(length))
                for name, value in reply.headers.items():
                    self.send_header(name, value.replace("ADDRESS", origin.address))
                self.end_headers()
            with contextlib.suppress(ConnectionError):  # the client may close the connection early
                for _ in range(reply.times):
                    content = reply.raw or reply.body
                    for start in range(0, len(content), reply.piece):
                        self.wfile.write(content[start : start + reply.piece])
                        origin.sent += min(reply.piece, len(content) - start)
                        if origin.over.wait(reply.pause):
                            return
            if reply.stall:
                origin.over.wait(10)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        origin.address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield origin
        origin.over.set()
        server.shutdown()


def content(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def put(root: Path, data: bytes = BODY, checksum: str = RIGHT, size: int | None = None) -> File:
    (root / "here.bin").write_bytes(data)
    return File("here.bin", "https://origin.invalid/here.bin", checksum, size)


# ---- data root and offline mode ------------------------------------------------------------------------


def test_root_is_the_argument_then_the_environment_then_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EDGEMASK_DATA", str(tmp_path / "env"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Store(tmp_path / "given").root == tmp_path / "given"
    assert Store().root == tmp_path / "env"
    monkeypatch.delenv("EDGEMASK_DATA")
    assert Store().root == tmp_path / "xdg" / "edgemask"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert Store().root == tmp_path / "home" / ".cache" / "edgemask"
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.delenv("EDGEMASK_CACHE", raising=False)
    with pytest.raises(MissingFileError, match="no home directory: set the environment variable EDGEMASK_DATA"):
        Store()
    with pytest.raises(MissingFileError, match="no home directory: set the environment variable EDGEMASK_CACHE"):
        default_cache()
    monkeypatch.setenv("EDGEMASK_DATA", str(tmp_path / "env"))
    assert Store().root == tmp_path / "env"


def homeless() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_relative_root_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Store("data").root == tmp_path / "data"


@pytest.mark.parametrize(("value", "offline"), [("1", True), ("TRUE", True), ("0", False), ("", False)])
def test_offline_by_environment(monkeypatch: pytest.MonkeyPatch, value: str, offline: bool) -> None:
    monkeypatch.setenv("EDGEMASK_OFFLINE", value)
    assert Store("data").offline is offline


def test_offline_argument_overrides_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEMASK_OFFLINE", "1")
    assert Store("data", offline=False).offline is False


def test_unclear_offline_environment_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEMASK_OFFLINE", "maybe")
    with pytest.raises(DataError, match=r"EDGEMASK_OFFLINE must be .* got 'maybe'"):
        Store("data")


# ---- existing files ------------------------------------------------------------------------------------


def test_present_file_is_verified_and_returned_without_the_network(tmp_path: Path) -> None:
    assert Store(tmp_path, offline=True).get(put(tmp_path, size=len(BODY))) == tmp_path / "here.bin"


def test_git_checksum_is_the_blob_id(tmp_path: Path) -> None:
    file = put(tmp_path, b"hello\n", "git:ce013625030ba8dba906f756967f9e9ca394464a")
    assert Store(tmp_path, offline=True).status(file) == "present"
    (tmp_path / "here.bin").write_bytes(b"hullo\n")
    assert Store(tmp_path, offline=True).status(file) == "altered"


def test_altered_file_is_named_with_both_checksums_and_not_changed(tmp_path: Path) -> None:
    file = put(tmp_path, OTHER)
    with pytest.raises(DataError) as caught:
        Store(tmp_path, offline=False).get(file)
    for part in (str(tmp_path / "here.bin"), f"expected {RIGHT}", f"got {WRONG}"):
        assert part in str(caught.value)
    assert content(tmp_path) == {"here.bin": OTHER}


def test_truncated_file_is_named_with_both_sizes(tmp_path: Path) -> None:
    file = put(tmp_path, BODY[:1000], size=len(BODY))
    with pytest.raises(DataError, match=r"1,024 bytes, got sha256:\w+, 1,000 bytes"):
        Store(tmp_path, offline=True).get(file)


def test_status(tmp_path: Path) -> None:
    store = Store(tmp_path, offline=True)
    file = put(tmp_path)
    assert store.status(file) == "present"
    (tmp_path / "here.bin").write_bytes(OTHER)
    assert store.status(file) == "altered"
    (tmp_path / "here.bin").unlink()
    assert store.status(file) == "missing"


def test_unknown_kind_of_checksum_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"here\.bin: the checksum must be .* got 'md5:00'"):
        Store(tmp_path, offline=True).get(put(tmp_path, checksum="md5:00"))


def test_real_file_has_its_published_checksum(data_root: Path) -> None:
    lines = (data_root / "SHA256SUMS").read_text().splitlines()
    (digest,) = [line.split()[0] for line in lines if line.endswith("planetoid/ind.cora.graph")]
    file = File("planetoid/ind.cora.graph", "", f"sha256:{digest}")
    assert Store(data_root, offline=True).status(file) == "present"


# ---- missing files -------------------------------------------------------------------------------------


def test_missing_file_offline_is_named_with_url_and_path(tmp_path: Path) -> None:
    file = File("a/b.bin", "https://origin.invalid/b.bin", RIGHT)
    with pytest.raises(DataError) as caught:
        Store(tmp_path, offline=True).get(file)
    for part in ("a/b.bin is missing", "offline", file.url, str(tmp_path / "a" / "b.bin"), RIGHT):
        assert part in str(caught.value)
    assert content(tmp_path) == {}


def test_missing_file_is_fetched_once(tmp_path: Path, origin: Origin) -> None:
    file = origin.file(Reply(), size=len(BODY))
    for _ in range(2):
        assert Store(tmp_path).get(file) == tmp_path / "sub" / "file.bin"
    assert content(tmp_path) == {"sub/file.bin": BODY}
    assert origin.asked == ["/file"]


@pytest.mark.parametrize(
    ("reply", "size", "attempts", "message"),
    [
        (Reply(OTHER), None, 1, f"sent the wrong bytes: expected {RIGHT}, at most 104,857,600 bytes, got {WRONG}"),
        (Reply(OTHER * 2), len(BODY), 1, f"expected {RIGHT}, 1,024 bytes, got 2,048 bytes"),
        (Reply(BODY[:-1]), None, 1, "got sha256:"),
        (Reply(BODY[:512], length=1024), None, 3, "the connection closed after 512 of 1,024 bytes"),
        (Reply(BODY[:512], length=-1), 1024, 3, "the connection closed after 512 of 1,024 bytes"),
        (Reply(BODY[:512], length=1024, stall=True), None, 3, "the connection stalled: no data for 0.2 s"),
        (Reply(b"", status=404), None, 1, "HTTP status 404 (Not Found)"),
        (Reply(b"", status=503), None, 3, "HTTP status 503 (Service Unavailable)"),
    ],
    ids=["wrong", "too long", "too short", "truncated", "cut, no length", "stalled", "404", "503"],
)
def test_failed_fetch_names_the_reason_and_leaves_no_file(
    tmp_path: Path, origin: Origin, reply: Reply, size: int | None, attempts: int, message: str
) -> None:
    file = origin.file(reply, size=size)
    with pytest.raises(DataError) as caught:
        Store(tmp_path, timeout=0.2).get(file)
    for part in ("sub/file.bin", file.url, RIGHT, message):
        assert part in str(caught.value)
    assert content(tmp_path) == {}
    assert len(origin.asked) == attempts


@pytest.mark.parametrize(
    "first", [Reply(b"", status=503), Reply(BODY[:512], length=1024), Reply(OTHER[:9], length=1024)]
)
def test_second_attempt_starts_from_the_beginning(tmp_path: Path, origin: Origin, first: Reply) -> None:
    Store(tmp_path).get(origin.file(first, Reply()))
    assert content(tmp_path) == {"sub/file.bin": BODY}
    assert len(origin.asked) == 2


def test_unreachable_origin_is_an_error(tmp_path: Path, origin: Origin) -> None:
    file = File("f", "http://127.0.0.1:9/f", RIGHT)  # the discard port, where nothing listens
    with pytest.raises(DataError, match=r"in 3 attempts: .*refused"):
        Store(tmp_path, timeout=0.2).get(file)


def test_failed_fetch_keeps_the_existing_file(tmp_path: Path, origin: Origin) -> None:
    file = origin.file(Reply(b"no such bytes"))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.bin").write_bytes(OTHER)
    with pytest.raises(DataError, match="wrong bytes"):
        Store(tmp_path).fetch(file)
    assert content(tmp_path) == {"sub/file.bin": OTHER}


def test_fetch_replaces_an_altered_file(tmp_path: Path, origin: Origin) -> None:
    file = origin.file(Reply())
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.bin").write_bytes(OTHER)
    Store(tmp_path).fetch(file)
    assert content(tmp_path) == {"sub/file.bin": BODY}


def test_offline_fetch_of_a_present_file_does_not_call_it_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"here\.bin must be replaced and the store is offline"):
        Store(tmp_path, offline=True).fetch(put(tmp_path, OTHER))


# ---- a hostile origin ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 302 Found\r\nLocation: ADDRESS/file\r\nX: "],
    ids=["body", "headers", "headers of a redirect"],
)
def test_a_drip_of_bytes_ends_at_the_time_limit(tmp_path: Path, origin: Origin, raw: bytes) -> None:
    file = origin.file(Reply(piece=1, pause=0.05, raw=raw and raw + b"x" * 1000), size=len(BODY))
    start = time.monotonic()
    with pytest.raises(DataError, match=r"could not be downloaded from http://\S+ within 1 s: \d+ bytes arrived") as e:
        Store(tmp_path, timeout=0.5, grace=1).get(file)
    assert RIGHT in str(e.value)
    assert time.monotonic() - start < 10
    assert content(tmp_path) == {}


def test_a_slow_download_within_the_time_limit_succeeds(tmp_path: Path, origin: Origin) -> None:
    Store(tmp_path, timeout=0.5).get(origin.file(Reply(piece=100, pause=0.05), size=len(BODY)))
    assert content(tmp_path) == {"sub/file.bin": BODY}


@pytest.mark.parametrize("size", [len(BODY), None])
@pytest.mark.parametrize("headers", [{}, {"Transfer-Encoding": "chunked"}])
def test_an_endless_body_is_cut_at_the_size_of_the_file(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch, size: int | None, headers: dict[str, str]
) -> None:
    monkeypatch.setattr(store_module, "LARGEST", 1 << 20)
    block = b"10000\r\n" + b"x" * 65536 + b"\r\n" if headers else b"x" * 65536
    file = origin.file(Reply(block, length=-1, times=1 << 20, headers=headers), size=size)
    with pytest.raises(DataError, match=r"sent the wrong bytes: expected sha256:\w+, (at most )?[\d,]+ bytes, got "):
        Store(tmp_path).get(file)
    assert origin.sent < 32 << 20  # what the buffers of the system take, besides what was read
    assert len(origin.asked) == 1
    assert content(tmp_path) == {}


@pytest.mark.parametrize(
    ("length", "attempts", "message"),
    [
        (1 << 40, 1, "got 1,099,511,627,776 bytes"),
        (1025, 1, "got 1,025 bytes"),
        (512, 1, "512 bytes"),
        (0, 1, "0 bytes"),
        (-5, 0, ""),  # what is not a length is not used
    ],
)
def test_a_wrong_content_length_is_noticed(
    tmp_path: Path, origin: Origin, length: int, attempts: int, message: str
) -> None:
    file = origin.file(Reply(length=length), size=len(BODY))
    if not attempts:
        assert Store(tmp_path).get(file).read_bytes() == BODY
        return
    with pytest.raises(DataError, match="sent the wrong bytes") as raised:
        Store(tmp_path, timeout=0.5).get(file)
    assert message in str(raised.value)
    assert len(origin.asked) == attempts
    assert content(tmp_path) == {}


def test_a_gzip_bomb_is_never_expanded(tmp_path: Path, origin: Origin) -> None:
    bomb = gzip.compress(bytes(64 << 20))
    file = origin.file(Reply(bomb, headers={"Content-Encoding": "gzip"}), size=64 << 20, checksum=ZEROS)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=rf"sent the wrong bytes: .*, got sha256:\w+, {len(bomb):,} bytes"):
            Store(tmp_path).get(file)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert content(tmp_path) == {}


@pytest.mark.parametrize(
    "target",
    [
        "ADDRESS/other",
        "ftp://127.0.0.1/f",
        "FTP://127.0.0.1/f",
        "//127.0.0.1:1/f",
        "/other",
        "other",
        "local_file:/etc/passwd",
    ],
)
def test_only_https_is_followed_after_a_redirect(tmp_path: Path, origin: Origin, target: str) -> None:
    file = origin.file(Reply(b"", status=302, headers={"Location": target}))
    origin.replies["/other"] = [Reply()]
    with pytest.raises(DataError, match=r"redirects to \S+, which is not an https address") as raised:
        Store(tmp_path).get(file)
    for part in ("sub/file.bin", file.url, RIGHT):
        assert part in str(raised.value)
    assert origin.asked == ["/file"]
    assert content(tmp_path) == {}


@pytest.mark.parametrize("target", ["file:///etc/passwd", "data:,x", "gopher://127.0.0.1/", "javascript:1"])
def test_a_redirect_to_a_local_file_is_refused(tmp_path: Path, origin: Origin, target: str) -> None:
    file = origin.file(Reply(b"", status=302, headers={"Location": target}))
    with pytest.raises(DataError, match="is not allowed"):
        Store(tmp_path).get(file)
    assert content(tmp_path) == {}


@pytest.mark.parametrize(
    "target", ["https://[", "https://" + "a" * 70 + ".invalid/", "https://127.0.0.1:99999999/", "https://127.0.0.1:x/"]
)
def test_a_redirect_to_an_impossible_address_is_an_error(tmp_path: Path, origin: Origin, target: str) -> None:
    file = origin.file(Reply(b"", status=302, headers={"Location": target}))
    with pytest.raises(DataError, match=r"sub/file.bin could not be downloaded from \S+ in 3 attempts"):
        Store(tmp_path).get(file)
    assert content(tmp_path) == {}


def test_redirects_in_a_loop_or_without_end_are_errors(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "REDIRECTS", ("http",))
    file = origin.file(Reply(b"", status=302, headers={"Location": "/b"}))
    origin.replies["/b"] = [Reply(b"", status=301, headers={"Location": "/file"})]
    with pytest.raises(DataError, match=r"HTTP status 30[12] .*infinite loop"):
        Store(tmp_path).get(file)
    assert len(origin.asked) < 20
    origin.asked.clear()
    for i in range(100):
        origin.replies[f"/{i}"] = [Reply(b"", status=302, headers={"Location": f"/{i + 1}"})]
    origin.file(Reply(b"", status=302, headers={"Location": "/0"}))
    with pytest.raises(DataError, match=r"HTTP status 302 .*infinite loop"):
        Store(tmp_path).get(file)
    assert len(origin.asked) < 20
    origin.asked.clear()
    origin.file(Reply(b"", status=302, headers={"Location": "/right"}))
    origin.replies["/right"] = [Reply()]
    assert Store(tmp_path).get(file).read_bytes() == BODY


def test_the_body_of_a_redirect_is_not_read(tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "REDIRECTS", ("http",))
    endless = Reply(b"x" * 65536, status=302, length=-1, times=1 << 20, headers={"Location": "/right"})
    file = origin.file(endless)
    origin.replies["/right"] = [Reply()]
    assert Store(tmp_path).get(file).read_bytes() == BODY
    assert origin.sent < 32 << 20


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00" * 100,
        b"HTTP/1.1 two OK\r\n\r\n",
        b"HTTP/1.1 200 " + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc",
        b"HTTP/1.1 503 \x1b[2J\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["zeros", "status", "long line", "many headers", "chunk size", "negative chunk", "escape"],
)
def test_an_answer_that_is_not_http_is_an_error(tmp_path: Path, origin: Origin, raw: bytes) -> None:
    with pytest.raises(DataError, match=r"sub/file\.bin could not be downloaded from \S+ in 3 attempts"):
        Store(tmp_path, timeout=0.5).get(origin.file(Reply(raw=raw)))
    assert content(tmp_path) == {}


# ---- no path outside the data root -----------------------------------------------------------------------


@pytest.mark.parametrize("path", ["../f", "a/../../f", "/etc/f", "", ".", "..", "a/.."])
def test_a_path_that_leads_out_of_the_data_root_is_refused(tmp_path: Path, origin: Origin, path: str) -> None:
    store, file = Store(tmp_path / "root"), replace(origin.file(Reply()), path=path)
    for call in (store.has, store.status, store.get, store.fetch):
        with pytest.raises(DataError, match=rf"must lead to a file below the data root, got '{re.escape(path)}'"):
            call(file)
    assert origin.asked == []
    assert content(tmp_path) == {}


def test_nothing_is_downloaded_through_a_link_out_of_the_data_root(tmp_path: Path, origin: Origin) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "sub").symlink_to(tmp_path / "outside")
    with pytest.raises(DataError, match=r"the link \S+/root/sub leads out of the data root \S+/root: download http"):
        Store(tmp_path / "root").get(origin.file(Reply()))
    assert origin.asked == []
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_link_at_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path, origin: Origin) -> None:
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "root" / "sub" / "file.bin").symlink_to(tmp_path / "victim")
    path = Store(tmp_path / "root").fetch(origin.file(Reply()))
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert (path.read_bytes(), path.is_symlink()) == (BODY, False)


def test_a_linked_data_root_is_used(tmp_path: Path, origin: Origin) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "outside")
    Store(tmp_path / "root").get(origin.file(Reply()))
    assert (tmp_path / "outside" / "sub" / "file.bin").read_bytes() == BODY


# ---- the files of the benchmarks -------------------------------------------------------------------------


def every_file() -> list[File]:
    """The files of all benchmarks, alternatives included."""
    files = {f for b in BENCHMARKS.values() for domain in b.domains for f in b.files(domain)}
    return sorted(files | {a for f in files for a in f.alternatives}, key=lambda f: f.path)


def test_every_file_has_an_https_address_and_a_size_or_an_upper_limit() -> None:
    unknown = {f.path for f in every_file() if f.size is None}
    assert unknown == {
        "facebook100/Penn94.mat", "facebook100/Texas80.mat",
        "ogbn_arxiv/raw/edge.csv.gz", "ogbn_arxiv/raw/node-feat.csv.gz",
    }  # fmt: skip
    assert {f.max_size for f in every_file() if f.path in unknown} == {100 * 2**20}
    for file in every_file():
        assert file.url.startswith("https://") or file.path == "amazon/amazon_electronics_photo.npz"
        assert not (set(Path(file.path).parts) & {"..", "/"})


def test_sizes_are_those_of_the_published_files(data_root: Path) -> None:
    present = [f for f in every_file() if (data_root / f.path).is_file() and f.size is not None]
    assert len(present) > 50
    assert [f.path for f in present if (data_root / f.path).stat().st_size != f.size] == []


# ---- other errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://origin.invalid/f", ""])
def test_only_http_addresses_are_fetched(tmp_path: Path, url: str) -> None:
    with pytest.raises(DataError, match=r"f cannot be downloaded, because its URL is not an http\(s\) address"):
        Store(tmp_path, offline=False).get(File("f", url, RIGHT))


def test_root_that_cannot_be_written_is_an_error(tmp_path: Path, origin: Origin) -> None:
    (tmp_path / "root").write_bytes(b"a file where the folder should be")
    with pytest.raises(DataError, match=r"sub/file\.bin .* cannot be stored: .*root"):
        Store(tmp_path / "root").get(origin.file(Reply()))


def test_full_disk_is_an_error_and_leaves_no_file(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"cannot be stored: .*No space left"):
        Store(tmp_path).get(origin.file(Reply()))
    assert content(tmp_path) == {}
    assert len(origin.asked) == 1


def test_two_concurrent_fetches_succeed(tmp_path: Path, origin: Origin) -> None:
    file = origin.file(Reply(barrier=threading.Barrier(2)))  # the server replies after both requests have arrived
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: Store(tmp_path).get(file), range(2)))
    assert paths == [tmp_path / "sub" / "file.bin"] * 2
    assert content(tmp_path) == {"sub/file.bin": BODY}


@pytest.mark.slow
def test_partial_file_of_a_killed_fetch_is_never_read(tmp_path: Path, origin: Origin) -> None:
    file = origin.file(Reply(BODY, times=1024, length=100 << 20, stall=True), Reply())
    code = f"from edgemask.data.store import File, Store; Store({str(tmp_path)!r}).get({file!r})"
    env = {**os.environ, "PYTHONPATH": str(Path(edgemask.__file__).parents[1])}
    with subprocess.Popen([sys.executable, "-c", code], env=env) as process:
        deadline = time.monotonic() + 20
        while not any(content(tmp_path).values()) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.kill()
    (part,) = content(tmp_path)
    assert part.startswith("sub/.file.bin.part-")
    assert Store(tmp_path).status(file) == "missing"
    assert Store(tmp_path).get(file).read_bytes() == BODY
    assert content(tmp_path) == {"sub/file.bin": BODY}


def test_large_file_is_streamed(tmp_path: Path, origin: Origin) -> None:
    block, times = BODY * 1024, 32  # 32 MB
    digest = hashlib.sha256()
    for _ in range(times):
        digest.update(block)
    file = origin.file(Reply(block, times=times), checksum=f"sha256:{digest.hexdigest()}")
    tracemalloc.start()
    try:
        Store(tmp_path).get(file)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_on_a_terminal_only(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    Store(tmp_path).get(origin.file(Reply()))
    assert ("sub/file.bin" in screen.getvalue()) is terminal
