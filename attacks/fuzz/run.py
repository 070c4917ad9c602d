"""Run the fuzzer: hand inputs to workers, collect outcomes, minimise and write findings."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

from attacks.fuzz.cases import Outcome, Target, schedule
from attacks.fuzz.minimise import minimised, read_case, write_finding
from attacks.fuzz.workers import SECONDS, Bases, Worker, make_bases


@dataclass
class Result:
    """The findings and counts of a run.

    Attributes:
        counts: Number of inputs by target and kind of outcome.
        seconds: Time that inputs took, by target.
        findings: First input of each distinct finding: target, number and outcome.
        folders: Folders of the findings.
    """

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    findings: list[tuple[str, int, Outcome]] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)

    def add(self, name: str, index: int, outcome: Outcome, seconds: float) -> bool:
        """Add the outcome of an input. Return whether it is a finding that was not there before."""
        self.counts.setdefault(name, Counter())[outcome.kind] += 1
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        if not outcome.is_finding or any(n == name and outcome.same(o) for n, _, o in self.findings):
            return False
        self.findings.append((name, index, outcome))
        return True

    def table(self) -> str:
        """Return the counts of all targets as text."""
        rows: list[tuple[str, ...]] = [("target", "inputs", "accepted", "refused", "findings", "distinct", "inputs/s")]
        for name, counts in self.counts.items():
            total, good = sum(counts.values()), counts["accepted"] + counts["refused"]
            distinct, rate = sum(n == name for n, _, _ in self.findings), total / max(1e-9, self.seconds[name])
            rows.append(
                (name, *map(str, (total, counts["accepted"], counts["refused"], total - good, distinct)), f"{rate:.0f}")
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join([r[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(r[1:], widths[1:], strict=True))])
            for r in rows
        )


def fuzz(
    targets: Sequence[Target],
    indices: Iterable[int],
    seed: int,
    *,
    jobs: int = 1,
    out: Path,
    names: Collection[str] | None = None,
    seconds: float = SECONDS,
    verbose: bool = False,
) -> Result:
    """Read many inputs, and write a folder for each distinct finding.

    Args:
        targets: All targets. Which target an input belongs to depends on this list and the number of the input.
        indices: Numbers of the inputs.
        seed: Seed of the run.
        jobs: Number of workers.
        out: Folder of the findings.
        names: Names of the targets whose inputs are read. All by default.
        seconds: Limit on the time of an input.
        verbose: Show progress, findings and the table on standard error.
    """
    result, turns, by_name = Result(), schedule(targets), {t.name: t for t in targets}
    wanted = [t for t in targets if names is None or t.name in names]
    bases = make_bases(wanted)
    queue = ((turns[i % len(turns)], i) for i in indices)
    queue = ((name, i) for name, i in queue if names is None or name in names)
    start, done = time.monotonic(), 0
    with ExitStack() as stack:
        idle = [stack.enter_context(Worker(by_name, bases, seconds)) for _ in range(jobs)]
        busy: dict[Worker, tuple[str, int]] = {}
        while True:
            while idle and (item := next(queue, None)) is not None:
                busy[worker := idle.pop()] = item
                worker.request((item[0], seed, item[1]))
            if not busy:
                break
            ready = wait([worker.connection for worker in busy], timeout=1)
            for worker in [w for w in busy if w.connection in ready or w.overdue]:
                (name, index), began = busy.pop(worker), worker.started
                outcome = worker.result()
                idle.append(worker)
                done += 1
                if result.add(name, index, outcome, time.monotonic() - began) and verbose:
                    _tell(
                        f"{name} {index}: {outcome.kind} {outcome.error} in {outcome.where}: {outcome.message[:200]!r}"
                    )
                if verbose and done % 500 == 0:
                    rate = done / (time.monotonic() - start)
                    _tell(f"{done:,} inputs, {rate:.0f}/s, {len(result.findings)} distinct findings")
    elapsed = time.monotonic() - start
    _write(result, by_name, bases, seed, out, seconds)
    if verbose:
        _tell(result.table())
        rate = done / max(elapsed, 1e-9)
        _tell(f"{done:,} inputs in {elapsed:.0f} s ({rate:.0f}/s), {len(result.findings)} distinct findings")
        for folder in result.folders:
            _tell(f"  {folder}")
    return result


def _write(result: Result, targets: dict[str, Target], bases: Bases, seed: int, out: Path, seconds: float) -> None:
    """Minimise the findings and write their folders."""
    with ExitStack() as stack:
        worker = stack.enter_context(Worker(targets, bases, seconds)) if result.findings else None
        for name, index, outcome in result.findings:
            assert worker is not None
            case = minimised(worker, outcome, targets[name], bases[name], seed, index)
            repeat = f"python -m attacks.fuzz --seed {seed} --only {index}"
            result.folders.append(write_finding(out, case, outcome, repeat))


def replay(folder: Path, targets: Sequence[Target]) -> int:
    """Read the files of a finding again and print the outcome. Return 1 if it is still a finding."""
    with Worker({t.name: t for t in targets}, {}) as worker:
        outcome = worker.run(read_case(folder))
    print(f"{outcome.kind} {outcome.error} {outcome.where}\n{outcome.message}\n{outcome.trace}")
    return int(outcome.is_finding)


def _tell(text: str) -> None:
    print(text.encode("ascii", "backslashreplace").decode(), file=sys.stderr, flush=True)
