"""The program: `python -m attacks.torture --kills 200 --seed 1`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all kills and staged faults, print tables and the findings, and return 1 if there are findings."""
    parser = argparse.ArgumentParser(prog="python -m attacks.torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="number of kills (default: 200)")
    parser.add_argument("--seed", type=int, default=1, help="seed of all choices (default: 1)")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this job or fault; can be repeated")
    parser.add_argument("--quick", action="store_true", help="no kills, and only faults that are staged in seconds")
    parser.add_argument("--index", type=int, help="run only this case of the job")
    parser.add_argument("--workers", type=int, default=2, help="cases that run side by side (default: 2)")
    parser.add_argument("--keep", type=Path, help="folder in which the files of cases with findings stay")
    chosen = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"  # a process that may be forked must not start threads

    from attacks.torture import faults
    from attacks.torture.children import warm_up
    from attacks.torture.jobs import JOBS
    from attacks.torture.plan import torture
    from attacks.torture.stage import play, text

    names = chosen.only or [*JOBS, *faults.FAULTS]
    if chosen.quick:
        names = [name for name, fault in faults.FAULTS.items() if fault.quick]
    if unknown := [name for name in names if name not in JOBS and name not in faults.FAULTS]:
        parser.error(f"no job or fault {unknown[0]!r} (there are: {', '.join([*JOBS, *faults.FAULTS])})")
    warm_up()
    jobs, staged = [JOBS[n] for n in names if n in JOBS], [faults.FAULTS[n] for n in names if n in faults.FAULTS]
    bad, begin = 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="torture-", ignore_cleanup_errors=True) as folder:
        base = (chosen.keep or Path(folder)).resolve()
        base.mkdir(parents=True, exist_ok=True)
        if jobs and chosen.kills > 0:
            report = torture(jobs, chosen.kills, chosen.seed, base, chosen.workers, chosen.index)
            print(report.text(chosen.seed), end="\n\n")
            bad += len(report.findings)
        if staged:
            stages = play(staged, faults.prepare, base, chosen.workers)
            print(text(stages), end="\n\n")
            bad += sum(bool(stage.findings) for stage in stages.values())
    print(f"{time.monotonic() - begin:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
