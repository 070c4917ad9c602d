"""Windows in which a kill hurts most: just before and after a process makes a folder, or opens, syncs, renames, links
or removes a file.

`watch` counts these calls in the calling process and in those that it forks, and kills the whole group of processes at
a chosen one.
"""

from __future__ import annotations

import builtins
import io
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOMENTS = {  # the moments of a call at which a kill leaves different files behind
    "open": ("after",),
    "mkdir": ("after",),
    "fsync": ("half", "after"),
    "replace": ("before", "after"),
    "rename": ("before", "after"),
    "link": ("before", "after"),
    "unlink": ("before", "after"),
}


@dataclass(frozen=True)
class Window:
    """A moment of the n-th call of a kind in a process.

    Args:
        kind: The function, a key of `MOMENTS`.
        number: Number of the call, counted from 1.
        moment: `before` the call, `after` it, or `half`: the file that would be synced holds half of its content.
    """

    kind: str
    number: int
    moment: str

    def __str__(self) -> str:
        return f"{self.moment} {self.kind} {self.number}"


def windows(log: Path) -> list[Window]:
    """Return all windows of the calls in a log that `watch` wrote."""
    calls = {tuple(line.split()[:2]) for line in log.read_text("utf-8").splitlines()} if log.exists() else set()
    return [Window(kind, int(n), moment) for kind, n in sorted(calls) for moment in MOMENTS[kind]]


def watch(roots: Iterable[Path], log: Path | None = None, window: Window | None = None) -> None:
    """Replace the functions that change files by functions that also count the calls.

    Args:
        roots: Only calls for files in these folders count.
        log: File to which a line is appended for each call.
        window: The moment at which the group of processes is killed.
    """
    counts, inside = Counter[str](), tuple(f"{os.path.realpath(root)}/" for root in roots)

    def watched(kind: str, call: Callable[..., Any], place: Callable[..., object]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            path = place(*args, **kwargs)
            if path is None or not os.path.abspath(os.fsdecode(path)).startswith(inside):  # type: ignore[arg-type]
                return call(*args, **kwargs)
            counts[kind] += 1
            if log is not None:
                _append(log, f"{kind} {counts[kind]} {path!r}\n")
            here = window is not None and (window.kind, window.number) == (kind, counts[kind])
            if here and window and window.moment == "half":
                os.ftruncate(args[0], os.fstat(args[0]).st_size // 2)
            if here and window and window.moment != "after":
                os.killpg(0, signal.SIGKILL)
            result = call(*args, **kwargs)
            if here:
                os.killpg(0, signal.SIGKILL)
            return result

        return counted

    def first(path: object, *_: Any, **__: Any) -> object:
        return path

    def second(_: object, path: object, *__: Any, **___: Any) -> object:
        return path

    def opened(file: Any, mode: str = "r", *_: Any, **__: Any) -> object:
        return file if isinstance(file, str | bytes | os.PathLike) and set(mode) & set("wxa+") else None

    def created(path: Any, flags: int, *_: Any, **__: Any) -> object:
        return path if flags & (os.O_WRONLY | os.O_RDWR) else None

    def synced(file: Any) -> object:
        return os.readlink(f"/proc/self/fd/{file if isinstance(file, int) else file.fileno()}")

    usual = io.open
    builtins.open = io.open = watched("open", usual, opened)
    os.open = watched("open", os.open, created)
    os.fsync = watched("fsync", os.fsync, synced)
    for kind, place in (("mkdir", first), ("replace", second), ("rename", second), ("link", second), ("unlink", first)):
        setattr(os, kind, watched(kind, getattr(os, kind), place))


def _append(log: Path, line: str) -> None:
    """Append a line in one call, so that lines of several processes do not mix."""
    file = _open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)


_open = os.open
