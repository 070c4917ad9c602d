"""Texts of the user's files that are safe to show: on a terminal, and in the cells of a spreadsheet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from edgemask.errors import FileError

_CONTROL = (*range(32), *range(127, 160))
_DIRECTION = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))  # and separators of lines
_ESCAPED = {code: f"\\x{code:02x}" for code in _CONTROL if chr(code) not in "\n\t"}
_ESCAPED |= {code: f"\\u{code:04x}" for code in _DIRECTION}
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # the first characters of what spreadsheets run
_NUMBER = re.compile(r"[+-]?[0-9]+([.][0-9]*)?([eE][+-]?[0-9]+)?")


def printable(text: str) -> str:
    """Return a text with its control characters as visible escapes. Line breaks and tabs stay as they are.

    Characters that change the direction of writing are escaped too, because they can show a text in another order.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return text.translate(_ESCAPED)


def guarded(value: Any) -> Any:
    """Return a cell of a text column with a leading apostrophe if a spreadsheet would take it for a formula.

    Numbers, such as the class -1, stay as they are.

    >>> guarded("=1+1"), guarded("-1"), guarded("ant"), guarded(7)
    ("'=1+1", '-1', 'ant', 7)
    """
    formula = isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value)
    return f"'{value}" if formula else value


class OutputError(FileError):
    """Standard output cannot be written, for example because the disk is full."""


@contextmanager
def naming(stream: str) -> Iterator[None]:
    """Name a standard stream in the errors of the system inside the block. A reader that ends early is no such error.

    Raises:
        OutputError: The stream cannot be written.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"{stream} cannot be written: {error.strerror}") from error


class SafeConsole(Console):
    """A console that prints texts as they are: without markup, and with control characters as escapes.

    Styles are given as `rich.text.Text` and as styles of tables.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects.

        Raises:
            OutputError: The stream of the console cannot be written.
        """
        with naming("standard error" if self.stderr else "standard output"):
            super().print(*objects, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the parts of a renderable with escaped control characters."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Raise the `BrokenPipeError` again. The base class would end the process with status 1."""
        raise
