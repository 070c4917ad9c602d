"""Kill jobs with planted faults, stage faults for commands with planted faults, and print the findings as JSON.

Runs as a program: it forks.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from attacks.torture.children import command, warm_up
from attacks.torture.jobs import BENCH, Job
from attacks.torture.plan import torture
from attacks.torture.stage import Expected, Fault, Stage, fill, in_small_disk, memory_left, obey_permissions, play
from edgemask.runtime.atomic import replacing

TEXT = "a,b\n" * 2000


# ---- kills -------------------------------------------------------------------------------------------------


def careful() -> None:
    """Write a file as it should be done."""
    for _ in range(3):
        time.sleep(0.05)
        with replacing(Path("table.csv"), text=True) as file:
            file.write(TEXT)


def in_place() -> None:
    """Write a file where a reader can see half of it."""
    with Path("table.csv").open("w", encoding="utf-8") as file:
        for line in TEXT.splitlines(keepends=True):
            file.write(line)
            file.flush()
        os.fsync(file.fileno())


def with_lock() -> None:
    """Leave a lock if killed, which no later run removes."""
    lock = Path(f"lock-{os.getpid()}")
    lock.touch()
    time.sleep(0.2)
    careful()
    lock.unlink()


def in_temporary_folder() -> None:
    """Leave a temporary folder if killed, which no later run removes."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "state").write_text("state")
        time.sleep(0.2)
    careful()


def doubled() -> None:
    """Write a record again under another name if an earlier run was killed."""
    begun = Path("begun")
    if begun.exists():
        record = min(Path("store").rglob("*-seed0-*.json"))
        record.with_name(f"again-{record.name}").write_bytes(record.read_bytes())
    begun.touch()
    time.sleep(0.2)
    begun.unlink()


def losing() -> None:
    """Lose a record while it is written anew."""
    record = min(Path("store").rglob("*-seed0-*.json"))
    text = record.read_text(encoding="utf-8")
    record.unlink()
    time.sleep(0.2)
    record.write_text(text, encoding="utf-8")


def forgetful() -> None:
    """Give another result after a kill."""
    begun = Path("begun")
    careful()
    text = "other" if begun.exists() else "same"
    begun.touch()
    time.sleep(0.2)
    Path("result.txt").write_text(text, encoding="utf-8")


def with_orphan() -> None:
    """Start a process that does not notice the end of this one."""
    if not (orphan := os.fork()):
        time.sleep(60)
        os._exit(0)
    time.sleep(0.3)
    careful()
    os.kill(orphan, signal.SIGKILL)


def impatient() -> None:
    """Fail if an earlier run did not end."""
    busy = Path("busy")
    busy.touch(exist_ok=False)
    time.sleep(0.2)
    busy.unlink()


JOBS = [
    Job("careful", (careful,)),
    Job("in place", (in_place,)),
    Job("lock", (with_lock,)),
    Job("temporary folder", (in_temporary_folder,)),
    Job("doubled", (doubled,), command(*BENCH, "--seeds", "1"), store="store"),
    Job("losing", (losing,), command(*BENCH, "--seeds", "1"), store="store"),
    Job("forgetful", (forgetful,)),
    Job("orphan", (with_orphan,)),
    Job("impatient", (impatient,)),
]


# ---- staged faults -----------------------------------------------------------------------------------------


def write(how: str) -> object:
    """Write a file in one of several ways, as a command does."""
    try:
        if how == "in place":
            Path("a.csv").write_text("b" * 100_000, encoding="utf-8")
        with replacing(Path("a.csv"), text=True) as file:
            file.write("b" * 100_000)
    except OSError as error:
        message = {"silent": "", "nameless": "error: No space left on device"}.get(how, f"error: {error}")
        print(message, file=sys.stderr)
        if how == "two lines":
            print("Try again.", file=sys.stderr)
        if how == "traceback":
            raise
        if how == "leftover":
            Path(f".a.csv.part-{'0' * 16}").touch()
        return 0 if how == "silent" else 2
    return 0


WAYS = ("careful", "in place", "silent", "nameless", "two lines", "traceback", "leftover")


def on_full_disk(stage: Stage, how: str) -> None:
    """Run `write` on a full disk."""
    limited = in_small_disk(stage.place.work, 4)
    (stage.place.work / "a.csv").write_text("a\n", encoding="utf-8")
    before = stage.files(how)
    fill(stage.place.work, 6000)
    error = "^error: .*a.csv cannot be written: (No space left on device|File too large)$"
    stage.run(how, partial(write, how), Expected(2, error), limited)
    (stage.place.work / "ballast").unlink()
    stage.lost(how, before)


def obeying(stage: Stage) -> None:
    """Write where nobody may write."""
    (stage.place.work / "locked").mkdir(0o555)
    stage.run("obeying", lambda: Path("locked/file").touch(), prepare=obey_permissions)


def hungry(stage: Stage) -> None:
    """Allocate more than there is."""
    stage.run("hungry", lambda: len(bytes(200 * 2**20)) and None, prepare=partial(memory_left, 20))


def noisy(stage: Stage) -> None:
    """Print an error and succeed; print nothing where something is expected; outlive its parent."""
    stage.run("noisy", lambda: print("error: nothing", file=sys.stderr))
    stage.run("mute", lambda: None, Expected(output="table", warning="warning"))
    stage.run("parent", lambda: None if os.fork() else time.sleep(30))


STAGED = [
    *(Fault(how, partial(on_full_disk, how=how)) for how in WAYS),
    Fault("obeying", obeying),
    Fault("hungry", hungry),
    Fault("noisy", noisy),
]


def kills(folder: Path) -> dict[str, object]:
    """Return the findings and the number of kills by job."""
    report = torture(JOBS, 36, 1, folder)
    found = {name: sorted({f for case in cases for f in case.findings}) for name, cases in report.cases.items()}
    return {"findings": found, "kills": {n: sum(len(c.kills) for c in own) for n, own in report.cases.items()}}


def faults(folder: Path) -> dict[str, object]:
    """Return the findings by planted fault."""
    return {"findings": {name: stage.findings for name, stage in play(STAGED, lambda: None, folder).items()}}


if __name__ == "__main__":
    warm_up()
    print(json.dumps({"kills": kills, "faults": faults}[sys.argv[1]](Path(sys.argv[2]))))
