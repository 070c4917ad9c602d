"""The stage of a fault of the system: run commands while it lasts, and check how they end and what they leave."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from attacks.torture.children import PATIENCE, Action, Child, Place, start
from attacks.torture.content import PART, Content, Unreadable, content
from attacks.torture.jobs import Job
from attacks.torture.kills import WORDS, fresh, prepare
from attacks.torture.plan import fork, result, table

NEVER = (*WORDS, "Exception ignored", "Fatal Python error", "core dumped")
NEW_NAMESPACE, PRIVATE = 0x00020000, 1 << 18 | 1 << 14  # CLONE_NEWNS; MS_PRIVATE with MS_REC
CAPABILITIES, KEEP, DROP = 0x20080522, 8, 24  # version of capset; PR_SET_KEEPCAPS; PR_CAPBSET_DROP
OVERRIDE, SEARCH = 1 << 1, 1 << 2  # root may write everywhere, and read everywhere
ROOT = os.geteuid() == 0


@dataclass(frozen=True)
class Expected:
    """The expected end of a command.

    Args:
        status: The exit status.
        error: A regular expression that the last line of standard error fits. If it is empty and the status is 0, no
            line of standard error may be an error.
        output: A regular expression that fits a part of standard output.
        warning: A regular expression that fits a part of standard error.
    """

    status: int = 0
    error: str = ""
    output: str = ""
    warning: str = ""


SUCCESS = Expected()


@dataclass(frozen=True)
class Fault:
    """A fault of the system.

    Args:
        name: Its name.
        play: Stages the fault, runs commands, and checks them.
        quick: Whether the tests run it too, because it takes only seconds.
        needs_disk: Whether it is left out for users who cannot mount a disk.
    """

    name: str
    play: Callable[[Stage], None]
    quick: bool = False
    needs_disk: bool = False


@dataclass
class Stage:
    """The folders of a fault, and what was found.

    Attributes:
        place: The folders of the commands. The working directory holds a copy of the inputs.
        inputs: The inputs.
        checks: Number of commands that were checked.
        findings: What is wrong.
        seconds: How long the fault was staged.
    """

    place: Place
    inputs: Path
    checks: int = 0
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def renew(self) -> None:
        """Begin again with new folders."""
        shutil.rmtree(self.place.root, ignore_errors=True)
        fresh(self.inputs, self.place.root)
        self.open_all()

    def open_all(self) -> None:
        """Let other users write to all files and folders."""
        for path in (self.place.root, *self.place.root.rglob("*")):
            path.chmod(path.stat().st_mode | 0o777)

    def run(
        self,
        name: str,
        action: Action,
        expected: Expected = SUCCESS,
        prepare: Callable[[], object] = lambda: None,
        during: Callable[[Child], list[str]] = lambda child: [],
        more: Mapping[str, str] | None = None,
    ) -> Child:
        """Run an action and check how it ends.

        Args:
            name: Name of the action in findings.
            action: What runs, in a process of its own.
            expected: How it must end.
            prepare: Called in this process before the action.
            during: Called while the action runs; it returns what is wrong.
            more: Further environment variables.
        """
        child = start(action, self.place, prepare, more)
        found = during(child)
        if not child.wait(PATIENCE):
            found.append(f"it does not end within {PATIENCE:g} s")
        elif orphans := child.orphans():
            found.append(f"{len(orphans)} processes outlive it")
        if found:
            child.kill()
            child.wait(PATIENCE)
        self.note(name, [*found, *judged(child, expected)])
        return child

    def note(self, name: str, found: list[str]) -> None:
        """Count a check, and note what is wrong."""
        self.checks += 1
        self.findings += [f"{name}: {why}" for why in found]

    def files(self, name: str) -> Content:
        """Return the digests of all files of the commands, and note files that are not complete or that are left."""
        try:
            found = content(self.place.watched, self.place.root)
        except Unreadable as error:
            self.note(name, [f"half-written: {error}"])
            return {}
        self.note(name, [f"left over: {path}" for path in found if PART in path])
        return found

    def lost(self, name: str, before: Content) -> None:
        """Note files that were there before and are lost or changed."""
        after = self.files(name)
        self.note(name, [f"lost or changed: {path}" for path in before if after.get(path) != before[path]])


def judged(child: Child, expected: Expected) -> list[str]:
    """Return what is wrong with how a process has ended."""
    error, out = child.text(), child.output.read_text("utf-8", errors="replace")
    lines = error.splitlines()
    said = " ".join(error.split())[-300:]
    found = [f"it prints {word!r}: {said}" for word in NEVER if word in error + out]
    if child.status != expected.status:
        found.append(f"it ends with status {child.status}, not {expected.status}: {said}")
    errors = [line for line in lines if line.startswith(("error:", "bug:"))]
    if expected.error:
        if len(errors) > 1 or not lines or not re.search(expected.error, lines[-1]):
            found.append(f"the last line is not one that fits {expected.error!r}: {said}")
    elif errors:
        found.append(f"it prints an error: {said}")
    for what, text, pattern in (("standard output", out, expected.output), ("standard error", error, expected.warning)):
        if pattern and not re.search(pattern, text):
            found.append(f"{what} has nothing that fits {pattern!r}: {' '.join(text.split())[-300:]!r}")
    return found


# ---- means -------------------------------------------------------------------------------------------------


@cache
def can_mount() -> bool:
    """Return whether this user can mount a disk that only some processes see."""
    if not (child := os.fork()):
        os._exit(ctypes.CDLL(None).unshare(NEW_NAMESPACE) != 0)
    return os.waitpid(child, 0)[1] == 0


def in_small_disk(folder: Path, mib: int) -> Callable[[], object]:
    """Make a folder a disk of its own for this process and those that it starts, if the user can mount one.

    Returns:
        What a process calls to have a small disk otherwise: a limit of the size of each file.
    """
    if not can_mount():
        return partial(limit, resource.RLIMIT_FSIZE, 1000)  # standard error is a file too
    libc: Any = ctypes.CDLL(None, use_errno=True)
    calls: tuple[Callable[[], int], ...] = (
        lambda: libc.unshare(NEW_NAMESPACE),
        lambda: libc.mount(b"none", b"/", None, PRIVATE, None),
        lambda: libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={mib}m".encode()),
    )
    for call in calls:
        if call():
            raise OSError(ctypes.get_errno(), f"{folder}: no disk can be mounted: {os.strerror(ctypes.get_errno())}")
    return lambda: None


def fill(folder: Path, spare: int) -> None:
    """Fill the disk of `in_small_disk` up to some bytes that stay free."""
    free = os.statvfs(folder) if can_mount() else None
    with (folder / "ballast").open("wb") as file:
        file.write(bytes(max(0, free.f_bavail * free.f_frsize - spare) if free else 0))


def limit(what: int, value: int) -> None:
    """Limit a resource of this process."""
    resource.setrlimit(what, (value, resource.getrlimit(what)[1]))


def obey_permissions() -> None:
    """Make this process, and those that it starts, obey the permissions of files even if the user is root."""
    if ROOT:
        libc = ctypes.CDLL(None, use_errno=True)
        for number in (1, 2):
            libc.prctl(DROP, number, 0, 0, 0)
        _capabilities(0)


def become(user: int) -> None:
    """Turn root into another user, who may still read and write all files."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(KEEP, 1, 0, 0, 0)
    os.setuid(user)
    _capabilities(OVERRIDE | SEARCH)


def _capabilities(which: int) -> None:
    """Set the rights of this process."""
    header = (ctypes.c_uint32 * 2)(CAPABILITIES, 0)
    rights = (ctypes.c_uint32 * 6)(which, which, 0, 0, 0, 0)
    if ctypes.CDLL(None, use_errno=True).capset(header, rights):
        raise OSError(ctypes.get_errno(), "the rights of a process cannot be set")


def memory_left(mib: float) -> None:
    """Allow this process to allocate only some MiB more."""
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[0])
    limit(resource.RLIMIT_AS, int(pages * resource.getpagesize() + mib * 2**20))


# ---- all faults --------------------------------------------------------------------------------------------


def play(faults: Iterable[Fault], prepare_files: Callable[[], None], base: Path, workers: int = 2) -> dict[str, Stage]:
    """Stage faults side by side, and return what was found by the name of the fault.

    Args:
        faults: The faults.
        prepare_files: Writes the files with which the commands work.
        base: An empty folder.
        workers: Number of faults at a time.
    """
    base.chmod(0o755)
    inputs = prepare(Job("faults", (), prepare_files), base)
    waiting, done = [f for f in faults if can_mount() or not f.needs_disk][::-1], dict[str, Stage]()
    running: dict[Connection[Any, Any], str] = {}
    while waiting or running:
        while waiting and len(running) < workers:
            fault = waiting.pop()
            running[fork(partial(played, fault, inputs, base))] = fault.name
        for pipe in wait(list(running)):
            assert isinstance(pipe, Connection)
            done[running.pop(pipe)] = result(pipe)
    return done


def played(fault: Fault, inputs: Path, base: Path) -> Stage:
    """Stage a fault in a folder of its own."""
    begin, stage = time.monotonic(), Stage(Place(base / re.sub(r"\W", "-", fault.name)), inputs)
    stage.renew()
    fault.play(stage)
    stage.seconds = time.monotonic() - begin
    return stage


def text(stages: Mapping[str, Stage]) -> str:
    """Return a table with a line per fault, and the findings with commands that repeat them."""
    rows = [("fault", "checks", "findings", "seconds")]
    total = ("total", sum(s.checks for s in stages.values()), sum(len(s.findings) for s in stages.values()))
    rows += [(name, str(s.checks), str(len(s.findings)), f"{s.seconds:.0f}") for name, s in stages.items()]
    lines = table([*rows, (*map(str, total), "")])
    for name, stage in stages.items():
        if stage.findings:
            lines += ["", f"{name}: python -m attacks.torture --only {shlex.quote(name)}"]
            lines += [f"  {finding}" for finding in stage.findings]
    return "\n".join(lines)
