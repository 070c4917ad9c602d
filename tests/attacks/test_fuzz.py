"""Tests of the fuzzer: planted faults are found and minimised, and past findings stay mended."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from attacks.fuzz import judge
from attacks.fuzz.cases import Case, Target, WrongContent, generate, schedule
from attacks.fuzz.judge import message_fault
from attacks.fuzz.minimise import DESCRIPTION, corpus, read_case, shrunk, write_case
from attacks.fuzz.mutate import BYTE_MUTATIONS
from attacks.fuzz.run import fuzz
from attacks.fuzz.targets import TARGETS
from attacks.fuzz.workers import Worker, make_bases
from edgemask.errors import GraphError

BASE = b"x" * 20


def planted(fault: Callable[[bytes], None]) -> Target:
    """A reader that refuses most inputs, and has a fault if the file is short and has a byte above 127."""

    def read(case: Case, folder: Path) -> None:
        data = (folder / "file.bin").read_bytes()
        if any(byte > 127 for byte in data):
            fault(data)
        raise GraphError(f"{folder / 'file.bin'}: not valid")

    return Target("planted", lambda: [{"file.bin": BASE}], read)


def dies(data: bytes) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs(data: bytes) -> None:
    time.sleep(60)


def raises(data: bytes) -> None:
    raise KeyError("x")


def returns_wrong_content(data: bytes) -> None:
    raise WrongContent("two nodes of the same id")


def allocates(data: bytes) -> None:
    bytearray(8 * 2**30)


def takes_memory(data: bytes) -> None:
    bytearray(os.urandom(1) * (50 * 2**20))


def says_nothing(data: bytes) -> None:
    raise GraphError("")


def names_no_file(data: bytes) -> None:
    raise GraphError("not valid")


FAULTS: dict[Callable[[bytes], None], str] = {
    dies: "crash", hangs: "hang", raises: "raw", returns_wrong_content: "wrong", allocates: "memory",
    takes_memory: "memory", says_nothing: "message", names_no_file: "message",
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_found_and_minimised(
    fault: Callable[[bytes], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "MOST_MEMORY", 30 * 2**20)
    target, seconds = planted(fault), 0.2 if fault is hangs else 5
    bad = [i for i in range(30) if max(generate(target, [{"file.bin": BASE}], 1, i).files["file.bin"], default=0) > 127]
    result = fuzz([target], [bad[0]], 1, out=tmp_path, seconds=seconds)
    assert [outcome.kind for _, _, outcome in result.findings] == [FAULTS[fault]]
    (folder,) = result.folders
    case = read_case(folder)
    assert len(case.files["file.bin"]) == 1
    assert f"--only {bad[0]}" in (folder / "README").read_text()
    with Worker({"planted": target}, {}, seconds) as worker:
        assert worker.run(case).kind == FAULTS[fault]


def test_findings_of_the_same_cause_are_counted_but_reported_once(tmp_path: Path) -> None:
    result = fuzz([planted(raises)], range(40), 1, out=tmp_path)
    assert len(result.findings) == len(result.folders) == 1
    assert result.counts["planted"]["raw"] > 1


def test_a_reader_without_faults_has_no_findings(tmp_path: Path) -> None:
    result = fuzz([planted(lambda data: None)], range(50), 1, jobs=2, out=tmp_path)
    assert not result.findings
    assert result.counts["planted"]["refused"] == 50
    assert not list(tmp_path.iterdir())
    assert "planted" in result.table()


def test_an_input_depends_only_on_its_seed_and_number() -> None:
    target = planted(raises)
    cases = [generate(target, [{"file.bin": BASE}], 1, i) for i in range(50)]
    assert cases == [generate(target, [{"file.bin": BASE}], 1, i) for i in range(50)]
    assert cases != [generate(target, [{"file.bin": BASE}], 2, i) for i in range(50)]
    assert sum(case.files["file.bin"] != BASE for case in cases) > 40


def test_targets_take_turns_by_their_shares() -> None:
    one, three = (Target(name, list, lambda case, folder: None, share=n) for name, n in (("one", 1), ("three", 3)))
    turns = schedule([one, three])
    assert (turns.count("one"), turns.count("three")) == (1, 3)


@pytest.mark.parametrize("data", [b"", b"x"])
@pytest.mark.parametrize("mutation", BYTE_MUTATIONS, ids=lambda m: m.__name__)
def test_short_files_are_mutated(mutation: Callable[..., bytes], data: bytes) -> None:
    assert isinstance(mutation(random.Random(1), data), bytes)


def test_shrunk_keeps_only_what_is_needed() -> None:
    assert shrunk(b"abcdefgXhijklmnopYqrs", lambda d: b"X" in d and b"Y" in d) == b"XY"


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("g/a.npz: wrong", ""), ("wrong", "message"), ("a.npz: \x1b[2J", "message"), ("a.npz" * 500, "message"),
        ("a.npz: two\nlines", "message"), ("", "message"), ("a.npz: MemoryError", "memory"), ("a.npz\u2028", "message"),
    ],
)  # fmt: skip
def test_messages_are_judged(message: str, fault: str, tmp_path: Path) -> None:
    assert message_fault(message, Case("t", {"g/a.npz": b""}), tmp_path) == fault


def test_a_case_can_be_written_and_read(tmp_path: Path) -> None:
    case = Case("npz", {"a/b": b"1", "c": b"2"}, {"c": b"3"}, sealed=True)
    write_case(tmp_path, case, "crash in read")
    assert read_case(tmp_path) == case
    assert (tmp_path / DESCRIPTION).is_file()


@pytest.mark.long
def test_valid_inputs_are_accepted() -> None:
    """Otherwise the checks behind the first one are never reached."""
    bases = make_bases(TARGETS)
    with Worker({t.name: t for t in TARGETS}, bases) as worker:
        for target in TARGETS:
            for files in bases[target.name]:
                outcome = worker.run(Case(target.name, files, files, sealed=True))
                assert outcome.kind == "accepted", (target.name, outcome)


def test_past_findings_stay_mended() -> None:
    findings, cases = {}, dict(corpus())
    with Worker({t.name: t for t in TARGETS}, {}) as worker:
        for name, case in cases.items():
            if (outcome := worker.run(case)).is_finding:
                findings[name] = outcome
    assert len(cases) > 50
    assert not findings


@pytest.mark.slow
def test_the_command_fuzzes_real_readers(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "attacks.fuzz", "--inputs", "10", "--targets", "csv", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "distinct findings" in done.stderr
    assert done.returncode in (0, 1)
