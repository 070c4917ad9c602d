"""The program that kills commands: a few kills, and planted faults that it must notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program of the repository."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_a_few_kills_leave_nothing_behind():
    ended = run("-m", "attacks.torture", "--kills", 4, "--only", "fit", "--only", "bench")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert [line[0] for line in lines[:4]] == ["job", "fit", "bench", "total"]
    assert int(lines[3][1]) >= 3


@pytest.mark.slow
def test_planted_faults_are_found(tmp_path: Path):
    ended = run("-m", "tests.attacks.planted", tmp_path)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    findings = {name: " | ".join(found) for name, found in report["findings"].items()}
    assert findings["careful"] == ""
    assert "half-written" in findings["in place"]
    assert "left over: work/lock-" in findings["lock"]
    assert "repeats the record" in findings["doubled"]
    assert "differs from an unkilled run: work/result.txt" in findings["forgetful"]
    assert min(report["kills"].values()) >= 3


@pytest.mark.slow
def test_an_unknown_job_is_an_error():
    ended = run("-m", "attacks.torture", "--only", "cake")
    assert ended.returncode == 2
    assert "no job 'cake' (jobs: fit," in ended.stderr
