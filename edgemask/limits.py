"""The limit on the memory that the content of a file may take, so that a small damaged file cannot exhaust the machine.

A file may expand to 4 GiB, or to four times its size if that is more. The environment variable `EDGEMASK_MAX_BYTES`
replaces the 4 GiB.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from edgemask.errors import InputError, LimitError

VARIABLE = "EDGEMASK_MAX_BYTES"
DEFAULT = 4 * 2**30
TIMES = 4  # a file may always expand to this many times its size
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def max_bytes(path: str | Path | None = None) -> int:
    """Return the number of bytes that the content of a file may take in memory.

    Args:
        path: The file. Without it, its size does not raise the limit.

    Raises:
        InputError: `$EDGEMASK_MAX_BYTES` is not a size.
    """
    text = os.environ.get(VARIABLE, "").strip()
    limit = DEFAULT
    if text:
        match = re.fullmatch(r"([0-9]{1,18})\s*([KMGT]?)(i?B)?", text, re.IGNORECASE)
        if not match:
            raise InputError(f"{VARIABLE} must be a number of bytes such as 8G or 500M, got {text!r}")
        limit = int(match[1]) * UNITS[match[2].upper()]
    try:
        return max(limit, TIMES * Path(path).stat().st_size) if path is not None else limit
    except OSError:
        return limit


def check_size(needed: int, what: str, path: str | Path | None = None) -> None:
    """Check that a part of a file's content is within the limit, before memory is allocated for it.

    Args:
        needed: Number of bytes that the part takes in memory.
        what: Name of the part in the message.
        path: The file, whose size can raise the limit.

    Raises:
        LimitError: The part is too large.
    """
    if needed > (limit := max_bytes(path)):
        raise LimitError(
            f"{what} would take {size_text(needed)} of memory, and the limit is {size_text(limit)}; "
            f"set {VARIABLE} to a larger size, such as {_suggestion(needed)}, if this file is what you expect"
        )


def size_text(size: int) -> str:
    """Return a number of bytes as text.

    >>> size_text(5 * 2**30)
    '5.0 GiB'
    >>> size_text(300)
    '300 bytes'
    """
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        if size >= UNITS[unit[0]]:
            return f"{size / UNITS[unit[0]]:,.1f} {unit}B" if size < 2**80 else "more than 10^24 bytes"
    return f"{size} bytes"


def _suggestion(needed: int) -> str:
    return f"{-(-needed // 2**30)}G" if needed < 2**60 else "1T"
