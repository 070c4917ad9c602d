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
    """Run all kills, print a table and the findings, and return 1 if there are findings."""
    parser = argparse.ArgumentParser(prog="python -m attacks.torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="number of kills (default: 200)")
    parser.add_argument("--seed", type=int, default=1, help="seed of all choices (default: 1)")
    parser.add_argument("--only", action="append", metavar="JOB", help="run only this job; can be repeated")
    parser.add_argument("--index", type=int, help="run only this case of the job")
    parser.add_argument("--workers", type=int, default=2, help="cases that run side by side (default: 2)")
    parser.add_argument("--keep", type=Path, help="folder in which the files of cases with findings stay")
    chosen = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"  # a process that may be forked must not start threads

    from attacks.torture.children import warm_up
    from attacks.torture.jobs import JOBS
    from attacks.torture.plan import torture

    if unknown := [name for name in chosen.only or () if name not in JOBS]:
        parser.error(f"no job {unknown[0]!r} (jobs: {', '.join(JOBS)})")
    warm_up()
    jobs = [JOBS[name] for name in chosen.only or JOBS]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        base = chosen.keep or Path(folder)
        base.mkdir(parents=True, exist_ok=True)
        report = torture(jobs, chosen.kills, chosen.seed, base.resolve(), chosen.workers, chosen.index)
    print(report.text(chosen.seed))
    print(f"{time.monotonic() - begin:.0f} s")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
