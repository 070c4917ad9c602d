"""Kill jobs with planted faults, and print the findings by job as JSON. Runs as a program: it forks."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from attacks.torture.children import command, warm_up
from attacks.torture.jobs import BENCH, Job
from attacks.torture.plan import torture
from edgemask.runtime.atomic import replacing

TEXT = "a,b\n" * 2000


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


def doubled() -> None:
    """Write a record again under another name if an earlier run was killed."""
    begun = Path("begun")
    if begun.exists():
        record = min(Path("store").rglob("*-seed0-*.json"))
        record.with_name(f"again-{record.name}").write_bytes(record.read_bytes())
    begun.touch()
    time.sleep(0.2)
    begun.unlink()


def forgetful() -> None:
    """Give another result after a kill."""
    begun = Path("begun")
    careful()
    text = "other" if begun.exists() else "same"
    begun.touch()
    time.sleep(0.2)
    Path("result.txt").write_text(text, encoding="utf-8")


JOBS = [
    Job("careful", (careful,)),
    Job("in place", (in_place,)),
    Job("lock", (with_lock,)),
    Job("doubled", (doubled,), command(*BENCH, "--seeds", "1"), store="store"),
    Job("forgetful", (forgetful,)),
]

if __name__ == "__main__":
    warm_up()
    report = torture(JOBS, 15, 0, Path(sys.argv[1]))
    found = {name: sorted({f for case in cases for f in case.findings}) for name, cases in report.cases.items()}
    print(
        json.dumps({"findings": found, "kills": {n: sum(len(c.kills) for c in own) for n, own in report.cases.items()}})
    )
