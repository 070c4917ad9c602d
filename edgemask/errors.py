"""The errors and warnings of edgemask.

Every error that a user of edgemask can cause is an `EdgemaskError`, and also the built-in exception that fits it best.
The command line shows it as one line; any other exception is a bug.

Checks of internal invariants, such as a buffer that is too short or a network that is called without one of its inputs,
are assertions or raise built-in exceptions. A reader of damaged files may raise anything inside; the function that
calls it turns this into an `EdgemaskError`.
"""

from __future__ import annotations

import sys
import warnings

LONGEST = 1500  # characters of a message


class EdgemaskError(Exception):
    """Base class of all errors that a user can cause.

    Its message is one line: names in files may hold control characters, which are shown as escapes.
    """

    def __str__(self) -> str:
        return one_line(super().__str__())


class InputError(EdgemaskError, ValueError):
    """An argument, setting or option has a value that cannot be used."""


class InputTypeError(InputError, TypeError):
    """An argument has a type that cannot be used."""


class GraphError(EdgemaskError, ValueError):
    """A graph cannot be used. The message names the graph, the field and the offending value."""


class MetricError(EdgemaskError, ValueError):
    """A metric is unknown, or is not defined for the given labels and scores."""


class DataError(EdgemaskError, RuntimeError):
    """Benchmark data is missing, damaged or cannot be fetched."""


class FileError(EdgemaskError, OSError):
    """A file cannot be read or written. The message names the file."""


class MissingFileError(FileError, FileNotFoundError):
    """A file does not exist. The message names it."""


class SchemaError(EdgemaskError, ValueError):
    """A JSON value in a file does not fit its schema. The message names the place, what is expected, and the value."""


class LimitError(EdgemaskError, ValueError):
    """The content of a file would take more memory than allowed. The message says how to raise the limit."""


class CheckpointError(EdgemaskError, ValueError):
    """A model or checkpoint file cannot be used. The message names the file and what is wrong with it."""


class RecordError(EdgemaskError, ValueError):
    """A file is not a result record, or not the record it claims to be."""


class RecordExistsError(EdgemaskError, FileExistsError):
    """A record is already stored. Records are never rewritten."""


class DivergenceError(EdgemaskError, ValueError):
    """The loss or the weights became NaN or infinite. The message names the epoch."""


class PredictionError(GraphError, DivergenceError):
    """A prediction is NaN or infinite. The message names the graph, the node and the probable cause."""


class WorkerLostError(EdgemaskError, ConnectionError):
    """A process of a distributed fit died or was stopped. The message says how to continue."""


class DriftError(EdgemaskError, RuntimeError):
    """The processes of a distributed fit no longer hold the same weights."""


class MissingDependencyError(EdgemaskError, ImportError):
    """An optional package is not installed. The message names the extra that installs it."""


class GraphWarning(UserWarning):
    """A graph can be used, but the message describes something about it that is probably a mistake."""


class EnrichWarning(UserWarning):
    """Enrichment continued with fewer or approximate neighbours or clusters. The message gives the details."""


class RaceWarning(UserWarning):
    """A race ended, but its best candidate is hardly better than a guess."""


class FailedRunWarning(UserWarning):
    """A run of a comparison has no score. The message says why."""


class CoverageWarning(UserWarning):
    """A graph to predict lies outside what the training sources cover."""


class CollapseWarning(UserWarning):
    """The adversary has removed almost all original edges of a source."""


def one_line(text: str, longest: int = LONGEST) -> str:
    """Return a text with control characters and line breaks as escapes, shortened if it is long.

    >>> one_line("a\\nb\\x1b[2J")
    'a\\\\nb\\\\x1b[2J'
    """
    text = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning whose place is the line outside edgemask that led to it.

    Args:
        message: The message.
        category: One of the warnings of this module.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_ours(module: str) -> bool:
    return module == "edgemask" or module.startswith("edgemask.")
