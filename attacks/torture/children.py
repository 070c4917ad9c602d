"""Child processes that are forked from a warm parent, so that a command starts in milliseconds instead of seconds.

The parent has imported everything and runs a single thread. It computes nothing itself: a process that has used
OpenMP cannot be forked.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from edgemask.cli import COMMANDS

Action = Callable[[], object]  # what a child runs; its result is the exit status if it is a number
PATIENCE = 180.0  # seconds that a child may take to end, on a busy machine too


@dataclass(frozen=True)
class Place:
    """The folders of a child, all below one.

    Attributes:
        root: The folder that holds the others.
        work: The working directory.
    """

    root: Path

    @property
    def work(self) -> Path:
        """The working directory."""
        return self.root / "work"

    @property
    def watched(self) -> list[Path]:
        """The folders in which a command may write files."""
        return [self.root / name for name in ("work", "cache", "tmp", "home")]

    def make(self) -> None:
        """Create all folders."""
        for folder in self.watched:
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of a command that writes below `root` only."""
        return {
            "HOME": str(self.root / "home"),
            "TMPDIR": str(self.root / "tmp"),
            "EDGEMASK_CACHE": str(self.root / "cache"),
            "EDGEMASK_DATA": str(self.root / "data"),
            "COLUMNS": "200",
        }


class Child:
    """A process with a session of its own, started by `start`.

    Attributes:
        pid: Number of the process, of its group and of its session.
        output: File with its standard output. That of its standard error ends in `.err`.
        root: Its folder.
        status: Exit status, negative if a signal ended the process; None while it runs.
    """

    def __init__(self, pid: int, output: Path):
        self.pid, self.output = pid, output
        self.status: int | None = None

    def wait(self, seconds: float) -> bool:
        """Wait until the process has ended, at most for some time, and return whether it has ended."""
        end = time.monotonic() + seconds
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() >= end:
                return False
            else:
                time.sleep(0.002)
        return True

    def kill(self, number: int = signal.SIGKILL, *, alone: bool = False) -> None:
        """Send a signal to the process, and unless it is meant for it alone, to all others of its group."""
        with suppress(ProcessLookupError):
            (os.kill if alone else os.killpg)(self.pid, number)

    def orphans(self, seconds: float = 10.0) -> list[int]:
        """Return the processes of the session that still run some time after the first one has ended."""
        end = time.monotonic() + seconds
        while (found := list(_session(self.pid))) and time.monotonic() < end:
            time.sleep(0.02)
        return found

    def text(self) -> str:
        """Return what the process has printed to standard error."""
        return self.output.with_suffix(".err").read_text("utf-8", errors="replace")


def _session(sid: int) -> Iterator[int]:
    """Yield the living processes of a session."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (process / "stat").read_text("utf-8").rpartition(")")[2].split()
            if int(fields[3]) == sid and fields[0] not in "ZX":
                yield int(process.name)


def warm_up() -> None:
    """Import everything that the commands import, and check that no thread has been started."""
    for name in {module for module, _ in COMMANDS.values()}:
        import_module(f"edgemask.cli.{name}")
    for name in ("edgemask.training.race", "edgemask.report.page", "paper.suites", "paper.figures", "optuna"):
        import_module(name)
    for name in ("edgemask.runtime.processes", "edgemask.experiments.local"):
        import_module(name).SPAWN = multiprocessing.get_context("fork")  # type: ignore[attr-defined]
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))  # as in a new process
    names = [
        Path(f"/proc/self/task/{thread}/comm").read_text("utf-8").strip() for thread in os.listdir("/proc/self/task")
    ]
    if (threads := len(names) - names.count("jemalloc_bg_thd")) > 1:  # that thread of pyarrow survives a fork
        raise RuntimeError(f"the parent has {threads} threads and cannot be forked: set OMP_NUM_THREADS=1")


def start(action: Action, place: Place, prepare: Action = lambda: None, more: Mapping[str, str] | None = None) -> Child:
    """Start an action in a forked process with a session of its own.

    Args:
        action: What the process runs.
        place: Its folders. Standard output and error go to files in `place.root`.
        prepare: Called in the process before the action.
        more: Further environment variables.
    """
    output = Path(tempfile.mkstemp(".out", "log-", place.root)[1])
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        _run(action, place, output, prepare, more or {})
    return Child(pid, output)


def _run(action: Action, place: Place, output: Path, prepare: Action, more: Mapping[str, str]) -> NoReturn:
    """Run an action in the forked process, and end it."""
    status: object = 70
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us without it
        for number, path in enumerate((Path(os.devnull), output, output.with_suffix(".err"))):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
        open_streams()
        os.environ.update(place.environment | dict(more))
        tempfile.tempdir = None
        os.chdir(place.work)
        sys.modules["__main__"] = types.ModuleType("__main__")  # worker processes must not import this program
        prepare()
        status = action()
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 0)


def open_streams(encoding: str = "utf-8") -> None:
    """Open the standard streams of this process again, after their descriptors have changed."""
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding=encoding, closefd=False)  # noqa: SIM115
        for number, mode in enumerate("rww")
    )


def command(*arguments: str) -> Action:
    """Return an action that runs a command of edgemask, as its command line does, and returns its exit status."""

    def run() -> object:
        from edgemask.cli import main

        sys.argv = ["edgemask", *arguments]
        try:
            main()
        except SystemExit as end:
            return end.code
        return 0

    return run


def succeed(*arguments: str) -> None:
    """Run a command of edgemask in a forked process, so that this one can be forked again.

    Raises:
        RuntimeError: The command fails.
    """
    if not (pid := os.fork()):
        os._exit(bool(command(*arguments)()))
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError(f"{' '.join(arguments)} failed")
