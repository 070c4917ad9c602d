"""Mutations of bytes, JSON values and text."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Literal

INTEGERS = [
    *(0, 1, 2, 3, 7, 127, 128, 255, 256, 32767, 65535, 2**20, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62),
    *(2**63 - 1, 2**63, 2**64 - 1),
]
TEXTS = [
    *(
        "",
        " ",
        "0",
        "-1",
        "1e400",
        "nan",
        "inf",
        "-inf",
        "None",
        "true",
        "null",
        "[]",
        "{}",
        "=1+1",
        "@SUM(A1)",
        "é",
        "α",
    ),
    *("\x00", "\x1b[2J", "\x1b]0;x\x07", "\n", "a\nb", "\r", "\t", "\u2028", "\u202e", "\x7f", "\x9b31m", "😀", "０"),
    *(
        "/etc/passwd",
        "<script>alert(1)</script>",
        "[bold red]x[/]",
        "%s%n",
        "../../x",
        "x" * 5000,
        "9" * 30,
        "9" * 5000,
    ),
    *("1_000", "1:1", "999999999", "2147483648", "1e38", "3e38", "3.5e38", "1e-50", "0x10", "'", '"', '"a', ",", ";"),
]
DEEP = "\0deep\0"  # a text that `dump_json` replaces with an array nested 100,000 times
HUGE = "\0huge\0"  # and one that it replaces with an integer of 5,000 digits
VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        3,
        7,
        0.5,
        -0.0,
        1e308,
        1e-320,
        float("nan"),
        float("inf"),
        -float("inf"),
        DEEP,
        HUGE,
    ),
    *(2**31, 2**53, 2**63, -(2**63), 2**64, 2**70, 10**30, -(10**18), [], {}, "", [[]], [None], [0], [1, 2], {"a": 1}),
    *({"": None}, [[[[1]]]], [1.5, "a"], *TEXTS),
]


def mutate_bytes(rng: random.Random, files: dict[str, bytes]) -> dict[str, bytes]:
    """Change the bytes of one file."""
    name = rng.choice(sorted(files))
    return files | {name: rng.choice(BYTE_MUTATIONS)(rng, files[name])}


def flip(rng: random.Random, data: bytes) -> bytes:
    """Flip a bit."""
    return _replaced(rng, data, 1, lambda old: bytes([old[0] ^ 1 << rng.randrange(8)]))


def set_byte(rng: random.Random, data: bytes) -> bytes:
    """Set a byte."""
    return _replaced(rng, data, 1, lambda _: bytes([rng.randrange(256)]))


def set_integer(rng: random.Random, data: bytes) -> bytes:
    """Write an interesting integer of 1, 2, 4 or 8 bytes."""
    width = rng.choice((1, 2, 4, 8))
    order: Literal["little", "big"] = rng.choice(("little", "big"))
    value = rng.choice(INTEGERS) % 256**width
    return _replaced(rng, data, width, lambda _: value.to_bytes(width, order))


def set_digits(rng: random.Random, data: bytes) -> bytes:
    """Replace a digit by another, or by something longer."""
    places = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
    if not places:
        return data
    at = rng.choice(places)
    return data[:at] + rng.choice((b"-", b"", b"9", b"0", b"999999999", b".", b"e9")) + data[at + 1 :]


def delete(rng: random.Random, data: bytes) -> bytes:
    """Delete some bytes."""
    start, length = _range(rng, data)
    return data[:start] + data[start + length :]


def insert(rng: random.Random, data: bytes) -> bytes:
    """Insert random bytes."""
    at = rng.randint(0, len(data))
    return data[:at] + rng.randbytes(rng.choice((1, 2, 4, 8, 64))) + data[at:]


def duplicate(rng: random.Random, data: bytes) -> bytes:
    """Repeat some bytes."""
    start, length = _range(rng, data)
    return data[: start + length] + data[start : start + length] * rng.choice((1, 1, 2, 9)) + data[start + length :]


def zero(rng: random.Random, data: bytes) -> bytes:
    """Overwrite some bytes with zeros."""
    start, length = _range(rng, data)
    return data[:start] + bytes(length) + data[start + length :]


def truncate(rng: random.Random, data: bytes) -> bytes:
    """Cut off the end."""
    return data[: rng.randint(0, len(data))]


BYTE_MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    flip, flip, set_byte, set_byte, set_integer, set_digits, delete, insert, duplicate, zero, truncate,
)  # fmt: skip


def _range(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = rng.randint(0, len(data))
    return start, min(rng.choice((1, 1, 2, 4, 8, 16, 64)), len(data) - start)


def _replaced(rng: random.Random, data: bytes, width: int, new: Callable[[bytes], bytes]) -> bytes:
    if len(data) < width:
        return data
    at = rng.randint(0, len(data) - width)
    return data[:at] + new(data[at : at + width]) + data[at + width :]


# ---- JSON and text -------------------------------------------------------------------------------------------


def mutate_json(rng: random.Random, value: Any) -> Any:
    """Return a copy of a JSON value that is changed in one place."""
    places = [*_places(value)]
    if not places or rng.random() < 0.02:
        return rng.choice(VALUES)
    *path, last = rng.choice(places)
    result = json.loads(json.dumps(value))
    parent = result
    for step in path:
        parent = parent[step]
    old = parent[last]
    action = rng.random()
    if action < 0.15:
        del parent[last]
    elif action < 0.25 and isinstance(parent, dict):
        parent[rng.choice([*TEXTS, last + "s"])] = parent.pop(last)
    elif action < 0.3 and isinstance(parent, list):
        parent.extend([old] * rng.choice((1, 2, 100)))
    elif action < 0.5 and isinstance(old, int | float):
        parent[last] = rng.choice((old + 1, old - 1, -old, old * 1e9, float(old), str(old), [old]))
    else:
        parent[last] = rng.choice(VALUES)
    return result


def dump_json(value: Any, **options: Any) -> str:
    """Return a JSON value as text, with the values that Python does not write."""
    text = json.dumps(value, **options)
    for mark, long in ((DEEP, "[" * 100_000 + "]" * 100_000), (HUGE, "9" * 5000)):
        text = text.replace(json.dumps(mark), long)
    return text


def json_mutation(name: str) -> Callable[[random.Random, dict[str, bytes]], dict[str, bytes]]:
    """Return a mutation of one JSON file."""

    def mutate(rng: random.Random, files: dict[str, bytes]) -> dict[str, bytes]:
        try:
            value = json.loads(files[name])
        except (KeyError, ValueError, RecursionError):
            return files
        text = dump_json(mutate_json(rng, value))
        if text[0] == "{" and len(text) > 2 and rng.random() < 0.03:  # a key twice
            text = f"{text[:-1]}, {text[1:]}"
        return files | {name: text.encode("utf-8", "surrogatepass")}

    return mutate


def mutate_text(rng: random.Random, text: str) -> str:
    """Return a text with a piece replaced, removed or inserted."""
    start = rng.randint(0, len(text))
    end = min(len(text), start + rng.choice((0, 1, 1, 3, 10)))
    return text[:start] + rng.choice(["", *TEXTS]) + text[end:]


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, item in items for place in [(*path, key), *_places(item, (*path, key))]]
