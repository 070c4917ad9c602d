"""Read an input and judge what the reader did."""

from __future__ import annotations

import re
import shutil
import traceback
import unicodedata
from pathlib import Path
from types import TracebackType

from attacks.fuzz.cases import Case, Outcome, Target, WrongContent, write_files
from edgemask.errors import EdgemaskError

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 2000  # characters of a message
MOST_MEMORY = 400 * 2**20  # bytes that reading an input may take, where the reader's own limit is 64 MiB
NO_MEMORY = re.compile("MemoryError|can't allocate memory|[Uu]nable to allocate|not enough memory|std::bad_alloc")


def judge(case: Case, target: Target, folder: Path) -> Outcome:
    """Read an input in an empty folder.

    Args:
        case: The input.
        target: Its target.
        folder: The folder that the files are written to. It is removed first.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_files(case.files, folder)
    before = _reset_peak()
    try:
        target.read(case, folder)
        outcome = Outcome("accepted")
    except EdgemaskError as error:
        fault = message_fault(str(error), case if target.names_file else None, folder)
        outcome = _outcome(fault or "refused", error)
    except WrongContent as error:
        outcome = _outcome("wrong", error)
    except MemoryError as error:
        outcome = _outcome("memory", error)
    except Exception as error:
        outcome = _outcome("memory" if NO_MEMORY.search(str(error)) else "raw", error)
    grown = _peak() - before
    if grown > MOST_MEMORY and not outcome.is_finding:
        outcome = Outcome("memory", outcome.error, outcome.where, f"took {grown >> 20} MiB; {outcome.message}")
    return Outcome(**vars(outcome) | {"grown": grown})


def message_fault(message: str, case: Case | None, folder: Path) -> str:
    """Return the kind of finding that the message of an `EdgemaskError` is, or nothing if it is fine.

    Args:
        message: The message.
        case: The input, if the message must name one of its files.
        folder: The folder of the files.
    """
    if NO_MEMORY.search(message):
        return "memory"
    if not message.strip() or len(message) > LONGEST or any(_is_control(c) for c in message):
        return "message"
    names = [folder.name, *(part for name in case.files for part in (name, Path(name).name))] if case else [""]
    return "" if any(name in message for name in names) else "message"


def frame(trace: TracebackType | None) -> str:
    """Return the innermost function of the package in a traceback, or else the innermost one of the project."""
    project = "", ""
    for entry in traceback.extract_tb(trace):
        path = Path(entry.filename)
        if path.is_relative_to(ROOT) and "site-packages" not in path.parts:
            own = path.relative_to(ROOT)
            place = f"{own.as_posix()}:{entry.name}"
            project = (project[0], place) if own.parts[0] == "attacks" else (place, place)
    return project[0] or project[1]


def _outcome(kind: str, error: BaseException) -> Outcome:
    trace = "".join(traceback.format_exception(error)) if kind != "refused" else ""
    return Outcome(kind, type(error).__name__, frame(error.__traceback__), str(error)[: 2 * LONGEST], trace[-8000:])


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


def _reset_peak() -> int:
    """Set the peak of this process's memory to what it takes now, and return that."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    """Return the largest memory of this process since `_reset_peak`, in bytes."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) * 1024
