"""Measure speed and memory: python -m benchmarks [--part PART …] [--device cuda] [--data-root …] [--up-to N]

Every measurement runs in a new process, and all implementations use the same number of threads. Times are medians and
exclude loading and compiling on first use. One record per part and machine is written to `results/speed`;
`python -m benchmarks.page > docs/performance.md` makes the page from these records.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import deploy, enrichment, kernels, page, plans, required, runs, scale, steps
from benchmarks.common import RESULTS, Figures, Setup, isolated, read_record, write_record

PARTS = ("descent", "ascent", "enrich", "kernels", "run", "growth", "scale", "sparse", "plan", "deploy")


def measure(part: str, setup: Setup, up_to: int) -> Figures:
    """Measure one part and return its figures.

    Args:
        part: One of `PARTS`.
        setup: Device, threads and folders.
        up_to: Largest number of nodes of the part `growth`.
    """
    sizes = [n for n in scale.SIZES if n <= up_to]
    jobs: dict[str, tuple[Callable[..., Figures], dict[str, Any]]] = {
        "descent": (steps.part, {"step": "descent"}),
        "ascent": (steps.part, {"step": "ascent"}),
        "enrich": (enrichment.part, {}),
        "kernels": (kernels.part, {}),
        "run": (runs.part, {}),
        "scale": (scale.part, {"sizes": scale.SIZES[-1:]}),
        "sparse": (scale.part, {"sizes": scale.SIZES[-1:], "words": scale.WORDS}),
        "growth": (scale.part, {"sizes": sizes}),
        "plan": (plans.part, {}),
        "deploy": (deploy.part, {}),
    }
    job, arguments = jobs[part]
    if setup.where.type == "cuda" and part in ("descent", "ascent", "enrich", "kernels"):
        return isolated(setup, job, **arguments)
    return job(setup, **arguments)


def main() -> None:
    """Measure the parts named on the command line, write their records and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--part",
        nargs="+",
        choices=PARTS,
        default=PARTS,
        metavar="PART",
        help=f"parts to measure: {', '.join(PARTS)} [default: all]",
    )
    parser.add_argument(
        "--device",
        default="cuda" if torch.cuda.is_available() else "cpu",
        help="[default: cuda if there is one, else cpu]",
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of every library")
    parser.add_argument("--data-root", help="data folder [default: $EDGEMASK_DATA, else the user's cache folder]")
    parser.add_argument("--up-to", type=int, default=scale.SIZES[-1], help="largest number of nodes of the part growth")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the records")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = options.data_root and str(Path(options.data_root).resolve())
        setup = Setup(options.device, options.threads, folder, root)
        grown: Figures = {"points": []}  # figures of `growth`, whose last point can be used for `scale`
        for part in options.part:
            if part == "scale" and [p for p in grown["points"] if p["nodes"] == scale.SIZES[-1]]:
                figures = grown | {"points": grown["points"][-1:], "exponents": {}}
            else:
                figures = measure(part, setup, options.up_to)
            grown = figures if part == "growth" else grown
            path = write_record(setup, part, figures, options.results)
            record = read_record(path)
            print(f"## {part}\n\n{page.section(record)}\n", flush=True)
            if required.checks(record):
                print(f"{page.required([record])}\n", flush=True)


if __name__ == "__main__":
    main()
