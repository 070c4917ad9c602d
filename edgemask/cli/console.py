"""A console that never sends control characters of the user's files to the terminal, and names itself in errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from edgemask.errors import FileError

_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """Return a text with its control characters, except line breaks and tabs, as visible escapes.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return text.translate(_ESCAPED)


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
    """A console that prints control characters in texts as escapes. The codes of its own styles are not changed."""

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
