"""Mutations of `.npz` archives, which keep the archive readable so that the checks behind it are reached."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from attacks.fuzz.mutate import INTEGERS, TEXTS, VALUES, dump_json, mutate_bytes, mutate_json

Arrays = dict[str, Any]
DTYPES = (
    *("<f4", ">f4", "<f8", "<f2", "<f16", "<i8", ">i8", "<i4", "|i1", "|u1", "<u8", "|b1", "<c8", "<U3", "|S4", "|O"),
    *("<M8[s]", "<m8[ns]", "|V8"),
)
MOST = 16 * 2**20  # bytes of an archive that is mutated again
BOMB = 300 * 2**20  # bytes that a small member of an archive expands to


def zipped(
    members: Sequence[tuple[str, bytes]],
    *,
    method: int = 8,
    sizes: tuple[int, int] | None = None,
    bomb: str | None = None,
) -> bytes:
    """Return a zip archive.

    Args:
        members: Names and contents. Names may repeat.
        method: 0 stores the contents, 8 compresses them.
        sizes: Compressed and uncompressed size that the archive claims for the last member.
        bomb: Name of a further member, a valid array that expands to `BOMB` bytes.
    """
    entries = []  # name, checksum, compressed content, claimed sizes, method
    for name, content in members:
        data = _deflated(content) if method == 8 else content
        entries.append((name, zlib.crc32(content), data, (len(data), len(content)), method))
    if sizes is not None and entries:
        entries[-1] = (*entries[-1][:3], sizes, method)
    if bomb is not None:
        checksum, data = _bomb()
        entries.append((bomb, checksum, data, (len(data), BOMB), 8))
    body, directory = b"", b""
    for name, checksum, data, (compressed, size), how in entries:
        raw = name.encode("utf-8", "replace")
        numbers = (20, 0x800, how, 0, 33, checksum, compressed % 2**32, size % 2**32, len(raw), 0)
        head = struct.pack("<HHHHHLLLHH", *numbers)
        directory += b"PK\x01\x02" + struct.pack("<H", 20) + head + struct.pack("<HHHLL", 0, 0, 0, 0, len(body)) + raw
        body += b"PK\x03\x04" + head + raw + data
    end = struct.pack("<HHHHLLH", 0, 0, len(entries), len(entries), len(directory), len(body), 0)
    return body + directory + b"PK\x05\x06" + end


def _deflated(content: bytes) -> bytes:
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    return compressor.compress(content) + compressor.flush()


@lru_cache
def _bomb() -> tuple[int, bytes]:
    """Return the checksum and the compressed content of an array of zeros."""
    head, chunk = npy("|u1", (BOMB - 128,), b""), bytes(2**20)
    start, middle = zlib.compressobj(9, zlib.DEFLATED, -15), zlib.compressobj(9, zlib.DEFLATED, -15)
    first = start.compress(head + chunk[len(head) :]) + start.flush(zlib.Z_FULL_FLUSH)
    other = middle.compress(chunk) + middle.flush(zlib.Z_FULL_FLUSH)
    checksum = zlib.crc32(head + chunk[len(head) :])
    for _ in range(BOMB // len(chunk) - 1):
        checksum = zlib.crc32(chunk, checksum)
    return checksum, first + other * (BOMB // len(chunk) - 1) + start.flush()


def members(archive: bytes) -> list[tuple[str, bytes]]:
    """Return the names and contents of a zip archive.

    Raises:
        zipfile.BadZipFile: It is not one, or it expands to too much to be mutated again.
    """
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        if sum(info.file_size for info in file.infolist()) > MOST:
            raise zipfile.BadZipFile("too large")
        return [(info.filename, file.read(info)) for info in file.infolist()]


def npy(descr: Any, shape: Any, content: bytes, *, fortran: Any = False, version: int = 1) -> bytes:
    """Return an array in the format `.npy`, with any header."""
    header = f"{{'descr': {descr!r}, 'fortran_order': {fortran!r}, 'shape': {shape!r}, }}"
    text = header.encode("latin1", "replace") + b" " * (-(len(header) + 11) % 64) + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", min(len(text), 65535))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + content


def array_bytes(array: Any) -> bytes:
    """Return an array in the format `.npy`."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asanyarray(array), allow_pickle=False)
    return buffer.getvalue()


def packed(arrays: Arrays) -> bytes:
    """Return arrays as an `.npz` archive."""
    return zipped([(f"{name}.npy", array_bytes(array)) for name, array in arrays.items()])


def unpacked(archive: bytes) -> Arrays:
    """Return the arrays of an archive that was not damaged, and raise any exception for another one."""
    return {
        name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
        for name, content in members(archive)
    }


def mutate_array(rng: random.Random, array: Any) -> Any:
    """Return an array with another value, shape or type."""
    array = np.array(array, order="C")
    flat = array.reshape(-1)  # a view; `array.flat` has at most 32 dimensions
    action = rng.randrange(10)
    with np.errstate(all="ignore"):
        if action < 4 and array.size:
            place = rng.randrange(array.size)
            values: list[Any] = list(TEXTS)
            if array.dtype.kind in "fiub":
                values = [*(v for v in VALUES if isinstance(v, int | float)), *INTEGERS]
            try:
                flat[place] = rng.choice(values)
            except (OverflowError, ValueError):
                flat[place] = flat[rng.randrange(array.size)]
        elif action == 4 and array.size:
            flat[rng.randrange(array.size)] = flat[rng.randrange(array.size)]
        elif action == 5:
            try:
                array = array.astype(rng.choice([d for d in DTYPES if d not in ("|O", "<f16")]))
            except (TypeError, ValueError, UnicodeError):
                array = array.astype("<U9")
        elif action == 6:
            array = (
                rng.choice((array[:-1], array[1:], array.ravel(), array[None], array[..., None], array.T))
                if array.ndim
                else array[None]
            )
        elif action == 7 and array.ndim:
            array = np.concatenate([array, array[: rng.randint(0, len(array))]])
        elif action == 8:
            array = np.zeros(rng.choice([(), (0,), (0, 0), (1,), (1, 0), (2, 3), (1, 1, 1)]), array.dtype)
        elif array.dtype.kind in "fiu":
            array = array * np.array(rng.choice((-1, 0, 2, 1000))).astype(array.dtype)
    return array


def mutate_archive(rng: random.Random, archive: bytes) -> bytes:
    """Return an archive with a changed member: its header, its name, its content, or the lists of sizes."""
    parts = members(archive)
    if not parts:
        return archive
    place = rng.randrange(len(parts))
    name, content = parts[place]
    action, method, sizes = rng.randrange(12), rng.choice((0, 8, 8)), None
    if action < 3:
        shape = rng.choice(
            [(), (0,), (2**62,), (2**40, 2), (-1,), (3, -5), (10**30,), (1,) * 40, (2**31, 2**31), "x", (1.5,), None]
        )
        parts[place] = name, npy(rng.choice(DTYPES), shape, b"", version=rng.choice((1, 1, 2, 3))) + content[128:]
    elif action == 3:
        descr = rng.choice(
            [*DTYPES, "x", "", None, 5, [("a", "<f4")], [("a", "<f4", (2**40,))], "<U99999999", "<V2147483647"]
        )
        parts[place] = name, npy(descr, (2,), b"", fortran=rng.choice((False, True, None, 2))) + content[128:]
    elif action == 4:
        parts[place] = (
            name,
            rng.choice((b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00", content[:64], content[:-1], content + b"x" * 9)),
        )
    elif action == 5:
        del parts[place]
    elif action == 6:
        parts.append((name, content))
    elif action == 7:
        parts[place] = rng.choice([name[:-4], name + ".npy", *TEXTS]), content
    elif action == 8:
        parts.append((rng.choice(["extra.npy", "extra", "../x.npy", "x/y.npy"]), content))
    elif action == 9:
        return zipped(parts, bomb=rng.choice((name, "bomb.npy")))
    elif action == 10:
        sizes = rng.choice(INTEGERS), rng.choice(INTEGERS)
    else:
        parts[place] = name, mutate_bytes(rng, {"": content})[""]
    return zipped(parts, method=method, sizes=sizes)


def archive_mutation(
    name: str, seal: Callable[[Arrays], Arrays] = lambda arrays: arrays, *, text: str = ""
) -> Callable[[random.Random, dict[str, bytes]], dict[str, bytes]]:
    """Return a mutation of an `.npz` file.

    Args:
        name: Name of the file. A `*` at its end stands for any name that starts so.
        seal: Recomputes checksums in the changed arrays.
        text: Name of the array that holds a JSON text.
    """

    def mutate(rng: random.Random, files: dict[str, bytes]) -> dict[str, bytes]:
        file = next((f for f in sorted(files) if f == name or (name.endswith("*") and f.startswith(name[:-1]))), None)
        if file is None:
            return files
        try:
            arrays = unpacked(files[file])
            if not arrays or rng.random() < 0.4:
                return files | {file: mutate_archive(rng, files[file])}
        except Exception:  # an earlier mutation has damaged the archive
            return files | {file: mutate_bytes(rng, {"": files[file]})[""]}
        chosen = rng.choice(sorted(arrays))
        if chosen == text and rng.random() < 0.9:
            try:
                arrays[chosen] = np.array(dump_json(mutate_json(rng, json.loads(str(arrays[chosen])))))
            except (ValueError, RecursionError):
                arrays[chosen] = np.array(rng.choice(TEXTS))
        else:
            arrays[chosen] = mutate_array(rng, arrays[chosen])
        try:
            return files | {file: packed(seal(arrays))}
        except (ValueError, TypeError, UnicodeError):
            return files

    return mutate
