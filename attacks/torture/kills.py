"""Kill a job, run it again to the end, and compare what is left with an unkilled run."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from attacks.torture.children import PATIENCE, Child, Place, start
from attacks.torture.cluster import cluster, kill_node
from attacks.torture.content import PART, Content, Unreadable, content, records
from attacks.torture.jobs import Job
from attacks.torture.windows import Window, watch, windows

CHAIN = 3  # largest number of kills before a job is run to the end
WORDS = ("Traceback (most recent call last)", "This is a bug")  # what must never be printed


@dataclass
class Reference:
    """An unkilled run of a job.

    Attributes:
        before: The files before the run.
        after: The files after the run.
        keys: The records by key.
        seconds: How long the run took.
        windows: All windows in which it can be killed.
    """

    before: Content
    after: Content
    keys: dict[str, str]
    seconds: float
    windows: list[Window]


@dataclass
class Case:
    """The outcome of one case: some kills of a job, and a run to the end.

    Attributes:
        job: Name of the job.
        index: Number of the case.
        kills: The moments of the kills, as text.
        aimed: Number of kills in write windows.
        continued: Whether the last run ended as it should.
        equal: Whether the results are those of an unkilled run.
        leftovers: Number of files and processes that were left over.
        findings: What is wrong.
        seconds: How long the case took.
    """

    job: str
    index: int
    kills: list[str] = field(default_factory=list)
    aimed: int = 0
    continued: bool = True
    equal: bool = True
    leftovers: int = 0
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0


def prepare(job: Job, base: Path) -> Path:
    """Write the files that are there before a job runs, in a child process, and return their folder."""
    place = fresh(None, base / "inputs")
    child = start(job.prepare, place)
    if not child.wait(PATIENCE) or child.status:
        raise RuntimeError(f"{job.name}: the files could not be prepared: {child.text()}")
    return place.work


def launch(job: Job, place: Place, hook: Callable[[], None] = lambda: None) -> list[Child]:
    """Start the processes of a job.

    Args:
        job: The job.
        place: The folders in which it runs.
        hook: Called in each process before it begins.
    """
    return [start(action, place, hook) for action in job.actions]


def reference(job: Job, inputs: Path, base: Path) -> Reference:
    """Run a job to the end without a kill."""
    place = fresh(inputs, base / "reference")
    before, log = content(place.watched, place.root), place.root / "calls"
    with cluster(place) if job.nodes else nullcontext():
        begin = time.monotonic()
        for child in launch(job, place, partial(watch, place.watched, log)):
            if not child.wait(PATIENCE) or child.status:
                raise RuntimeError(f"{job.name} does not run: status {child.status}: {child.text()}")
        seconds = time.monotonic() - begin
    keys, wrong = records(place.work / job.store) if job.store else ({}, [])
    after = content(place.watched, place.root)
    if wrong or any(PART in name for name in after):
        raise RuntimeError(f"{job.name} leaves a damaged folder although nothing was killed: {wrong or list(after)}")
    return Reference(before, after, keys, seconds, windows(log))


def fresh(inputs: Path | None, root: Path) -> Place:
    """Return new folders that hold a copy of the inputs."""
    shutil.rmtree(root, ignore_errors=True)
    place = Place(root)
    place.make()
    if inputs is not None:
        shutil.copytree(inputs, place.work, dirs_exist_ok=True)
    return place


def run_case(job: Job, index: int, seed: int, inputs: Path, base: Path, known: Reference) -> Case:
    """Kill a job one to `CHAIN` times, run it to the end, and compare.

    Args:
        job: The job.
        index: Number of the case.
        seed: Seed of all cases. With the index it decides the kills.
        inputs: Folder with the files that are there before.
        base: A folder for the files of the case, which is removed if nothing is wrong.
        known: The unkilled run.
    """
    case, chance, begin = Case(job.name, index), random.Random(f"{seed} {job.name} {index}"), time.monotonic()
    place = fresh(inputs, base / f"case-{index}")
    with cluster(place) if job.nodes else nullcontext():
        for _ in range(chance.randint(1, CHAIN)):
            if not _kill(job, place, known, case, chance):
                break
            _check_killed(job, place, known, case)
        if not case.findings:
            _finish(job, place, known, case)
    if not case.findings:
        shutil.rmtree(place.root, ignore_errors=True)
    case.seconds = time.monotonic() - begin
    return case


def _kill(job: Job, place: Place, known: Reference, case: Case, chance: random.Random) -> bool:
    """Start a job and kill it. Return False if it had ended before."""
    aimed = bool(known.windows) and not job.nodes and chance.random() < 0.5
    window = chance.choice(known.windows) if aimed else None
    after = PATIENCE if window else chance.uniform(0, known.seconds)
    victim = chance.randrange(len(job.actions))  # of several processes one is killed, and the others go on
    alone, node = chance.random() < 0.5, job.nodes and chance.random() < 0.5
    hooks = [partial(watch, place.watched, None, window if n == victim else None) for n in range(len(job.actions))]
    children = [start(a, place, hook) for a, hook in zip(job.actions, hooks, strict=True)]
    moment = ""
    ended = children[victim].wait(after)
    if node and not ended:
        kill_node(place, chance)
        moment = f"a node after {after:.2f} s"
    elif not ended:
        children[victim].kill(alone=alone)
    _await(children, case)
    killed = children[victim].status == -9
    if killed:
        case.aimed += ended
        moment = str(window) if ended else f"{'alone ' if alone else ''}after {after:.2f} s"
    if moment:
        case.kills.append(moment)
    for n, child in enumerate(children):
        if not (n == victim and killed):
            _check_end(child, case)
    return bool(moment)


def _await(children: Sequence[Child], case: Case) -> None:
    """Wait until all processes have ended, with those that they have started."""
    for child in children:
        if not child.wait(PATIENCE):
            child.kill()
            child.wait(PATIENCE)
            case.findings.append(f"a run did not end within {PATIENCE:g} s")
        if found := child.orphans():
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            case.leftovers += len(found)
            case.findings.append(f"{len(found)} processes outlive the one that started them")


def _check_end(child: Child, case: Case) -> None:
    """Note a finding if a process that was not killed has failed."""
    text = child.text()
    if child.status or any(word in text for word in WORDS):
        case.continued = False
        case.findings.append(
            f"a run that was not killed ended with status {child.status}: {' '.join(text.split())[-400:]}"
        )


def _check_killed(job: Job, place: Place, known: Reference, case: Case) -> None:
    """Check that every file is complete, old or new, and that no record is lost or changed."""
    try:
        found = content(place.watched, place.root)
    except Unreadable as error:
        case.equal = False
        case.findings.append(f"half-written after {case.kills[-1]}: {error}")
        return
    for name in known.before:
        if name not in found and name in known.after:
            case.findings.append(f"lost after {case.kills[-1]}: {name}")
    if job.store:
        keys, wrong = records(place.work / job.store)
        case.findings += [f"after {case.kills[-1]}: {why}" for why in wrong]
        case.findings += [
            f"after {case.kills[-1]}: record {k} differs" for k, v in keys.items() if known.keys.get(k) != v
        ]
    case.equal = case.equal and not case.findings


def _finish(job: Job, place: Place, known: Reference, case: Case) -> None:
    """Run a job to the end and compare all files and records with the unkilled run."""
    children = launch(job, place)
    _await(children, case)
    for child in children:
        _check_end(child, case)
    if not case.continued:
        return
    try:
        found_files = content(place.watched, place.root)
    except Unreadable as error:
        case.equal = False
        case.findings.append(f"half-written at the end: {error}")
        return
    for name in sorted(found_files.keys() | known.after.keys()):
        if name not in known.after:
            case.leftovers += 1
            case.findings.append(f"left over: {name}")
        elif name not in found_files:
            case.equal = False
            case.findings.append(f"lost: {name}")
        elif found_files[name] != known.after[name]:
            case.equal = False
            case.findings.append(f"differs from an unkilled run: {name}")
    if job.store:
        keys, wrong = records(place.work / job.store)
        if wrong or keys != known.keys:
            case.equal = False
            case.findings.append(f"the records differ from those of an unkilled run: {wrong or sorted(keys)}")
