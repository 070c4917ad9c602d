"""Which cases run, side by side, and the report of all."""

from __future__ import annotations

import multiprocessing
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from attacks.torture.jobs import Job
from attacks.torture.kills import Case, Reference, prepare, reference, run_case

FORK = multiprocessing.get_context("fork")


@dataclass
class Report:
    """The cases of all jobs, by the name of the job."""

    cases: dict[str, list[Case]] = field(default_factory=dict)

    @property
    def findings(self) -> list[Case]:
        """The cases with findings."""
        return [case for own in self.cases.values() for case in own if case.findings]

    def text(self, seed: int) -> str:
        """Return a table with a line per job, and the findings with commands that repeat them."""
        header = (
            "job",
            "kills",
            "in write windows",
            "at random moments",
            "continued",
            "equal",
            "leftovers",
            "findings",
            "seconds per kill",
        )
        rows: list[tuple[str, ...]] = [header]
        total = [case for own in self.cases.values() for case in own]
        for name, own in [*self.cases.items(), ("total", total)]:
            kills, aimed = sum(len(c.kills) for c in own), sum(c.aimed for c in own)
            counts = [
                f"{sum(c.continued for c in own)} of {len(own)}",
                f"{sum(c.equal for c in own)} of {len(own)}",
                str(sum(c.leftovers for c in own)),
                str(sum(bool(c.findings) for c in own)),
                f"{sum(c.seconds for c in own) / max(1, kills):.1f}",
            ]
            rows.append((name, str(kills), str(aimed), str(kills - aimed), *counts))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        for case in self.findings:
            again = f"python -m attacks.torture --only {shlex.quote(case.job)} --seed {seed} --index {case.index}"
            lines += ["", f"{case.job}, case {case.index}, killed {'; '.join(case.kills)}: {again}"]
            lines += [f"  {finding}" for finding in case.findings]
        return "\n".join(lines)


def torture(
    jobs: Sequence[Job], kills: int, seed: int, base: Path, workers: int = 2, index: int | None = None
) -> Report:
    """Kill jobs at random moments and in write windows.

    Args:
        jobs: The jobs.
        kills: Number of kills of all jobs together; a few more if the last cases have several.
        seed: Decides all kills.
        base: An empty folder.
        workers: Number of cases that run side by side.
        index: Run only the case with this number of each job.
    """
    report, whole = Report(), sum(job.weight for job in jobs)
    for job in jobs:
        folder = base / job.name
        inputs, known = in_child(lambda job=job, folder=folder: _known(job, folder))  # type: ignore[misc]
        goal = max(1, round(kills * job.weight / whole))
        report.cases[job.name] = _cases(job, goal, seed, inputs, folder, known, workers, index)
    return report


def _known(job: Job, folder: Path) -> tuple[Path, Reference]:
    inputs = prepare(job, folder)
    return inputs, reference(job, inputs, folder)


def _cases(
    job: Job, goal: int, seed: int, inputs: Path, folder: Path, known: Reference, workers: int, index: int | None
) -> list[Case]:
    """Run cases of a job until it has been killed often enough."""
    done: list[Case] = []
    running: dict[Connection[Any, Any], int] = {}  # the number of each case
    waiting = iter(range(10 * goal)) if index is None else iter([index])
    while True:
        more = sum(len(case.kills) for case in done) + len(running) < goal
        while more and len(running) < workers and (i := next(waiting, None)) is not None:
            running[_fork(lambda i=i: run_case(job, i, seed, inputs, folder, known))] = i  # type: ignore[misc]
            more = sum(len(case.kills) for case in done) + len(running) < goal
        if not running:
            return sorted(done, key=lambda case: case.index)
        for pipe in wait(list(running)):
            assert isinstance(pipe, Connection)
            running.pop(pipe)
            done.append(_result(pipe))


def in_child(call: Callable[[], Any]) -> Any:
    """Call a function in a forked process and return its result, so that this process starts no threads."""
    return _result(_fork(call))


def _fork(call: Callable[[], Any]) -> Connection[Any, Any]:
    """Call a function in a forked process, which sends its result through the returned pipe."""
    ours, theirs = FORK.Pipe(duplex=False)
    FORK.Process(target=_send, args=(theirs, call)).start()
    theirs.close()
    return ours


def _send(pipe: Connection[Any, Any], call: Callable[[], Any]) -> None:
    try:
        pipe.send(call())
    except Exception as error:
        pipe.send(error)


def _result(pipe: Connection[Any, Any]) -> Any:
    result = pipe.recv()
    pipe.close()
    if isinstance(result, Exception):
        raise result
    return result
