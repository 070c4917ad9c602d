"""The program that kills commands: a few kills, and planted faults that it must notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from attacks.torture.faults import PRINTING
from edgemask.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program of the repository."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)


@pytest.mark.slow
def test_a_few_kills_leave_nothing_behind():
    ended = run("-m", "attacks.torture", "--kills", 4, "--only", "fit", "--only", "bench")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert [line[0] for line in lines[:4]] == ["job", "fit", "bench", "total"]
    assert int(lines[3][1]) >= 3


@pytest.mark.slow
def test_planted_faults_of_commands_that_are_killed_are_found(tmp_path: Path):
    report = planted("kills", tmp_path)
    findings = {name: " | ".join(found) for name, found in report["findings"].items()}
    assert findings["careful"] == ""
    assert "half-written" in findings["in place"]
    assert "left over: work/lock-" in findings["lock"]
    assert "left over: tmp/" in findings["temporary folder"]
    assert "repeats the record" in findings["doubled"]
    assert "lost after" in findings["losing"]
    assert "differs from an unkilled run: work/result.txt" in findings["forgetful"]
    assert "1 processes outlive" in findings["orphan"]
    assert "a run that was not killed ended with status 70" in findings["impatient"]
    assert min(report["kills"].values()) >= 3


@pytest.mark.slow
def test_planted_faults_of_commands_on_the_stage_are_found(tmp_path: Path):
    found = {name: " | ".join(own) for name, own in planted("faults", tmp_path)["findings"].items()}
    assert found["careful"] == ""
    assert "lost or changed: work/a.csv" in found["in place"]
    assert "it ends with status 0, not 2" in found["silent"]
    assert "the last line is not one that fits" in found["nameless"]
    assert "the last line is not one that fits" in found["two lines"]
    assert "Traceback" in found["traceback"]
    assert "left over: work/.a.csv.part-" in found["leftover"]
    assert "PermissionError" in found["obeying"]
    assert "MemoryError" in found["hungry"]
    assert "it prints an error: error: nothing" in found["noisy"]
    assert "mute: standard output has nothing that fits 'table'" in found["noisy"]
    assert "parent: 1 processes outlive it" in found["noisy"]


def planted(what: str, folder: Path) -> dict[str, Any]:
    """Return the findings of the program with planted faults."""
    ended = run("-m", "tests.attacks.planted", what, folder)
    assert ended.returncode == 0, ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


@pytest.mark.slow
def test_no_command_fails_under_the_quick_faults_of_the_system():
    ended = run("-m", "attacks.torture", "--quick")
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_command_is_run_on_the_stage():
    assert {name.split()[0] for name in PRINTING} == {*COMMANDS, "help"}


@pytest.mark.slow
def test_an_unknown_job_is_an_error():
    ended = run("-m", "attacks.torture", "--only", "cake")
    assert ended.returncode == 2
    assert "no job or fault 'cake' (there are: fit," in ended.stderr
