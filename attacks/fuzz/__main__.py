"""The command `python -m attacks.fuzz`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from attacks.fuzz.run import fuzz, replay
from attacks.fuzz.targets import TARGETS


def main() -> int:
    """Parse the arguments and run the fuzzer. The exit status is 1 if there are findings."""
    parser = argparse.ArgumentParser(prog="python -m attacks.fuzz", description="Fuzz every reader of edgemask.")
    parser.add_argument("--inputs", type=int, default=2000, help="number of inputs")
    parser.add_argument("--seed", type=int, default=1, help="seed of all inputs")
    parser.add_argument("--jobs", type=int, default=2, help="number of worker processes")
    parser.add_argument("--only", type=int, metavar="INDEX", help="repeat the input with this number")
    parser.add_argument(
        "--targets", metavar="NAMES", help=f"comma-separated subset of {', '.join(t.name for t in TARGETS)}"
    )
    parser.add_argument("--replay", type=Path, metavar="FOLDER", help="read the files of a finding again")
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"), help="folder of the findings")
    given = parser.parse_args()
    if given.replay is not None:
        return replay(given.replay, TARGETS)
    names = given.targets.split(",") if given.targets else [t.name for t in TARGETS]
    if unknown := set(names) - {t.name for t in TARGETS}:
        parser.error(f"unknown targets: {', '.join(sorted(unknown))}")
    indices = range(given.inputs) if given.only is None else [given.only]
    result = fuzz(TARGETS, indices, given.seed, jobs=given.jobs, out=given.out, names=names, verbose=True)
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
