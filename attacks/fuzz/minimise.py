"""Make the input of a finding smaller, and write it to a folder."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attacks.fuzz.cases import Case, Files, Outcome, Target, files_in, generate, mutations_of, write_files
from attacks.fuzz.judge import ROOT
from attacks.fuzz.workers import Worker

SECONDS = 10.0  # time to minimise one finding
DESCRIPTION = "case.json"  # file of a finding's folder that says how its files are read


def minimised(worker: Worker, outcome: Outcome, target: Target, bases: Sequence[Files], seed: int, index: int) -> Case:
    """Return the smallest case that was found in a limited time, with the same outcome.

    First mutations are left out, then whole files are restored, then bytes are removed.

    Args:
        worker: Where cases are read.
        outcome: The outcome to keep.
        target: The target.
        bases: Its valid inputs.
        seed: Seed of the run.
        index: Number of the input.
    """
    end = time.monotonic() + SECONDS

    def fails(case: Case) -> bool:
        return time.monotonic() < end and worker.run(case).same(outcome)

    kept = set(range(len(mutations_of(target, seed, index))))
    for i in sorted(kept):
        if len(kept) > 1 and fails(generate(target, bases, seed, index, kept - {i})):
            kept -= {i}
    case = generate(target, bases, seed, index, kept)

    def with_files(files: Files) -> Case:
        return Case(case.target, files, case.base, case.sealed)

    files = dict(case.files)
    for name in sorted(files):
        if files[name] != (old := case.base.get(name)):
            without = {k: v for k, v in files.items() if k != name} | ({} if old is None else {name: old})
            if fails(with_files(without)):
                files = without
    for name in sorted(files):

        def fails_with(data: bytes, name: str = name) -> bool:
            return fails(with_files(files | {name: data}))

        files[name] = shrunk(files[name], fails_with)
    return with_files(files)


def shrunk(data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """Return data from which no piece can be removed without changing whether it fails.

    Args:
        data: Data that fails.
        fails: Whether data fails. When the time is over it is always False.
    """
    size = max(1, len(data) // 2)
    while size:
        removed = False
        for start in range(len(data) - len(data) % size, -1, -size):
            shorter = data[:start] + data[start + size :]
            if len(shorter) < len(data) and fails(shorter):
                data, removed = shorter, True
        size = size if removed and size > 1 else size // 2
    return data


def write_finding(out: Path, case: Case, outcome: Outcome, repeat: str) -> Path:
    """Write a finding to a folder of its own, and return the folder.

    Args:
        out: Folder of all findings.
        case: The input.
        outcome: What happened.
        repeat: The command that repeats the original input.
    """
    key = hashlib.sha256(repr((case.target, outcome.kind, outcome.error, outcome.where)).encode()).hexdigest()[:8]
    folder = out / f"{case.target}-{outcome.kind}-{key}"
    shutil.rmtree(folder, ignore_errors=True)
    broke = f"{outcome.kind} {outcome.error} in {outcome.where or 'an unknown place'}"
    write_case(folder, case, broke)
    head = f"{case.target}: {broke}"
    commands = f"Input: {repeat}\nFiles: python -m attacks.fuzz --replay {folder}"
    text = f"{head}\n\n{commands}\n\n{outcome.message}\n\n{outcome.trace}"
    (folder / "README").write_text(text, encoding="utf-8", errors="backslashreplace")
    return folder


def write_case(folder: Path, case: Case, broke: str) -> None:
    """Write a case to a folder, from which `read_case` reads it, with one line that says what it broke."""
    for name, files in (("files", case.files), ("base", case.base if case.sealed else {})):
        write_files(files, folder / name)
    described = {"target": case.target, "sealed": case.sealed, "broke": broke}
    (folder / DESCRIPTION).write_text(json.dumps(described, ensure_ascii=False) + "\n", encoding="utf-8")


def read_case(folder: Path) -> Case:
    """Return the case in a folder."""
    described = json.loads((folder / DESCRIPTION).read_text())
    return Case(described["target"], files_in(folder / "files"), files_in(folder / "base"), described["sealed"])


def corpus(folder: Path = ROOT / "tests" / "attacks" / "corpus") -> Iterator[tuple[str, Case]]:
    """Yield the names and cases of past findings. A folder of a finding becomes one of them when it is copied here."""
    for path in sorted(folder.glob(f"*/{DESCRIPTION}")):
        yield path.parent.name, read_case(path.parent)
