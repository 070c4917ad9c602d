"""Worker processes, in which inputs are read under limits of memory and time."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import re
import resource
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TextIO

import pandas as pd
import pyarrow

from attacks.fuzz.cases import Case, Files, Outcome, Target, generate
from attacks.fuzz.judge import ROOT, judge

MARGIN = 2**30  # bytes of address space that a worker may take for an input
READER_LIMIT = "64M"  # EDGEMASK_MAX_BYTES
SECONDS = 10.0  # that reading an input may take
GRACE = 5.0  # seconds until a worker that does not end itself is killed
RESTART = 300 * 2**20  # bytes that an input may take before the worker is replaced, so that peaks do not add up
CONTEXT = multiprocessing.get_context("fork")  # the parent has imported everything and computes nothing

Bases = Mapping[str, Sequence[Files]]


class Worker:
    """A process that reads one input at a time. It is replaced when it dies.

    Args:
        targets: The targets by name.
        bases: Valid inputs by target.
        seconds: Limit on the time of an input.
    """

    def __init__(self, targets: Mapping[str, Target], bases: Bases, seconds: float = SECONDS):
        self.targets, self.bases, self.seconds = targets, bases, seconds
        self.folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
        self.log = self.folder / "trace.txt"
        self._start()

    def _start(self) -> None:
        self.connection, theirs = CONTEXT.Pipe()
        arguments = (theirs, self.targets, self.bases, self.folder, self.seconds)
        self.process = CONTEXT.Process(target=_serve, args=arguments, daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # newer versions of Python warn of threads
            self.process.start()
        theirs.close()

    def request(self, what: tuple[str, int, int] | Case) -> None:
        """Start to read an input: (target, seed, number), or a case."""
        self.started = time.monotonic()
        self.connection.send(what)

    @property
    def overdue(self) -> bool:
        """Return whether the process should have ended itself because the time of its input is over."""
        return time.monotonic() - self.started > self.seconds + GRACE

    def result(self) -> Outcome:
        """Wait for the outcome of the request, and replace the process if it died."""
        try:
            if self.connection.poll(max(0.0, self.started + self.seconds + GRACE - time.monotonic())):
                outcome, ended = self.connection.recv()
                if outcome.kind == "broken":
                    raise RuntimeError(f"the fuzzer failed:\n{outcome.message}")
                if ended:
                    self._restart()
                return outcome  # type: ignore[no-any-return]
        except (EOFError, ConnectionError):
            pass
        hung = self.process.is_alive() and not self.connection.poll(0.5)
        if not hung:
            self.process.join(GRACE)
        code = self.process.exitcode
        trace = self.log.read_text(errors="replace") if self.log.exists() else ""
        hung = hung or trace.startswith("Timeout")
        self._restart()
        if hung:
            return Outcome("hang", "", _frame(trace), f"no answer within {self.seconds:g} s", trace[:8000])
        name = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
        return Outcome("crash", name, _frame(trace), f"the process died: {name}", trace[:8000])

    def run(self, what: tuple[str, int, int] | Case) -> Outcome:
        """Read an input and return its outcome."""
        self.request(what)
        return self.result()

    def _restart(self) -> None:
        self._stop()
        self._start()

    def _stop(self) -> None:
        self.connection.close()
        self.process.join(0.2)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def close(self) -> None:
        """End the process and remove its files."""
        self._stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def make_bases(targets: Sequence[Target]) -> dict[str, list[Files]]:
    """Return the valid inputs of all targets. They are made in another process, so that this one computes nothing."""
    ours, theirs = CONTEXT.Pipe()

    def make() -> None:
        warnings.simplefilter("ignore")
        theirs.send({target.name: list(target.bases()) for target in targets})

    process = CONTEXT.Process(target=make)
    process.start()
    theirs.close()
    try:
        bases: dict[str, list[Files]] = ours.recv()
    except EOFError as error:
        raise RuntimeError("the valid inputs could not be made; the traceback is above") from error
    finally:
        process.join()
    return bases


def _serve(connection: Connection, targets: Mapping[str, Target], bases: Bases, folder: Path, seconds: float) -> None:
    """Read inputs until the connection is closed."""
    warnings.simplefilter("ignore")
    os.environ["EDGEMASK_MAX_BYTES"] = READER_LIMIT
    with open(os.devnull, "w") as null:
        for stream in (1, 2):
            os.dup2(null.fileno(), stream)
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # the other pools reserve a gibibyte of address space
    _ = pd.Series(["a", "b"], dtype="str") == "a"  # and some operations use them nevertheless
    limit_memory(MARGIN)
    with (folder / "trace.txt").open("w+") as log, suppress(EOFError, ConnectionError):
        while True:
            what = connection.recv()
            _clear(log)
            faulthandler.enable(log)
            faulthandler.dump_traceback_later(seconds, exit=True, file=log)
            try:
                case = _case(what, targets, bases)
                outcome = judge(case, targets[case.target], folder / "input")
            except Exception:  # a fault of the fuzzer
                outcome = Outcome("broken", message=traceback.format_exc())
            faulthandler.cancel_dump_traceback_later()
            ended = outcome.kind == "memory" or outcome.grown > RESTART
            connection.send((outcome, ended))


def _case(what: Any, targets: Mapping[str, Target], bases: Bases) -> Case:
    if isinstance(what, Case):
        return what
    name, seed, index = what
    return generate(targets[name], bases[name], seed, index)


def limit_memory(margin: int) -> None:
    """Limit the address space of this process to what it takes now and a margin, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + margin
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _clear(log: TextIO) -> None:
    log.seek(0)
    log.truncate()


def _frame(trace: str) -> str:
    """Return the innermost function of the package in a traceback of `faulthandler`, which begins with it."""
    for path, name in re.findall(r'File "([^"]*)", line \d+ in (\S+)', trace):
        if Path(path).is_relative_to(ROOT) and "site-packages" not in path and "/attacks/fuzz/" not in path:
            return f"{Path(path).relative_to(ROOT).as_posix()}:{name}"
    return ""
